// Weights times quantised rows on int8 tensor cores.
//
//     y[row][out] = sum over units of scale_x * (d * sum_s code_s * dot_s - dmin * sum_s min_s * sum_s(q))
//
// Order of sums: integers are exact within a unit (256 inputs). Warps 2 g and 2 g + 1 take the units
// with k % 4 == g in order; the four sums of a block are added in order of g; parts of a block that
// several CTAs share are added in CTA order by the reader. Nothing depends on the number of rows:
// rows run in passes of up to 24 that repeat the same sums.
#pragma once

#include <cuda_fp16.h>

#include "cuda/megakernel.h"
#include "cuda/ops/parts.cuh"
#include "cuda/sync/grid.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

constexpr int kGroups = 4;     // of two warps
constexpr int kWarpTiles = 2;  // row tiles of 16 outputs per warp
constexpr int kReduceFloats = kGroups * kUnitOutputs * kPassTiles * 8;
static_assert(kReduceFloats * 4 <= kScratchBytes, "reduction buffer");

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

__device__ __forceinline__ int byte_of(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }

// sum over 16 sub-blocks of code * (sum of their activations): the sums come in two parts of 7 bits
// so that both fit int8.
__device__ __forceinline__ void mma_sums(int (&c)[4], uint32_t a0, uint32_t a1, uint2 sums) {
    c[0] = c[1] = c[2] = c[3] = 0;
    mma_k16(c, a0, a1, sums.x);
    for (int i = 0; i < 4; ++i) c[i] <<= 7;
    mma_k16(c, a0, a1, sums.y);
}

template <int NT>
using Accumulators = float[kWarpTiles][NT][4];

// Q4_K and Q5_K: 32-wide sub-blocks with a scale and a minimum.
template <int kFormat, int NT>
__device__ __forceinline__ void multiply_k45(const uint8_t *unit, const ActTile *act, int first_tile, int lane,
                                             Accumulators<NT> &acc) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int r = 0; r < kWarpTiles; ++r) {
        const int tile = first_tile + r, out0 = tile * 16 + g;
        const uint4 low = *reinterpret_cast<const uint4 *>(unit + kQ4KCodes + out0 * 16);
        const uint4 high = *reinterpret_cast<const uint4 *>(unit + kQ4KCodes + (out0 + 8) * 16);
        uint4 fifth = {};
        if constexpr (kFormat == kTileQ5K)
            fifth = *reinterpret_cast<const uint4 *>(unit + kQ5KFifth + (tile * 32 + lane) * 16);
        int isum[NT][4], msum[NT][4];
        // Minimum codes of sub-blocks 2 t and 2 t + 1, each for two sums of 16.
        const uint32_t m0 = t < 2 ? low.z : low.w, m1 = t < 2 ? high.z : high.w;
        const uint32_t a0 = __byte_perm(m0, 0, t & 1 ? 0x3322 : 0x1100),
                       a1 = __byte_perm(m1, 0, t & 1 ? 0x3322 : 0x1100);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            mma_sums(msum[n], a0, a1, *reinterpret_cast<const uint2 *>(act[n].sums[lane]));
#pragma unroll
            for (int i = 0; i < 4; ++i) isum[n][i] = 0;
        }
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            const uint4 w = *reinterpret_cast<const uint4 *>(unit + ((tile * 4 + pair) * 32 + lane) * 16);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int b = pair * 2 + half, shift = half * 4;
                uint32_t a[4] = {w.x >> shift & 0x0f0f0f0fu, w.y >> shift & 0x0f0f0f0fu, w.z >> shift & 0x0f0f0f0fu,
                                 w.w >> shift & 0x0f0f0f0fu};
                if constexpr (kFormat == kTileQ5K) {
                    a[0] |= (fifth.x >> b & 0x01010101u) << 4;
                    a[1] |= (fifth.y >> b & 0x01010101u) << 4;
                    a[2] |= (fifth.z >> b & 0x01010101u) << 4;
                    a[3] |= (fifth.w >> b & 0x01010101u) << 4;
                }
                const int c0 = byte_of(b < 4 ? low.x : low.y, b & 3), c1 = byte_of(b < 4 ? high.x : high.y, b & 3);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    int c[4] = {0, 0, 0, 0};
                    mma_k32(c, a, *reinterpret_cast<const uint2 *>(act[n].q[b][lane]));
                    isum[n][0] += c0 * c[0];
                    isum[n][1] += c0 * c[1];
                    isum[n][2] += c1 * c[2];
                    isum[n][3] += c1 * c[3];
                }
            }
        }
        const float2 d0 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + out0 * 4));
        const float2 d1 = __half22float2(*reinterpret_cast<const __half2 *>(unit + kQ4KScales + (out0 + 8) * 4));
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            const float2 x = *reinterpret_cast<const float2 *>(&act[n].scale[0][2 * t]);
            acc[r][n][0] += x.x * (d0.x * static_cast<float>(isum[n][0]) - d0.y * static_cast<float>(msum[n][0]));
            acc[r][n][1] += x.y * (d0.x * static_cast<float>(isum[n][1]) - d0.y * static_cast<float>(msum[n][1]));
            acc[r][n][2] += x.x * (d1.x * static_cast<float>(isum[n][2]) - d1.y * static_cast<float>(msum[n][2]));
            acc[r][n][3] += x.y * (d1.x * static_cast<float>(isum[n][3]) - d1.y * static_cast<float>(msum[n][3]));
        }
    }
}

// Q6_K: 16-wide sub-blocks; value = stored - 32, taken off through the sums.
template <int NT>
__device__ __forceinline__ void multiply_k6(const uint8_t *unit, const ActTile *act, int first_tile, int lane,
                                            Accumulators<NT> &acc) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int r = 0; r < kWarpTiles; ++r) {
        const int tile = first_tile + r, out0 = tile * 16 + g;
        const uint4 low = *reinterpret_cast<const uint4 *>(unit + kQ6KCodes + out0 * 16);
        const uint4 high = *reinterpret_cast<const uint4 *>(unit + kQ6KCodes + (out0 + 8) * 16);
        const uint32_t codes0[4] = {low.x, low.y, low.z, low.w}, codes1[4] = {high.x, high.y, high.z, high.w};
        int isum[NT][4];
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            const uint32_t a0 = t == 0 ? low.x : t == 1 ? low.y : t == 2 ? low.z : low.w;
            const uint32_t a1 = t == 0 ? high.x : t == 1 ? high.y : t == 2 ? high.z : high.w;
            mma_sums(isum[n], a0, a1, *reinterpret_cast<const uint2 *>(act[n].sums[lane]));
#pragma unroll
            for (int i = 0; i < 4; ++i) isum[n][i] *= -32;
        }
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            const uint4 w = *reinterpret_cast<const uint4 *>(unit + ((tile * 4 + pair) * 32 + lane) * 16);
            const uint4 u =
                *reinterpret_cast<const uint4 *>(unit + kQ6KUpper + ((tile * 2 + pair / 2) * 32 + lane) * 16);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int b = pair * 2 + half, shift = half * 4, up = 2 * (b & 3);
                const uint32_t a[4] = {(w.x >> shift & 0x0f0f0f0fu) | (u.x >> up & 0x03030303u) << 4,
                                       (w.y >> shift & 0x0f0f0f0fu) | (u.y >> up & 0x03030303u) << 4,
                                       (w.z >> shift & 0x0f0f0f0fu) | (u.z >> up & 0x03030303u) << 4,
                                       (w.w >> shift & 0x0f0f0f0fu) | (u.w >> up & 0x03030303u) << 4};
                const int s = 2 * b;
                const int c00 = byte_of(codes0[s / 4], s & 3), c01 = byte_of(codes0[s / 4], (s & 3) + 1);
                const int c10 = byte_of(codes1[s / 4], s & 3), c11 = byte_of(codes1[s / 4], (s & 3) + 1);
#pragma unroll
                for (int n = 0; n < NT; ++n) {
                    const uint2 q = *reinterpret_cast<const uint2 *>(act[n].q[b][lane]);
                    int c[4] = {0, 0, 0, 0}, e[4] = {0, 0, 0, 0};
                    mma_k16(c, a[0], a[1], q.x);
                    mma_k16(e, a[2], a[3], q.y);
                    isum[n][0] += c00 * c[0] + c01 * e[0];
                    isum[n][1] += c00 * c[1] + c01 * e[1];
                    isum[n][2] += c10 * c[2] + c11 * e[2];
                    isum[n][3] += c10 * c[3] + c11 * e[3];
                }
            }
        }
        const float d0 = __half2float(*reinterpret_cast<const __half *>(unit + kQ6KScales + out0 * 2));
        const float d1 = __half2float(*reinterpret_cast<const __half *>(unit + kQ6KScales + (out0 + 8) * 2));
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            const float2 x = *reinterpret_cast<const float2 *>(&act[n].scale[0][2 * t]);
            acc[r][n][0] += x.x * (d0 * static_cast<float>(isum[n][0]));
            acc[r][n][1] += x.y * (d0 * static_cast<float>(isum[n][1]));
            acc[r][n][2] += x.x * (d1 * static_cast<float>(isum[n][2]));
            acc[r][n][3] += x.y * (d1 * static_cast<float>(isum[n][3]));
        }
    }
}

// Q8_0: one scale per 32 on both sides. factor: of the rows 2 t and 2 t + 1 of each tile; the scale
// of the finished row is kept in f16, as the CPU's and llama.cpp's q8_0 rows.
template <int NT>
__device__ __forceinline__ void multiply_q8(const uint8_t *unit, const ActTile *act, int first_tile, int lane,
                                            const float2 (&factor)[NT], Accumulators<NT> &acc) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int r = 0; r < kWarpTiles; ++r) {
        const int tile = first_tile + r, out0 = tile * 16 + g;
        const __half *d = reinterpret_cast<const __half *>(unit + kQ8Scales);
#pragma unroll
        for (int b = 0; b < 8; ++b) {
            const uint4 w = *reinterpret_cast<const uint4 *>(unit + ((tile * 8 + b) * 32 + lane) * 16);
            const uint32_t a[4] = {w.x, w.y, w.z, w.w};
            const float d0 = __half2float(d[out0 * 8 + b]), d1 = __half2float(d[(out0 + 8) * 8 + b]);
#pragma unroll
            for (int n = 0; n < NT; ++n) {
                int c[4] = {0, 0, 0, 0};
                mma_k32(c, a, *reinterpret_cast<const uint2 *>(act[n].q[b][lane]));
                float2 x = *reinterpret_cast<const float2 *>(&act[n].scale[b][2 * t]);
                x.x = __half2float(__float2half_rn(x.x * factor[n].x));
                x.y = __half2float(__float2half_rn(x.y * factor[n].y));
                acc[r][n][0] += d0 * x.x * static_cast<float>(c[0]);
                acc[r][n][1] += d0 * x.y * static_cast<float>(c[1]);
                acc[r][n][2] += d1 * x.x * static_cast<float>(c[2]);
                acc[r][n][3] += d1 * x.y * static_cast<float>(c[3]);
            }
        }
    }
}

// What a pass of a GEMM needs besides the op.
struct GemmPass {
    int first_row;                 // of the rows that the op runs over
    int n_rows;                    // in this pass, 1..8 * NT
    const float *factor;           // shared memory, [24]: 1 / rms of the pass's rows, or 1
    float *reduce;                 // shared memory
    uint32_t weight_use, act_use;  // ring uses before this pass
};

// Writes the finished sums of a block: the groups' sums in order, times the row factor.
template <int NT>
__device__ __forceinline__ void flush_block(const Gemm &gemm, const GemmPass &pass, int block, int part, int group,
                                            int first_tile, int lane, Accumulators<NT> &acc, bool apply_factor) {
    constexpr int kRows = NT * 8;
    const int g = lane >> 2, t = lane & 3;
    float *mine = pass.reduce + group * kRows * kUnitOutputs;
#pragma unroll
    for (int r = 0; r < kWarpTiles; ++r) {
        const int out = (first_tile + r) * 16 + g;
#pragma unroll
        for (int n = 0; n < NT; ++n) {
            float *row = mine + (n * 8 + 2 * t) * kUnitOutputs;
            row[out] = acc[r][n][0];
            row[kUnitOutputs + out] = acc[r][n][1];
            row[out + 8] = acc[r][n][2];
            row[kUnitOutputs + out + 8] = acc[r][n][3];
            acc[r][n][0] = acc[r][n][1] = acc[r][n][2] = acc[r][n][3] = 0.0f;
        }
    }
    consumers_sync();
    const int64_t row_stride = static_cast<int64_t>(gemm.n_blocks) * kUnitOutputs;
    float *y = gemm.parts + part * gemm.part_stride + pass.first_row * row_stride + block * kUnitOutputs;
    for (int i = threadIdx.x; i < pass.n_rows * kUnitOutputs; i += kConsumerWarps * 32) {
        const int row = i / kUnitOutputs;
        float sum = pass.reduce[i];
        for (int j = 1; j < kGroups; ++j) sum += pass.reduce[j * kRows * kUnitOutputs + i];
        y[row * row_stride + i % kUnitOutputs] = apply_factor ? sum * pass.factor[row] : sum;
    }
    consumers_sync();
}

template <int kFormat, int NT>
__device__ __noinline__ void gemm_pass(const Gemm &gemm, const GemmPass &pass, const Ring &weights, const Ring &acts) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int group = warp / 2, first_tile = warp % 2 * kWarpTiles;
    const int n_units = gemm.n_blocks * gemm.k_units;
    const int begin = split_begin(n_units, blockIdx.x, gridDim.x);
    const int end = split_begin(n_units, blockIdx.x + 1, gridDim.x);
    Accumulators<NT> acc = {};
    float2 factor[NT];
    if constexpr (kFormat == kTileQ8)
        for (int n = 0; n < NT; ++n)
            factor[n] = *reinterpret_cast<const float2 *>(pass.factor + n * 8 + 2 * (lane & 3));
    int unit = begin;
    while (unit < end) {
        const int block = unit / gemm.k_units, block_first = block * gemm.k_units;
        const int block_end = min(block_first + gemm.k_units, end);
        int k = unit - block_first;
        k += (group - k % kGroups + kGroups) % kGroups;  // the first of this group's units
        for (int u = block_first + k; u < block_end; u += kGroups) {
            const uint32_t w_use = pass.weight_use + static_cast<uint32_t>(u - begin);
            const uint32_t a_use = pass.act_use + static_cast<uint32_t>(u - begin);
            weights.wait_full(w_use);
            acts.wait_full(a_use);
            const uint8_t *w = weights.slot(w_use);
            const ActTile *a = reinterpret_cast<const ActTile *>(acts.slot(a_use));
            if constexpr (kFormat == kTileQ6K)
                multiply_k6<NT>(w, a, first_tile, lane, acc);
            else if constexpr (kFormat == kTileQ8)
                multiply_q8<NT>(w, a, first_tile, lane, factor, acc);
            else
                multiply_k45<kFormat, NT>(w, a, first_tile, lane, acc);
            __syncwarp();
            if (lane == 0) {
                barrier_arrive(weights.empty_of(w_use));
                barrier_arrive(acts.empty_of(a_use));
            }
        }
        const int part = blockIdx.x - split_owner(n_units, block_first, gridDim.x);
        flush_block<NT>(gemm, pass, block, part, group, first_tile, lane, acc, kFormat != kTileQ8);
        unit = block_end;
    }
}

template <int kFormat>
__device__ __forceinline__ void gemm_rows(const Gemm &gemm, const GemmPass &pass, const Ring &weights,
                                          const Ring &acts) {
    const int tiles = (pass.n_rows + 7) / 8;
    if (tiles == 1)
        gemm_pass<kFormat, 1>(gemm, pass, weights, acts);
    else if (tiles == 2)
        gemm_pass<kFormat, 2>(gemm, pass, weights, acts);
    else
        gemm_pass<kFormat, 3>(gemm, pass, weights, acts);
}

// 1 / rms of a row of the residual stream, by one warp: its sums of squares of 256 columns each are
// added over the lanes by butterflies.
__device__ __forceinline__ float row_factor(const StepArgs &s, int row, int lane) {
    const int n = s.shape.n_embd / kUnitInputs;
    float sum = 0;
    for (int i = lane; i < n; i += 32) sum += __ldcg(s.buf.square_sums + static_cast<int64_t>(row) * n + i);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return 1.0f / sqrtf(sum / s.shape.n_embd + s.shape.rms_eps);
}

}  // namespace pj::cuda
