// Weights times quantised rows on int8 tensor cores.
//
//     y[row][out] = sum over units of scale_x * (d * sum_s code_s * dot_s - dmin * sum_s min_s * sum_s(q))
//
// Order of sums: integers are exact within a unit (256 inputs); the units of a piece (split.h) are
// added in order, then the pieces of a block. Steps of few rows: a worker computes its own range of
// units, stores pieces, and readers add them. Wide steps: a CTA takes four whole blocks and a group of
// rows, reads every weight once for them, and adds the same pieces in the same order itself.
#pragma once

#include <cuda_fp16.h>

#include "cuda/megakernel.h"
#include "cuda/ops/products.cuh"
#include "cuda/sync/grid.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

constexpr int kWarpTiles = 2;  // row tiles of 16 outputs per warp; a group's two warps make a block
static_assert(kGroups * 2 == kConsumerWarps && kWarpTiles * 2 * 16 == kUnitOutputs, "a block per group");

__device__ __forceinline__ void mma_k32(int (&c)[4], const uint32_t (&a)[4], uint2 b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

__device__ __forceinline__ void mma_k16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
}

// Byte i of a word: of a scale code of Q4_K and Q5_K, which has no sign, and of Q6_K.
__device__ __forceinline__ int unsigned_byte(uint32_t word, int i) {
    return static_cast<int>(__byte_perm(word, 0, 0x4440 + i));
}
__device__ __forceinline__ int signed_byte(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }

// sum over 16 sub-blocks of code * (sum of their activations): the sums come in two parts of 7 bits
// so that both fit int8.
struct CodeSums {
    int upper[4] = {}, lower[4] = {};

    __device__ __forceinline__ void multiply(uint32_t a0, uint32_t a1, uint2 sums) {
        mma_k16(upper, a0, a1, sums.x);
        mma_k16(lower, a0, a1, sums.y);
    }
    __device__ __forceinline__ int operator[](int i) const { return upper[i] * 128 + lower[i]; }
};

// d * sum - dmin * mins
__device__ __forceinline__ float scaled(float2 d, int sum, int mins) {
    return fmaf(-d.y, static_cast<float>(mins), d.x * static_cast<float>(sum));
}

template <int NT>
using Accumulators = float[kWarpTiles][NT][4];

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
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
        const int out0 = (tile + r) * 16 + g;
        low[r] = *reinterpret_cast<const uint4 *>(unit + kQ4KCodes + out0 * 16);
        high[r] = *reinterpret_cast<const uint4 *>(unit + kQ4KCodes + (out0 + 8) * 16);
        if constexpr (kFormat == kTileQ5K)
            fifth[r] = *reinterpret_cast<const uint4 *>(unit + kQ5KFifth + ((tile + r) * 32 + lane) * 16);
    }
    int isum[kTiles][NB][4] = {};
    CodeSums mins[kTiles][NB];
    const auto multiply_mins = [&] {
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
            // Codes of sub-blocks 2 t and 2 t + 1, each for two sums of 16.
            const uint32_t m0 = t < 2 ? low[r].z : low[r].w, m1 = t < 2 ? high[r].z : high[r].w;
            const uint32_t a0 = __byte_perm(m0, 0, t & 1 ? 0x3322 : 0x1100),
                           a1 = __byte_perm(m1, 0, t & 1 ? 0x3322 : 0x1100);
#pragma unroll
            for (int n = 0; n < NB; ++n)
                mins[r][n].multiply(a0, a1, *reinterpret_cast<const uint2 *>(act[n].sums[lane]));
        }
    };
#pragma unroll
    for (int first = 0; first < 8; first += kBlocks) {
        uint4 w[kTiles][kBlocks / 2];
        uint2 q[NB][kBlocks];
#pragma unroll
        for (int r = 0; r < kTiles; ++r)
#pragma unroll
            for (int i = 0; i < kBlocks / 2; ++i)
                w[r][i] = *reinterpret_cast<const uint4 *>(unit + (((tile + r) * 4 + first / 2 + i) * 32 + lane) * 16);
#pragma unroll
        for (int n = 0; n < NB; ++n)
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) q[n][i] = *reinterpret_cast<const uint2 *>(act[n].q[first + i][lane]);
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
                for (int n = 0; n < NB; ++n) {
                    isum[r][n][0] += c0 * c[r][i][n][0];
                    isum[r][n][1] += c0 * c[r][i][n][1];
                    isum[r][n][2] += c1 * c[r][i][n][2];
                    isum[r][n][3] += c1 * c[r][i][n][3];
                }
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
        for (int n = 0; n < NB; ++n) {
            const CodeSums &msum = mins[r][n];
            const float2 x = *reinterpret_cast<const float2 *>(&act[n].scale[0][2 * t]);
            float *to = acc[r * acc_stride + n];
            to[0] = fmaf(x.x, scaled(d0, isum[r][n][0], msum[0]), to[0]);
            to[1] = fmaf(x.y, scaled(d0, isum[r][n][1], msum[1]), to[1]);
            to[2] = fmaf(x.x, scaled(d1, isum[r][n][2], msum[2]), to[2]);
            to[3] = fmaf(x.y, scaled(d1, isum[r][n][3], msum[3]), to[3]);
        }
    }
}

// Q6_K: 16-wide sub-blocks; value = stored - 32, taken off through the sums.
template <int NB, int kTiles, int kBlocks>
__device__ __forceinline__ void multiply_k6(const uint8_t *unit, const ActTile *act, int tile, int lane,
                                            float (*acc)[4], int acc_stride) {
    constexpr bool kEarlySums = NB <= 2;
    const int g = lane >> 2, t = lane & 3;
    uint4 low[kTiles], high[kTiles];
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
        const int out0 = (tile + r) * 16 + g;
        low[r] = *reinterpret_cast<const uint4 *>(unit + kQ6KCodes + out0 * 16);
        high[r] = *reinterpret_cast<const uint4 *>(unit + kQ6KCodes + (out0 + 8) * 16);
    }
    int isum[kTiles][NB][4] = {};
    CodeSums offsets[kTiles][NB];
    const auto multiply_offsets = [&] {
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
            const uint32_t a0 = t == 0 ? low[r].x : t == 1 ? low[r].y : t == 2 ? low[r].z : low[r].w;
            const uint32_t a1 = t == 0 ? high[r].x : t == 1 ? high[r].y : t == 2 ? high[r].z : high[r].w;
#pragma unroll
            for (int n = 0; n < NB; ++n)
                offsets[r][n].multiply(a0, a1, *reinterpret_cast<const uint2 *>(act[n].sums[lane]));
        }
    };
#pragma unroll
    for (int first = 0; first < 8; first += kBlocks) {
        uint4 w[kTiles][kBlocks / 2], u[kTiles][(kBlocks + 3) / 4];  // u: upper bits of four k-blocks each
        uint2 q[NB][kBlocks];
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
#pragma unroll
            for (int i = 0; i < kBlocks / 2; ++i)
                w[r][i] = *reinterpret_cast<const uint4 *>(unit + (((tile + r) * 4 + first / 2 + i) * 32 + lane) * 16);
#pragma unroll
            for (int i = 0; i < kBlocks; i += 4)
                u[r][i / 4] = *reinterpret_cast<const uint4 *>(unit + kQ6KUpper +
                                                               (((tile + r) * 2 + (first + i) / 4) * 32 + lane) * 16);
        }
#pragma unroll
        for (int n = 0; n < NB; ++n)
#pragma unroll
            for (int i = 0; i < kBlocks; ++i) q[n][i] = *reinterpret_cast<const uint2 *>(act[n].q[first + i][lane]);
        int c[kTiles][kBlocks][NB][2][4] = {};
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
#pragma unroll
            for (int r = 0; r < kTiles; ++r) {
                const int b = first + i, shift = b % 2 * 4, up = 2 * (b & 3);
                const uint4 &x = w[r][i / 2], &y = u[r][i / 4];
                const uint32_t a[4] = {(x.x >> shift & 0x0f0f0f0fu) | (y.x >> up & 0x03030303u) << 4,
                                       (x.y >> shift & 0x0f0f0f0fu) | (y.y >> up & 0x03030303u) << 4,
                                       (x.z >> shift & 0x0f0f0f0fu) | (y.z >> up & 0x03030303u) << 4,
                                       (x.w >> shift & 0x0f0f0f0fu) | (y.w >> up & 0x03030303u) << 4};
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
                const uint32_t codes0 = s < 4 ? low[r].x : s < 8 ? low[r].y : s < 12 ? low[r].z : low[r].w;
                const uint32_t codes1 = s < 4 ? high[r].x : s < 8 ? high[r].y : s < 12 ? high[r].z : high[r].w;
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int c0 = signed_byte(codes0, (s & 3) + h), c1 = signed_byte(codes1, (s & 3) + h);
#pragma unroll
                    for (int n = 0; n < NB; ++n) {
                        isum[r][n][0] += c0 * c[r][i][n][h][0];
                        isum[r][n][1] += c0 * c[r][i][n][h][1];
                        isum[r][n][2] += c1 * c[r][i][n][h][2];
                        isum[r][n][3] += c1 * c[r][i][n][h][3];
                    }
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
        for (int n = 0; n < NB; ++n) {
            const CodeSums &offset = offsets[r][n];
            const float2 x = *reinterpret_cast<const float2 *>(&act[n].scale[0][2 * t]);
            float *to = acc[r * acc_stride + n];
            to[0] = fmaf(x.x, d0 * static_cast<float>(isum[r][n][0] - 32 * offset[0]), to[0]);
            to[1] = fmaf(x.y, d0 * static_cast<float>(isum[r][n][1] - 32 * offset[1]), to[1]);
            to[2] = fmaf(x.x, d1 * static_cast<float>(isum[r][n][2] - 32 * offset[2]), to[2]);
            to[3] = fmaf(x.y, d1 * static_cast<float>(isum[r][n][3] - 32 * offset[3]), to[3]);
        }
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
                mma_k32(c[i][n], a, *reinterpret_cast<const uint2 *>(act[n].q[first + i][lane]));
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
    constexpr int kTiles = NT == 1 && !kSixBits ? 2 : 1;
    constexpr int kBlocks = NT == 1 ? 8 : NT == 2 || (NT == 3 && !kSixBits) ? 4 : 2;
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

__device__ __forceinline__ int gemm_rows(const StepArgs &s, int all_rows) { return all_rows ? s.n_rows : s.n_selected; }

// Row tiles that share one read of the weights. In wide steps eight, unless half of that deals the items
// much more evenly to the CTAs: the last round of a matrix with few blocks would keep few of them busy.
__device__ __forceinline__ int gemm_tiles(const StepArgs &s, int n_rows, int n_blocks) {
    const int tiles = (n_rows + 7) / 8;
    if (!s.wide) return tiles <= 4 ? tiles : 8;
    if (tiles <= 4 || s.pass_tiles == 4) return 4;
    const unsigned quads = static_cast<unsigned>(n_blocks + kGroups - 1) / kGroups, grid = gridDim.x;
    const unsigned rounds8 = (quads * ((tiles + 7) / 8) + grid - 1) / grid * 2;
    const unsigned rounds4 = (quads * ((tiles + 3) / 4) + grid - 1) / grid;
    return rounds4 * 8 <= rounds8 * 7 ? 4 : 8;
}

// This CTA's number in the split of a matrix.
__device__ __forceinline__ int split_cta(int first_cta) {
    const int cta = static_cast<int>(blockIdx.x) - first_cta;
    return cta < 0 ? cta + static_cast<int>(gridDim.x) : cta;
}

// Wide steps: the (block quad, row group) items of a matrix, dealt to the CTAs from the one after the
// last item of the matrix before.
struct WideItems {
    int n_groups, n, first;  // row groups, items, this CTA's first item

    __device__ __forceinline__ WideItems(int n_blocks, int n_rows, int tiles, uint32_t &cursor) {
        n_groups = (n_rows + tiles * 8 - 1) / (tiles * 8);
        n = (n_blocks + kGroups - 1) / kGroups * n_groups;
        const int grid = static_cast<int>(gridDim.x);
        first = static_cast<int>(blockIdx.x) - static_cast<int>(cursor);
        if (first < 0) first += grid;
        cursor = (cursor + n) % grid;
    }
    // Neighbouring items share their weights.
    __device__ __forceinline__ int quad(int item) const { return item / n_groups; }
    __device__ __forceinline__ int row_group(int item) const { return item % n_groups; }
};

// Where a group is in the rings: advanced by every matrix of every op, as the loaders advance.
struct RingUses {
    uint32_t weights = 0, acts = 0, cursor = 0;
};

// The next units of one output block that a group adds up.
struct Piece {
    int block, n_units;
    float *out;  // of the block's first output and the rows' first
    int64_t row_stride;
    int n_rows;  // of the step, from the first on
    bool add;    // to what is there
};

// Steps of few rows: the worker's range, block by block.
struct NarrowPieces {
    const StepArgs &s;
    const Gemm &gemm;
    int worker, unit, end, n_rows;

    __device__ __forceinline__ NarrowPieces(const StepArgs &s, const Gemm &gemm, int group, int n_rows)
        : s(s), gemm(gemm), n_rows(n_rows) {
        const int cta = split_cta(gemm.first_cta);
        const UnitRange units = cta_range(gemm.n_blocks * gemm.k_units, cta, gridDim.x);
        const UnitRange mine = group_range(units.size(), group);
        worker = cta * kGroups + group;
        unit = units.begin + mine.begin;
        end = units.begin + mine.end;
    }

    __device__ __forceinline__ bool next(Piece &p) {
        if (unit >= end) return false;
        p.block = unit / gemm.k_units;
        p.n_units = min(end, (p.block + 1) * gemm.k_units) - unit;
        p.row_stride = kUnitOutputs;
        p.out = gemm.out + static_cast<int64_t>(p.block + worker) * s.piece_rows * kUnitOutputs;
        p.n_rows = n_rows;
        p.add = false;
        unit += p.n_units;
        return true;
    }
};

// Wide steps: one block of every quad, cut where the workers of a step of few rows would begin.
struct WidePieces {
    const StepArgs &s;
    const Gemm &gemm;
    const int group, tiles, n_rows, n_units;
    WideItems items;
    RingUses &uses;
    int item, unit = 0, block_end = 0, worker = 0;

    __device__ __forceinline__ WidePieces(const StepArgs &s, const Gemm &gemm, int group, int n_rows, int tiles,
                                          RingUses &uses)
        : s(s),
          gemm(gemm),
          group(group),
          tiles(tiles),
          n_rows(n_rows),
          n_units(gemm.n_blocks * gemm.k_units),
          items(gemm.n_blocks, n_rows, tiles, uses.cursor),
          uses(uses),
          item(items.first - static_cast<int>(gridDim.x)) {}

    // The quad has no block for this group: it only lets go of the activations.
    __device__ __forceinline__ void skip_item(const SlotRing &acts, int lane) {
        for (int k = 0; k < gemm.k_units; ++k, ++uses.acts) {
            acts.wait_full(uses.acts);
            if (lane == 0) acts.release(uses.acts);
        }
    }

    __device__ __forceinline__ bool next_item(const SlotRing &acts, int lane) {
        for (item += gridDim.x; item < items.n; item += gridDim.x) {
            const int block = items.quad(item) * kGroups + group;
            if (block < gemm.n_blocks) {
                unit = block * gemm.k_units;
                block_end = unit + gemm.k_units;
                worker = worker_of(n_units, unit, gridDim.x);
                return true;
            }
            skip_item(acts, lane);
        }
        return false;
    }

    __device__ __forceinline__ bool next(Piece &p, const SlotRing &acts, int lane) {
        const bool first = unit == block_end;
        if (first && !next_item(acts, lane)) return false;
        const int row = items.row_group(item) * tiles * 8;
        p.block = items.quad(item) * kGroups + group;
        p.n_units = min(block_end, worker_range(n_units, worker++, gridDim.x).end) - unit;
        p.row_stride = static_cast<int64_t>(gemm.n_blocks) * kUnitOutputs;
        p.out = gemm.out + row * p.row_stride + p.block * kUnitOutputs;
        p.n_rows = min(tiles * 8, n_rows - row);
        p.add = !first;
        unit += p.n_units;
        return true;
    }
};

template <int NT>
__device__ __forceinline__ void store_piece(const Piece &p, int first_tile, int lane, const Accumulators<NT> &acc) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = n * 8 + 2 * t + j;
            if (row >= p.n_rows) continue;
            float *at = p.out + row * p.row_stride + first_tile * 16 + g;
            float value[2 * kWarpTiles];
#pragma unroll
            for (int i = 0; i < 2 * kWarpTiles; ++i) value[i] = acc[i / 2][n][i % 2 * 2 + j];
            if (p.add) {
#pragma unroll
                for (int i = 0; i < 2 * kWarpTiles; ++i) value[i] = __ldcg(at + 8 * i) + value[i];
            }
#pragma unroll
            for (int i = 0; i < 2 * kWarpTiles; ++i) __stcg(at + 8 * i, value[i]);
        }
}

template <int kFormat, int NT>
__device__ __forceinline__ void add_units(int n_units, const ByteRing &weights, const SlotRing &acts, RingUses &uses,
                                          Accumulators<NT> &acc) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = warp / 2;
    for (int i = 0; i < n_units; ++i, ++uses.weights, ++uses.acts) {
        const uint8_t *w = shared_pointer<const uint8_t>(weights.wait_full(group, uses.weights));
        acts.wait_full(uses.acts);
        __syncwarp();  // lanes leave the waits one by one, mma wants them together
        const ActTile *a = shared_pointer<const ActTile>(acts.slot(uses.acts));
        multiply_unit<kFormat, NT>(w, a, warp % 2 * kWarpTiles, lane, acc);
        __syncwarp();
        if (lane == 0) {
            weights.release(group, uses.weights);
            acts.release(uses.acts);
        }
    }
}

// acts: the group's own ring, or in wide steps the common one.
template <int kFormat, int NT, bool kWide>
__device__ __noinline__ RingUses gemm_tiled(const StepArgs &s, const Gemm &gemm, int n_rows, ByteRing weights,
                                            SlotRing acts, RingUses uses) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = warp / 2;
    const auto run = [&](const Piece &p) {
        Accumulators<NT> acc = {};
        add_units<kFormat, NT>(p.n_units, weights, acts, uses, acc);
        store_piece<NT>(p, warp % 2 * kWarpTiles, lane, acc);
    };
    Piece p;
    if constexpr (kWide) {
        WidePieces pieces(s, gemm, group, n_rows, NT, uses);
        while (pieces.next(p, acts, lane)) run(p);
    } else {
        NarrowPieces pieces(s, gemm, group, n_rows);
        while (pieces.next(p)) run(p);
    }
    return uses;
}

template <auto kValue>
struct Constant {
    static constexpr auto value = kValue;
};

template <int kFormat>
__device__ __forceinline__ void gemm_of_format(const StepArgs &s, const Gemm &gemm, const ByteRing &weights,
                                               const SlotRing &acts, RingUses &uses) {
    const int n_rows = gemm_rows(s, gemm.all_rows), tiles = gemm_tiles(s, n_rows, gemm.n_blocks);
    const auto run = [&](auto n_tiles, auto wide) {
        uses =
            gemm_tiled<kFormat, decltype(n_tiles)::value, decltype(wide)::value>(s, gemm, n_rows, weights, acts, uses);
    };
    if (s.wide) return tiles == 4 ? run(Constant<4>{}, Constant<true>{}) : run(Constant<8>{}, Constant<true>{});
    switch (tiles) {
        case 1:
            return run(Constant<1>{}, Constant<false>{});
        case 2:
            return run(Constant<2>{}, Constant<false>{});
        case 3:
            return run(Constant<3>{}, Constant<false>{});
        case 4:
            return run(Constant<4>{}, Constant<false>{});
        default:
            return run(Constant<8>{}, Constant<false>{});
    }
}

// One value of a matrix that is not split.
__device__ __forceinline__ float *whole_output(const StepArgs &s, const Gemm &gemm, int row, int out) {
    if (s.wide) return gemm.out + static_cast<int64_t>(row) * gemm.n_blocks * kUnitOutputs + out;
    return gemm.out + (static_cast<int64_t>(out / kUnitOutputs) * s.piece_rows + row) * kUnitOutputs +
           out % kUnitOutputs;
}

}  // namespace pj::cuda
