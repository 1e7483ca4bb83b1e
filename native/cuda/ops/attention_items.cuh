// What of attention's items and tiles lies in global memory: descriptions of the CTA's items, and keys and values in
// the pages.
#pragma once

#include "cuda/ops/attention_tile.cuh"

namespace pj::cuda {

// The CTA's item of a turn; null: none.
__device__ __forceinline__ const AttentionItem *item_of_turn(const StepArgs &s, int turn) {
    const int index = attention_index(turn, blockIdx.x, gridDim.x);
    return index < s.n_attention_items ? s.attention + index : nullptr;
}

// By one thread. The items of drafts change within a launch.
__device__ __forceinline__ void copy_item(AttentionItem &to, const AttentionItem *from) {
    to = {};
#pragma unroll
    for (int i = 0; from && i < static_cast<int>(sizeof(AttentionItem) / sizeof(int4)); ++i)
        reinterpret_cast<int4 *>(&to)[i] = __ldcg(reinterpret_cast<const int4 *>(from) + i);
}

// The same, which is there after the next wait_for_item() of that thread.
__device__ __forceinline__ void start_item(AttentionItem &to, const AttentionItem *from) {
    if (!from) {
        to = {};
        return;
    }
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(&to));
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(AttentionItem)); i += 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address + i),
                     "l"(reinterpret_cast<const char *>(from) + i)
                     : "memory");
}

__device__ __forceinline__ void wait_for_item() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Of the blocks of a tile; lane 4 k + t has block k. Beyond the last: the last.
__device__ __forceinline__ int position_of_lane(const AttentionItem &item, int position, int lane) {
    return min(position + (lane >> 2) * kBlockTokens, item.end - 1);
}

// Pages are looked up a tile ahead, so that nothing waits for the table.
__device__ __forceinline__ int find_page(const StepArgs &s, const AttentionItem &item, int position, int lane) {
    if (position >= item.end) return 0;
    return __ldg(s.page_table + item.page_begin + position_of_lane(item, position, lane) / s.page_tokens);
}

struct TilePlaces {
    const uint8_t *k, *v;
};

__device__ __forceinline__ TilePlaces find_places(const StepArgs &s, int layer, const AttentionItem &item, int position,
                                                  int page, int lane) {
    const uint8_t *const at = s.buf.pool + page * s.buf.page_bytes;
    const int block = position_of_lane(item, position, lane) % s.page_tokens / kBlockTokens;
    return {at + k_offset(s, layer, item.kv_head) + block * block_bytes(s.kv_type_k),
            at + v_offset(s, layer, item.kv_head) + block * block_bytes(s.kv_type_v)};
}

__device__ __forceinline__ TilePlaces first_places(const StepArgs &s, int layer, const AttentionItem &item, int lane) {
    return find_places(s, layer, item, item.begin, find_page(s, item, item.begin, lane), lane);
}

__device__ __forceinline__ const uint8_t *place_from(const uint8_t *place, int lane) {
    return reinterpret_cast<const uint8_t *>(__shfl_sync(~0u, reinterpret_cast<unsigned long long>(place), lane));
}

__device__ __forceinline__ uint4 load_operand(const uint8_t *at, int lane) {
    return __ldcg(reinterpret_cast<const uint4 *>(at) + lane);
}

// Brings a block of each warp to the L2 cache: together a tile.
__device__ __forceinline__ void prefetch_blocks(const uint8_t *place, int type, int warp, int lane) {
    const uint8_t *block = place_from(place, 4 * warp);
#pragma unroll 1
    for (int at = lane * 128; at < block_bytes(type); at += 32 * 128) prefetch(block + at);
}

template <int kType>
__device__ __forceinline__ void load_keys(KeyBatch<kType> &k, const TilePlaces &places, int batch, int warp, int lane) {
    const uint8_t *block = place_from(places.k, 4 * warp);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) k.words[i] = load_operand(block + (batch * kLoads + i) * 512, lane);
    if (kType == PJ_KV_Q8_0) k.scales = __ldcg(reinterpret_cast<const uint2 *>(block + kScalesAt) + lane);
}

template <int kType>
__device__ __forceinline__ void load_values(ValueBatch<kType> &v, const uint8_t *place, int batch, int warp, int lane) {
    constexpr int n = kLoadsPerBlock<kType>;
#pragma unroll
    for (int block = 0; block < kBatchBlocks<kType>; ++block) {
        const uint8_t *at = place_from(place, 4 * (batch * kBatchBlocks<kType> + block)) + warp * n * 512;
#pragma unroll
        for (int i = 0; i < n; ++i) v.words[block * n + i] = load_operand(at + i * 512, lane);
    }
    if (kType == PJ_KV_Q8_0)
        v.scales = __ldcg(reinterpret_cast<const uint2 *>(place + kScalesAt) + warp * 4 + (lane & 3));
}

}  // namespace pj::cuda
