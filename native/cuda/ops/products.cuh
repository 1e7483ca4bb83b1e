// Outputs of a GEMM as its readers see them: pieces added in order (program.h, Gemm), times the
// row's factor where the input was quantised before it was known.
#pragma once

#include "cuda/megakernel.h"
#include "cuda/ops/warp_sum.cuh"
#include "cuda/split.h"

namespace pj::cuda {

// Where the pieces of a column are; beyond the last block there are none. A table look-up that needs nothing of this
// launch: readers do it before they wait.
__device__ __forceinline__ PieceSpan pieces_at(const StepArgs &s, const Product &p, int column) {
    if (s.wide) return {0, column < p.row_stride ? 1 : 0};
    const int2 span = __ldg(reinterpret_cast<const int2 *>(p.pieces + column / kUnitOutputs));
    return {span.x, span.y};
}

// Rows that the pieces of a step of few rows have room for; of: a Gemm or a Product.
template <class Of>
__device__ __forceinline__ int piece_rows(const StepArgs &s, const Of &of) {
    return min(s.piece_rows, of.piece_rows);
}

// The first piece of a value; the next ones are piece_stride() further on.
__device__ __forceinline__ const float *first_piece(const StepArgs &s, const Product &p, const PieceSpan &span, int row,
                                                    int column) {
    if (s.wide) return p.data + static_cast<int64_t>(row) * p.row_stride + column;
    return p.data + (static_cast<int64_t>(span.slot) * piece_rows(s, p) + row) * kUnitOutputs + column % kUnitOutputs;
}

__device__ __forceinline__ int64_t piece_stride(const StepArgs &s, const Product &p) {
    return static_cast<int64_t>(piece_rows(s, p)) * kGroups * kUnitOutputs;
}

__device__ __forceinline__ void add_to(float4 &sum, const float4 &v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
}

// Pieces of two runs of four neighbouring values of a row, 16 columns apart in one block, on their way
// together. They are added in order; zeros beyond the last change nothing.
template <int kTogether>
struct PieceBatch {
    float4 low[kTogether], high[kTogether];

    __device__ __forceinline__ void load(const float *at, int n, int64_t stride) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            low[i] = high[i] = make_float4(0, 0, 0, 0);
            if (i >= n) continue;
            low[i] = __ldcg(reinterpret_cast<const float4 *>(at + i * stride));
            high[i] = __ldcg(reinterpret_cast<const float4 *>(at + i * stride) + 4);
        }
    }
    __device__ __forceinline__ void add(float4 &low_sum, float4 &high_sum) const {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            add_to(low_sum, low[i]);
            add_to(high_sum, high[i]);
        }
    }
};

// One value: n pieces added to `sum`.
__device__ __forceinline__ float sum_pieces(const float *at, int n, int64_t stride, float sum) {
    constexpr int kTogether = 4;
#pragma unroll 1
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

// Values of several columns of a row without its factor, by whole warps. Look-ups, then first pieces of all of them are
// on their way together. A column of -1 has the value 0.
template <int kValues>
__device__ __forceinline__ void product_values(const StepArgs &s, const Product &p, int row,
                                               const int (&column)[kValues], float (&value)[kValues]) {
    constexpr int kFirst = 2;  // pieces, of which few columns have more
    const int64_t stride = piece_stride(s, p);
    PieceSpan span[kValues];
#pragma unroll
    for (int j = 0; j < kValues; ++j) span[j] = column[j] < 0 ? PieceSpan{0, 0} : pieces_at(s, p, column[j]);
    const float *at[kValues];
    float v[kValues][kFirst];
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
        at[j] = first_piece(s, p, span[j], row, column[j]);
#pragma unroll
        for (int i = 0; i < kFirst; ++i) v[j][i] = i < span[j].n ? __ldcg(at[j] + i * stride) : 0.0f;
    }
    __syncwarp();  // loads do not sink below it
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kFirst; ++i) sum += v[j][i];
        value[j] = sum_pieces(at[j] + kFirst * stride, span[j].n - kFirst, stride, sum);
    }
}

// A lane's part of the square sum of a row of the residual stream, which has a sum for every 256 columns.
__device__ __forceinline__ float load_squares(const StepArgs &s, int row, int lane) {
    const int n = s.shape.n_embd / kUnitInputs;
    const float *of_row = s.buf.square_sums + static_cast<int64_t>(row) * n;
    float sum = lane < n ? __ldcg(of_row + lane) : 0.0f;
#pragma unroll 1
    for (int i = lane + 32; i < n; i += 32) sum += __ldcg(of_row + i);
    return sum;
}

// 1 / rms of the row, from the lanes' parts. The whole warp calls it.
__device__ __noinline__ float factor_of_squares(const StepArgs &s, float sum) {
    return 1.0f / sqrtf(warp_sum(sum) / s.shape.norm_width + s.shape.rms_eps);
}

__device__ __forceinline__ float row_factor(const StepArgs &s, int row, int lane) {
    return factor_of_squares(s, load_squares(s, row, lane));
}

// In steps of few rows the factors of all rows, which the first op behind a product leaves for the ops up to the next
// product: finding one takes half a microsecond, and there is time for it before the product is complete.
__device__ __forceinline__ bool has_shared_factors(const StepArgs &s) { return !s.wide && s.pass_tiles < kPassTiles; }
__device__ __forceinline__ float *shared_factors() {
    __shared__ float factors[kPassTiles * 8];
    return factors;
}

// By all consumer threads, before a barrier of theirs.
__device__ __noinline__ void share_factors(const StepArgs &s) {
    if (!has_shared_factors(s)) return;
    const int lane = threadIdx.x & 31;
    for (int row = static_cast<int>(threadIdx.x) >> 5; row < s.n_rows; row += kConsumerWarps) {
        const float factor = row_factor(s, row, lane);
        if (lane == 0) shared_factors()[row] = factor;
    }
}

// The whole warp calls it.
__device__ __forceinline__ float shared_factor(const StepArgs &s, int row, int lane) {
    return has_shared_factors(s) ? shared_factors()[row] : row_factor(s, row, lane);
}

__device__ __forceinline__ float factor_of(const StepArgs &s, const Product &p, int row, int lane) {
    return p.row_factor ? shared_factor(s, row, lane) : 1.0f;
}

}  // namespace pj::cuda
