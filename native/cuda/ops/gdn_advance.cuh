// After all heads have read the old ones: a sequence's new convolution window and pending rows.
#pragma once

#include "cuda/ops/gdn_inputs.cuh"

namespace pj::cuda {

constexpr int kAdvanceChannels = 128;  // of a warp, four to a lane

// The last committed inputs become the window, those of the speculative rows become pending.
__device__ __forceinline__ void advance_channels(const GdnInput &in, int group, int lane) {
    constexpr int kRows = 5;  // at a time: the window and two speculative rows in one go
    const GdnColumn c = in.located(channel_column(group * kAdvanceChannels + 4 * lane));
    const int channels = gdn_channels(in.s.shape), begin = in.n_committed - kGdnHistory;
    float *window = gdn_window(in.s, in.slot, in.op.layer) + c.column;
#pragma unroll 1
    for (int first = begin; first < in.n_total; first += kRows) {
        float x[kRows][4];
        in.start(x, c, first);
        in.add_pieces<3>(x, c, first, 1);
        // Old window and old pending rows are read in the first round only, before they are overwritten.
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int i = first + r;
            if (i >= in.n_total) break;
            const float factor = in.factor(i, lane);
            float *to = i < in.n_committed ? window + static_cast<int64_t>(i - begin) * channels
                                           : pending_row(in.s, in.slot, in.op.layer, i - in.n_committed) + c.pending;
            *reinterpret_cast<float4 *>(to) =
                make_float4(x[r][0] * factor, x[r][1] * factor, x[r][2] * factor, x[r][3] * factor);
        }
    }
}

// The projections of beta and decay of the speculative rows, for 32 of the columns.
__device__ __forceinline__ void advance_gates(const GdnInput &in, int group, int lane) {
    constexpr int kRows = 3;
    const DeviceShape &shape = in.s.shape;
    const int heads = shape.n_gdn_head_v, at = group * 32 + lane;
    const bool mine = at < 2 * heads;
    const GdnColumn c =
        in.located(!mine || at < heads ? beta_column(shape, mine ? at : 0) : alpha_column(shape, at - heads));
#pragma unroll 1
    for (int first = in.n_committed; first < in.n_total; first += kRows) {
        float x[kRows][1];
        in.start(x, c, first);
        in.add_pieces<4>(x, c, first, 1);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int i = first + r;
            if (i >= in.n_total) break;
            const float value = x[r][0] * in.factor(i, lane);
            if (mine) pending_row(in.s, in.slot, in.op.layer, i - in.n_committed)[c.pending] = value;
        }
    }
}

__device__ __forceinline__ int channel_warps(const DeviceShape &shape) {
    return gdn_channels(shape) / kAdvanceChannels;
}

// Warps that a sequence's windows and pending rows take.
__device__ __forceinline__ int advance_warps(const DeviceShape &shape) {
    return channel_warps(shape) + (2 * shape.n_gdn_head_v + 31) / 32;
}

__device__ __forceinline__ void advance(const GdnInput &in, int item, int lane) {
    const int gates = item - channel_warps(in.s.shape);
    if (gates < 0)
        advance_channels(in, item, lane);
    else
        advance_gates(in, gates, lane);
}

}  // namespace pj::cuda
