// Outputs of a GEMM as its readers see them: pieces added in worker order (program.h, Gemm), times the
// row's factor where the input was quantised before it was known.
#pragma once

#include "cuda/megakernel.h"
#include "cuda/split.h"

namespace pj::cuda {

// Where the pieces of a column are. A table look-up that needs nothing of this launch: readers do it
// before they wait.
__device__ __forceinline__ PieceSpan pieces_at(const StepArgs &s, const Product &p, int column) {
    if (s.wide) return {0, 1};
    const int2 span = __ldg(reinterpret_cast<const int2 *>(p.pieces + column / kUnitOutputs));
    return {span.x, span.y};
}

// The first piece of a value; the next ones are piece_stride(s) further on.
__device__ __forceinline__ const float *first_piece(const StepArgs &s, const Product &p, const PieceSpan &span, int row,
                                                    int column) {
    if (s.wide) return p.data + static_cast<int64_t>(row) * p.row_stride + column;
    return p.data + (static_cast<int64_t>(span.slot) * s.piece_rows + row) * kUnitOutputs + column % kUnitOutputs;
}

__device__ __forceinline__ int64_t piece_stride(const StepArgs &s) {
    return static_cast<int64_t>(s.piece_rows) * kUnitOutputs;
}

__device__ __forceinline__ void add_to(float4 &sum, const float4 &v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
}

// Two runs of four neighbouring values of a row, 16 columns apart, in one block. kTogether pieces are in
// flight at a time; they are added in order.
template <int kTogether>
__device__ __forceinline__ void sum_pieces(const StepArgs &s, const float *at, int n, float4 &low, float4 &high) {
    const int64_t stride = piece_stride(s);
    low = high = make_float4(0, 0, 0, 0);
    for (int first = 0; first < n; first += kTogether, at += kTogether * stride) {
        float4 a[kTogether], b[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            // Set in any case: else they would count as alive in all of the loop.
            a[i] = b[i] = make_float4(0, 0, 0, 0);
            if (first + i < n) {
                a[i] = __ldcg(reinterpret_cast<const float4 *>(at + i * stride));
                b[i] = __ldcg(reinterpret_cast<const float4 *>(at + i * stride) + 4);
            }
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
            if (first + i < n) {
                add_to(low, a[i]);
                add_to(high, b[i]);
            }
    }
}

// One value of a row.
__device__ __forceinline__ float sum_pieces(const StepArgs &s, const float *at, int n) {
    constexpr int kTogether = 4;
    const int64_t stride = piece_stride(s);
    float sum = 0;
    for (int first = 0; first < n; first += kTogether, at += kTogether * stride) {
        float v[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) v[i] = first + i < n ? __ldcg(at + i * stride) : 0.0f;
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
            if (first + i < n) sum += v[i];
    }
    return sum;
}

// Without the row's factor.
__device__ __forceinline__ float product_value(const StepArgs &s, const Product &p, int row, int column) {
    const PieceSpan span = pieces_at(s, p, column);
    return sum_pieces(s, first_piece(s, p, span, row, column), span.n);
}

// 1 / rms of a row of the residual stream, by one warp: its sums of squares of 256 columns each are
// added over the lanes by butterflies.
__device__ __forceinline__ float row_factor(const StepArgs &s, int row, int lane) {
    const int n = s.shape.n_embd / kUnitInputs;
    float sum = 0;
    for (int i = lane; i < n; i += 32) sum += __ldcg(s.buf.square_sums + static_cast<int64_t>(row) * n + i);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return 1.0f / sqrtf(sum / s.shape.n_embd + s.shape.rms_eps);
}

__device__ __forceinline__ float factor_of(const StepArgs &s, const Product &p, int row, int lane) {
    return p.row_factor ? row_factor(s, row, lane) : 1.0f;
}

}  // namespace pj::cuda
