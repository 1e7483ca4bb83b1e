// Heads of 64, 128 and 256 in a warp that holds 256 columns of a row (lanes.cuh): four, two or one of them, and their
// places in wide heads (kv_layout.h).
#pragma once

#include "cuda/ops/kv_blocks.cuh"

namespace pj::cuda {

// A lane's columns of a group of 256: which head they belong to and where they lie in it. Blocks are of 32 columns.
template <int kDim>
struct HeadLane {
    static constexpr int kBlocks = kDim / 32;
    static constexpr int kHeads = kHeadDim / kDim;

    int head, block;

    __device__ __forceinline__ HeadLane(int group, int lane)
        : head(group * kHeads + (lane >> 2) / kBlocks), block((lane >> 2) % kBlocks) {}

    // The lane that has these columns of a query in its wide head.
    __device__ __forceinline__ int wide_lane(const StepArgs &s, int lane) const {
        if (kHeads == 1) return lane;
        const int kv_head = static_cast<int>(static_cast<unsigned>(head) / static_cast<unsigned>(s.shape.query_group));
        return (kv_head % kHeads * kBlocks + block) * 4 + (lane & 3);
    }
};

// Over the columns of each head; for heads of 256 warp_sum().
template <int kDim>
__device__ __forceinline__ float head_sum(float x) {
#pragma unroll
    for (int step = kDim / 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

// cos and sin of a lane's columns.
struct Rotation {
    Lane8 cos, sin;
};

// Of a head whose first rope_dim columns are rotated, in pairs of neighbours or of halves; rope_dim: a multiple of 64.
__device__ __forceinline__ Rotation load_rotation(const StepArgs &s, int row, int block, int lane) {
    const int half = s.shape.rope_dim / 2, t = lane & 3;
    if (32 * block >= s.shape.rope_dim) return {};
    const float *const cos = s.cos + row * half, *const sin = s.sin + row * half;
    if (s.shape.rope_in_pairs) {
        const auto at = [&](const float *angles) {
            const float2 low = __ldcg(reinterpret_cast<const float2 *>(angles + 16 * block + 2 * t));
            const float2 high = __ldcg(reinterpret_cast<const float2 *>(angles + 16 * block + 8 + 2 * t));
            return Lane8{{low.x, low.x, low.y, low.y, high.x, high.x, high.y, high.y}};
        };
        return {at(cos), at(sin)};
    }
    const auto at = [&](const float *angles) {
        const float4 *const from = reinterpret_cast<const float4 *>(angles + 32 * block % half + 4 * t);
        return make_lane8(__ldcg(from), __ldcg(from + 4));
    };
    return {at(cos), at(sin)};
}

// The whole warp calls it. In halves, the partner of a column is a power of two of blocks away.
__device__ __forceinline__ void rotate(const StepArgs &s, Lane8 &x, const Rotation &by, int block, int lane) {
    const bool rotated = 32 * block < s.shape.rope_dim, second = 64 * block >= s.shape.rope_dim;
    const Lane8 old = x;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float across = __shfl_xor_sync(~0u, old.v[i], s.shape.rope_dim / 16);
        const bool is_second = s.shape.rope_in_pairs ? i & 1 : second;
        const float other = s.shape.rope_in_pairs ? old.v[i ^ 1] : across;
        if (!rotated) continue;
        x.v[i] =
            is_second ? other * by.sin.v[i] + old.v[i] * by.cos.v[i] : old.v[i] * by.cos.v[i] - other * by.sin.v[i];
    }
}

}  // namespace pj::cuda
