// Gated norm of the heads' outputs, quantised; beside it the windows and pending rows advance.
#pragma once

#include "cuda/ops/gdn_advance.cuh"

namespace pj::cuda {

// norm weight * SiLU(z) of 256 columns, two heads, of a row. Needs nothing of the recurrence.
__device__ __forceinline__ Lane8 head_gate(const StepArgs &s, const Op &op, int row, int group, int lane) {
    const Lane8 z = product256(s, op.input[1], row, group * 256, lane);
    const float4 *norm = reinterpret_cast<const float4 *>(op.norm + lane_column(lane) % kGdnDim);
    Lane8 gate = make_lane8(__ldg(norm), __ldg(norm + 4));
#pragma unroll
    for (int i = 0; i < 8; ++i) gate.v[i] *= z.v[i] * sigmoid(z.v[i]);
    return gate;
}

// RMSNorm of each of the two heads: lanes 0..15 have the first. A lane's eight squares in order, then
// butterflies.
__device__ __forceinline__ Lane8 gated_norm(const StepArgs &s, const Lane8 &o, const Lane8 &gate) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(o.v[i], o.v[i], sum);
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return multiply(scale(o, 1.0f / sqrtf(sum / kGdnDim + s.shape.rms_eps)), gate);
}

// A warp's items: first groups of 256 columns of the rows, then parts of the sequences' advance. The
// first gate is made before the wait: z is older than what the wait is for.
template <class Wait>
__device__ __noinline__ void op_quantize_heads(const StepArgs &s, const Op &op, const Wait &wait) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int groups = op.width / 256, n_quantize = s.n_rows * groups;
    const int per_seq = advance_warps(s.shape), n = n_quantize + s.n_seqs * per_seq;
    const int begin = static_cast<int>(blockIdx.x) + warp * gridDim.x, stride = gridDim.x * kConsumerWarps;
    Lane8 gate = {};
    if (begin < n_quantize) gate = head_gate(s, op, begin / groups, begin % groups, lane);
    wait();
#pragma unroll 1
    for (int item = begin; item < n; item += stride) {
        if (item < n_quantize) {
            const int row = item / groups, group = item % groups;
            const Lane8 o = load256(s.buf.heads + static_cast<int64_t>(item) * 256, lane);
            if (item != begin) gate = head_gate(s, op, row, group, lane);
            quantize(s, op, row, group, gated_norm(s, o, gate), lane);
        } else {
            const int i = item - n_quantize;
            advance(GdnInput(s, op, s.seqs[i / per_seq]), i % per_seq, lane);
        }
    }
}

}  // namespace pj::cuda
