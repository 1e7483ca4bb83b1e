// A unit of weights times 64 quantised rows by a warpgroup, for wide steps on sm_90a: the same integers and
// the same floats as multiply_unit.cuh, with another way to the integers.
//
// Each weight is multiplied by its sub-block's code first, so that a sum over all 256 inputs needs no code any more.
// Such a product does not fit into a byte, so it is two of them, and tensor cores add up both: those of the upper ones
// are multiplied at the end.
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

// Upper and lower bytes of products of weight and code, of this lane's part of a k-block.
struct CodedBytes {
    uint32_t upper[4], lower[4];
};

// Q4_K and Q5_K. The six bits of a code are two numbers of three, whose products with a weight are bytes, so that one
// multiplication makes four of them.
template <int kFormat>
struct CodedK45 {
    static constexpr bool kSigned = false;
    static constexpr int kUpper = 8;  // what an upper byte counts

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

    // Weights of k-blocks 2 pair and 2 pair + 1.
    struct Pair {
        uint4 nibbles;
    };
    __device__ __forceinline__ Pair load(int pair) const { return {words.load(unit + (tile * 4 + pair) * 512)}; }

    __device__ __forceinline__ void expand(CodedBytes &bytes, const Pair &pair, int b) const {
        const uint32_t codes[2] = {b < 4 ? low.x : low.y, b < 4 ? high.x : high.y};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t q = word(pair.nibbles, i) >> 4 * (b & 1) & 0x0f0f0f0fu;
            if constexpr (kFormat == kTileQ5K) {
                const int to = 4 - b;  // from bit b of a byte to bit 4
                q |= (to > 0 ? word(fifth, i) << to : word(fifth, i) >> -to) & 0x10101010u;
            }
            bytes.upper[i] = q * unsigned_byte(codes[i & 1] >> 3 & 0x07070707u, b & 3);
            bytes.lower[i] = q * unsigned_byte(codes[i & 1] & 0x07070707u, b & 3);
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
        const float2 d0 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + out0 * 4));
        const float2 d1 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + (out0 + 8) * 4));
#pragma unroll
        for (int n = 0; n < kWarpgroupTiles; ++n)
            add_scaled(acc[n], acts[n], t, [&](int i) { return scaled(i < 2 ? d0 : d1, sum[n][i], mins[n][i]); });
    }
};

// Q6_K: the offset of 32 is taken off before the product.
struct CodedK6 {
    static constexpr bool kSigned = true;
    static constexpr int kUpper = 256;

    const uint8_t *const unit;
    const int tile, g, t;
    const LaneWords words;
    uint4 low, high;

    __device__ __forceinline__ CodedK6(const uint8_t *unit, int tile, int lane)
        : unit(unit), tile(tile), g(lane >> 2), t(lane & 3), words(lane) {
        low = load16(unit + kQ6KCodes, tile * 16 + g);
        high = load16(unit + kQ6KCodes, tile * 16 + g + 8);
    }

    struct Pair {
        uint4 nibbles, upper;
    };
    __device__ __forceinline__ Pair load(int pair) const {
        return {words.load(unit + (tile * 4 + pair) * 512), words.load(unit + kQ6KUpper + (tile * 2 + pair / 2) * 512)};
    }

    __device__ __forceinline__ void expand(CodedBytes &bytes, const Pair &pair, int b) const {
        // Code 2 b + (t & 1) of both outputs; a lane's inputs of a k-block share it. Half a word has 16 bits,
        // 32768 more than the product, so that nothing is borrowed.
        const uint32_t two0 = word(low, b / 2) >> (16 * (b & 1)), two1 = word(high, b / 2) >> (16 * (b & 1));
        const int c[2] = {signed_byte(two0 >> (8 * (t & 1)), 0), signed_byte(two1 >> (8 * (t & 1)), 0)};
        const uint32_t start[2] = {0x80008000u - static_cast<uint32_t>(c[0] * 0x00200020),
                                   0x80008000u - static_cast<uint32_t>(c[1] * 0x00200020)};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t q = joined_bits(word(pair.nibbles, i), word(pair.upper, i), b);
            const uint32_t even = (q & 0x003f003fu) * static_cast<uint32_t>(c[i & 1]) + start[i & 1];
            const uint32_t odd = (q >> 8 & 0x003f003fu) * static_cast<uint32_t>(c[i & 1]) + start[i & 1];
            bytes.upper[i] = upper_bytes(even, odd) ^ 0x80808080u;
            bytes.lower[i] = lower_bytes(even, odd);
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

// A unit times 64 rows; acts: shared address of their 8 row tiles. The bytes of the next k-blocks are made while the
// tensor cores are at the ones before.
template <class Coded>
__device__ __forceinline__ void multiply_coded(const uint8_t *unit, uint32_t acts, int tile, int lane,
                                               float (&acc)[kWarpgroupTiles][4]) {
    const Coded coded(unit, tile, lane);
    const RowsDescriptor rows(acts);
    int upper[kWarpgroupTiles][4], lower[kWarpgroupTiles][4];
    float mins[kWarpgroupTiles][4];
    CodedBytes bytes[8];
    typename Coded::Pair pairs[4] = {coded.load(0)};
    coded.expand(bytes[0], pairs[0], 0);
    coded.multiply_sums(mins, rows.sums());
#pragma unroll
    for (int b = 0; b < 8; ++b) {
        if (b % 2 == 0 && b < 6) pairs[b / 2 + 1] = coded.load(b / 2 + 1);
        warpgroup_fence();
        warpgroup_multiply<Coded::kSigned>(upper, bytes[b].upper, rows.block(b), b > 0);
        warpgroup_multiply<false>(lower, bytes[b].lower, rows.block(b), b > 0);
        warpgroup_commit();
        if (b > 0) warpgroup_wait<1>();
        if (b < 7) coded.expand(bytes[b + 1], pairs[(b + 1) / 2], b + 1);
    }
    warpgroup_wait<0>();
    warpgroup_hold(upper);
    warpgroup_hold(lower);
#pragma unroll
    for (int i = 0; i < kWarpgroupTiles * 4; ++i) lower[i / 4][i % 4] += upper[i / 4][i % 4] * Coded::kUpper;
    coded.add(acc, lower, mins, shared_pointer<const ActTile>(acts));
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
