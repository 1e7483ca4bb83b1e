// Gated norm of the heads' outputs, quantised.
#pragma once

#include "cuda/ops/gdn_inputs.cuh"

namespace pj::cuda {

// norm weight * SiLU(z) of 256 columns, two heads, of a row. Needs nothing of the recurrence.
__device__ __forceinline__ Lane8 head_gate(const StepArgs &s, const Op &op, int row, int group, int lane) {
    const Lane8 z = product256(s, op.input[0], row, group * 256, lane);
    const float4 *norm = reinterpret_cast<const float4 *>(op.norm + lane_column(lane) % kGdnDim);
    Lane8 gate = make_lane8(__ldg(norm), __ldg(norm + 4));
#pragma unroll
    for (int i = 0; i < 8; ++i) gate.v[i] *= z.v[i] * sigmoid(z.v[i]);
    return gate;
}

// RMSNorm of each of the two heads: lanes 0..15 have the first.
__device__ __forceinline__ Lane8 gated_norm(const StepArgs &s, const Lane8 &o, const Lane8 &gate) {
    const float sum = warp_sum<16>(lane_squares(o));
    return multiply(scale(o, 1.0f / sqrtf(sum / kGdnDim + s.shape.rms_eps)), gate);
}

struct HeadsItem {
    RowGroup at;
    Lane8 gate;
};

// The gate is made before the wait: z is older than what the wait is for.
template <class Wait>
__device__ __noinline__ void op_quantize_heads(const StepArgs &s, const Op &op, Wait wait) {
    const int groups = op.width / 256;
    for_each_warp_after(
        wait, s.n_rows * groups,
        [&](int index, int lane) {
            const RowGroup at(index, groups);
            return HeadsItem{at, head_gate(s, op, at.row, at.group, lane)};
        },
        [&](const HeadsItem &item, int lane) {
            const Lane8 o = load256(s.buf.heads + (int64_t{item.at.row} * groups + item.at.group) * 256, lane);
            quantize(s, op, item.at.row, item.at.group, gated_norm(s, o, item.gate), lane);
        });
}

}  // namespace pj::cuda
