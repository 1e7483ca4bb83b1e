// 256 columns of a row in one warp: eight values per lane, and their quantised form.
//
// Lane 4 b + t holds, in v[4 h + e], column 32 b + 16 h + 4 t + e: two runs of four floats, and just
// the eight bytes that one lane of an mma.m16n8k32 B operand wants (tiles.h, ActTile).
#pragma once

#include <cuda_fp16.h>

#include "cuda/ops/products.cuh"

namespace pj::cuda {

constexpr float kTiny = 1e-30f;  // groups below this become zero: 127 / amax would overflow

__device__ __forceinline__ int lane_column(int lane) { return (lane >> 2) * 32 + (lane & 3) * 4; }

struct Lane8 {
    float v[8];
};

__device__ __forceinline__ Lane8 make_lane8(float4 a, float4 b) { return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}}; }

// 256 consecutive floats that other CTAs may have written in this launch.
__device__ __forceinline__ Lane8 load256(const float *p, int lane) {
    const float4 *at = reinterpret_cast<const float4 *>(p + lane_column(lane));
    return make_lane8(__ldcg(at), __ldcg(at + 4));
}

// Pieces of 256 columns of a product of one row: all of a lane's eight columns lie in one block.
struct LanePieces {
    const float *at;  // of the lane's first column
    int n;
    int64_t stride;

    // `span`: pieces_at() of the lane's first column.
    __device__ __forceinline__ LanePieces(const StepArgs &s, const Product &p, const PieceSpan &span, int row,
                                          int column, int lane)
        : at(first_piece(s, p, span, row, column + lane_column(lane))), n(span.n), stride(piece_stride(s, p)) {}

    // Those from `begin` on, added to the sum of those before.
    template <int kTogether>
    __device__ __forceinline__ void add_from(int begin, float4 &low, float4 &high) const {
#pragma unroll 1
        for (int i = begin; i < n; i += kTogether) {
            PieceBatch<kTogether> batch;
            batch.load(at + i * stride, n - i, stride);
            batch.add(low, high);
        }
    }
};

// 256 columns of a product of one row.
__device__ __noinline__ Lane8 product256(const StepArgs &s, const Product &p, PieceSpan span, int row, int column,
                                         int lane) {
    float4 low = make_float4(0, 0, 0, 0), high = low;
    // The 27B shape has eight pieces where it has most.
    LanePieces(s, p, span, row, column, lane).add_from<8>(0, low, high);
    Lane8 out = make_lane8(low, high);
    if (p.row_factor) {
        const float factor = shared_factor(s, row, lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) out.v[i] *= factor;
    }
    return out;
}

__device__ __forceinline__ Lane8 product256(const StepArgs &s, const Product &p, int row, int column, int lane) {
    return product256(s, p, pieces_at(s, p, column + lane_column(lane)), row, column, lane);
}

__device__ __forceinline__ void store256(float *p, int lane, const Lane8 &x) {
    float4 *at = reinterpret_cast<float4 *>(p + lane_column(lane));
    at[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    at[4] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

// Of a lane's values, in order.
__device__ __forceinline__ float lane_squares(const Lane8 &x) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x.v[i], x.v[i], sum);
    return sum;
}

__device__ __forceinline__ float square_sum(const Lane8 &x) { return warp_sum(lane_squares(x)); }

__device__ __forceinline__ Lane8 multiply(const Lane8 &a, const Lane8 &b) {
    Lane8 out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] = a.v[i] * b.v[i];
    return out;
}

__device__ __forceinline__ Lane8 add(const Lane8 &a, const Lane8 &b) {
    Lane8 out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] = a.v[i] + b.v[i];
    return out;
}

__device__ __forceinline__ Lane8 scale(const Lane8 &a, float factor) {
    Lane8 out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] = a.v[i] * factor;
    return out;
}

// Orthonormal Walsh-Hadamard transform of each block of 64, 128 or 256 columns, as kernels.hadamard.
template <int kBlock>
__device__ __forceinline__ void hadamard(Lane8 &x, int lane) {
    auto in_lane = [&](int bit) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (!(i & bit)) {
                const float a = x.v[i], b = x.v[i | bit];
                x.v[i] = a + b;
                x.v[i | bit] = a - b;
            }
    };
    auto across = [&](int mask) {
        const bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float other = __shfl_xor_sync(~0u, x.v[i], mask);
            x.v[i] = upper ? other - x.v[i] : x.v[i] + other;
        }
    };
    in_lane(1);  // column bits 0 and 1
    in_lane(2);
    across(1);  // bits 2 and 3
    across(2);
    in_lane(4);                     // bit 4
    across(4);                      // bit 5
    if (kBlock >= 128) across(8);   // bit 6
    if (kBlock >= 256) across(16);  // bit 7
    const float norm = 1.0f / sqrtf(static_cast<float>(kBlock));
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] *= norm;
}

__device__ __forceinline__ float largest_size(const Lane8 &x) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x.v[i]));
    return largest;
}

// Row n of an ActTile. span: columns per scale, 32 or 256.
__device__ __forceinline__ void quantize_tile_row(ActTile &tile, int n, int span, const Lane8 &x, int lane) {
    const int b = lane >> 2, t = lane & 3;
    float largest = largest_size(x);
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
    if (span == 256)
        for (int step = 4; step < 32; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
    const bool zero = largest < kTiny;
    const float inverse = zero ? 0.0f : 127.0f / largest;
    uint32_t words[2];
    int sums[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int sum = 0;
        uint32_t word = 0;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int q = __float2int_rn(x.v[4 * h + e] * inverse);
            sum += q;
            word |= (static_cast<uint32_t>(q) & 255u) << (8 * e);
        }
        words[h] = word;
        sum += __shfl_xor_sync(~0u, sum, 1);
        sums[h] = sum + __shfl_xor_sync(~0u, sum, 2);
    }
    *reinterpret_cast<uint2 *>(tile.q[b][ActTile::place(4 * n + t)]) = make_uint2(words[0], words[1]);
    if (t < 2) {
        const int s = 2 * b + t;
        uint16_t(&of_lane)[4] = tile.sums[ActTile::place(4 * n + ActTile::sum_lane(s))];
        of_lane[ActTile::sum_half(s)] = __half_as_ushort(__int2half_rn(sums[t]));
    }
    // As the CPU backend, but for a rounding per 256: amax / 127, per 32 rounded to f16.
    const float scale = span == 256 ? largest * (1.0f / 127.0f) : __half2float(__float2half_rn(largest / 127.0f));
    if (t == 0) tile.scale[b][n] = zero ? 0.0f : scale;
}

// The forms that the next matrices read (Op::act_forms) of columns [256 group, 256 group + 256).
__device__ __noinline__ void quantize(const StepArgs &s, const Op &op, int row, int group, Lane8 x, int lane) {
    const int64_t tile = static_cast<int64_t>(group) * s.row_tiles + row / 8;
    if (op.act_forms & kActSpan32) quantize_tile_row(s.buf.act32[tile], row % 8, 32, x, lane);
    if (op.act_forms & kActSpan256) quantize_tile_row(s.buf.act256[tile], row % 8, 256, x, lane);
    if (op.act_forms & kActFloat) store256(s.buf.act_f32 + static_cast<int64_t>(row) * op.width + group * 256, lane, x);
}

}  // namespace pj::cuda
