// Paged attention with heads of 256.
//
// Order of sums: positions are cut at absolute multiples of 512 (segments). In a segment warp w
// takes positions 64 w .. 64 w + 63, four at a time, with an online softmax; warps are merged in order,
// then segments. Rows beside each other change nothing.
#pragma once

#include <cuda_fp16.h>

#include "cuda/ops/rows.cuh"
#include "cuda/sync/grid.cuh"

namespace pj::cuda {

constexpr int kHeadDim = 256;
constexpr float kNoScore = -1e30f;
constexpr int kPartialFloats = kPartialHeader + kHeadDim;

__device__ __forceinline__ int64_t kv_row_bytes(int type) { return type == PJ_KV_F16 ? 512 : 8 * 34; }

// One 32-byte-block row of K or V.
__device__ __forceinline__ Lane8 load_kv(const uint8_t *row, int type, int lane) {
    const int b = lane >> 2, t = lane & 3;
    Lane8 out;
    if (type == PJ_KV_F16) {
        const uint8_t *at = row + (b * 32 + t * 4) * 2;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const uint2 w = __ldcg(reinterpret_cast<const uint2 *>(at + h * 32));
            const float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&w.x));
            const float2 c = __half22float2(*reinterpret_cast<const __half2 *>(&w.y));
            out.v[4 * h] = a.x;
            out.v[4 * h + 1] = a.y;
            out.v[4 * h + 2] = c.x;
            out.v[4 * h + 3] = c.y;
        }
        return out;
    }
    const uint16_t *block = reinterpret_cast<const uint16_t *>(row + b * 34);  // 2-byte aligned
    const float scale = __half2float(__ushort_as_half(__ldcg(block)));
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const uint32_t two = __ldcg(block + 1 + h * 8 + t * 2 + e);
            out.v[4 * h + 2 * e] = scale * static_cast<float>(static_cast<int8_t>(two));
            out.v[4 * h + 2 * e + 1] = scale * static_cast<float>(static_cast<int8_t>(two >> 8));
        }
    return out;
}

// A row's q8_0 form of 32-wide blocks: scale (rounded to f16) and integers.
__device__ __forceinline__ float q8_block(const Lane8 &x, int (&q)[8]) {
    float largest = largest_size(x);
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    const float scale = largest / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = __float2int_rn(x.v[i] * inverse);
    return __half2float(__float2half_rn(scale));
}

__device__ __forceinline__ void store_kv(uint8_t *row, int type, const Lane8 &x, int lane) {
    const int b = lane >> 2, t = lane & 3;
    if (type == PJ_KV_F16) {
        __half2 *at = reinterpret_cast<__half2 *>(row + (b * 32 + t * 4) * 2);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            at[h * 8] = __floats2half2_rn(x.v[4 * h], x.v[4 * h + 1]);
            at[h * 8 + 1] = __floats2half2_rn(x.v[4 * h + 2], x.v[4 * h + 3]);
        }
        return;
    }
    int q[8];
    const float scale = q8_block(x, q);
    uint16_t *block = reinterpret_cast<uint16_t *>(row + b * 34);
    if (t == 0) block[0] = __half_as_ushort(__float2half_rn(scale));
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e)
            block[1 + h * 8 + t * 2 + e] =
                static_cast<uint16_t>((q[4 * h + 2 * e] & 255) | (q[4 * h + 2 * e + 1] & 255) << 8);
}

// Rotates the first 64 columns: pairs (i, i + 32) are lanes 4 apart.
__device__ __forceinline__ void rope(Lane8 &x, const float *cos, const float *sin, int lane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float other = __shfl_xor_sync(~0u, x.v[i], 4);
        if (lane >= 8) continue;
        const int column = (lane & 3) * 4 + (i >> 2) * 16 + (i & 3);
        const float c = cos[column], s = sin[column];
        x.v[i] = lane < 4 ? x.v[i] * c - other * s : other * s + x.v[i] * c;
    }
}

__device__ __forceinline__ uint8_t *page_of(const StepArgs &s, const pj_seq &seq, int position) {
    return s.buf.pool + s.page_table[seq.page_begin + position / s.page_tokens] * s.buf.page_bytes;
}

__device__ __forceinline__ int64_t k_offset(const StepArgs &s, int layer, int head) {
    return layer * s.buf.kv_layer_bytes + head * s.buf.k_head_bytes;
}

__device__ __forceinline__ int64_t v_offset(const StepArgs &s, int layer, int head) {
    return layer * s.buf.kv_layer_bytes + s.shape.n_head_kv * s.buf.k_head_bytes + head * s.buf.v_head_bytes;
}

__device__ __forceinline__ void normalize_and_rotate(const StepArgs &s, Lane8 &x, const float *weight, int row,
                                                     int lane) {
    const float r = 1.0f / sqrtf(square_sum(x) / kHeadDim + s.shape.rms_eps);
    x = multiply(scale(x, r), load256(weight, lane));
    rope(x, s.cos + row * 32, s.sin + row * 32, lane);
    if (s.k_rotation) hadamard<256>(x, lane);
}

// Queries to the query buffer, keys and values to their pages.
__device__ __noinline__ void op_rotate(const StepArgs &s, const Op &op) {
    const int n_q = s.shape.n_head, n_kv = s.shape.n_head_kv, per_row = n_q + 2 * n_kv;
    for_each_warp(static_cast<int64_t>(s.n_rows) * per_row, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / per_row), which = static_cast<int>(item % per_row);
        if (which < n_q) {
            Lane8 q = product256(s, op.input[0], row, which * 2 * kHeadDim, lane);
            normalize_and_rotate(s, q, op.norm, row, lane);
            if (s.kv_type_k == PJ_KV_Q8_0) {
                int integers[8];
                const float scale = q8_block(q, integers);
#pragma unroll
                for (int i = 0; i < 8; ++i) q.v[i] = scale * static_cast<float>(integers[i]);
            }
            store256(s.buf.query + (static_cast<int64_t>(row) * n_q + which) * kHeadDim, lane, q);
            return;
        }
        const int position = s.row_position[row], offset = position % s.page_tokens;
        uint8_t *page = page_of(s, s.seqs[s.row_seq[row]], position);
        if (which < n_q + n_kv) {
            const int head = which - n_q;
            Lane8 k = product256(s, op.input[1], row, head * kHeadDim, lane);
            normalize_and_rotate(s, k, op.norm2, row, lane);
            store_kv(page + k_offset(s, op.layer, head) + offset * kv_row_bytes(s.kv_type_k), s.kv_type_k, k, lane);
        } else {
            const int head = which - n_q - n_kv;
            Lane8 v = product256(s, op.input[2], row, head * kHeadDim, lane);
            if (s.v_rotation) hadamard<64>(v, lane);
            store_kv(page + v_offset(s, op.layer, head) + offset * kv_row_bytes(s.kv_type_v), s.kv_type_v, v, lane);
        }
    });
}

struct Softmax {
    float largest, sum;
    Lane8 values;
};

// n <= kTogether positions join: one new maximum, then values in order.
constexpr int kTogether = 4;  // positions whose loads are in flight at a time

__device__ __forceinline__ void add_positions(Softmax &m, const float (&score)[kTogether], const Lane8 (&v)[kTogether],
                                              int n) {
    float largest = m.largest;
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
        if (j < n) largest = fmaxf(largest, score[j]);
    const float keep = expf(m.largest - largest);
    m.largest = largest;
    m.sum *= keep;
#pragma unroll
    for (int i = 0; i < 8; ++i) m.values.v[i] *= keep;
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
        if (j >= n) break;
        const float weight = expf(score[j] - largest);
        m.sum += weight;
#pragma unroll
        for (int i = 0; i < 8; ++i) m.values.v[i] = fmaf(weight, v[j].v[i], m.values.v[i]);
    }
}

__device__ __forceinline__ void merge(Softmax &m, float largest2, float sum2, const Lane8 &values) {
    if (sum2 == 0) return;
    const float largest = fmaxf(m.largest, largest2);
    const float keep = expf(m.largest - largest), take = expf(largest2 - largest);
    m.largest = largest;
    m.sum = m.sum * keep + sum2 * take;
#pragma unroll
    for (int i = 0; i < 8; ++i) m.values.v[i] = m.values.v[i] * keep + values.v[i] * take;
}

// One warp over its positions of a segment, for H query heads.
template <int H>
__device__ __forceinline__ void attend_positions(const StepArgs &s, const Op &op, const pj_seq &seq, const float *query,
                                                 int kv_head, int first, int last, Softmax (&m)[H]) {
    const int lane = threadIdx.x & 31;
    Lane8 q[H];
#pragma unroll
    for (int h = 0; h < H; ++h) {
        q[h] = load256(query + h * kHeadDim, lane);
        m[h] = {kNoScore, 0.0f, {}};
    }
    const float factor = 1.0f / sqrtf(static_cast<float>(kHeadDim));
    const int64_t k_at = k_offset(s, op.layer, kv_head), v_at = v_offset(s, op.layer, kv_head);
    const int64_t k_bytes = kv_row_bytes(s.kv_type_k), v_bytes = kv_row_bytes(s.kv_type_v);
    // Multiples of 4 from the segment's start, so always in one page.
    for (int position = first; position < last; position += kTogether) {
        const uint8_t *page = page_of(s, seq, position);
        const int offset = position % s.page_tokens, n = min(kTogether, last - position);
        Lane8 k[kTogether], v[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
            const int at = offset + min(j, n - 1);  // beyond the last: loaded again, not used
            k[j] = load_kv(page + k_at + at * k_bytes, s.kv_type_k, lane);
            v[j] = load_kv(page + v_at + at * v_bytes, s.kv_type_v, lane);
        }
#pragma unroll
        for (int h = 0; h < H; ++h) {
            float score[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                score[j] = 0;
#pragma unroll
                for (int i = 0; i < 8; ++i) score[j] = fmaf(q[h].v[i], k[j].v[i], score[j]);
            }
#pragma unroll
            for (int step = 16; step > 0; step /= 2)
#pragma unroll
                for (int j = 0; j < kTogether; ++j) score[j] += __shfl_xor_sync(~0u, score[j], step);
#pragma unroll
            for (int j = 0; j < kTogether; ++j) score[j] *= factor;
            add_positions(m[h], score, v, n);
        }
    }
}

__device__ __forceinline__ void share256(float *shared, int lane, const Lane8 &x) {
    float4 *at = reinterpret_cast<float4 *>(shared + lane_column(lane));
    at[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    at[4] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

static_assert(3 * kConsumerWarps * kPartialFloats * 4 <= kScratchBytes, "partials of three heads");

// H heads from head `first_head` of the group on, by all consumer warps: the merged softmax of head h
// ends in `total` of warp h.
template <int H>
__device__ __noinline__ void attend_heads(const StepArgs &s, const Op &op, int row, int kv_head, int first_head,
                                          int segment, float *shared, Softmax &total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = s.shape.n_head / s.shape.n_head_kv;
    const int first = segment * kSegment + warp * (kSegment / kConsumerWarps);
    const int last = min(first + kSegment / kConsumerWarps, s.row_position[row] + 1);
    const float *query =
        s.buf.query + (static_cast<int64_t>(row) * s.shape.n_head + kv_head * group + first_head) * kHeadDim;
    Softmax m[H];
    attend_positions<H>(s, op, s.seqs[s.row_seq[row]], query, kv_head, first, last, m);
#pragma unroll
    for (int h = 0; h < H; ++h) {
        float *mine = shared + (h * kConsumerWarps + warp) * kPartialFloats;
        if (lane == 0) mine[0] = m[h].largest, mine[1] = m[h].sum;
        share256(mine + kPartialHeader, lane, m[h].values);
    }
    consumers_sync();
    if (warp >= first_head && warp < first_head + H) {
        total = {kNoScore, 0.0f, {}};
        const float *part = shared + (warp - first_head) * kConsumerWarps * kPartialFloats;
        for (int w = 0; w < kConsumerWarps; ++w, part += kPartialFloats) {
            const float4 *values = reinterpret_cast<const float4 *>(part + kPartialHeader + lane_column(lane));
            merge(total, part[0], part[1], make_lane8(values[0], values[4]));
        }
    }
    consumers_sync();
}

// The whole group, three heads at a time: more would not fit into registers beside the loads in flight.
__device__ __forceinline__ Softmax attend_segment(const StepArgs &s, const Op &op, int row, int kv_head, int segment,
                                                  float *shared) {
    const int group = s.shape.n_head / s.shape.n_head_kv;
    Softmax total = {kNoScore, 0.0f, {}};
    int head = 0;
    for (; head + 3 <= group; head += 3) attend_heads<3>(s, op, row, kv_head, head, segment, shared, total);
    for (; head + 2 <= group; head += 2) attend_heads<2>(s, op, row, kv_head, head, segment, shared, total);
    if (head < group) attend_heads<1>(s, op, row, kv_head, head, segment, shared, total);
    return total;
}

__device__ __forceinline__ float *partial_of(const StepArgs &s, const SeqPlan &plan, const pj_seq &seq, int row,
                                             int head) {
    return s.buf.partial + plan.partial +
           (static_cast<int64_t>(row - seq.row_begin) * s.shape.n_head + head) * plan.n_segments * kPartialFloats;
}

// Rows of short steps: one segment per item, merged by op_merge_heads. Rows of long prompts (no room
// for partials): all segments of a row in order, the finished head in Buffers::heads.
__device__ __forceinline__ void attend(const StepArgs &s, const Op &op, int row, int kv_head, int segment,
                                       float *shared) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = s.shape.n_head / s.shape.n_head_kv;
    const int index = s.row_seq[row], last_segment = s.row_position[row] / kSegment;
    const SeqPlan &plan = s.plans[index];
    const bool whole = plan.partial < 0;
    if (whole ? segment > 0 : segment > last_segment) return;
    const int head = kv_head * group + warp;
    Softmax total = {kNoScore, 0.0f, {}};
    for (int i = whole ? 0 : segment; i <= (whole ? last_segment : segment); ++i) {
        const Softmax part = attend_segment(s, op, row, kv_head, i, shared);
        if (whole)
            merge(total, part.largest, part.sum, part.values);
        else
            total = part;
    }
    if (warp >= group) return;
    if (whole) {
        store256(s.buf.heads + (static_cast<int64_t>(row) * s.shape.n_head + head) * kHeadDim, lane,
                 scale(total.values, 1.0f / total.sum));
    } else {
        float *out = partial_of(s, plan, s.seqs[index], row, head) + segment * kPartialFloats;
        if (lane == 0) out[0] = total.largest, out[1] = total.sum;
        store256(out + kPartialHeader, lane, total.values);
    }
}

__device__ __noinline__ void op_attention(const StepArgs &s, const Op &op, float *shared) {
    const int64_t n = static_cast<int64_t>(s.n_rows) * s.shape.n_head_kv * s.n_segments;
    for (int64_t item = blockIdx.x; item < n; item += gridDim.x) {
        const int segment = static_cast<int>(item % s.n_segments);
        const int64_t rest = item / s.n_segments;
        attend(s, op, static_cast<int>(rest / s.shape.n_head_kv), static_cast<int>(rest % s.shape.n_head_kv), segment,
               shared);
    }
}

// The heads of a row: its segments in order.
__device__ __forceinline__ Lane8 merged_head(const StepArgs &s, int row, int head, int lane) {
    const int index = s.row_seq[row];
    const SeqPlan &plan = s.plans[index];
    if (plan.partial < 0)
        return load256(s.buf.heads + (static_cast<int64_t>(row) * s.shape.n_head + head) * kHeadDim, lane);
    const float *part = partial_of(s, plan, s.seqs[index], row, head);
    Softmax total = {kNoScore, 0.0f, {}};
    for (int i = 0; i <= s.row_position[row] / kSegment; ++i, part += kPartialFloats)
        merge(total, __ldcg(part), __ldcg(part + 1), load256(part + kPartialHeader, lane));
    return scale(total.values, 1.0f / total.sum);
}

// Segments in order, gate, and the input of the output projection (a head is one group of 256).
__device__ __noinline__ void op_merge_heads(const StepArgs &s, const Op &op) {
    for_each_warp(static_cast<int64_t>(s.n_rows) * s.shape.n_head, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / s.shape.n_head), head = static_cast<int>(item % s.shape.n_head);
        Lane8 out = merged_head(s, row, head, lane);
        if (s.v_rotation) hadamard<64>(out, lane);
        const Lane8 gate = product256(s, op.input[0], row, (2 * head + 1) * kHeadDim, lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) out.v[i] *= sigmoid(gate.v[i]);
        quantize(s, op, row, head, out, lane);
    });
}

}  // namespace pj::cuda
