// The softmax of an item's columns: scores of a tile to weights, sums and values of a segment, and their merging into a
// head.
#pragma once

#include "cuda/ops/attention_tile.cuh"

namespace pj::cuda {

// A segment's softmax of the lane's columns: weights are relative to a reference, which no score is far above.
template <int kGroups>
struct Columns {
    float reference[kGroups], sum[kGroups], values[kGroups][4][2];
};

// A number for each of the lane's columns.
template <int kGroups>
struct OfColumns {
    float of[kGroups];
};

template <int kGroups>
__device__ __forceinline__ Columns<kGroups> no_positions() {
    Columns<kGroups> columns = {};
#pragma unroll
    for (int c = 0; c < kGroups; ++c) columns.reference[c] = kNoScore;
    return columns;
}

template <int kGroups>
__device__ __forceinline__ void forget_values(Columns<kGroups> &columns) {
#pragma unroll
    for (int c = 0; c < kGroups; ++c)
#pragma unroll
        for (int n = 0; n < 4; ++n) columns.values[c][n][0] = columns.values[c][n][1] = 0;
}

// Scores of positions that a column does not see become kNoScore. first: of the lane's positions. Where all rows see
// all of a tile this is left out; columns that no row has then have scores of zero, which nobody reads.
template <int kType, int kGroups>
__device__ __forceinline__ void hide_scores(const AttentionShared<kType, kGroups> &shared, int first,
                                            float (&score)[kGroups][4], int lane) {
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        const int last = shared.last[8 * c + (lane >> 2)];
#pragma unroll
        for (int slot = 0; slot < 4; ++slot)
            if (first + (slot & 1) + (slot & 2) * 4 > last) score[c][slot] = kNoScore;
    }
}

template <int kType, int kGroups>
__device__ __forceinline__ void share_largest(AttentionShared<kType, kGroups> &shared, const float (&score)[kGroups][4],
                                              int warp, int lane) {
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        float largest = fmaxf(fmaxf(score[c][0], score[c][1]), fmaxf(score[c][2], score[c][3]));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        if ((lane & 3) == 0) shared.largest[8 * c + (lane >> 2)][warp] = largest;
    }
}

// Eight values of a column, one per warp.
struct OfWarps {
    float4 a, b;
};

__device__ __forceinline__ OfWarps of_warps(const float (&values)[kConsumerWarps]) {
    const float4 *at = reinterpret_cast<const float4 *>(values);
    return {at[0], at[1]};
}

// A score this far above its column's reference makes the reference rise: to the largest of the tile. The columns of
// an item decide each for itself, so what is not seen of other rows does not change.
constexpr float kRise = 4;

template <int kGroups>
__device__ __forceinline__ bool must_rise(const float (&score)[kGroups][4], const Columns<kGroups> &columns) {
    bool rises = false;
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        const float largest = fmaxf(fmaxf(score[c][0], score[c][1]), fmaxf(score[c][2], score[c][3]));
        rises |= largest > columns.reference[c] + kRise;
    }
    return rises;
}

// After share_largest of all warps. What was weighed so far, the columns' sums too, is to be multiplied by the factors
// (scale_columns).
template <int kType, int kGroups>
__device__ __forceinline__ OfColumns<kGroups> raise_references(const AttentionShared<kType, kGroups> &shared,
                                                               Columns<kGroups> &columns, int lane) {
    OfColumns<kGroups> keep;
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        const OfWarps of = of_warps(shared.largest[8 * c + (lane >> 2)]);
        const float first = fmaxf(fmaxf(of.a.x, of.a.y), fmaxf(of.a.z, of.a.w));
        const float second = fmaxf(fmaxf(of.b.x, of.b.y), fmaxf(of.b.z, of.b.w));
        const float largest = fmaxf(first, second), before = columns.reference[c];
        if (largest > before + kRise) columns.reference[c] = largest;
        keep.of[c] = exp2_of(before - columns.reference[c]);
    }
    return keep;
}

template <int kGroups>
__device__ __forceinline__ void scale_columns(Columns<kGroups> &columns, const OfColumns<kGroups> &keep) {
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        columns.sum[c] *= keep.of[c];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            columns.values[c][n][0] *= keep.of[c];
            columns.values[c][n][1] *= keep.of[c];
        }
    }
}

// Scores of a tile to weights, which all warps share. Returns the lane's sums of weights with them.
template <int kValueType, int kType, int kGroups>
__device__ __forceinline__ OfColumns<kGroups> weigh_scores(AttentionShared<kType, kGroups> &shared, int tile,
                                                           const float (&score)[kGroups][4],
                                                           const Columns<kGroups> &columns, int warp, int lane) {
    OfColumns<kGroups> sums;
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        const float one = columns.reference[c] - kWeightBits;
        float weight[4];
#pragma unroll
        for (int slot = 0; slot < 4; ++slot)
            weight[slot] = score[c][slot] == kNoScore ? 0.0f : exp2_of(score[c][slot] - one);
        sums.of[c] = columns.sum[c] + ((weight[0] + weight[1]) + (weight[2] + weight[3]));
        share_weights<kValueType>(shared, tile, warp, c, weight, lane);
    }
    return sums;
}

template <int kType, int kGroups>
__device__ __forceinline__ void share_sums(AttentionShared<kType, kGroups> &shared, const Columns<kGroups> &columns,
                                           int warp, int lane) {
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        float sum = columns.sum[c];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if ((lane & 3) == 0) shared.sum[8 * c + (lane >> 2)][warp] = sum;
    }
}

// The lane's eight outputs of a column.
struct Outputs {
    float4 low, high;
};

__device__ __forceinline__ Outputs outputs_of(const float (&values)[4][2]) {
    return {make_float4(values[0][0], values[0][1], values[1][0], values[1][1]),
            make_float4(values[2][0], values[2][1], values[3][0], values[3][1])};
}

__device__ __forceinline__ float4 merge4(float4 total, float4 part, const MergeFactors &f) {
    return make_float4(total.x * f.keep + part.x * f.take, total.y * f.keep + part.y * f.take,
                       total.z * f.keep + part.z * f.take, total.w * f.keep + part.w * f.take);
}

__device__ __forceinline__ float4 scale4(float4 x, float f) { return make_float4(x.x * f, x.y * f, x.z * f, x.w * f); }

// Merges a finished segment into the head, as op_merge_heads does; its values so far are in memory.
// Returns the softmax of the segments so far. The first segment has a sum for every column.
__device__ __forceinline__ Softmax add_to_head(float *head, Softmax total, const Softmax &segment, const Outputs &part,
                                               bool last) {
    float4 *at = reinterpret_cast<float4 *>(head);
    Outputs values = {};
    if (total.sum > 0) values = {at[0], at[1]};
    if (segment.sum > 0) {
        const MergeFactors f = merge(total, segment.largest, segment.sum);
        values = {merge4(values.low, part.low, f), merge4(values.high, part.high, f)};
    }
    if (last) values = {scale4(values.low, 1.0f / total.sum), scale4(values.high, 1.0f / total.sum)};
    at[0] = values.low;
    at[1] = values.high;
    return total;
}

}  // namespace pj::cuda
