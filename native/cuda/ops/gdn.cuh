// Gated delta net: convolution, recurrence and gated norm of one (sequence, value head) per CTA.
//
// 256 threads hold the 128 x 128 state in registers: thread (half, column) has 64 key rows of one
// value column. Each sum over keys is two sums of 64 in key order, added lower half first. The
// formulas are those of cpu/kernels/gdn.h; rows run one after the other.
#pragma once

#include "cuda/ops/rows.cuh"
#include "cuda/sync/grid.cuh"

namespace pj::cuda {

constexpr int kGdnDim = 128;
constexpr int kConvTaps = 4;

struct GdnScratch {
    float q[kGdnDim], k[kGdnDim], v[kGdnDim];
    float halves[2][kGdnDim];
    float warps[kConsumerWarps];
};

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// One channel's sliding window: oldest first.
struct Window {
    float x[kConvTaps - 1];

    __device__ __forceinline__ void load(const float *window, int channels, int channel) {
#pragma unroll
        for (int i = 0; i < kConvTaps - 1; ++i) x[i] = __ldcg(window + static_cast<int64_t>(i) * channels + channel);
    }
    // Output for the next input, which joins the window.
    __device__ __forceinline__ float push(float input, const float *weight, int channels, int channel) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kConvTaps - 1; ++i)
            sum = fmaf(weight[static_cast<int64_t>(i) * channels + channel], x[i], sum);
        sum = fmaf(weight[static_cast<int64_t>(kConvTaps - 1) * channels + channel], input, sum);
        x[0] = x[1];
        x[1] = x[2];
        x[2] = input;
        return sum * sigmoid(sum);
    }
};

__device__ __forceinline__ float *gdn_state(const StepArgs &s, int slot, int layer, int head) {
    return s.buf.states + slot * s.buf.state_slot_floats + layer * s.buf.state_layer_floats + s.buf.window_floats +
           static_cast<int64_t>(head) * kGdnDim * kGdnDim;
}

__device__ __forceinline__ float *gdn_window(const StepArgs &s, int slot, int layer) {
    return s.buf.states + slot * s.buf.state_slot_floats + layer * s.buf.state_layer_floats;
}

// Sum over the four warps of a thread's half of the CTA, in warp order.
__device__ __forceinline__ float half_sum(GdnScratch &scratch, float x) {
    const int warp = threadIdx.x >> 5;
    x = warp_sum(x);
    if ((threadIdx.x & 31) == 0) scratch.warps[warp] = x;
    consumers_sync();
    const float *w = scratch.warps + (warp & 4);
    const float sum = ((w[0] + w[1]) + w[2]) + w[3];
    consumers_sync();
    return sum;
}

__device__ __forceinline__ float slow_factor(const StepArgs &s, const Op &op, int row) {
    if (!op.input[0].row_factor) return 1.0f;
    const int n = s.shape.n_embd / kUnitInputs;
    float v[32];
    for (int i = 0; i < 32; ++i) {
        v[i] = 0;
        for (int j = i; j < n; j += 32) v[i] += __ldcg(s.buf.square_sums + static_cast<int64_t>(row) * n + j);
    }
    for (int step = 16; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) v[i] = v[i] + v[i + step];
    return 1.0f / sqrtf(v[0] / s.shape.n_embd + s.shape.rms_eps);
}

// A speculative row that waits for its verdict: channels before the convolution, then the
// projections that give beta and the decay of every value head.
__device__ __forceinline__ float *pending_row(const StepArgs &s, int slot, int layer, int i) {
    const int64_t row = (static_cast<int64_t>(slot) * s.shape.n_gdn_layers + layer) * s.max_spec + i;
    return s.buf.pending + row * s.buf.pending_row_floats;
}

// Row i of a sequence: the accepted pending rows first, then the rows of this step.
struct GdnInput {
    const StepArgs &s;
    const Op &op;
    const pj_seq &seq;
    int channels;
    float factor = 1;

    __device__ __forceinline__ float channel(int i, int channel) const {
        return i < seq.n_accept ? __ldcg(pending_row(s, seq.state_slot, op.layer, i) + channel)
                                : factor * product_value(s, op.input[0], seq.row_begin + i - seq.n_accept, channel);
    }
    __device__ __forceinline__ float beta(int i, int head) const {
        return i < seq.n_accept ? __ldcg(pending_row(s, seq.state_slot, op.layer, i) + channels + head)
                                : factor * product_value(s, op.input[2], seq.row_begin + i - seq.n_accept, head);
    }
    __device__ __forceinline__ float alpha(int i, int head) const {
        const int at = channels + s.shape.n_gdn_head_v + head;
        return i < seq.n_accept ? __ldcg(pending_row(s, seq.state_slot, op.layer, i) + at)
                                : factor * product_value(s, op.input[3], seq.row_begin + i - seq.n_accept, head);
    }
};

__device__ __forceinline__ int gdn_channels(const DeviceShape &shape) {
    return (2 * shape.n_gdn_head_k + shape.n_gdn_head_v) * kGdnDim;
}

__device__ __noinline__ void gdn_head(const StepArgs &s, const Op &op, const pj_seq &seq, int head,
                                      GdnScratch &scratch) {
    const DeviceShape &shape = s.shape;
    const int tid = threadIdx.x, column = tid & 127, half = tid >> 7;
    const int key_head = head % shape.n_gdn_head_k, key_width = shape.n_gdn_head_k * kGdnDim;
    const int channels = gdn_channels(shape);
    GdnInput input = {s, op, seq, channels};
    // Threads of the lower half convolve the query and the value channel, the upper half the key's.
    const int channel = half ? key_width + key_head * kGdnDim + column : key_head * kGdnDim + column;
    const int value_channel = 2 * key_width + head * kGdnDim + column;
    Window window, value_window;
    window.load(gdn_window(s, seq.state_slot, op.layer), channels, channel);
    value_window.load(gdn_window(s, seq.state_slot, op.layer), channels, value_channel);

    // Blocks of 16 columns, as on the CPU (cpu/kernels/gdn.h): states move between backends.
    float *state =
        gdn_state(s, seq.state_slot, op.layer, head) + (column / 16 * kGdnDim + half * 64) * 16 + column % 16;
    float S[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) S[i] = __ldcg(state + i * 16);
    const auto save = [&] {
#pragma unroll
        for (int i = 0; i < 64; ++i) state[i * 16] = S[i];
    };

    const float out_scale = 1.0f / sqrtf(static_cast<float>(kGdnDim));
    const int n_total = seq.n_accept + seq.n_rows, n_committed = n_total - seq.n_spec;
    for (int i = 0; i < n_total; ++i) {
        if (i == n_committed) save();
        const int row = seq.row_begin + i - seq.n_accept;
        if (i >= seq.n_accept) input.factor = factor_of(s, op.input[0], row, threadIdx.x & 31);
        const float x = window.push(input.channel(i, channel), op.conv, channels, channel);
        if (!half)
            scratch.v[column] = value_window.push(input.channel(i, value_channel), op.conv, channels, value_channel);
        const float length = half_sum(scratch, x * x);
        (half ? scratch.k : scratch.q)[column] = x * (1.0f / sqrtf(length + shape.rms_eps));
        const float beta = sigmoid(input.beta(i, head));
        const float decay = expf(op.a[head] * softplus(input.alpha(i, head) + op.dt_bias[head]));
        consumers_sync();
        const float *k = scratch.k + half * 64, *q = scratch.q + half * 64;
        float kv = 0;
#pragma unroll
        for (int j = 0; j < 64; ++j) kv = fmaf(k[j], S[j], kv);
        scratch.halves[half][column] = kv;
        consumers_sync();
        kv = decay * (scratch.halves[0][column] + scratch.halves[1][column]);
        const float delta = beta * (scratch.v[column] - kv);
        float o = 0;
#pragma unroll
        for (int j = 0; j < 64; ++j) {
            S[j] = fmaf(k[j], delta, decay * S[j]);
            o = fmaf(q[j], S[j], o);
        }
        consumers_sync();
        scratch.halves[half][column] = o;
        consumers_sync();
        o = (scratch.halves[0][column] + scratch.halves[1][column]) * out_scale;
        const float squares = half_sum(scratch, o * o);
        if (!half && i >= seq.n_accept) {
            const float z = input.factor * product_value(s, op.input[1], row, head * kGdnDim + column);
            const float r = 1.0f / sqrtf(squares / kGdnDim + shape.rms_eps);
            s.buf.heads[static_cast<int64_t>(row) * shape.n_gdn_head_v * kGdnDim + head * kGdnDim + column] =
                o * r * op.norm[column] * (z * sigmoid(z));
        }
    }
    if (!seq.n_spec) save();
    consumers_sync();
}

__device__ __noinline__ void op_gdn(const StepArgs &s, const Op &op, void *shared) {
    GdnScratch &scratch = *static_cast<GdnScratch *>(shared);
    const int heads = s.shape.n_gdn_head_v;
    for (int item = blockIdx.x; item < s.n_seqs * heads; item += gridDim.x)
        gdn_head(s, op, s.seqs[item / heads], item % heads, scratch);
}

// After all heads have read the old ones: one channel's last committed inputs become the window, its
// inputs of the speculative rows become pending.
__device__ __forceinline__ void advance_channel(const StepArgs &s, const Op &op, const pj_seq &seq, int channel) {
    const int channels = gdn_channels(s.shape);
    GdnInput input = {s, op, seq, channels};
    float *window = gdn_window(s, seq.state_slot, op.layer) + channel;
    const int n_committed = seq.n_accept + seq.n_rows - seq.n_spec;
    float next[kConvTaps - 1];
    for (int j = 0; j < kConvTaps - 1; ++j) {
        const int from = n_committed - (kConvTaps - 1) + j;
        if (from >= seq.n_accept) input.factor = slow_factor(s, op, seq.row_begin + from - seq.n_accept);
        next[j] = from < 0 ? __ldcg(window + static_cast<int64_t>(from + kConvTaps - 1) * channels)
                           : input.channel(from, channel);
    }
    for (int j = 0; j < kConvTaps - 1; ++j) window[static_cast<int64_t>(j) * channels] = next[j];
    for (int j = 0; j < seq.n_spec; ++j)
        pending_row(s, seq.state_slot, op.layer, j)[channel] = slow_factor(s, op, seq.row_begin + seq.n_rows - seq.n_spec + j) *
            product_value(s, op.input[0], seq.row_begin + seq.n_rows - seq.n_spec + j, channel);
}

__device__ __noinline__ void op_advance(const StepArgs &s, const Op &op) {
    const int channels = gdn_channels(s.shape), heads = s.shape.n_gdn_head_v, width = channels + 2 * heads;
    const int64_t n = static_cast<int64_t>(s.n_seqs) * width;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * 256) {
        const pj_seq &seq = s.seqs[i / width];
        const int at = static_cast<int>(i % width);
        if (at < channels) {
            advance_channel(s, op, seq, at);
            continue;
        }
        const Product &source = op.input[at < channels + heads ? 2 : 3];
        for (int j = 0; j < seq.n_spec; ++j)
            pending_row(s, seq.state_slot, op.layer, j)[at] = slow_factor(s, op, seq.row_begin + seq.n_rows - seq.n_spec + j) *
                product_value(s, source, seq.row_begin + seq.n_rows - seq.n_spec + j, (at - channels) % heads);
    }
}

}  // namespace pj::cuda
