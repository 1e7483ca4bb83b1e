// Merges the segments of attention, applies the gate and quantises for the output projection.
#pragma once

#include "cuda/ops/head_lanes.cuh"
#include "cuda/ops/partials.cuh"

namespace pj::cuda {

constexpr int kTogether = 8;  // segments whose loads are in flight at a time

struct Segment {
    float2 head;  // largest score, sum
    Lane8 values;
};

// 256 columns of one row, the lane's head, and where attention leaves it.
struct MergeItem {
    int row, group;
    const float *part;  // of the first segment, or the finished head
    int n;              // segments; 0: finished
    int lane;           // that has the lane's columns in the wide head; -1: there is no such head
};

template <int kDim>
__device__ __forceinline__ MergeItem merge_item(const StepArgs &s, int index, int lane) {
    MergeItem item;
    const RowGroup at(index, s.shape.query_groups);
    item.row = at.row;
    item.group = at.group;
    const HeadLane<kDim> of(item.group, lane);
    const bool exists = kDim == kHeadDim || of.head < s.shape.query_heads;
    const int head = exists ? of.head : 0;
    item.lane = exists ? of.wide_lane(s, lane) : -1;
    const int sequence = __ldg(s.row_seq + item.row);
    const SeqPlan plan = s.plans[sequence];
    const bool apart = plan.partial >= 0;
    item.part = apart ? partials_of(s, plan, item.row - s.seqs[sequence].row_begin, head) : head_of(s, item.row, head);
    item.n = apart ? segment_of(__ldcg(s.row_position + item.row)) + 1 : 0;
    return item;
}

// Segments in order.
__device__ __forceinline__ Lane8 merged_heads(const MergeItem &item) {
    const int lane = max(item.lane, 0);
    if (item.n == 0) return load256(item.part, lane);
    Softmax total;
    Lane8 sum = {};
    for (int first = 0; first < item.n; first += kTogether) {
        Segment segments[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            // Beyond the last: loaded again, not used.
            const float *at = item.part + min(first + i, item.n - 1) * kPartialFloats;
            segments[i] = {__ldcg(reinterpret_cast<const float2 *>(at)), load256(at + kPartialHeader, lane)};
        }
        __syncwarp();  // or the assembler moves each load to its use, and they come one after the other
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            if (first + i >= item.n) break;
            const MergeFactors f = merge(total, segments[i].head.x, segments[i].head.y);
#pragma unroll
            for (int j = 0; j < 8; ++j) sum.v[j] = sum.v[j] * f.keep + segments[i].values.v[j] * f.take;
        }
    }
    return scale(sum, 1.0f / total.sum);
}

template <int kDim, bool kGated>
__device__ __forceinline__ void finish_heads(const StepArgs &s, const Op &op, const MergeItem &item, int lane) {
    Lane8 gate;
    if constexpr (kGated) gate = product256(s, op.input[0], item.row, (2 * item.group + 1) * kHeadDim, lane);
    Lane8 out = merged_heads(item);
    if (kDim < kHeadDim && item.lane < 0) out = {};
    if (s.v_rotation) hadamard<64>(out, lane);
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if constexpr (kGated) out.v[i] *= sigmoid(gate.v[i]);
    quantize(s, op, item.row, item.group, out, lane);
}

template <int kDim, bool kGated, class Wait>
__device__ __forceinline__ void merge_groups(const StepArgs &s, const Op &op, const Wait &wait) {
    for_each_warp_after(
        wait, s.n_rows * s.shape.query_groups, [&](int index, int lane) { return merge_item<kDim>(s, index, lane); },
        [&](const MergeItem &item, int lane) { finish_heads<kDim, kGated>(s, op, item, lane); });
}

// Heads without a gate: a function of its own, so that the other one's code stays together.
template <class Wait>
__device__ __noinline__ void merge_plain(const StepArgs &s, const Op &op, Wait wait) {
    if (s.shape.query_dim == 64) return merge_groups<64, false>(s, op, wait);
    if (s.shape.query_dim == 128) return merge_groups<128, false>(s, op, wait);
    merge_groups<256, false>(s, op, wait);
}

template <class Wait>
__device__ __noinline__ void op_merge_heads(const StepArgs &s, const Op &op, Wait wait) {
    if (!s.shape.gated_attention) return merge_plain(s, op, wait);
    merge_groups<256, true>(s, op, wait);
}

}  // namespace pj::cuda
