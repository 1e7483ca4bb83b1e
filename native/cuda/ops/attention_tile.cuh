// One tile of attention: 128 positions, 16 per warp, and up to 32 columns in groups of 8.
//
// Scores are Q K^T with columns as M and positions as N of the mma tiles; the accumulators of two N tiles
// are, as they stand, the A operand of the products with V. Warp w computes the scores of block w
// of the tile and the outputs of dims 32 w .. 32 w + 31, so weights go through shared memory, K and V
// straight from the pages to registers: each is read once.
//
// Lane 4 g + t has, of column group c, scores of column 8 c + g at the positions of t (kv_blocks.cuh), by slot,
// and outputs of column 8 c + g in dims 32 w + 8 t + {0..7}.
#pragma once

#include "cuda/ops/mma.cuh"
#include "cuda/ops/partials.cuh"

namespace pj::cuda {

constexpr int kTileTokens = kConsumerWarps * kBlockTokens;
static_assert(kHeadDim == kConsumerWarps * 32, "a block of 32 dims per warp");
static_assert(segment_begin(1) % kTileTokens == 0, "segments of whole tiles: the first is the shortest");

constexpr int column_tiles(int groups) { return (groups + 1) / 2; }  // of 16: M of an mma

template <int kType, int kGroups>
struct AttentionShared {
    static constexpr int kColumns = 8 * kGroups;
    // q8_0: [column tile][32 dims][lane]; f16: [high, low][16 dims][lane]
    uint4 query[kType == PJ_KV_F16 ? 2 * 16 : column_tiles(kGroups) * 8][32];
    float query_scale[8][kColumns];
    float4 weight[kConsumerWarps][kGroups][32];  // [block][group][lane], by slot; weights_of()
    float largest[kColumns][kConsumerWarps], sum[kColumns][kConsumerWarps];
    AttentionItem item[4];       // of the CTA's turn, modulo 4: the one before, this one, the next two
    int last[kColumns];          // the column's own position; -1 beyond the sequence's rows
    int place[4][kColumns];      // column_place() of the columns of an item, by its turn modulo 4
    int rising[2];               // newest tile, of those with an even or odd number, in which a reference has to rise
    Softmax total[2][kColumns];  // before and after a segment, of items that walk all segments
};
static_assert(sizeof(AttentionShared<PJ_KV_Q8_0, 4>) <= kScratchBytes, "scratch");
static_assert(sizeof(AttentionShared<PJ_KV_F16, 2>) <= kScratchBytes, "scratch");

// A warp's share of a tile comes in loads of 16 bytes per lane, 8 at a time: all of q8_0, half of f16.
constexpr int kLoads = 8;
template <int kType>
constexpr int kBatches = kType == PJ_KV_F16 ? 2 : 1;
template <int kType>
constexpr int kBatchBlocks = kConsumerWarps / kBatches<kType>;  // of V
template <int kType>
constexpr int kLoadsPerBlock = kBatches<kType>;  // of V

// A warp's block of K. q8_0: lane 4 b + t has the scales of 32 dims b at the positions of t.
template <int kType>
struct KeyBatch {
    uint4 words[kLoads];
    uint2 scales;
};

// 32 dims of the tile's blocks of V. q8_0: lane 4 k + t has the scales of block k at the positions of t.
template <int kType>
struct ValueBatch {
    uint4 words[kLoads];
    uint2 scales;
};

// The float 1.5 * 2^23: an integer below 2^22 added to its bits is added to its value.
constexpr int kFloatBias = 0x4b400000;

// Products of 32 int8 as floats: exact, without a conversion.
__device__ __forceinline__ void mma_bytes(float (&dot)[4], const uint4 &a, uint32_t b0, uint32_t b1) {
    int c[4] = {kFloatBias, kFloatBias, kFloatBias, kFloatBias};
    mma_k32(c, {a.x, a.y, a.z, a.w}, make_uint2(b0, b1));
#pragma unroll
    for (int i = 0; i < 4; ++i) dot[i] = __int_as_float(c[i]) - __int_as_float(kFloatBias);
}

// The four scales that lane `source` holds.
__device__ __forceinline__ uint2 halves_from(uint2 scales, int source) {
    return make_uint2(__shfl_sync(~0u, scales.x, source), __shfl_sync(~0u, scales.y, source));
}

__device__ __forceinline__ float4 scales_from(uint2 scales, int source) {
    const uint2 halves = halves_from(scales, source);
    const float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&halves.x));
    const float2 b = __half22float2(*reinterpret_cast<const __half2 *>(&halves.y));
    return make_float4(a.x, a.y, b.x, b.y);
}

// Two floats as sums of two f16: 21 bits.
__device__ __forceinline__ void split_halves(float x, float y, uint32_t &high, uint32_t &low) {
    const float x_high = __uint_as_float(__float_as_uint(x) & 0xffffe000u);
    const float y_high = __uint_as_float(__float_as_uint(y) & 0xffffe000u);
    high = pack_halves(x_high, y_high);
    low = pack_halves(x - x_high, y - y_high);
}

// Where keys and values are not both q8_0 (multiply_both), loops over a warp's words are unrolled in two halves: the
// code of a whole tile would be more than what a multiprocessor keeps near itself. The second half moves to the
// registers of the first.
constexpr int kHalf = kLoads / 2;

__device__ __forceinline__ void take_second_half(uint4 (&words)[kLoads]) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) words[i] = words[i + kHalf];
}

// score[c] += q k of 32 dims b of the warp's block, in units of log2 (stage_queries).
template <int kGroups>
__device__ __forceinline__ void multiply_key_dims(const AttentionShared<PJ_KV_Q8_0, kGroups> &shared,
                                                  const KeyBatch<PJ_KV_Q8_0> &k, const uint4 &word, int b,
                                                  float (&score)[kGroups][4], int lane) {
    const int g = lane >> 2, t = lane & 3;
    const float4 scale = scales_from(k.scales, 4 * b + t);
#pragma unroll
    for (int tile = 0; tile < column_tiles(kGroups); ++tile) {
        const uint4 a = shared.query[tile * 8 + b][lane];
        float first[4], second[4];  // positions 0..7 and 8..15
        mma_bytes(first, a, word.x, word.y);
        mma_bytes(second, a, word.z, word.w);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int c = 2 * tile + h;
            if (c >= kGroups) break;
            const float q = shared.query_scale[b][8 * c + g];
            score[c][0] = fmaf(first[2 * h], q * scale.x, score[c][0]);
            score[c][1] = fmaf(first[2 * h + 1], q * scale.y, score[c][1]);
            score[c][2] = fmaf(second[2 * h], q * scale.z, score[c][2]);
            score[c][3] = fmaf(second[2 * h + 1], q * scale.w, score[c][3]);
        }
    }
}

// Of all dims. The words are lost.
template <int kGroups>
__device__ __forceinline__ void multiply_keys(const AttentionShared<PJ_KV_Q8_0, kGroups> &shared,
                                              KeyBatch<PJ_KV_Q8_0> &k, int, float (&score)[kGroups][4], int lane) {
#pragma unroll 1
    for (int first = 0; first < kLoads; first += kHalf, take_second_half(k.words))
#pragma unroll
        for (int i = 0; i < kHalf; ++i) multiply_key_dims(shared, k, k.words[i], first + i, score, lane);
}

template <int kGroups>
__device__ __forceinline__ void multiply_keys(const AttentionShared<PJ_KV_F16, kGroups> &shared, KeyBatch<PJ_KV_F16> &k,
                                              int batch, float (&score)[kGroups][4], int lane) {
    float none[4] = {};
    float(&second)[4] = kGroups > 1 ? score[kGroups - 1] : none;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const uint4 q = shared.query[part * 16 + batch * kLoads + i][lane], w = k.words[i];
            const uint32_t a[4] = {q.x, q.y, q.z, q.w};
            mma_halves(score[0][0], score[0][1], second[0], second[1], a, w.x, w.y);
            mma_halves(score[0][2], score[0][3], second[2], second[3], a, w.z, w.w);
        }
}

// B operands of one block of V: four tiles of 8 dims.
struct ValueOperands {
    uint32_t b[4][2];
};

// Bytes q + 128 at positions `low` and `low` + 1 of a word: 1024 + byte as f16, minus 1152.
__device__ __forceinline__ uint32_t bytes_to_halves(uint32_t word, uint32_t selector) {
    const uint32_t biased = __byte_perm(word, 0x64646464u, selector), bias = 0x64806480u;
    const __half2 out = __hsub2(*reinterpret_cast<const __half2 *>(&biased), *reinterpret_cast<const __half2 *>(&bias));
    return *reinterpret_cast<const uint32_t *>(&out);
}

__device__ __forceinline__ ValueOperands value_operands(const ValueBatch<PJ_KV_Q8_0> &v, int block) {
    const uint32_t words[4] = {v.words[block].x, v.words[block].y, v.words[block].z, v.words[block].w};
    ValueOperands out;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        out.b[n][0] = bytes_to_halves(words[n], 0x4140);
        out.b[n][1] = bytes_to_halves(words[n], 0x4342);
    }
    return out;
}

__device__ __forceinline__ ValueOperands value_operands(const ValueBatch<PJ_KV_F16> &v, int block) {
    const uint4 x = v.words[2 * block], y = v.words[2 * block + 1];
    return {{{x.x, x.y}, {x.z, x.w}, {y.x, y.y}, {y.z, y.w}}};
}

// f16 parts of a weight: the 8 bits of q8_0 values need no more than one.
template <int kType>
constexpr int kWeightParts = kType == PJ_KV_Q8_0 ? 1 : 2;

// A lane's weights of a block of 16 positions and a group of columns, by slot. For q8_0 values they are f16 and there
// is room for two tiles of them, for f16 values they are floats of one tile.
template <int kType>
struct LaneWeights {
    float4 of_slots;
};
template <>
struct LaneWeights<PJ_KV_Q8_0> {
    uint2 of_slots;
};

template <int kType>
constexpr int kWeightTiles = sizeof(float4) / sizeof(LaneWeights<kType>);

template <int kType, int kKeyType, int kGroups>
__device__ __forceinline__ LaneWeights<kType> *weights_of(AttentionShared<kKeyType, kGroups> &shared, int tile,
                                                          int block, int group) {
    const int at = (tile % kWeightTiles<kType> * kConsumerWarps + block) * kGroups + group;
    return reinterpret_cast<LaneWeights<kType> *>(shared.weight) + at * 32;
}

template <int kType, int kKeyType, int kGroups>
__device__ __forceinline__ void share_weights(AttentionShared<kKeyType, kGroups> &shared, int tile, int block,
                                              int group, const float (&weight)[4], int lane) {
    LaneWeights<kType> &to = weights_of<kType>(shared, tile, block, group)[lane];
    if constexpr (kWeightParts<kType> == 1)
        to.of_slots = make_uint2(pack_halves(weight[0], weight[1]), pack_halves(weight[2], weight[3]));
    else
        to.of_slots = make_float4(weight[0], weight[1], weight[2], weight[3]);
}

__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
    const __half2 product = __hmul2(*reinterpret_cast<const __half2 *>(&a), *reinterpret_cast<const __half2 *>(&b));
    return *reinterpret_cast<const uint32_t *>(&product);
}

// A operands of one block's weights, times the scales of V: high and low parts.
template <int kType>
__device__ __forceinline__ void split_weights(const LaneWeights<kType> &weights, uint2 scale, uint32_t (&high)[2],
                                              uint32_t (&low)[2]) {
    const auto w = weights.of_slots;
    if constexpr (kWeightParts<kType> == 1) {
        high[0] = multiply_halves(w.x, scale.x);
        high[1] = multiply_halves(w.y, scale.y);
    } else {
        split_halves(w.x, w.y, high[0], low[0]);
        split_halves(w.z, w.w, high[1], low[1]);
    }
}

// values += weights V of one block, for the warp's 32 dims; i: of the batch.
template <int kType, int kKeyType, int kGroups>
__device__ __forceinline__ void multiply_block(AttentionShared<kKeyType, kGroups> &shared, int tile_number,
                                               const ValueBatch<kType> &v, int i, int block,
                                               float (&values)[kGroups][4][2], int lane) {
    uint2 scale = {};
    if constexpr (kType == PJ_KV_Q8_0) scale = halves_from(v.scales, 4 * block + (lane & 3));
    const ValueOperands operands = value_operands(v, i);
#pragma unroll
    for (int tile = 0; tile < column_tiles(kGroups); ++tile) {
        uint32_t high[2][2] = {}, low[2][2] = {};
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (2 * tile + h < kGroups)
                split_weights<kType>(weights_of<kType>(shared, tile_number, block, 2 * tile + h)[lane], scale, high[h],
                                     low[h]);
        const uint32_t a[4] = {high[0][0], high[1][0], high[0][1], high[1][1]};
        const uint32_t a_low[4] = {low[0][0], low[1][0], low[0][1], low[1][1]};
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            float none[2] = {};
            float(&first)[2] = values[2 * tile][n];
            float(&second)[2] = 2 * tile + 1 < kGroups ? values[(2 * tile + 1) % kGroups][n] : none;
            mma_halves(first[0], first[1], second[0], second[1], a, operands.b[n][0], operands.b[n][1]);
            if constexpr (kWeightParts<kType> == 2)
                mma_halves(first[0], first[1], second[0], second[1], a_low, operands.b[n][0], operands.b[n][1]);
        }
    }
}

// The blocks of a batch in order. The words are lost.
template <int kType, int kKeyType, int kGroups>
__device__ __forceinline__ void multiply_values(AttentionShared<kKeyType, kGroups> &shared, int tile,
                                                ValueBatch<kType> &v, int batch, float (&values)[kGroups][4][2],
                                                int lane) {
    constexpr int kBlocks = kBatchBlocks<kType> / 2;  // of half the words
#pragma unroll 1
    for (int first = 0; first < kBatchBlocks<kType>; first += kBlocks, take_second_half(v.words))
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
            multiply_block(shared, tile, v, i, batch * kBatchBlocks<kType> + first + i, values, lane);
}

// Keys of one tile and values of the one before, which do not wait for each other. `between` is called after half of
// them. The words are lost.
template <int kGroups, class Between>
__device__ __forceinline__ void multiply_both(AttentionShared<PJ_KV_Q8_0, kGroups> &shared, KeyBatch<PJ_KV_Q8_0> &k,
                                              float (&score)[kGroups][4], int tile, ValueBatch<PJ_KV_Q8_0> &v,
                                              float (&values)[kGroups][4][2], int lane, const Between &between) {
#pragma unroll
    for (int b = 0; b < kLoads; ++b) {
        multiply_key_dims(shared, k, k.words[b], b, score, lane);
        multiply_block(shared, tile, v, b, b, values, lane);
        if (b == kHalf - 1) between();
    }
}

}  // namespace pj::cuda
