// Before the recurrence of gated delta net: convolution and SiLU of every channel, queries and keys to unit
// length, beta and decay. Beside it the window and the pending rows advance.
//
// A warp takes one head of channels, four to a lane, or the gates of 32 value heads, of a chunk of rows of a sequence
// (SeqPlan::chunk_rows). Formulas of cpu/kernels/gdn.h; taps in order, squares of a lane's channels in order, then
// butterflies.
//
// The first chunk has all rows that read the old window and the old pending rows, and its warp alone writes the
// new ones of its channels. Rows move towards the front, so each is read before another takes its place.
#pragma once

#include "cuda/ops/gdn_inputs.cuh"

namespace pj::cuda {

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// A warp's share.
struct ConvolveItem {
    GdnRows rows;
    int head;               // of the query, key and value heads, then groups of 32 gates
    int first, end;         // outputs
    GdnColumns at, second;  // second: of the decay
};

__device__ __forceinline__ int n_channel_heads(const DeviceShape &shape) {
    return 2 * shape.n_gdn_head_k + shape.n_gdn_head_v;
}

__device__ __forceinline__ ConvolveItem convolve_item(const StepArgs &s, const Op &op, const GdnRows &rows,
                                                      int chunk_rows, int part, int lane) {
    ConvolveItem item = {};
    const int per_chunk = convolve_heads(s.shape), heads = n_channel_heads(s.shape), channels = heads * kGdnDim;
    const int chunk = part / per_chunk;
    item.rows = rows;
    item.head = part - chunk * per_chunk;
    item.first = chunk * chunk_rows;
    item.end = min(item.first + chunk_rows, rows.n_total);
    if (item.head < heads) {
        const int column = item.head * kGdnDim + 4 * lane;
        item.at = gdn_columns(s, op.input[0], column, column);
    } else {
        const int n = s.shape.n_gdn_head_v, head = min((item.head - heads) * 32 + lane, n - 1);
        item.at = gdn_columns(s, op.input[1], head, channels + head);
        item.second = gdn_columns(s, op.input[2], head, channels + n + head);
    }
    return item;
}

// The loads of an item, kConvolveRows rows each: its outputs and, for the first chunk, the rows behind it that
// the window and the pending rows keep.
struct ConvolveSteps {
    const ConvolveItem &item;

    __device__ __forceinline__ bool advances() const { return item.first == 0; }
    __device__ __forceinline__ int stop() const { return advances() ? item.rows.n_total : item.end; }
    __device__ __forceinline__ int next(int i) const {
        const int kept = i + kConvolveRows < item.end ? 0 : max(item.end, item.rows.n_committed - kGdnHistory);
        return max(i + kConvolveRows, kept);
    }
};

// One output of a lane's four channels, from the inputs up to its row.
__device__ __forceinline__ void convolve_row(const StepArgs &s, const ConvolveItem &item,
                                             const float (&taps)[kConvTaps][4],
                                             const float (&x)[kGdnHistory + kConvolveRows][4], bool to_unit,
                                             float *to) {
    float y[4] = {}, squares = 0;
#pragma unroll
    for (int t = 0; t < kConvTaps; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) y[e] = fmaf(taps[t][e], x[t][e], y[e]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        y[e] *= sigmoid(y[e]);
        squares = fmaf(y[e], y[e], squares);
    }
    if (to_unit) {
        const float scale = 1.0f / sqrtf(warp_sum(squares) + s.shape.rms_eps);
#pragma unroll
        for (int e = 0; e < 4; ++e) y[e] *= scale;
    }
    store_floats(to + item.at.column, y);
}

__device__ __forceinline__ void convolve_channels(const StepArgs &s, const Op &op, const ConvolveItem &item, int lane) {
    const GdnInputs<4> in = {s, op.layer, item.rows, item.at};
    const ConvolveSteps steps = {item};
    const int channels = gdn_channels(s.shape);
    const bool to_unit = item.head < 2 * s.shape.n_gdn_head_k;
    float x[kGdnHistory + kConvolveRows][4], taps[kConvTaps][4];
#pragma unroll
    for (int t = 0; t < kConvTaps; ++t) {
        const float4 tap = __ldg(reinterpret_cast<const float4 *>(op.conv + t * channels + item.at.column));
        taps[t][0] = tap.x, taps[t][1] = tap.y, taps[t][2] = tap.z, taps[t][3] = tap.w;
    }
#pragma unroll
    for (int r = 0; r < kGdnHistory; ++r) {
        if (steps.advances())
            load_floats(x[r], finished_row(s, op.layer, item.rows.slot, r - kGdnHistory) + item.at.channel);
    }
    if (steps.advances()) in.keep_history(x);
    float(&batch)[kConvolveRows][4] = reinterpret_cast<float(&)[kConvolveRows][4]>(x[kGdnHistory]);
    // Later chunks begin with the rows before their first output.
#pragma unroll 1
    for (int first = steps.advances() ? 0 : item.first - kConvolveRows; first < steps.stop();
         first = steps.next(first)) {
        in.load<3>(batch, first);
        // One copy of a row's code, which is long: the rows move through the same registers.
#pragma unroll 1
        for (int i = first; i < min(first + kConvolveRows, steps.stop()); ++i) {
            if (steps.advances()) in.advance(x[kGdnHistory], i);
            if (i >= item.first && i < item.end) convolve_row(s, item, taps, x, to_unit, prepared_row(s, item.rows, i));
#pragma unroll
            for (int r = 0; r + 1 < kGdnHistory + kConvolveRows; ++r)
#pragma unroll
                for (int e = 0; e < 4; ++e) x[r][e] = x[r + 1][e];
        }
    }
}

__device__ __forceinline__ void prepare_gates(const StepArgs &s, const Op &op, const ConvolveItem &item, int lane) {
    const GdnInputs<1> beta = {s, op.layer, item.rows, item.at}, decay = {s, op.layer, item.rows, item.second};
    const ConvolveSteps steps = {item};
    const int head = item.at.column;
    const bool mine = head % 32 == lane;  // lanes beyond the last head repeat it
    const float bias = __ldg(op.dt_bias + head), a = __ldg(op.a + head);
#pragma unroll 1
    for (int first = item.first; first < steps.stop(); first = steps.next(first)) {
        float b[kConvolveRows][1], d[kConvolveRows][1];
        beta.load<4>(b, first);
        decay.load<4>(d, first);
        // A register array and a loop that is not unrolled: the code of a row is long.
#pragma unroll 1
        for (int r = 0; r < kConvolveRows; ++r) {
            const float of_beta[1] = {r == 0 ? b[0][0] : r == 1 ? b[1][0] : r == 2 ? b[2][0] : b[3][0]};
            const float of_decay[1] = {r == 0 ? d[0][0] : r == 1 ? d[1][0] : r == 2 ? d[2][0] : d[3][0]};
            if (!mine || first + r >= item.rows.n_total) break;
            if (steps.advances()) {
                beta.advance(of_beta, first + r);
                decay.advance(of_decay, first + r);
            }
            if (first + r >= item.end) continue;
            float *to = prepared_row(s, item.rows, first + r);
            to[item.at.channel] = sigmoid(of_beta[0]);
            to[item.second.channel] = expf(a * softplus(of_decay[0] + bias));
        }
    }
}

__device__ __forceinline__ void convolve(const StepArgs &s, const Op &op, const ConvolveItem &item, int lane) {
    if (item.head < n_channel_heads(s.shape))
        convolve_channels(s, op, item, lane);
    else
        prepare_gates(s, op, item, lane);
}

// The sequence of an item. The whole warp calls it.
__device__ __forceinline__ int convolved_sequence(const StepArgs &s, int index, int lane) {
    int n = 0;
    for (int first = 0; first < s.n_seqs; first += 32) {
        const bool begun = first + lane < s.n_seqs && __ldg(&s.plans[first + lane].first_convolve) <= index;
        n += __popc(__ballot_sync(~0u, begun));
    }
    return n - 1;
}

template <class Wait>
__device__ __noinline__ void op_gdn_convolve(const StepArgs &s, const Op &op, Wait wait) {
    if (op.input[0].row_factor) share_factors(s);
    for_each_warp_after(
        wait, s.n_convolve_items,
        [&](int index, int lane) {
            const int sequence = convolved_sequence(s, index, lane);
            const GdnRows rows(s, s.seqs[sequence], sequence);
            const SeqPlan &plan = s.plans[sequence];
            return convolve_item(s, op, rows, __ldg(&plan.chunk_rows), index - __ldg(&plan.first_convolve), lane);
        },
        [&](const ConvolveItem &item, int lane) { convolve(s, op, item, lane); });
}

}  // namespace pj::cuda
