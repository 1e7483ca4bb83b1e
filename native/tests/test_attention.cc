// Stored keys and values, and attention over pages: right against a softmax in double precision, the
// same bits however rows and segments are cut.
#include "core/quants.h"
#include "cpu/kernels/attention.h"
#include "kernel_test.h"

using namespace pj;
using namespace pj::cpu;

namespace {

void check_stored_kv(const Kernels &k, const char *isa) {
    const int n = 256;
    for (float size : {1e-6f, 1.0f, 500.0f}) {
        const Floats x = random_floats(n, size);
        std::vector<uint8_t> bytes(2 * n);
        Floats out(n);
        k.store_kv(PJ_KV_F16, x.data(), n, bytes.data());
        k.load_kv(PJ_KV_F16, bytes.data(), n, out.data());
        for (int i = 0; i < n; ++i) {
            uint16_t half;
            std::memcpy(&half, &bytes[2 * i], 2);
            CHECK(half == float_to_half(x[i]), "%s f16 of %g", isa, x[i]);
            CHECK(std::fabs(out[i] - x[i]) <= std::fabs(x[i]) / 2048 + 3e-8f, "%s f16 of %g is %g", isa, x[i], out[i]);
        }
        k.store_kv(PJ_KV_Q8_0, x.data(), n, bytes.data());
        k.load_kv(PJ_KV_Q8_0, bytes.data(), n, out.data());
        for (int begin = 0; begin < n; begin += 32) {
            float largest = 0;
            for (int i = begin; i < begin + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
            // Half a step, and what the scale loses in half precision.
            const float limit = largest / 127 * 0.5f + largest / 2048 + 127 * 3e-8f;
            for (int i = begin; i < begin + 32; ++i)
                CHECK(std::fabs(out[i] - x[i]) <= limit, "%s q8_0 of %g is %g", isa, x[i], out[i]);
        }
    }
    Floats zeros(32, 0.0f), out(32, 1.0f);
    uint8_t bytes[34];
    k.store_kv(PJ_KV_Q8_0, zeros.data(), 32, bytes);
    k.load_kv(PJ_KV_Q8_0, bytes, 32, out.data());
    CHECK(same_bits(out, zeros), "%s q8_0 of zeros", isa);
}

struct AttentionCase {
    int head_dim, group, page_tokens, kv_type, first_position, n_rows;
    float query_size;
};

// One layer with one head: pages hold K of all their positions, then V.
struct Attention {
    const Kernels &kernels;
    AttentionCase c;
    std::vector<uint8_t> pool;
    std::vector<int32_t> pages;
    Floats q, k, v;  // k, v: as they are read from the pages
    int64_t row_bytes, page_bytes;

    Attention(const Kernels &kernels_, const AttentionCase &c_) : kernels(kernels_), c(c_) {
        const int n = c.first_position + c.n_rows, n_pages = (n + c.page_tokens - 1) / c.page_tokens;
        row_bytes = c.kv_type == PJ_KV_F16 ? 2 * c.head_dim : c.head_dim / 32 * 34;
        page_bytes = 2 * row_bytes * c.page_tokens;
        pool.resize(page_bytes * n_pages, 0xff);  // NaN where nothing is stored
        for (int i = 0; i < n_pages; ++i) pages.push_back(i);
        std::shuffle(pages.begin(), pages.end(), random_engine());
        q = random_floats(size_t(c.n_rows) * c.group * c.head_dim, c.query_size);
        k = random_floats(size_t(n) * c.head_dim);
        v = random_floats(size_t(n) * c.head_dim);
        for (int p = 0; p < n; ++p) {
            uint8_t *row = &pool[pages[p / c.page_tokens] * page_bytes + p % c.page_tokens * row_bytes];
            for (float *values : {&k[p * c.head_dim], &v[p * c.head_dim]}) {
                kernels.store_kv(c.kv_type, values, c.head_dim, row);
                kernels.load_kv(c.kv_type, row, c.head_dim, values);
                row += row_bytes * c.page_tokens;
            }
        }
    }

    int n_segments(int row) const { return (c.first_position + row) / kAttentionSegment + 1; }

    AttentionArgs args(int first_row, int n_rows) const {
        AttentionArgs a = {};
        a.q_stride = a.out_stride = c.group * c.head_dim;
        a.q = q.data() + first_row * a.q_stride;
        a.pool = pool.data();
        a.page_table = pages.data();
        a.page_bytes = page_bytes;
        a.v_offset = row_bytes * c.page_tokens;
        a.k_type = a.v_type = c.kv_type;
        a.page_tokens = c.page_tokens;
        a.first_position = c.first_position + first_row;
        a.n_rows = n_rows;
        a.group = c.group;
        a.head_dim = c.head_dim;
        a.segment_end = n_segments(first_row + n_rows - 1);
        a.scale = 1 / std::sqrt(float(c.head_dim));
        return a;
    }

    // All rows, rows_at_once in each call.
    Floats run(int rows_at_once) const {
        Floats out(q.size());
        Floats scratch(attention_scratch_floats(c.head_dim, rows_at_once, c.group));
        for (int row = 0; row < c.n_rows; row += rows_at_once) {
            AttentionArgs a = args(row, std::min(rows_at_once, c.n_rows - row));
            a.out = out.data() + row * a.out_stride;
            a.scratch = scratch.data();
            kernels.attention(a);
        }
        return out;
    }

    // Segments computed apart, last one first, then merged.
    Floats run_split() const {
        const int width = kPartialHeader + c.head_dim, segments = n_segments(c.n_rows - 1);
        Floats partial(size_t(c.n_rows) * c.group * segments * width), total(width), out(q.size());
        Floats scratch(attention_scratch_floats(c.head_dim, c.n_rows, c.group));
        for (int segment = segments - 1; segment >= 0; --segment) {
            AttentionArgs a = args(0, c.n_rows);
            a.partial_head_stride = segments * width;
            a.partial_row_stride = c.group * a.partial_head_stride;
            a.partial = partial.data() + segment * width;
            a.segment_begin = segment;
            a.segment_end = segment + 1;
            a.scratch = scratch.data();
            kernels.attention(a);
        }
        for (int i = 0; i < c.n_rows * c.group; ++i) {
            kernels.attention_begin(total.data(), c.head_dim);
            for (int segment = 0; segment < segments; ++segment)
                kernels.attention_merge(total.data(), &partial[size_t(i * segments + segment) * width], c.head_dim);
            kernels.attention_finish(total.data(), &out[size_t(i) * c.head_dim], c.head_dim);
        }
        return out;
    }

    Doubles expected() const {
        Doubles out(q.size());
        for (int i = 0; i < c.n_rows * c.group; ++i) {
            const int n = c.first_position + i / c.group + 1;
            Doubles score(n);
            for (int p = 0; p < n; ++p) {
                for (int d = 0; d < c.head_dim; ++d) score[p] += double(q[i * c.head_dim + d]) * k[p * c.head_dim + d];
                score[p] /= std::sqrt(double(c.head_dim));
            }
            const double largest = *std::max_element(score.begin(), score.end());
            double sum = 0;
            for (double &s : score) sum += s = std::exp(s - largest);
            for (int p = 0; p < n; ++p)
                for (int d = 0; d < c.head_dim; ++d) out[i * c.head_dim + d] += score[p] / sum * v[p * c.head_dim + d];
        }
        return out;
    }
};

void check_attention(const Kernels &k, const char *isa) {
    const AttentionCase cases[] = {
        {256, 6, 64, PJ_KV_F16, 0, 1, 1},      {256, 2, 64, PJ_KV_Q8_0, 0, 16, 1},
        {64, 2, 16, PJ_KV_F16, 15, 3, 1},      {32, 1, 16, PJ_KV_Q8_0, 500, 16, 1},
        {128, 3, 48, PJ_KV_F16, 511, 1, 1},    {128, 3, 48, PJ_KV_Q8_0, 511, 2, 1},
        {256, 2, 1024, PJ_KV_F16, 1020, 7, 1}, {64, 4, 112, PJ_KV_Q8_0, 1300, 5, 1},
        {64, 2, 64, PJ_KV_F16, 700, 4, 100},  // a softmax that is nearly one position
        {64, 2, 64, PJ_KV_F16, 700, 4, 0},    // and one that is flat
    };
    for (const AttentionCase &c : cases) {
        const Attention a(k, c);
        const Floats out = a.run(c.n_rows);
        const double e = error(out, a.expected());
        CHECK(e < 1e-5, "%s attention head %d position %d rows %d: %g", isa, c.head_dim, c.first_position, c.n_rows, e);
        for (int rows : {1, 2, 5})
            CHECK(same_bits(a.run(rows), out), "%s attention at %d, %d rows at once", isa, c.first_position, rows);
        CHECK(same_bits(a.run_split(), out), "%s attention at %d, split", isa, c.first_position);
    }
}

}  // namespace

int main() {
    on_every_isa({check_stored_kv, check_attention});
    return check_result();
}
