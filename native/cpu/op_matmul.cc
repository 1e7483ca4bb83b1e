#include "cpu/op_matmul.h"

#include <algorithm>
#include <chrono>

#include "core/quants.h"
#include "core/status.h"
#include "cpu/isa.h"
#include "cpu/packed_matrix.h"

namespace pj::cpu {

namespace {

// Checks everything about a weight that the caller could have got wrong.
const TypeTraits &check_weight(int32_t type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_out) {
    const TypeTraits *traits = type_traits(type);
    if (!traits)
        fail(PJ_ERR_ARGUMENT, "weight type %d is not supported; supported: %s", type, supported_types().c_str());
    if (n_in < 1 || n_out < 1 || n_in % traits->block_elements != 0)
        fail(PJ_ERR_ARGUMENT, "%d rows of %d elements: a %s row holds a multiple of %d", n_out, n_in, traits->name,
             traits->block_elements);
    const uint64_t expected = row_bytes(*traits, n_in) * (uint64_t)n_out;
    if (n_bytes != expected)
        fail(PJ_ERR_ARGUMENT, "%s weight of %d x %d has %llu bytes, got %llu", traits->name, n_out, n_in,
             (unsigned long long)expected, (unsigned long long)n_bytes);
    if (!weight) fail(PJ_ERR_ARGUMENT, "weight is NULL");
    return *traits;
}

}  // namespace

void op_matmul(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_out, const float *x,
               int32_t n_rows, float *y, int32_t isa, int32_t n_threads, int32_t repeat, double *us_per_call) {
    check_weight(ggml_type, weight, n_bytes, n_in, n_out);
    if (n_rows < 1) fail(PJ_ERR_ARGUMENT, "n_rows is %d; at least 1 row is needed", n_rows);
    if (!x || !y) fail(PJ_ERR_ARGUMENT, "%s is NULL", x ? "y" : "x");
    const Kernels &kernels = *kernels_for(resolve_isa(isa));
    ThreadPool pool(n_threads);
    const PackedMatrix matrix(pool, ggml_type, weight, n_in, n_out);
    Activations activations(n_rows, n_in);

    const int calls = std::max(repeat, 1);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
        activations.set(pool, kernels, x, n_in, n_rows, n_in, matrix.form());
        matmul(pool, kernels, matrix, activations, n_rows, y, n_out);
    }
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    if (us_per_call) *us_per_call = elapsed.count() / calls;
}

void op_dequantize(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_rows, float *out) {
    const TypeTraits &traits = check_weight(ggml_type, weight, n_bytes, n_in, n_rows);
    if (!out) fail(PJ_ERR_ARGUMENT, "out is NULL");
    const uint8_t *row = static_cast<const uint8_t *>(weight);
    for (int64_t i = 0; i < n_rows; ++i)
        dequantize_row(ggml_type, row + i * row_bytes(traits, n_in), n_in, out + i * n_in);
}

}  // namespace pj::cpu
