// What attention reads: descriptions of its items, where the blocks of a tile lie in the pages, keys and values.
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

// The same, which is there after the next wait_for_copies() of that thread.
__device__ __forceinline__ void start_item(AttentionItem &to, const AttentionItem *from) {
    if (!from) {
        to = {};
        return;
    }
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(&to));
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(AttentionItem)); i += 16)
        start_copy<16>(address + i, reinterpret_cast<const char *>(from) + i);
}

// Where a lane's block of a tile is; lane 4 k + t has block k. Beyond the last position: where that is.
struct BlockPlace {
    int page, block;  // block: of the page
};

// Looked up a tile ahead, so that nothing waits for the table.
__device__ __forceinline__ BlockPlace find_block(const StepArgs &s, const AttentionItem &item, int position, int lane) {
    if (position >= item.end) return {};
    const unsigned at = min(position + (lane >> 2) * kBlockTokens, item.end - 1);
    const unsigned of_sequence = __umulhi(at, s.page_reciprocal),
                   block = (at - of_sequence * s.page_tokens) / kBlockTokens;
    return {__ldg(s.page_table + item.page_begin + of_sequence), static_cast<int>(block)};
}

struct TilePlaces {
    const uint8_t *k, *v;
};

// Pages of a layer are less than 4 GiB each (plan.cc), so offsets within one have 32 bits.
__device__ __forceinline__ TilePlaces find_places(const StepArgs &s, int layer, int kv_head, const BlockPlace &at) {
    const auto word = [](int64_t x) { return static_cast<uint32_t>(x); };
    const uint8_t *const page =
        s.buf.pool + layer * s.buf.kv_layer_bytes + static_cast<uint64_t>(word(at.page)) * word(s.buf.page_bytes);
    const uint32_t k = kv_head * word(s.buf.k_head_bytes) + at.block * block_bytes(s.kv_type_k);
    const uint32_t v = s.shape.n_head_kv * word(s.buf.k_head_bytes) + kv_head * word(s.buf.v_head_bytes) +
                       at.block * block_bytes(s.kv_type_v);
    return {page + k, page + v};
}

__device__ __forceinline__ const uint8_t *place_from(const uint8_t *place, int lane) {
    return reinterpret_cast<const uint8_t *>(__shfl_sync(~0u, reinterpret_cast<unsigned long long>(place), lane));
}

__device__ __forceinline__ uint4 load_operand(const uint8_t *at, int lane) {
    return __ldcg(reinterpret_cast<const uint4 *>(at) + lane);
}

// Brings a block of each warp to the L2 cache: together a tile.
__device__ __forceinline__ void prefetch_blocks(const uint8_t *place, int type, int warp, int lane) {
    constexpr int kLines = 32 * 128, kMostBytes = kBlockTokens * kHeadDim * 2;
    const uint8_t *block = place_from(place, 4 * warp);
#pragma unroll
    for (int first = 0; first < kMostBytes; first += kLines)
        if (first + lane * 128 < block_bytes(type)) prefetch(block + first + lane * 128);
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

// 0xffff for each half of a pair of positions that lies before `n`.
__device__ __forceinline__ uint32_t pair_mask(int first, int n) {
    return (first < n ? 0xffffu : 0u) | (first + 1 < n ? 0xffff0000u : 0u);
}

// Positions from n_positions of the tile on may hold anything, even NaN, which a weight of zero would not hide.
__device__ __forceinline__ void clear_values(ValueBatch<PJ_KV_Q8_0> &v, int, int n_positions, int lane) {
    const int first = (lane >> 2) * kBlockTokens + 2 * (lane & 3);
    v.scales.x &= pair_mask(first, n_positions);
    v.scales.y &= pair_mask(first + 8, n_positions);
}

__device__ __forceinline__ void clear_values(ValueBatch<PJ_KV_F16> &v, int batch, int n_positions, int lane) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int block = batch * kBatchBlocks<PJ_KV_F16> + i / kLoadsPerBlock<PJ_KV_F16>;
        const int first = block * kBlockTokens + 2 * (lane & 3);
        const uint32_t low = pair_mask(first, n_positions), high = pair_mask(first + 8, n_positions);
        v.words[i] = make_uint4(v.words[i].x & low, v.words[i].y & high, v.words[i].z & low, v.words[i].w & high);
    }
}

}  // namespace pj::cuda
