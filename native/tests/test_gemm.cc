// The products of every weight type: right against a double sum over the same integers, and the
// same bits whatever runs beside a row.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "core/quants.h"
#include "cpu/isa.h"
#include "cpu/packed_matrix.h"
#include "pyjet.h"

using namespace pj;
using namespace pj::cpu;

namespace {

constexpr int32_t kTypes[] = {GGML_F32,  GGML_F16,  GGML_BF16, GGML_Q8_0, GGML_Q4_0, GGML_Q4_1,   GGML_Q5_0,  GGML_Q5_1,
                              GGML_Q2_K, GGML_Q3_K, GGML_Q4_K, GGML_Q5_K, GGML_Q6_K, GGML_IQ4_NL, GGML_IQ4_XS};
constexpr int kIsas[] = {PJ_ISA_PORTABLE, PJ_ISA_AVX2, PJ_ISA_AVX512_VNNI};

struct ScaleField {
    int32_t type;
    int offsets[2];  // of the f16 fields of a block; -1: none
};

constexpr ScaleField kScaleFields[] = {
    {GGML_Q8_0, {0, -1}}, {GGML_Q4_0, {0, -1}},   {GGML_Q4_1, {0, 2}},    {GGML_Q5_0, {0, -1}},
    {GGML_Q5_1, {0, 2}},  {GGML_Q2_K, {80, 82}},  {GGML_Q3_K, {108, -1}}, {GGML_Q4_K, {0, 2}},
    {GGML_Q5_K, {0, 2}},  {GGML_Q6_K, {208, -1}}, {GGML_IQ4_NL, {0, -1}}, {GGML_IQ4_XS, {0, -1}},
};

std::mt19937 g_random(1);

float random_float(float limit) { return std::uniform_real_distribution<float>(-limit, limit)(g_random); }

// Any bytes are valid blocks once the f16 fields are finite.
std::vector<uint8_t> random_weight(const TypeTraits &traits, int n_in, int n_out) {
    std::vector<uint8_t> bytes(row_bytes(traits, n_in) * n_out);
    for (uint8_t &b : bytes) b = (uint8_t)g_random();
    const auto put_half = [&](size_t at, float value) {
        const uint16_t half = float_to_half(value);
        std::memcpy(&bytes[at], &half, 2);
    };
    if (traits.type == GGML_F32)
        for (size_t i = 0; i < bytes.size(); i += 4) {
            const float value = random_float(1);
            std::memcpy(&bytes[i], &value, 4);
        }
    if (traits.type == GGML_F16)
        for (size_t i = 0; i < bytes.size(); i += 2) put_half(i, random_float(1));
    if (traits.type == GGML_BF16)
        for (size_t i = 0; i < bytes.size(); i += 2) {
            const float value = random_float(1);
            std::memcpy(&bytes[i], (const char *)&value + 2, 2);
        }
    for (const ScaleField &field : kScaleFields)
        for (int offset : field.offsets)
            if (field.type == traits.type && offset >= 0)
                for (size_t i = 0; i < bytes.size(); i += traits.block_bytes) put_half(i + offset, random_float(0.1f));
    return bytes;
}

struct Case {
    const TypeTraits *traits;
    int n_in, n_out, n_rows;
    std::vector<uint8_t> weight;
    std::vector<float> x;

    Case(int32_t type, int n_in_, int n_out_, int n_rows_)
        : traits(type_traits(type)), n_in(n_in_), n_out(n_out_), n_rows(n_rows_) {
        weight = random_weight(*traits, n_in, n_out);
        x.resize((size_t)n_rows * n_in);
        for (float &value : x) value = random_float(3);
    }

    std::vector<float> run(const Kernels &kernels, int n_threads, int first_row, int rows) const {
        ThreadPool pool(n_threads);
        const PackedMatrix matrix(pool, traits->type, weight.data(), n_in, n_out);
        Activations activations(rows, n_in);
        activations.set(pool, kernels, x.data() + (size_t)first_row * n_in, n_in, rows, n_in, matrix.form());
        std::vector<float> y((size_t)rows * n_out, NAN);
        matmul(pool, kernels, matrix, activations, rows, y.data(), n_out);
        return y;
    }
};

// The rows as the kernels see them: float types take x itself, the others the quantised x.
std::vector<double> seen_rows(const Case &c, const Kernels &kernels) {
    std::vector<double> seen(c.x.begin(), c.x.end());
    if (c.traits->block_elements == 1) return seen;
    const int span = c.traits->block_elements == 256 ? 256 : 32;
    std::vector<int8_t> q(c.n_in);
    std::vector<QuantGroup> groups(c.n_in / kGroup);
    for (int r = 0; r < c.n_rows; ++r) {
        kernels.quantize_row(c.x.data() + (size_t)r * c.n_in, c.n_in, span, q.data(), groups.data());
        for (int k = 0; k < c.n_in; ++k) seen[(size_t)r * c.n_in + k] = (double)groups[k / kGroup].scale * q[k];
    }
    return seen;
}

void check_against_reference(const Case &c, int isa) {
    const Kernels &kernels = *kernels_for(isa);
    const std::vector<float> y = c.run(kernels, 1, 0, c.n_rows);
    const std::vector<double> x = seen_rows(c, kernels);
    std::vector<float> w(c.n_in);
    for (int j = 0; j < c.n_out; ++j) {
        dequantize_row(c.traits->type, c.weight.data() + j * row_bytes(*c.traits, c.n_in), c.n_in, w.data());
        for (int r = 0; r < c.n_rows; ++r) {
            double expected = 0, size = 0;
            for (int k = 0; k < c.n_in; ++k) {
                const double term = x[(size_t)r * c.n_in + k] * w[k];
                expected += term;
                size += std::fabs(term);
            }
            const double error = std::fabs(y[(size_t)r * c.n_out + j] - expected);
            CHECK(error <= 1e-5 * size + 1e-12, "%s %s %dx%d rows %d: y[%d][%d] = %g, expected %g", isa_name(isa),
                  c.traits->name, c.n_out, c.n_in, c.n_rows, r, j, y[(size_t)r * c.n_out + j], expected);
        }
    }
}

void check_batch_invariance(const Case &c, int isa) {
    const Kernels &kernels = *kernels_for(isa);
    const std::vector<float> all = c.run(kernels, 2, 0, c.n_rows);
    for (int r = 0; r < c.n_rows; ++r) {
        const std::vector<float> one = c.run(kernels, 1, r, 1);
        CHECK(std::memcmp(one.data(), &all[(size_t)r * c.n_out], c.n_out * sizeof(float)) == 0,
              "%s %s %dx%d: row %d of %d differs from the row alone", isa_name(isa), c.traits->name, c.n_out, c.n_in, r,
              c.n_rows);
    }
}

// Every tile on its own gives what all tiles give together, and nothing is written beside it.
void check_tile_ranges(const Case &c, int isa) {
    const Kernels &kernels = *kernels_for(isa);
    ThreadPool pool(1);
    const PackedMatrix matrix(pool, c.traits->type, c.weight.data(), c.n_in, c.n_out);
    Activations activations(c.n_rows, c.n_in);
    activations.set(pool, kernels, c.x.data(), c.n_in, c.n_rows, c.n_in, matrix.form());
    const std::vector<float> all = c.run(kernels, 1, 0, c.n_rows);
    const int stride = c.n_out + 3;
    std::vector<float> y((size_t)c.n_rows * stride, -7.0f);
    GemmArgs args = {};
    activations.describe(matrix.view(), args);
    args.weight = matrix.view();
    args.n_rows = c.n_rows;
    args.y = y.data();
    args.y_stride = stride;
    for (int tile = 0; tile < matrix.n_tiles(); ++tile) {
        args.tile_begin = tile;
        args.tile_end = tile + 1;
        kernels.gemm(args);
    }
    for (int r = 0; r < c.n_rows; ++r) {
        CHECK(std::memcmp(&y[(size_t)r * stride], &all[(size_t)r * c.n_out], c.n_out * sizeof(float)) == 0,
              "%s %s: tiles alone differ in row %d", isa_name(isa), c.traits->name, r);
        for (int j = c.n_out; j < stride; ++j)
            CHECK(y[(size_t)r * stride + j] == -7.0f, "%s %s: wrote beyond the outputs", isa_name(isa), c.traits->name);
    }
}

void check_isas_agree(const Case &c) {
    const Kernels *avx2 = kernels_for(PJ_ISA_AVX2), *avx512 = kernels_for(PJ_ISA_AVX512_VNNI);
    if (!avx2 || !avx512) return;
    CHECK(c.run(*avx2, 1, 0, c.n_rows) == c.run(*avx512, 1, 0, c.n_rows), "%s: avx2 and avx512_vnni differ",
          c.traits->name);
}

void check_many(int32_t type, const Kernels &kernels) {
    const int n_in = 256, n_rows = 5;
    const Case a(type, n_in, 40, n_rows), b(GGML_F16, n_in, 17, n_rows);
    ThreadPool pool(2);
    const PackedMatrix ma(pool, type, a.weight.data(), n_in, a.n_out), mb(pool, GGML_F16, b.weight.data(), n_in, 17);
    Activations x(n_rows, n_in);
    x.set(pool, kernels, a.x.data(), n_in, n_rows, n_in, forms_of({&ma, &mb}));
    std::vector<float> ya(n_rows * 40), yb(n_rows * 17), both_a(ya), both_b(yb);
    matmul(pool, kernels, ma, x, n_rows, ya.data(), 40);
    matmul(pool, kernels, mb, x, n_rows, yb.data(), 17);
    matmul_many(pool, kernels, {{&ma, both_a.data(), 40}, {&mb, both_b.data(), 17}}, x, n_rows);
    CHECK(ya == both_a && yb == both_b, "matmul_many differs from matmul");
}

void check_extremes(int isa) {
    // The largest integers on both sides: nothing may saturate.
    for (int fill : {0x80, 0x7f, 0xff, 0x00}) {
        Case c(GGML_Q8_0, 64, 16, 2);
        for (size_t i = 0; i < c.weight.size(); i += 34) {
            const uint16_t one = 0x3c00;
            std::memset(&c.weight[i], fill, 34);
            std::memcpy(&c.weight[i], &one, 2);
        }
        for (int k = 0; k < 64; ++k) c.x[k] = -5.0f, c.x[64 + k] = 5.0f;
        check_against_reference(c, isa);
    }
    Case zero(GGML_Q4_K, 256, 16, 1);
    for (float &value : zero.x) value = 0;
    const std::vector<float> y = zero.run(*kernels_for(isa), 1, 0, 1);
    for (float value : y) CHECK(value == 0.0f, "zero activations give %g", value);
}

void check_quantize_agrees(int span) {
    const int n = 512;
    std::vector<float> x(n);
    for (float &value : x) value = random_float(2);
    for (int k = 0; k < 32; ++k) x[k] = k * 0.5f, x[256 + k] = 1e-38f, x[320 + k] = -3e38f;
    x[31] = 127;  // scale 1: the halves are ties
    std::vector<int8_t> first_q(n), q(n);
    std::vector<QuantGroup> first(n / kGroup), groups(n / kGroup);
    kernels_for(PJ_ISA_PORTABLE)->quantize_row(x.data(), n, span, first_q.data(), first.data());
    for (int k = 0; k < 31; ++k) CHECK(first_q[k] == std::nearbyint(x[k]), "q[%d] = %d of %g", k, first_q[k], x[k]);
    for (int g = 0; g < n / kGroup; ++g)
        CHECK(first[g].scale == first[g * kGroup / span * span / kGroup].scale, "span %d: group %d has its own scale",
              span, g);
    for (int isa : kIsas) {
        if (!kernels_for(isa)) continue;
        kernels_for(isa)->quantize_row(x.data(), n, span, q.data(), groups.data());
        CHECK(q == first_q, "%s quantises differently", isa_name(isa));
        CHECK(std::memcmp(groups.data(), first.data(), groups.size() * sizeof(QuantGroup)) == 0, "%s scales differ",
              isa_name(isa));
    }
}

}  // namespace

int main() {
    for (int span : {32, 256}) check_quantize_agrees(span);
    for (int32_t type : kTypes) {
        const TypeTraits &traits = *type_traits(type);
        const int unit = traits.block_elements == 256 ? 256 : 32;
        for (int n_in : {unit, 3 * unit})
            for (int n_out : {4, 17, 48})
                for (int n_rows : {1, 2, 3, 5, 8, 13, 64}) {
                    const Case c(type, n_in, n_out, n_rows);
                    for (int isa : kIsas) {
                        if (!kernels_for(isa)) continue;
                        check_against_reference(c, isa);
                        if (n_rows <= 13) check_batch_invariance(c, isa);
                        check_tile_ranges(c, isa);
                    }
                    check_isas_agree(c);
                }
        for (int isa : kIsas)
            if (kernels_for(isa)) check_many(type, *kernels_for(isa));
    }
    for (int isa : kIsas)
        if (kernels_for(isa)) check_extremes(isa);
    return check_result();
}
