// Weights as in the file times rows in f32, for types and row lengths without tensor-core tiles: right
// for all of them, a fraction as fast.
//
//     y[row][out] = sum over i of x[row][i] * W[out][i]
//
// A warp per output and up to 8 rows. Order of sums: lane l takes the elements i with i % 32 == l in
// order, lanes are added by butterflies. It depends on n_in only; the rows of a warp share the
// dequantised weights and nothing else.
#pragma once

#include "cuda/dequant.h"
#include "cuda/ops/gemm.cuh"
#include "cuda/ops/lanes.cuh"

namespace pj::cuda {

// One value of a matrix that is not split.
__device__ __forceinline__ float *whole_output(const StepArgs &s, const Gemm &gemm, int row, int out) {
    if (s.wide) return gemm.out + static_cast<int64_t>(row) * gemm.n_blocks * kUnitOutputs + out;
    return gemm.out + (static_cast<int64_t>(out / kUnitOutputs) * piece_rows(s, gemm) + row) * kUnitOutputs +
           out % kUnitOutputs;
}

// The row of the matrix that gives an output. A block may reach beyond the last one.
__device__ __forceinline__ int64_t source_output(const StepArgs &s, const Gemm &gemm, int out) {
    if (!gemm.mapped) return out;
    return min(__ldg(s.draft.head_blocks + out / kUnitOutputs) * kUnitOutputs + out % kUnitOutputs,
               s.shape.n_vocab - 1);
}

constexpr int kGenericRows = 8;
constexpr int kGenericSpan = 256;  // inputs between two looks at the rows: 8 per lane

// acc[r] += this lane's products of inputs first .. first + 255 (those below n_in). x: row 0 of the
// group, rows `stride` apart; w: the block that holds input `first`.
template <int32_t kType>
__device__ __forceinline__ void multiply_raw(const uint8_t *w, const float *x, int first, int n_in, int stride,
                                             int n_rows, int lane, float (&acc)[kGenericRows]) {
    constexpr int kElements = kRawElements<kType>;
    float value[kGenericSpan / 32];
#pragma unroll
    for (int j = 0; j < kGenericSpan / 32; ++j) {
        const int i = 32 * j + lane;
        value[j] = first + i < n_in ? raw_value<kType>(w + i / kElements * kRawBytes<kType>, i % kElements) : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < kGenericRows; ++r) {
        if (r >= n_rows) break;
        const float *row = x + static_cast<int64_t>(r) * stride + first + lane;
#pragma unroll
        for (int j = 0; j < kGenericSpan / 32; ++j)
            if (first + 32 * j + lane < n_in) acc[r] = fmaf(value[j], __ldcg(row + 32 * j), acc[r]);
    }
}

template <int32_t kType>
__device__ __forceinline__ void gemm_raw(const StepArgs &s, const Gemm &gemm, int n_all_rows) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int64_t row_bytes = static_cast<int64_t>(gemm.n_in / kRawElements<kType>) * kRawBytes<kType>;
    const int stride = gemm.k_units * kUnitInputs;
    const int n_items = gemm.n_out * ((n_all_rows + kGenericRows - 1) / kGenericRows);  // op_list.cc checks the range
    for (int item = blockIdx.x * kConsumerWarps + warp; item < n_items; item += gridDim.x * kConsumerWarps) {
        const int out = item % gemm.n_out, first_row = item / gemm.n_out * kGenericRows;
        const int n_rows = min(kGenericRows, n_all_rows - first_row);
        const uint8_t *w = gemm.raw + source_output(s, gemm, out) * row_bytes;
        const float *x = s.buf.act_f32 + static_cast<int64_t>(first_row) * stride;
        float acc[kGenericRows] = {};
        for (int first = 0; first < gemm.n_in;
             first += kGenericSpan, w += kGenericSpan / kRawElements<kType> * kRawBytes<kType>)
            multiply_raw<kType>(w, x, first, gemm.n_in, stride, n_rows, lane, acc);
        float mine = 0.0f;
#pragma unroll
        for (int r = 0; r < kGenericRows; ++r) {
            const float sum = warp_sum(acc[r]);
            if (lane == r) mine = sum;
        }
        if (lane < n_rows) *whole_output(s, gemm, first_row + lane, out) = mine;
    }
}

__device__ __noinline__ void gemm_generic(const StepArgs &s, const Gemm &gemm, int n_rows) {
    with_raw_type(gemm.type, [&](auto type) { gemm_raw<decltype(type)::value>(s, gemm, n_rows); });
}

}  // namespace pj::cuda
