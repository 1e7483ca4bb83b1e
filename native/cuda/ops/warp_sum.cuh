// Butterfly sums and maxima over the lanes of a warp.
#pragma once

namespace pj::cuda {

// Of each group of kLanes neighbouring lanes; every lane of a group gets the same bits.
template <int kLanes = 32>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

__device__ __forceinline__ unsigned long long warp_largest(unsigned long long x) {
    for (int step = 16; step > 0; step /= 2) {
        const unsigned long long other = __shfl_xor_sync(~0u, x, step);
        x = other > x ? other : x;
    }
    return x;
}

}  // namespace pj::cuda
