// Merges the segments of attention, applies the gate and quantises for the output projection.
#pragma once

#include "cuda/ops/partials.cuh"

namespace pj::cuda {

constexpr int kTogether = 8;  // segments whose loads are in flight at a time

struct Segment {
    float2 head;  // largest score, sum
    Lane8 values;
};

// The heads of a row: its segments in order.
__device__ __forceinline__ Lane8 merged_head(const StepArgs &s, int row, int head, int lane) {
    const int index = __ldg(s.row_seq + row);
    const SeqPlan plan = s.plans[index];
    if (plan.partial < 0) return load256(head_of(s, row, head), lane);
    const float *part = partials_of(s, plan, row - s.seqs[index].row_begin, head);
    const int n = segment_of(__ldg(s.row_position + row)) + 1;
    Softmax total;
    Lane8 sum = {};
    for (int first = 0; first < n; first += kTogether) {
        Segment segments[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            const float *at = part + min(first + i, n - 1) * kPartialFloats;  // beyond the last: not used
            segments[i] = {__ldcg(reinterpret_cast<const float2 *>(at)), load256(at + kPartialHeader, lane)};
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            if (first + i >= n) break;
            const MergeFactors f = merge(total, segments[i].head.x, segments[i].head.y);
#pragma unroll
            for (int j = 0; j < 8; ++j) sum.v[j] = sum.v[j] * f.keep + segments[i].values.v[j] * f.take;
        }
    }
    return scale(sum, 1.0f / total.sum);
}

// A head is one group of 256 columns.
template <class Wait>
__device__ __noinline__ void op_merge_heads(const StepArgs &s, const Op &op, float *, const Wait &wait) {
    wait();
    for_each_warp(static_cast<int64_t>(s.n_rows) * s.shape.n_head, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / s.shape.n_head), head = static_cast<int>(item % s.shape.n_head);
        const Lane8 gate = parts256(op.input[0], row, (2 * head + 1) * kHeadDim, lane);
        Lane8 out = merged_head(s, row, head, lane);
        if (s.v_rotation) hadamard<64>(out, lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) out.v[i] *= sigmoid(gate.v[i]);
        quantize(s, op, row, head, out, lane);
    });
}

}  // namespace pj::cuda
