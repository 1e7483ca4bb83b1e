// Merges the segments of attention, applies the gate and quantises for the output projection.
#pragma once

#include "cuda/ops/partials.cuh"

namespace pj::cuda {

constexpr int kTogether = 8;  // segments whose loads are in flight at a time

struct Segment {
    float2 head;  // largest score, sum
    Lane8 values;
};

// One head of one row, and where attention leaves it.
struct MergeItem {
    int row, head;
    const float *part;  // of the first segment, or the finished head
    int n;              // segments; 0: finished
};

__device__ __forceinline__ MergeItem merge_item(const StepArgs &s, int index) {
    MergeItem item;
    const RowGroup at(index, s.shape.n_head);
    item.row = at.row;
    item.head = at.group;
    const int sequence = __ldg(s.row_seq + item.row);
    const SeqPlan plan = s.plans[sequence];
    const bool apart = plan.partial >= 0;
    item.part = apart ? partials_of(s, plan, item.row - s.seqs[sequence].row_begin, item.head)
                      : head_of(s, item.row, item.head);
    item.n = apart ? segment_of(__ldcg(s.row_position + item.row)) + 1 : 0;
    return item;
}

// Segments in order.
__device__ __forceinline__ Lane8 merged_head(const MergeItem &item, int lane) {
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

// A head is one group of 256 columns.
__device__ __forceinline__ void finish_head(const StepArgs &s, const Op &op, const MergeItem &item, int lane) {
    const Lane8 gate = product256(s, op.input[0], item.row, (2 * item.head + 1) * kHeadDim, lane);
    Lane8 out = merged_head(item, lane);
    if (s.v_rotation) hadamard<64>(out, lane);
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] *= sigmoid(gate.v[i]);
    quantize(s, op, item.row, item.head, out, lane);
}

template <class Wait>
__device__ __noinline__ void op_merge_heads(const StepArgs &s, const Op &op, const Wait &wait) {
    for_each_warp_after(
        wait, s.n_rows * s.shape.n_head, [&](int index, int) { return merge_item(s, index); },
        [&](const MergeItem &item, int lane) { finish_head(s, op, item, lane); });
}

}  // namespace pj::cuda
