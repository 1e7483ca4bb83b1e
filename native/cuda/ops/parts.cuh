// Outputs of a GEMM as its readers see them: sums of parts (program.h, Gemm).
#pragma once

#include "cuda/megakernel.h"
#include "cuda/split.h"

namespace pj::cuda {

// Matrices that are not split have k_units 1 here, so one part.
__device__ __forceinline__ int parts_of_block(const Parts &p, int block, int n_cta) {
    return split_parts(p.n_blocks, p.k_units, block, n_cta);
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
