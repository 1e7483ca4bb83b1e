// A unit of weights times one to four rows, on the same tensor cores and with the same bits as multiply_unit.cuh.
//
// Products have eight columns. Those that no row needs take other sub-blocks of the same rows: column n is part n / P
// of row n % P, where P is 1 or 4. A part's activations are zeros where other parts' sub-blocks are multiplied, so
// products add up in one accumulator without mixing, and codes are applied once for all parts, each lane its own.
//
// A warp first loads what it needs of a unit into registers, all at once, and lets go of the unit before it computes.
#pragma once

#include "cuda/ops/multiply_unit.cuh"

namespace pj::cuda {

// Lane 4 g + t holds column g of the activations, and outputs g and g + 8 of columns 2 t and 2 t + 1 of a product.
// Once the parts are added it has results of one of the warp's two row tiles: of one row one, of four rows four,
// outputs g and g + 8 of two rows each.
template <int P>
struct FewLane {
    int g, t;
    uint32_t one_of_four[4];  // 1 for number g / 2 of four, else 0: what a column belongs to if P = 1

    __device__ __forceinline__ explicit FewLane(int lane) : g(lane >> 2), t(lane & 3) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            one_of_four[i] = g / 2 == i;
            asm volatile("" : "+r"(one_of_four[i]));  // found once, not in every unit
        }
    }
    __device__ __forceinline__ int output(int i) const { return t / 2 * 16 + g + 8 * (P == 1 ? t & 1 : i / 2); }
    __device__ __forceinline__ int row(int i) const { return P == 1 ? 0 : 2 * (t & 1) + i % 2; }
    // Where activations of column g are among those of a k-block.
    __device__ __forceinline__ int place() const { return ActTile::place(4 * (g % P) + t); }
};

template <int P>
using FewSums = int[kWarpTiles][P == 1 ? 2 : 4];

template <int P>
using FewAccumulators = float[P];

// Outputs of a lane's results, and rows.
template <int P>
constexpr int kFewEach = P == 1 ? 1 : 2;

// Of two values the lane `mask` away has the other two of: the sum of those that this lane is to have.
__device__ __forceinline__ int keep_and_pass(bool upper, int low, int high, int mask) {
    return (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, mask);
}

// Adds the parts.
__device__ __forceinline__ void add_parts(const FewSums<1> &sum, int t, int (&total)[1]) {
    const int low = keep_and_pass(t & 2, sum[0][0], sum[1][0], 2), high = keep_and_pass(t & 2, sum[0][1], sum[1][1], 2);
    total[0] = keep_and_pass(t & 1, low, high, 1);
}
__device__ __forceinline__ void add_parts(const FewSums<4> &sum, int t, int (&total)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] = keep_and_pass(t & 2, sum[0][i], sum[1][i], 2);
}

// Value i of the lane's results, of sums in whose product every part's column held the whole row.
template <int P>
__device__ __forceinline__ float sum_of_result(const CodeSums (&sums)[kWarpTiles], int t, int i) {
    if constexpr (P == 4) return t & 2 ? sums[1][i] : sums[0][i];
    const float low = t & 2 ? sums[1][0] : sums[0][0], high = t & 2 ? sums[1][2] : sums[0][2];
    return t & 1 ? high : low;
}

__device__ __forceinline__ uint32_t load2(const uint8_t *p) { return *reinterpret_cast<const uint16_t *>(p); }
__device__ __forceinline__ uint2 load8(const void *p) { return *static_cast<const uint2 *>(p); }

// Byte `i` of a word with its sign; i may be known to the lane only.
__device__ __forceinline__ int signed_byte_at(uint32_t word, int i) {
    int out;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(word), "r"(0x8880 + 0x1111 * i));
    return out;
}

__device__ __forceinline__ uint2 only_if(bool condition, uint2 x) {
    return make_uint2(condition ? x.x : 0, condition ? x.y : 0);
}
__device__ __forceinline__ void masked(uint32_t (&a)[4], const uint4 &x, uint32_t mask) {
    a[0] = x.x & mask;
    a[1] = x.y & mask;
    a[2] = x.z & mask;
    a[3] = x.w & mask;
}

// Four bytes, none of them -128.
__device__ __forceinline__ uint32_t negative_bytes(uint32_t x) {
    return (0x80808080u - (x & 0x7f7f7f7fu)) ^ (~x & 0x80808080u);
}

// What rows bring to a unit, besides their quants.
template <int P>
struct FewRows {
    uint2 sums;
    float scale[kFewEach<P>];

    __device__ __forceinline__ void load(const ActTile &act, const FewLane<P> &at) {
        sums = load8(act.sums[at.place()]);
#pragma unroll
        for (int i = 0; i < kFewEach<P>; ++i) scale[i] = act.scale[0][at.row(i)];
    }
    __device__ __forceinline__ void multiply(CodeSums (&out)[kWarpTiles],
                                             const uint32_t (&codes)[kWarpTiles][4]) const {
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r) out[r].multiply(codes[r], sums);
    }
};

// Q4_K. P = 1: part j is sub-block j. P = 4: part j is sub-block j of every two.
template <int P>
struct FewQ4K {
    static constexpr int kLoads = P == 1 ? 1 : 4;

    uint4 w[kWarpTiles][4];
    uint2 q[kLoads], mins[kWarpTiles][2], scales[kWarpTiles][2];
    __half2 d[kFewEach<P>];
    FewRows<P> rows;

    __device__ __forceinline__ void load(const uint8_t *unit, const ActTile &act, int tile, int lane,
                                         const FewLane<P> &at) {
        load_nibbles(w, unit, tile, 0, lane);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) q[i] = load8(act.q[P == 1 ? at.g : 2 * i + at.g / 4][at.place()]);
        const uint8_t *const codes = unit + kQ4KCodes + (tile * 16 + at.g) * 16;
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint8_t *const of_output = codes + r * 256 + h * 128;
                mins[r][h] = load8(of_output + 8);
                scales[r][h] = P == 1 ? make_uint2(load2(of_output + 2 * at.t), 0) : load8(of_output);
            }
#pragma unroll
        for (int i = 0; i < kFewEach<P>; ++i)
            d[i] = *reinterpret_cast<const __half2 *>(unit + kQ4KScales + (tile * 16 + at.output(2 * i)) * 4);
        rows.load(act, at);
    }

    // Sums of sub-blocks, the odd ones times 16: their nibbles stay where they are.
    __device__ __forceinline__ void multiply(const FewLane<1> &at, FewSums<1> &sum) const {
        // A byte is 16 odd + even; with the negative activations of the odd sub-block the even nibbles go again.
        const bool odd = at.g & 1;
        const uint2 byte = only_if(odd, q[0]);
        const uint2 nibble = make_uint2(odd ? negative_bytes(q[0].x) : q[0].x, odd ? negative_bytes(q[0].y) : q[0].y);
        int c[kWarpTiles][2][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t mine = at.one_of_four[i];
            const uint2 of_bytes = make_uint2(byte.x * mine, byte.y * mine),
                        of_nibbles = make_uint2(nibble.x * mine, nibble.y * mine);
#pragma unroll
            for (int r = 0; r < kWarpTiles; ++r) {
                uint32_t bytes[4], nibbles[4];
                masked(bytes, w[r][i], ~0u);
                masked(nibbles, w[r][i], 0x0f0f0f0fu);
                mma_unsigned_k32(c[r][0], bytes, of_bytes);
                mma_unsigned_k32(c[r][1], nibbles, of_nibbles);
            }
        }
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t pair = scales[r][h].x;
                const int even = c[r][1][2 * h], odd16 = c[r][0][2 * h + 1] + c[r][1][2 * h + 1];
                sum[r][h] = static_cast<int>(pair << 4 & 0xff0) * even + static_cast<int>(pair >> 8) * odd16;
            }
    }
    __device__ __forceinline__ void multiply(const FewLane<4> &at, FewSums<4> &sum) const {
        const int part = at.t >> 1;
        const bool even = at.g < 4;
        int c[kWarpTiles][4][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint2 of_even = only_if(even, q[i]), of_odd = only_if(!even, q[i]);
#pragma unroll
            for (int r = 0; r < kWarpTiles; ++r) {
                uint32_t low[4], high[4];
                masked(low, w[r][i], 0x0f0f0f0fu);
                masked(high, w[r][i], 0xf0f0f0f0u);
                mma_unsigned_k32(c[r][i], low, of_even);
                mma_unsigned_k32(c[r][i], high, of_odd);
            }
        }
        hold_order<1>();
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int byte = i % 2 * 2 + part;
                add_coded(sum[r], c[r][i], unsigned_byte(i < 2 ? scales[r][0].x : scales[r][0].y, byte),
                          unsigned_byte(i < 2 ? scales[r][1].x : scales[r][1].y, byte));
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[r][i] <<= part ? 0 : 4;
        }
    }

    // Codes that are multiplied with sums of activations, and result i.
    __device__ __forceinline__ void sum_codes(uint32_t (&codes)[kWarpTiles][4], const FewLane<P> &at) const {
        const uint32_t pair = 0x4040 + at.t * 0x0101;
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                codes[r][h] = byte_halves(mins[r][h].x, pair);
                codes[r][2 + h] = byte_halves(mins[r][h].y, pair);
            }
    }
    __device__ __forceinline__ float value(int i, int total, float of_mins) const {
        return scaled(__half22float2(d[i / 2]), total >> 4, of_mins);
    }
};

// Q6_K. Part h + 2 j of P = 1 is half h of k-block j of every four, part h of P = 4 half h of each.
template <int P>
struct FewQ6K {
    static constexpr int kLoads = P == 1 ? 2 : 8;

    uint4 w[kWarpTiles][4], upper[kWarpTiles][2];
    uint32_t q[kLoads];
    uint32_t pairs[kWarpTiles][4];  // codes 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of outputs g and g + 8
    uint4 scales[kWarpTiles][2];    // of P = 4 all codes
    __half d[kFewEach<P>];
    FewRows<P> rows;

    __device__ __forceinline__ int half(const FewLane<P> &at) const { return P == 1 ? at.g & 1 : at.g / 4; }

    __device__ __forceinline__ void load(const uint8_t *unit, const ActTile &act, int tile, int lane,
                                         const FewLane<P> &at) {
        load_nibbles(w, unit, tile, 0, lane);
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r)
#pragma unroll
            for (int i = 0; i < 2; ++i) upper[r][i] = load16(unit + kQ6KUpper, ((tile + r) * 2 + i) * 32 + lane);
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            q[i] = reinterpret_cast<const uint32_t *>(act.q[P == 1 ? 4 * i + at.g / 2 : i][at.place()])[half(at)];
        const uint8_t *const codes = unit + kQ6KCodes + (tile * 16 + at.g) * 16;
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const uint8_t *const of_output = codes + r * 256 + i % 2 * 128;
                pairs[r][i] = load2(of_output + i / 2 * 8 + 2 * at.t);
                if (P > 1 && i < 2) scales[r][i] = *reinterpret_cast<const uint4 *>(of_output);
            }
#pragma unroll
        for (int i = 0; i < kFewEach<P>; ++i)
            d[i] = *reinterpret_cast<const __half *>(unit + kQ6KScales + (tile * 16 + at.output(2 * i)) * 2);
        rows.load(act, at);
    }

    __device__ __forceinline__ void multiply(const FewLane<P> &at, FewSums<P> &sum) const {
        constexpr int kTogether = 4;  // k-blocks
        const int h = half(at);
#pragma unroll
        for (int first = 0; first < 8; first += kTogether) {
            int c[kWarpTiles][P == 1 ? 1 : kTogether][4] = {};
#pragma unroll
            for (int b = first; b < first + kTogether; ++b) {
                const uint32_t x = P == 1 ? q[b / 4] * at.one_of_four[b % 4] : q[b];
                const uint2 columns = make_uint2(h ? 0 : x, h ? x : 0);
#pragma unroll
                for (int r = 0; r < kWarpTiles; ++r) {
                    uint32_t a[4];
                    six_bits(a, w[r][b / 2], upper[r][b / 4], b);
                    mma_unsigned_k32(c[r][P == 1 ? 0 : b - first], a, columns);
                }
            }
            if constexpr (P > 1) hold_order<1>();
#pragma unroll
            for (int r = 0; r < kWarpTiles; ++r) add_codes(at, sum[r], c[r], r, first);
        }
    }
    __device__ __forceinline__ void add_codes(const FewLane<P> &, int (&sum)[2], const int (&c)[1][4], int r,
                                              int first) const {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const uint32_t pair = pairs[r][first / 4 * 2 + h];
            sum[h] += signed_byte_at(pair, 0) * c[0][2 * h] + signed_byte_at(pair, 1) * c[0][2 * h + 1];
        }
    }
    __device__ __forceinline__ void add_codes(const FewLane<P> &at, int (&sum)[4], const int (&c)[4][4], int r,
                                              int first) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int b = first + i, byte = b % 2 * 2 + (at.t >> 1);
            add_coded(sum, c[i], signed_byte_at(word(scales[r][0], b / 2), byte),
                      signed_byte_at(word(scales[r][1], b / 2), byte));
        }
    }

    __device__ __forceinline__ void sum_codes(uint32_t (&codes)[kWarpTiles][4], const FewLane<P> &) const {
#pragma unroll
        for (int r = 0; r < kWarpTiles; ++r)
#pragma unroll
            for (int i = 0; i < 4; ++i) codes[r][i] = signed_byte_halves(pairs[r][i], 0x4140);
    }
    __device__ __forceinline__ float value(int i, int total, float offset) const {
        return __half2float(d[i / 2]) * static_cast<float>(total - 32 * CodeSums::integer(offset));
    }
};

// Adds what was loaded of a unit to the lane's results.
template <int P, class Unit>
__device__ __forceinline__ void add_unit(FewAccumulators<P> &acc, const Unit &unit, const FewLane<P> &at) {
    uint32_t codes[kWarpTiles][4];
    unit.sum_codes(codes, at);
    CodeSums of_codes[kWarpTiles];
    unit.rows.multiply(of_codes, codes);
    FewSums<P> sum = {};
    unit.multiply(at, sum);
    int total[P];
    add_parts(sum, at.t, total);
#pragma unroll
    for (int i = 0; i < P; ++i)
        acc[i] = fmaf(unit.rows.scale[i % 2], unit.value(i, total[i], sum_of_result<P>(of_codes, at.t, i)), acc[i]);
}

template <int kFormat, int P>
using FewUnit = std::conditional_t<kFormat == kTileQ4K, FewQ4K<P>, FewQ6K<P>>;

}  // namespace pj::cuda
