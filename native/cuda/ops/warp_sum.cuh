// Butterfly sums over the lanes of a warp.
#pragma once

namespace pj::cuda {

// Of each group of kLanes neighbouring lanes; every lane of a group gets the same bits.
template <int kLanes = 32>
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

}  // namespace pj::cuda
