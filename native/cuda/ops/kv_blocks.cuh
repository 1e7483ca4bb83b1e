// K and V in the pages: blocks of 16 positions in the order of tensor-core operands (kv_layout.h).
//
// Lanes of an operand are named g = lane / 4 and t = lane % 4. With p a position of the block:
//   K, q8_0  [32 dims: b][p % 8: g][t][p / 8]: dims 32 b + 4 t + {0..3, 16..19}, two B operands of m16n8k32
//   K, f16   [16 dims: j][p % 8: g][t][p / 8]: dims 16 j + 4 t + {0..3}, two B operands of m16n8k16
//   V, q8_0  [32 dims: b][g][t][n][slot], V, f16 [32 dims: b][n / 2][g][t][n % 2][slot]: dim 32 b + 8 (g / 2) +
//            2 n + g % 2 at the four positions of t and slot, four B operands of m16n8k16
//   scales   [32 dims: b][t][slot]
// The positions of t are 2 t + {0, 1, 8, 9}, by slot.
#pragma once

#include <cuda_fp16.h>

#include "cuda/kv_layout.h"
#include "cuda/ops/rows.cuh"

namespace pj::cuda {

constexpr int kHeadDim = kWideDim;
constexpr int kScalesAt = kBlockTokens * kHeadDim;  // byte offset of the scales in a q8_0 block

// A rotated query as int8 blocks of 32, each with its scale. Word 2 l + h: dims of lane l in lanes.cuh.
struct alignas(16) QueryQ8 {
    uint32_t words[kHeadDim / 4];
    float scale[kHeadDim / 32];
};
static_assert(sizeof(QueryQ8) <= kHeadDim * sizeof(float), "a query's place in Buffers::query");

__device__ __forceinline__ int block_bytes(int type) {
    return type == PJ_KV_F16 ? kBlockTokens * kHeadDim * 2 : kBlockTokens * kHeadDim / 32 * 34;
}

__device__ __forceinline__ int64_t k_offset(const StepArgs &s, int layer, int head) {
    return layer * s.buf.kv_layer_bytes + head * s.buf.k_head_bytes;
}

__device__ __forceinline__ int64_t v_offset(const StepArgs &s, int layer, int head) {
    return layer * s.buf.kv_layer_bytes + s.shape.n_head_kv * s.buf.k_head_bytes + head * s.buf.v_head_bytes;
}

// Page and block of a position.
struct KvPlace {
    uint8_t *page;
    int block;
};

__device__ __forceinline__ KvPlace kv_place(const StepArgs &s, const int32_t *pages, int position) {
    const unsigned page = static_cast<unsigned>(position) / static_cast<unsigned>(s.page_tokens);
    const int offset = position - static_cast<int>(page) * s.page_tokens;
    return {s.buf.pool + __ldg(pages + page) * s.buf.page_bytes, offset / kBlockTokens};
}

__device__ __forceinline__ int lane_of(int position) { return (position & 7) >> 1; }                   // t
__device__ __forceinline__ int slot_of(int position) { return (position & 1) | (position >> 2 & 2); }  // of 0..15

// A row's q8_0 form of 32-wide blocks: scale (rounded to f16) and integers.
__device__ __forceinline__ float q8_block(const Lane8 &x, int (&q)[8]) {
    float largest = largest_size(x);
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    const float scale = largest / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) q[i] = __float2int_rn(x.v[i] * inverse);
    return __half2float(__float2half_rn(scale));
}

__device__ __forceinline__ uint32_t pack_bytes(const int *q) {
    return (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | static_cast<uint32_t>(q[3]) << 24;
}

__device__ __forceinline__ uint32_t pack_halves(float x, float y) {
    const __half2 both = __floats2half2_rn(x, y);
    return *reinterpret_cast<const uint32_t *>(&both);
}

__device__ __forceinline__ void store_scale(uint8_t *block, int position, float scale, int b) {
    const int at = (b * 4 + lane_of(position)) * 4 + slot_of(position);
    reinterpret_cast<__half *>(block + kScalesAt)[at] = __float2half_rn(scale);
}

// position: 0..15 in the block
__device__ __forceinline__ void store_key(uint8_t *block, int type, int position, const Lane8 &x, int lane) {
    const int b = lane >> 2, t = lane & 3, at = ((position & 7) * 4 + t) * 16 + (position >> 3) * 8;
    if (type == PJ_KV_F16) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
            *reinterpret_cast<uint2 *>(block + (2 * b + h) * 512 + at) =
                make_uint2(pack_halves(x.v[4 * h], x.v[4 * h + 1]), pack_halves(x.v[4 * h + 2], x.v[4 * h + 3]));
        return;
    }
    int q[8];
    const float scale = q8_block(x, q);
    *reinterpret_cast<uint2 *>(block + b * 512 + at) = make_uint2(pack_bytes(q), pack_bytes(q + 4));
    if (t == 0) store_scale(block, position, scale, b);
}

__device__ __forceinline__ void store_value(uint8_t *block, int type, int position, const Lane8 &x, int lane) {
    const int b = lane >> 2;
    int q[8];
    float scale = 0;
    if (type != PJ_KV_F16) scale = q8_block(x, q);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int dim = (i >> 2) * 16 + (lane & 3) * 4 + (i & 3), n = dim >> 1 & 3;
        const int to = ((dim >> 3) * 2 + (dim & 1)) * 4 + lane_of(position), slot = slot_of(position);
        if (type == PJ_KV_F16)
            reinterpret_cast<__half *>(block + b * 1024 + (n >> 1) * 512 + to * 16)[(n & 1) * 4 + slot] =
                __float2half_rn(x.v[i]);
        else
            block[b * 512 + to * 16 + n * 4 + slot] = static_cast<uint8_t>(q[i] + 128);
    }
    if (type != PJ_KV_F16 && (lane & 3) == 0) store_scale(block, position, scale, b);
}

// lane: whose dims of the wide head these are; index: -1: of none. The whole warp calls it.
__device__ __forceinline__ void store_query(const StepArgs &s, int index, const Lane8 &x, int lane) {
    int q[8];
    float scale = 0;
    if (s.kv_type_k != PJ_KV_F16) scale = q8_block(x, q);
    if (index < 0) return;
    if (s.kv_type_k == PJ_KV_F16) return store256(s.buf.query + static_cast<int64_t>(index) * kHeadDim, lane, x);
    QueryQ8 &to = reinterpret_cast<QueryQ8 *>(s.buf.query)[index];
    *reinterpret_cast<uint2 *>(to.words + 2 * lane) = make_uint2(pack_bytes(q), pack_bytes(q + 4));
    if ((lane & 3) == 0) to.scale[lane >> 2] = scale;
}

}  // namespace pj::cuda
