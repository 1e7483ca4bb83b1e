#include "cpu/kernels/attention.h"

#include "cpu/kernels/functions.h"
#include "cpu/kernels/simd.h"
#include "pyjet.h"

namespace pj::cpu::PJ_ISA {

namespace {

constexpr int kQ8Block = 32;
constexpr int kQ8Bytes = 2 + kQ8Block;  // f16 scale, 32 int8
constexpr float kNoScore = -1e30f;      // below every real score; exp16 of a difference with it is 0

int64_t row_bytes(int kv_type, int n) { return kv_type == PJ_KV_F16 ? 2 * (int64_t)n : n / kQ8Block * kQ8Bytes; }

void load_row(int kv_type, const uint8_t *row, int n, float *out) {
    if (kv_type == PJ_KV_F16) {
        for (int i = 0; i < n; i += kLanes) store(out + i, load_half((const uint16_t *)row + i));
        return;
    }
    for (int b = 0; b < n / kQ8Block; ++b, row += kQ8Bytes) {
        uint16_t bits;
        std::memcpy(&bits, row, sizeof bits);
        const float scale = half_bits_to_float(bits);
        const int8_t *q = (const int8_t *)row + 2;
        for (int i = 0; i < kQ8Block; ++i) out[b * kQ8Block + i] = scale * (float)q[i];
    }
}

struct Running {
    float *data;  // kPartialHeader + head_dim floats
    float &largest() { return data[0]; }
    float &sum() { return data[1]; }
    float *values() { return data + kPartialHeader; }
};

void clear(Running r, int head_dim) {
    r.largest() = kNoScore;
    r.sum() = 0;
    for (int i = 0; i < head_dim; ++i) r.values()[i] = 0;
}

float exp1(float x) {
    float t[kLanes];
    store(t, exp16(broadcast(x)));
    return t[0];
}

void scale_values(Running r, float factor, int head_dim) {
    if (factor == 1.0f) return;
    for (int i = 0; i < head_dim; i += kLanes) store(r.values() + i, load(r.values() + i) * broadcast(factor));
}

// scores of n <= 16 positions: dot products of q with rows of k, lane p for position p.
F16 dot_each(const float *q, const float *k, int n, int head_dim) {
    constexpr int kTogether = 4;  // independent sums, so that their additions overlap
    F16 sums[kLanes] = {};
    for (int p = 0; p < n; p += kTogether) {
        // Rows beyond n repeat the last one; their lanes are masked by the caller.
        const float *row[kTogether];
        for (int i = 0; i < kTogether; ++i) row[i] = k + (p + i < n ? p + i : n - 1) * head_dim;
        F16 sum[kTogether] = {};
        for (int d = 0; d < head_dim; d += kLanes) {
            const F16 x = load(q + d);
            for (int i = 0; i < kTogether; ++i) sum[i] = fma(x, load(row[i] + d), sum[i]);
        }
        for (int i = 0; i < kTogether; ++i) sums[p + i] = sum[i];
    }
    return sum_each(sums);
}

// values += sum over positions of weight[p] * v[p], positions in order.
void add_values(float *values, const float *weight, const float *v, int n, int head_dim) {
    constexpr int kTogether = 2;  // head_dim is a multiple of 32
    for (int d = 0; d < head_dim; d += kTogether * kLanes) {
        F16 acc[kTogether];
        for (int i = 0; i < kTogether; ++i) acc[i] = load(values + d + i * kLanes);
        for (int p = 0; p < n; ++p) {
            const F16 w = broadcast(weight[p]);
            for (int i = 0; i < kTogether; ++i) acc[i] = fma(w, load(v + p * head_dim + d + i * kLanes), acc[i]);
        }
        for (int i = 0; i < kTogether; ++i) store(values + d + i * kLanes, acc[i]);
    }
}

// One block of n <= 16 positions joins the running softmax of a row and head.
void add_block(Running r, const float *q, const float *k, const float *v, int n, int head_dim, float scale) {
    float score[kLanes];
    store(score, dot_each(q, k, n, head_dim) * broadcast(scale));
    for (int p = n; p < kLanes; ++p) score[p] = kNoScore;
    const float block_largest = max_lanes(load(score));
    const float largest = block_largest > r.largest() ? block_largest : r.largest();
    const float keep = exp1(r.largest() - largest);
    const F16 weight = exp16(load(score) - broadcast(largest));
    r.largest() = largest;
    r.sum() = r.sum() * keep + sum_lanes(weight);
    scale_values(r, keep, head_dim);
    float w[kLanes];
    store(w, weight);
    add_values(r.values(), w, v, n, head_dim);
}

void load_block(const AttentionArgs &a, int position, int n, float *k, float *v) {
    const uint8_t *page = a.pool + a.page_table[position / a.page_tokens] * a.page_bytes;
    const int offset = position % a.page_tokens;
    const int64_t k_bytes = row_bytes(a.k_type, a.head_dim), v_bytes = row_bytes(a.v_type, a.head_dim);
    for (int p = 0; p < n; ++p) {
        load_row(a.k_type, page + a.k_offset + (offset + p) * k_bytes, a.head_dim, k + p * a.head_dim);
        load_row(a.v_type, page + a.v_offset + (offset + p) * v_bytes, a.head_dim, v + p * a.head_dim);
    }
}

// All rows and heads over one segment; `running` holds a cleared softmax for each.
void run_segment(const AttentionArgs &a, int segment, float *k, float *v, float *running) {
    const int width = kPartialHeader + a.head_dim;
    const int begin = segment * kAttentionSegment;
    const int last = a.first_position + a.n_rows - 1;
    const int end = begin + kAttentionSegment <= last ? begin + kAttentionSegment : last + 1;
    for (int position = begin; position < end; position += kAttentionBlock) {
        const int loaded = end - position < kAttentionBlock ? end - position : kAttentionBlock;
        load_block(a, position, loaded, k, v);
        for (int row = 0; row < a.n_rows; ++row) {
            const int visible = a.first_position + row + 1 - position;
            if (visible <= 0) continue;
            const int n = visible < loaded ? visible : loaded;
            for (int head = 0; head < a.group; ++head)
                add_block({running + (row * a.group + head) * width}, a.q + row * a.q_stride + head * a.head_dim, k, v,
                          n, a.head_dim, a.scale);
        }
    }
}

}  // namespace

void attention_merge(float *total, const float *part, int head_dim) {
    Running t{total};
    if (part[1] == 0) return;  // a segment beyond the row's position
    const float largest = part[0] > t.largest() ? part[0] : t.largest();
    const float keep = exp1(t.largest() - largest), take = exp1(part[0] - largest);
    t.largest() = largest;
    t.sum() = t.sum() * keep + part[1] * take;
    float *values = t.values();
    const float *added = part + kPartialHeader;
    for (int i = 0; i < head_dim; ++i) values[i] = values[i] * keep + added[i] * take;
}

void attention_begin(float *total, int head_dim) { clear({total}, head_dim); }

void attention_finish(const float *total, float *out, int head_dim) {
    for (int i = 0; i < head_dim; ++i) out[i] = total[kPartialHeader + i] / total[1];
}

void attention(const AttentionArgs &a) {
    const int width = kPartialHeader + a.head_dim;
    float *k = a.scratch;
    float *v = k + kAttentionBlock * a.head_dim;
    float *running = v + kAttentionBlock * a.head_dim;
    float *total = running + (int64_t)a.n_rows * a.group * width;
    const int n = a.n_rows * a.group;
    if (a.out)
        for (int i = 0; i < n; ++i) clear({total + (int64_t)i * width}, a.head_dim);
    for (int segment = a.segment_begin; segment < a.segment_end; ++segment) {
        for (int i = 0; i < n; ++i) clear({running + (int64_t)i * width}, a.head_dim);
        run_segment(a, segment, k, v, running);
        for (int i = 0; i < n; ++i) {
            const float *part = running + (int64_t)i * width;
            if (a.out) {
                attention_merge(total + (int64_t)i * width, part, a.head_dim);
            } else {
                float *to = a.partial + i / a.group * a.partial_row_stride + i % a.group * a.partial_head_stride +
                            (segment - a.segment_begin) * width;
                std::memcpy(to, part, width * sizeof(float));
            }
        }
    }
    if (a.out)
        for (int i = 0; i < n; ++i)
            attention_finish(total + (int64_t)i * width, a.out + i / a.group * a.out_stride + i % a.group * a.head_dim,
                             a.head_dim);
}

void load_kv(int kv_type, const void *in, int n, float *x) { load_row(kv_type, (const uint8_t *)in, n, x); }

void store_kv(int kv_type, const float *x, int n, void *out) {
    if (kv_type == PJ_KV_F16) {
        uint16_t *half = (uint16_t *)out;
        for (int i = 0; i < n; ++i) half[i] = float_to_half_bits(x[i]);
        return;
    }
    uint8_t *row = (uint8_t *)out;
    for (int b = 0; b < n / kQ8Block; ++b, row += kQ8Bytes) {
        const float *block = x + b * kQ8Block;
        float largest = 0;
        for (int i = 0; i < kQ8Block; ++i) {
            const float magnitude = __builtin_fabsf(block[i]);
            largest = magnitude > largest ? magnitude : largest;
        }
        const float scale = largest / 127.0f;
        const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
        const uint16_t bits = float_to_half_bits(scale);
        std::memcpy(row, &bits, sizeof bits);
        for (int i = 0; i < kQ8Block; ++i) row[2 + i] = (uint8_t)(int8_t)__builtin_rintf(block[i] * inverse);
    }
}

}  // namespace pj::cpu::PJ_ISA
