// A unit of weights times 64 quantised rows by a warpgroup, for wide steps on sm_90a: the same integers and
// the same floats as multiply_unit.cuh, with another way to the integers.
//
// Each weight is multiplied by its sub-block's code first. Such a product has at most 15 bits, two bytes, so
// that a sum over all 256 inputs needs no code any more: tensor cores add up the upper bytes, times 256, then
// the lower ones.
#pragma once

#include "cuda/ops/multiply_unit.cuh"
#include "cuda/ops/wgmma.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

// The bytes of four neighbouring weights times their code, as 16-bit numbers: even = weights 0 and 2.
__device__ __forceinline__ uint32_t lower_bytes(uint32_t even, uint32_t odd) { return __byte_perm(even, odd, 0x6240); }
__device__ __forceinline__ uint32_t upper_bytes(uint32_t even, uint32_t odd) { return __byte_perm(even, odd, 0x7351); }

// Rows of activations lie in natural order, the tensor core takes inputs 4 t .. + 3 and 16 + 4 t .. + 3 of a
// k-block from lane 4 g + t where ActTile has inputs 16 (t & 1) + 4 (t >> 1) .. + 3 and 8 more. So a lane needs two
// words of two lanes each: pairs of words `first` and `first` + 4 (of 8 bytes) of the row tile's words.
struct LaneWords {
    int first;

    __device__ __forceinline__ explicit LaneWords(int lane) : first((lane >> 2) * 8 + (lane & 3)) {}
    __device__ __forceinline__ uint4 load(const uint8_t *words) const {
        const uint2 *p = reinterpret_cast<const uint2 *>(words);
        const uint2 x = p[first], y = p[first + 4];
        return make_uint4(x.x, x.y, y.x, y.y);
    }
};

// Bytes of a unit's products of weight and code, of this lane's part.
using CodedBytes = uint32_t[8][4];

// Q4_K and Q5_K. All products are 16 times as large as they should be, since those of upper nibbles are taken
// where they lie.
template <int kFormat>
struct CodedK45 {
    static constexpr bool kSigned = false;

    const uint8_t *const unit;
    const int tile, g, t;
    const LaneWords words;
    uint4 low, high, fifth;  // codes of outputs g and g + 8

    __device__ __forceinline__ CodedK45(const uint8_t *unit, int tile, int lane)
        : unit(unit), tile(tile), g(lane >> 2), t(lane & 3), words(lane) {
        low = load16(unit + kQ4KCodes, tile * 16 + g);
        high = load16(unit + kQ4KCodes, tile * 16 + g + 8);
        if constexpr (kFormat == kTileQ5K) fifth = words.load(unit + kQ5KFifth + tile * 512);
    }

    // K-blocks 2 pair and 2 pair + 1.
    __device__ __forceinline__ void expand(CodedBytes &upper, CodedBytes &lower, int pair) const {
        const uint4 x = words.load(unit + (tile * 4 + pair) * 512);
        const int b = 2 * pair;
        const uint32_t codes[2] = {b < 4 ? low.x : low.y, b < 4 ? high.x : high.y};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t c0 = unsigned_byte(codes[i & 1], b & 3) * 16, c1 = unsigned_byte(codes[i & 1], (b & 3) + 1);
            const uint32_t w = word(x, i), odd = w >> 8;
            uint32_t q[4] = {w & 0x000f000fu, odd & 0x000f000fu, w & 0x00f000f0u, odd & 0x00f000f0u};
            if constexpr (kFormat == kTileQ5K) {
                const uint32_t f = word(fifth, i) >> b;
                q[0] |= (f & 0x00010001u) << 4;
                q[1] |= (f >> 8 & 0x00010001u) << 4;
                q[2] |= (f >> 1 & 0x00010001u) << 8;
                q[3] |= (f >> 9 & 0x00010001u) << 8;
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const uint32_t code = j ? c1 : c0, even = q[2 * j] * code, odds = q[2 * j + 1] * code;
                upper[b + j][i] = upper_bytes(even, odds);
                lower[b + j][i] = lower_bytes(even, odds);
            }
        }
    }

    // Product of the minimums, each for two sums of 16, as lanes have the sums (LaneWords).
    __device__ __forceinline__ void multiply_sums(float (&mins)[kWarpgroupTiles][4], uint64_t sums) const {
        const uint32_t pair = 0x4040 + (t >> 1) * 0x0101;
        const uint32_t m0 = t & 1 ? low.w : low.z, m1 = t & 1 ? high.w : high.z;
        const uint32_t codes[4] = {byte_halves(m0, pair), byte_halves(m1, pair), byte_halves(m0, pair + 0x0202),
                                   byte_halves(m1, pair + 0x0202)};
        warpgroup_hold(mins);
        warpgroup_fence();
        warpgroup_multiply_halves(mins, codes, sums);
    }

    // acc += scale of the row * (d * sum - dmin * mins)
    __device__ __forceinline__ void add(float (&acc)[kWarpgroupTiles][4], const int (&sum)[kWarpgroupTiles][4],
                                        float (&mins)[kWarpgroupTiles][4], const ActTile *acts) const {
        warpgroup_hold(mins);
        const int out0 = tile * 16 + g;
        float2 d0 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + out0 * 4));
        float2 d1 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + (out0 + 8) * 4));
        d0.x *= 0.0625f;  // exact, as is 16 times a sum
        d1.x *= 0.0625f;
#pragma unroll
        for (int n = 0; n < kWarpgroupTiles; ++n)
            add_scaled(acc[n], acts[n], t, [&](int i) { return scaled(i < 2 ? d0 : d1, sum[n][i], mins[n][i]); });
    }
};

// Q6_K: the offset of 32 is taken off before the product.
struct CodedK6 {
    static constexpr bool kSigned = true;

    const uint8_t *const unit;
    const int tile, g, t;
    const LaneWords words;
    uint4 low, high;

    __device__ __forceinline__ CodedK6(const uint8_t *unit, int tile, int lane)
        : unit(unit), tile(tile), g(lane >> 2), t(lane & 3), words(lane) {
        low = load16(unit + kQ6KCodes, tile * 16 + g);
        high = load16(unit + kQ6KCodes, tile * 16 + g + 8);
    }

    __device__ __forceinline__ void expand(CodedBytes &upper, CodedBytes &lower, int pair) const {
        const uint4 x = words.load(unit + (tile * 4 + pair) * 512);
        const uint4 u = words.load(unit + kQ6KUpper + (tile * 2 + pair / 2) * 512);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int b = 2 * pair + j, shift = 4 * j, up = 2 * (b & 3);
            // Code 2 b + (t & 1) of both outputs; a lane's inputs of a k-block share it. Half a word has 16 bits,
            // 32768 more than the product, so that nothing is borrowed.
            const uint32_t two0 = word(low, b / 2) >> (16 * (b & 1)), two1 = word(high, b / 2) >> (16 * (b & 1));
            const int c[2] = {signed_byte(two0 >> (8 * (t & 1)), 0), signed_byte(two1 >> (8 * (t & 1)), 0)};
            const uint32_t start[2] = {0x80008000u - static_cast<uint32_t>(c[0] * 0x00200020),
                                       0x80008000u - static_cast<uint32_t>(c[1] * 0x00200020)};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint32_t q = (word(x, i) >> shift & 0x0f0f0f0fu) | (word(u, i) >> up & 0x03030303u) << 4;
                const uint32_t even = (q & 0x003f003fu) * static_cast<uint32_t>(c[i & 1]) + start[i & 1];
                const uint32_t odd = (q >> 8 & 0x003f003fu) * static_cast<uint32_t>(c[i & 1]) + start[i & 1];
                upper[b][i] = upper_bytes(even, odd) ^ 0x80808080u;
                lower[b][i] = lower_bytes(even, odd);
            }
        }
    }

    __device__ __forceinline__ void multiply_sums(float (&)[kWarpgroupTiles][4], uint64_t) const {}

    __device__ __forceinline__ void add(float (&acc)[kWarpgroupTiles][4], const int (&sum)[kWarpgroupTiles][4],
                                        float (&)[kWarpgroupTiles][4], const ActTile *acts) const {
        const int out0 = tile * 16 + g;
        const float d0 = __half2float(*reinterpret_cast<const __half *>(unit + kQ6KScales + out0 * 2));
        const float d1 = __half2float(*reinterpret_cast<const __half *>(unit + kQ6KScales + (out0 + 8) * 2));
#pragma unroll
        for (int n = 0; n < kWarpgroupTiles; ++n)
            add_scaled(acc[n], acts[n], t, [&](int i) { return (i < 2 ? d0 : d1) * static_cast<float>(sum[n][i]); });
    }
};

// sum = a b or, with `add`, sum += a b of k-blocks first .. first + n - 1.
template <bool kSigned>
__device__ __forceinline__ void multiply_blocks(int (&sum)[kWarpgroupTiles][4], const CodedBytes &bytes, uint64_t rows,
                                                int first, int n, bool add) {
    warpgroup_hold(sum);
    warpgroup_fence();
#pragma unroll
    for (int b = first; b < first + n; ++b)
        warpgroup_multiply<kSigned>(sum, bytes[b], rows + b * kNextBlock, add || b > first);
}

// A unit times 64 rows; acts: shared address of their 8 row tiles. The bytes of the next k-blocks are made while the
// tensor cores are at the ones before, and the two warpgroups of a CTA take turns with them.
template <class Coded>
__device__ __forceinline__ void multiply_coded(const uint8_t *unit, uint32_t acts, int tile, int lane,
                                               float (&acc)[kWarpgroupTiles][4]) {
    const Coded coded(unit, tile, lane);
    const uint64_t rows = rows_descriptor(acts);
    CodedBytes upper, lower;
    int sum[kWarpgroupTiles][4];
    float mins[kWarpgroupTiles][4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
        coded.expand(upper, lower, pair);
        multiply_blocks<Coded::kSigned>(sum, upper, rows, 2 * pair, 2, pair > 0);
        warpgroup_commit();
    }
    warpgroup_wait();
    warpgroup_hold(sum);
#pragma unroll
    for (int i = 0; i < kWarpgroupTiles * 4; ++i) sum[i / 4][i % 4] <<= 8;
    coded.multiply_sums(mins, rows + kSumsBlock);
    multiply_blocks<false>(sum, lower, rows, 0, 8, true);
    warpgroup_commit();
    warpgroup_wait();
    warpgroup_hold(sum);
    coded.add(acc, sum, mins, shared_pointer<const ActTile>(acts));
}

template <int kFormat>
__device__ __forceinline__ void warpgroup_unit(const uint8_t *unit, uint32_t acts, int tile, int lane,
                                               float (&acc)[kWarpgroupTiles][4]) {
    if constexpr (kFormat == kTileQ8) {
        // A scale for every 32 inputs leaves nothing to add up before it.
        const ActTile *act = shared_pointer<const ActTile>(acts);
#pragma unroll
        for (int n = 0; n < kWarpgroupTiles; n += 4) multiply_q8<4, 2>(unit, act + n, tile, lane, acc + n);
    } else if constexpr (kFormat == kTileQ6K) {
        multiply_coded<CodedK6>(unit, acts, tile, lane, acc);
    } else {
        multiply_coded<CodedK45<kFormat>>(unit, acts, tile, lane, acc);
    }
}

}  // namespace pj::cuda
