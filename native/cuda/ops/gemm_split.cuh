// Which units of a GEMM a CTA computes, and which parts a column has (program.h, Gemm).
#pragma once

#include "cuda/megakernel.h"

namespace pj::cuda {

// CTAs that take part: all of them when there are units enough, so that no range is empty.
__host__ __device__ __forceinline__ int split_ctas(int64_t n_units, int n_cta) {
    return n_units < n_cta ? static_cast<int>(n_units) : n_cta;
}

// First unit of a CTA; n_units for all CTAs beyond the last that takes part.
__host__ __device__ __forceinline__ int64_t split_begin(int64_t n_units, int cta, int n_cta) {
    const int n = split_ctas(n_units, n_cta);
    return cta < n ? n_units * cta / n : n_units;
}

// The CTA whose range holds a unit: the largest c with n_units * c / n <= unit.
__host__ __device__ __forceinline__ int split_owner(int64_t n_units, int64_t unit, int n_cta) {
    return static_cast<int>(((unit + 1) * split_ctas(n_units, n_cta) - 1) / n_units);
}

// Matrices that are not split have k_units 1 here.
__host__ __device__ __forceinline__ int parts_of_block(const Parts &p, int block, int n_cta) {
    const int64_t n = static_cast<int64_t>(p.n_blocks) * p.k_units, first = static_cast<int64_t>(block) * p.k_units;
    return split_owner(n, first + p.k_units - 1, n_cta) - split_owner(n, first, n_cta) + 1;
}

// Four neighbouring outputs of a row: their parts in CTA order.
__device__ __forceinline__ float4 sum_parts4(const Parts &p, int row, int column, int n_cta) {
    const int n = parts_of_block(p, column / kUnitOutputs, n_cta);
    const float *at = p.data + row * p.row_stride + column;
    float4 sum = __ldcg(reinterpret_cast<const float4 *>(at));
    for (int i = 1; i < n; ++i) {
        const float4 v = __ldcg(reinterpret_cast<const float4 *>(at + i * p.part_stride));
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
    }
    return sum;
}

__device__ __forceinline__ float sum_parts(const Parts &p, int row, int column, int n_cta) {
    const int n = parts_of_block(p, column / kUnitOutputs, n_cta);
    const float *at = p.data + row * p.row_stride + column;
    float sum = __ldcg(at);
    for (int i = 1; i < n; ++i) sum += __ldcg(at + i * p.part_stride);
    return sum;
}

}  // namespace pj::cuda
