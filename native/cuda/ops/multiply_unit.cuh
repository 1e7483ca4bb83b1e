// A unit of weights (tiles.h) times quantised rows on int8 tensor cores, by the two warps of a group.
//
//     y[row][out] += scale_x * (d * sum_s code_s * dot_s - dmin * sum_s min_s * sum_s(q))
//
// Integers are exact within a unit, so their order does not matter.
#pragma once

#include <cuda_fp16.h>

#include "cuda/megakernel.h"
#include "cuda/ops/mma.cuh"

namespace pj::cuda {

constexpr int kWarpTiles = 2;  // row tiles of 16 outputs per warp; a group's two warps make a block
static_assert(kGroups * 2 == kConsumerWarps && kWarpTiles * 2 * 16 == kUnitOutputs, "a block per group");

// Byte i of a word: of a scale code of Q4_K and Q5_K, which has no sign, and of Q6_K.
__device__ __forceinline__ int unsigned_byte(uint32_t word, int i) {
    return static_cast<int>(__byte_perm(word, 0, 0x4440 + i));
}
__device__ __forceinline__ int signed_byte(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }

// sum over 16 sub-blocks of code * (sum of their activations), all of them integers that f16 holds exactly; so does
// f32 every sum of their products.
struct CodeSums {
    float v[4] = {};

    __device__ __forceinline__ void multiply(const uint32_t (&codes)[4], const ActTile &act, int lane) {
        multiply(codes, *reinterpret_cast<const uint2 *>(act.sums[ActTile::place(lane)]));
    }
    __device__ __forceinline__ void multiply(const uint32_t (&codes)[4], uint2 sums) {
        mma_halves(v[0], v[1], v[2], v[3], codes, sums.x, sums.y);
    }
    __device__ __forceinline__ float operator[](int i) const { return v[i]; }
    // Below 2^22, so that the sum with 1.5 * 2^23 has it in its last bits.
    static __device__ __forceinline__ int integer(float x) { return __float_as_int(x + 12582912.0f) - 0x4b400000; }
};

// Two bytes of a word as halves; `bytes`: 0x4040 + first + 256 * second. The byte pair 0x64, x is the half 1024 + x.
__device__ __forceinline__ uint32_t byte_halves(uint32_t word, uint32_t bytes) {
    const uint32_t x = __byte_perm(word, 0x64646464u, bytes);
    const __half2 value = __hsub2(*reinterpret_cast<const __half2 *>(&x), __float2half2_rn(1024.0f));
    return *reinterpret_cast<const uint32_t *>(&value);
}
__device__ __forceinline__ uint32_t signed_byte_halves(uint32_t word, uint32_t bytes) {
    const uint32_t x = __byte_perm(word ^ 0x80808080u, 0x64646464u, bytes);
    const __half2 value = __hsub2(*reinterpret_cast<const __half2 *>(&x), __float2half2_rn(1152.0f));
    return *reinterpret_cast<const uint32_t *>(&value);
}

// d * sum - dmin * mins
__device__ __forceinline__ float scaled(float2 d, int sum, float mins) {
    return fmaf(-d.y, mins, d.x * static_cast<float>(sum));
}

// Word i of four.
__device__ __forceinline__ uint32_t word(const uint4 &x, int i) {
    return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

template <int NT>
using Accumulators = float[kWarpTiles][NT][4];

__device__ __forceinline__ uint4 load16(const uint8_t *p, int index) {
    return reinterpret_cast<const uint4 *>(p)[index];
}

// 16 code bytes of each of this lane's two outputs of a row tile.
template <int kTiles>
__device__ __forceinline__ void load_codes(uint4 (&low)[kTiles], uint4 (&high)[kTiles], const uint8_t *codes, int tile,
                                           int g) {
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
        low[r] = load16(codes, (tile + r) * 16 + g);
        high[r] = load16(codes, (tile + r) * 16 + g + 8);
    }
}

// The low four bits of k-blocks first .. first + 2 * kPairs - 1.
template <int kTiles, int kPairs>
__device__ __forceinline__ void load_nibbles(uint4 (&w)[kTiles][kPairs], const uint8_t *unit, int tile, int first,
                                             int lane) {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
        for (int i = 0; i < kPairs; ++i) w[r][i] = load16(unit, ((tile + r) * 4 + first / 2 + i) * 32 + lane);
}

template <int NB, int kBlocks>
__device__ __forceinline__ void load_acts(uint2 (&q)[NB][kBlocks], const ActTile *act, int first, int lane) {
#pragma unroll
    for (int n = 0; n < NB; ++n)
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
            q[n][i] = *reinterpret_cast<const uint2 *>(act[n].q[first + i][ActTile::place(lane)]);
}

// sum += code * product: of outputs g (c0) and g + 8 (c1).
__device__ __forceinline__ void add_coded(int (&sum)[4], const int (&product)[4], int c0, int c1) {
    sum[0] += c0 * product[0];
    sum[1] += c0 * product[1];
    sum[2] += c1 * product[2];
    sum[3] += c1 * product[3];
}

// acc += scale of the row * value: of a unit, whose rows have one scale. t: rows 2 t and 2 t + 1.
template <class Value>
__device__ __forceinline__ void add_scaled(float (&acc)[4], const ActTile &act, int t, const Value &value) {
    const float2 x = *reinterpret_cast<const float2 *>(&act.scale[0][2 * t]);
    acc[0] = fmaf(x.x, value(0), acc[0]);
    acc[1] = fmaf(x.y, value(1), acc[1]);
    acc[2] = fmaf(x.x, value(2), acc[2]);
    acc[3] = fmaf(x.y, value(3), acc[3]);
}

// The functions below multiply kTiles row tiles of a unit with NB row tiles of activations, kBlocks
// k-blocks at a time: all loads and products, then the sums. A product takes some 30 cycles, so the first
// sum should come when the last product is on its way; left alone, the compiler puts each product just
// before its sums, and loads of later ones before both until registers spill.

// Loads stay on their side of __syncwarp(), and nothing moves across a branch whose condition the compiler
// cannot foresee (it is never true). Branches are for few row tiles: with many, what would be alive at
// them does not fit into registers.
template <int NB>
__device__ __forceinline__ void hold_order() {
    if constexpr (NB <= 2) {
        if (__activemask() == 0) asm volatile("trap;");
    } else {
        __syncwarp();
    }
}

// Q4_K and Q5_K: 32-wide sub-blocks with a scale and a minimum.
template <int kFormat, int NB, int kTiles, int kBlocks>
__device__ __forceinline__ void multiply_k45(const uint8_t *unit, const ActTile *act, int tile, int lane,
                                             float (*acc)[4], int acc_stride) {
    constexpr bool kEarlySums = NB <= 2;  // as far as registers go
    const int g = lane >> 2, t = lane & 3;
    uint4 low[kTiles], high[kTiles], fifth[kTiles];
    load_codes(low, high, unit + kQ4KCodes, tile, g);
    if constexpr (kFormat == kTileQ5K)
#pragma unroll
        for (int r = 0; r < kTiles; ++r) fifth[r] = load16(unit + kQ5KFifth, (tile + r) * 32 + lane);
    int isum[kTiles][NB][4] = {};
    CodeSums mins[kTiles][NB];
    const auto multiply_mins = [&] {
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
            // Minimums t and t + 4, each for two sums of 16.
            const uint32_t pair = 0x4040 + t * 0x0101;
            const uint32_t codes[4] = {byte_halves(low[r].z, pair), byte_halves(high[r].z, pair),
                                       byte_halves(low[r].w, pair), byte_halves(high[r].w, pair)};
#pragma unroll
            for (int n = 0; n < NB; ++n) mins[r][n].multiply(codes, act[n], lane);
        }
    };
#pragma unroll
    for (int first = 0; first < 8; first += kBlocks) {
        uint4 w[kTiles][kBlocks / 2];
        uint2 q[NB][kBlocks];
        load_nibbles(w, unit, tile, first, lane);
        load_acts(q, act, first, lane);
        int c[kTiles][kBlocks][NB][4] = {};
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int r = 0; r < kTiles; ++r) {
                const int b = first + i, shift = b % 2 * 4;
                const uint4 &x = w[r][i / 2];
                uint32_t a[4] = {x.x >> shift & 0x0f0f0f0fu, x.y >> shift & 0x0f0f0f0fu, x.z >> shift & 0x0f0f0f0fu,
                                 x.w >> shift & 0x0f0f0f0fu};
                if constexpr (kFormat == kTileQ5K) {
                    a[0] |= (fifth[r].x >> b & 0x01010101u) << 4;
                    a[1] |= (fifth[r].y >> b & 0x01010101u) << 4;
                    a[2] |= (fifth[r].z >> b & 0x01010101u) << 4;
                    a[3] |= (fifth[r].w >> b & 0x01010101u) << 4;
                }
#pragma unroll
                for (int n = 0; n < NB; ++n) mma_k32(c[r][i][n], a, q[n][i]);
            }
        if (kEarlySums && first + kBlocks == 8) multiply_mins();
        hold_order<NB>();
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int r = 0; r < kTiles; ++r) {
                const int b = first + i;
                const int c0 = unsigned_byte(b < 4 ? low[r].x : low[r].y, b & 3),
                          c1 = unsigned_byte(b < 4 ? high[r].x : high[r].y, b & 3);
#pragma unroll
                for (int n = 0; n < NB; ++n) add_coded(isum[r][n], c[r][i][n], c0, c1);
            }
        if constexpr (NB >= 3) hold_order<NB>();
    }
    if (!kEarlySums) multiply_mins();
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
        const int out0 = (tile + r) * 16 + g;
        const float2 d0 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + out0 * 4));
        const float2 d1 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + (out0 + 8) * 4));
#pragma unroll
        for (int n = 0; n < NB; ++n)
            add_scaled(acc[r * acc_stride + n], act[n], t,
                       [&](int i) { return scaled(i < 2 ? d0 : d1, isum[r][n][i], mins[r][n][i]); });
    }
}

// Quants of k-block b of Q6_K, a word's; the two bits above them are something else.
__device__ __forceinline__ uint32_t joined_bits(uint32_t nibbles, uint32_t upper, int b) {
    const int right = 2 * (b & 3) - 4;  // to bits 4 and 5
    const uint32_t low = nibbles >> b % 2 * 4, high = right > 0 ? upper >> right : upper << -right;
    return (low & 0x0f0f0f0fu) | (high & 0xf0f0f0f0u);
}
__device__ __forceinline__ void six_bits(uint32_t (&a)[4], const uint4 &nibbles, const uint4 &upper, int b) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = joined_bits(word(nibbles, i), word(upper, i), b) & 0x3f3f3f3fu;
}

// Q6_K: 16-wide sub-blocks; value = stored - 32, taken off through the sums.
template <int NB, int kTiles, int kBlocks>
__device__ __forceinline__ void multiply_k6(const uint8_t *unit, const ActTile *act, int tile, int lane,
                                            float (*acc)[4], int acc_stride) {
    constexpr bool kEarlySums = NB <= 2;
    const int g = lane >> 2, t = lane & 3;
    uint4 low[kTiles], high[kTiles];
    load_codes(low, high, unit + kQ6KCodes, tile, g);
    int isum[kTiles][NB][4] = {};
    CodeSums offsets[kTiles][NB];
    const auto multiply_offsets = [&] {
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
            // Codes 2 t, 2 t + 1 and 2 t + 8, 2 t + 9.
            const uint32_t pair = t & 1 ? 0x4342 : 0x4140;
            const uint32_t codes[4] = {signed_byte_halves(t < 2 ? low[r].x : low[r].y, pair),
                                       signed_byte_halves(t < 2 ? high[r].x : high[r].y, pair),
                                       signed_byte_halves(t < 2 ? low[r].z : low[r].w, pair),
                                       signed_byte_halves(t < 2 ? high[r].z : high[r].w, pair)};
#pragma unroll
            for (int n = 0; n < NB; ++n) offsets[r][n].multiply(codes, act[n], lane);
        }
    };
#pragma unroll
    for (int first = 0; first < 8; first += kBlocks) {
        uint4 w[kTiles][kBlocks / 2], u[kTiles][(kBlocks + 3) / 4];  // u: upper bits of four k-blocks each
        uint2 q[NB][kBlocks];
        load_nibbles(w, unit, tile, first, lane);
#pragma unroll
        for (int r = 0; r < kTiles; ++r)
#pragma unroll
            for (int i = 0; i < kBlocks; i += 4)
                u[r][i / 4] = load16(unit + kQ6KUpper, ((tile + r) * 2 + (first + i) / 4) * 32 + lane);
        load_acts(q, act, first, lane);
        int c[kTiles][kBlocks][NB][2][4] = {};
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int r = 0; r < kTiles; ++r) {
                uint32_t a[4];
                six_bits(a, w[r][i / 2], u[r][i / 4], first + i);
#pragma unroll
                for (int n = 0; n < NB; ++n) {
                    mma_k16(c[r][i][n][0], a[0], a[1], q[n][i].x);
                    mma_k16(c[r][i][n][1], a[2], a[3], q[n][i].y);
                }
            }
        if (kEarlySums && first + kBlocks == 8) multiply_offsets();
        hold_order<NB>();
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int r = 0; r < kTiles; ++r) {
                const int s = 2 * (first + i);
                const uint32_t codes0 = word(low[r], s / 4), codes1 = word(high[r], s / 4);
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int c0 = signed_byte(codes0, (s & 3) + h), c1 = signed_byte(codes1, (s & 3) + h);
#pragma unroll
                    for (int n = 0; n < NB; ++n) add_coded(isum[r][n], c[r][i][n][h], c0, c1);
                }
            }
        if constexpr (NB >= 3) hold_order<NB>();
    }
    if (!kEarlySums) multiply_offsets();
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
        const int out0 = (tile + r) * 16 + g;
        const float d0 = __half2float(*reinterpret_cast<const __half *>(unit + kQ6KScales + out0 * 2));
        const float d1 = __half2float(*reinterpret_cast<const __half *>(unit + kQ6KScales + (out0 + 8) * 2));
#pragma unroll
        for (int n = 0; n < NB; ++n)
            add_scaled(acc[r * acc_stride + n], act[n], t, [&](int i) {
                return (i < 2 ? d0 : d1) * static_cast<float>(isum[r][n][i] - 32 * CodeSums::integer(offsets[r][n][i]));
            });
    }
}

// Q8_0: one scale per 32 on both sides.
template <int NB, int kBlocks>
__device__ __forceinline__ void multiply_q8(const uint8_t *unit, const ActTile *act, int tile, int lane,
                                            float (*acc)[4]) {
    const int g = lane >> 2, t = lane & 3, out0 = tile * 16 + g;
    const __half *d = reinterpret_cast<const __half *>(unit + kQ8Scales);
#pragma unroll
    for (int first = 0; first < 8; first += kBlocks) {
        int c[kBlocks][NB][4] = {};
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
            const uint4 w = *reinterpret_cast<const uint4 *>(unit + ((tile * 8 + first + i) * 32 + lane) * 16);
            const uint32_t a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
            for (int n = 0; n < NB; ++n)
                mma_k32(c[i][n], a, *reinterpret_cast<const uint2 *>(act[n].q[first + i][ActTile::place(lane)]));
        }
        hold_order<NB>();
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
            const int b = first + i;
            const float d0 = __half2float(d[out0 * 8 + b]), d1 = __half2float(d[(out0 + 8) * 8 + b]);
#pragma unroll
            for (int n = 0; n < NB; ++n) {
                const float2 x = *reinterpret_cast<const float2 *>(&act[n].scale[b][2 * t]);
                acc[n][0] = fmaf(d0 * x.x, static_cast<float>(c[i][n][0]), acc[n][0]);
                acc[n][1] = fmaf(d0 * x.y, static_cast<float>(c[i][n][1]), acc[n][1]);
                acc[n][2] = fmaf(d1 * x.x, static_cast<float>(c[i][n][2]), acc[n][2]);
                acc[n][3] = fmaf(d1 * x.y, static_cast<float>(c[i][n][3]), acc[n][3]);
            }
        }
        if constexpr (NB >= 3) hold_order<NB>();
    }
}

// A unit times the row tiles of a pass. What is on its way at a time is as much as registers hold: with
// many row tiles, four of them.
template <int kFormat, int NT>
__device__ __forceinline__ void multiply_unit(const uint8_t *unit, const ActTile *act, int first_tile, int lane,
                                              Accumulators<NT> &acc) {
    constexpr int NB = NT < 4 ? NT : 4;
    constexpr bool kSixBits = kFormat == kTileQ6K;
    // Both tiles of outputs at a time share what is read of the activations.
    constexpr int kTiles = kFormat != kTileQ8 && (!kSixBits || NT == 3) ? 2 : 1;
    constexpr int kBlocks = NT == 1 ? 8 : kTiles == 1 && NT <= 3 ? 4 : 2;
#pragma unroll
    for (int r = 0; r < kWarpTiles; r += kTiles)
#pragma unroll
        for (int n = 0; n < NT; n += NB) {
            if constexpr (kSixBits)
                multiply_k6<NB, kTiles, kBlocks>(unit, act + n, first_tile + r, lane, acc[r] + n, NT);
            else if constexpr (kFormat == kTileQ8)
                for (int i = 0; i < kTiles; ++i)
                    multiply_q8<NB, kBlocks>(unit, act + n, first_tile + r + i, lane, acc[r + i] + n);
            else
                multiply_k45<kFormat, NB, kTiles, kBlocks>(unit, act + n, first_tile + r, lane, acc[r] + n, NT);
            if constexpr (NT >= 3) __syncwarp();
        }
}

}  // namespace pj::cuda
