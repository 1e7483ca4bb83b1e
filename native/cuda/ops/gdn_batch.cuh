// Queries, keys, values, beta and decay of eight rows of a sequence, made by all consumer warps.
//
// Convolution and SiLU of each channel, taps in order; unit length for query and key: a lane's four
// channels in order, then butterflies over the warp. Formulas of cpu/kernels/gdn.h.
#pragma once

#include "cuda/ops/gdn_inputs.cuh"

namespace pj::cuda {

constexpr int kGdnBatch = 8;
constexpr int kGdnColumns = kGdnDim / 2;               // value columns of an item
constexpr int kGdnInputs = 2 * kGdnDim + kGdnColumns;  // channels of an item: query, key, values
constexpr int kInputRows = kGdnBatch + kGdnHistory;
static_assert(kGdnBatch == kConsumerWarps, "a warp convolves the values of one row of a batch");

// Keys of a lane of the recurrence: every fourth one. They lie side by side, and the four groups on
// different banks.
constexpr int kKeyGroups = 4;
constexpr int kKeysPerGroup = kGdnDim / kKeyGroups;
constexpr int kKeyPitch = kKeysPerGroup + 4;

struct alignas(16) GdnRow {
    float q[kKeyGroups * kKeyPitch], k[kKeyGroups * kKeyPitch];
    float v[kGdnColumns];
    float beta, decay;
};

struct GdnScratch {
    GdnRow rows[kGdnBatch];
    alignas(16) float inputs[kInputRows][kGdnInputs];  // row i in slot i mod kInputRows, without factor
    float factors[16];                                 // of row i at i mod 16
};
static_assert(sizeof(GdnScratch) <= kScratchBytes, "scratch");

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// Slot of row first + r; r >= -kGdnHistory.
__device__ __forceinline__ int input_slot(int first, int r) { return (first + r + kInputRows) % kInputRows; }

// Half a value head of a sequence.
struct GdnItem {
    GdnInput in;
    int head, half;

    __device__ __forceinline__ GdnItem(const StepArgs &s, const Op &op, const pj_seq &seq, int head, int half)
        : in(s, op, seq), head(head), half(half) {}

    // Channel of the projection of an item's input.
    __device__ __forceinline__ int channel(int input) const {
        const DeviceShape &shape = in.s.shape;
        const int key_head = head % shape.n_gdn_head_k;
        if (input < kGdnDim) return key_head * kGdnDim + input;
        if (input < 2 * kGdnDim) return (shape.n_gdn_head_k + key_head - 1) * kGdnDim + input;
        return (2 * shape.n_gdn_head_k + head - 2) * kGdnDim + half * kGdnColumns + input;
    }
};

// A thread's share in a batch: an even warp has query, an odd one key channels of two rows, four to a
// lane; each warp has two value channels to a lane, and one gate, of one row.
struct GdnShare {
    int qk, v;  // first input
    int qk_row, v_row;
    GdnColumn qk_column, v_column, gate_column;

    __device__ __forceinline__ explicit GdnShare(const GdnItem &item) {
        const DeviceShape &shape = item.in.s.shape;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        qk = warp % 2 * kGdnDim + 4 * lane;
        v = 2 * kGdnDim + 2 * lane;
        qk_row = warp / 2 * 2;
        v_row = warp;
        qk_column = item.in.located(channel_column(item.channel(qk)));
        v_column = item.in.located(channel_column(item.channel(v)));
        gate_column = item.in.located(lane % 2 ? alpha_column(shape, item.head) : beta_column(shape, item.head));
    }
};

// A thread's inputs of a batch. Two pieces of each are under way while the batch before it runs; of the
// gates, which have the most, one piece per lane: lanes 2 p and 2 p + 1 have piece p of beta and alpha.
struct GdnRaw {
    float qk[2][4], qk_more[2][4], v[1][2], v_more[1][2], gate[1];

    __device__ __forceinline__ void load(const GdnInput &in, const GdnShare &share, int first) {
        const int qk_row = first + share.qk_row, v_row = first + share.v_row, gate_piece = (threadIdx.x & 31) / 2;
        in.start(qk, share.qk_column, qk_row);
        in.start(v, share.v_column, v_row);
        in.load_piece(qk_more, share.qk_column, qk_row, 1);
        in.load_piece(v_more, share.v_column, v_row, 1);
        gate[0] = 0;
        if (v_row < in.n_total && gate_piece < in.pieces_of_row(v_row, share.gate_column))
            load_floats(gate, in.address(share.gate_column, v_row, gate_piece));
    }
    __device__ __forceinline__ void finish(const GdnInput &in, const GdnShare &share, int first) {
        const int qk_row = first + share.qk_row, v_row = first + share.v_row;
        in.add_piece(qk, qk_more, share.qk_column, qk_row, 1);
        in.add_piece(v, v_more, share.v_column, v_row, 1);
        in.add_pieces<3>(qk, share.qk_column, qk_row, 2);
        in.add_pieces<4>(v, share.v_column, v_row, 2);
    }
    // Beta's projection in even lanes, alpha's in odd ones; pieces in order. The whole warp calls it.
    __device__ __forceinline__ float sum_gate(const GdnInput &in, const GdnShare &share, int i) const {
        const int odd = threadIdx.x & 1, n = in.pieces_of_row(i, share.gate_column);
        const int most = max(n, __shfl_xor_sync(~0u, n, 1));
        float sum = __shfl_sync(~0u, gate[0], odd);
#pragma unroll 1
        for (int p = 1; p < most; ++p) {
            float piece = __shfl_sync(~0u, gate[0], (2 * p + odd) & 31);
            if (p >= 16 && p < n) piece = __ldcg(in.piece(share.gate_column, i, p));
            if (p < n) sum += piece;
        }
        return sum;
    }
    // The others' history too: to shared memory.
    __device__ __forceinline__ void put(GdnScratch &scratch, const GdnShare &share, int first) const {
#pragma unroll
        for (int r = 0; r < 2; ++r)
            *reinterpret_cast<float4 *>(scratch.inputs[input_slot(first, share.qk_row + r)] + share.qk) =
                make_float4(qk[r][0], qk[r][1], qk[r][2], qk[r][3]);
        *reinterpret_cast<float2 *>(scratch.inputs[input_slot(first, share.v_row)] + share.v) =
            make_float2(v[0][0], v[0][1]);
    }
};

// The rows before the first one: the stored window.
__device__ __forceinline__ void put_window(const GdnItem &item, GdnScratch &scratch) {
    constexpr int kQuads = kGdnInputs / 4;
    static_assert(kGdnHistory * kQuads <= kConsumerWarps * 32, "a quad per thread");
    if (threadIdx.x < kGdnHistory) scratch.factors[16 - kGdnHistory + threadIdx.x] = 1.0f;
    if (threadIdx.x >= kGdnHistory * kQuads) return;
    const int i = static_cast<int>(threadIdx.x) / kQuads - kGdnHistory, input = threadIdx.x % kQuads * 4;
    *reinterpret_cast<float4 *>(scratch.inputs[input_slot(0, i)] + input) =
        __ldcg(reinterpret_cast<const float4 *>(item.in.finished(channel_column(item.channel(input)), i)));
}

// The factor of one row per warp, for the batch that begins at row first.
__device__ __forceinline__ void put_factors(const GdnInput &in, GdnScratch &scratch, int first) {
    const int i = first + static_cast<int>(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (i >= in.n_total) return;
    const float factor = in.factor(i, lane);
    if (lane == 0) scratch.factors[i % 16] = factor;
}

// Outputs of the convolution at kWidth neighbouring inputs for kRows rows, the first of them row i.
template <int kWidth, int kRows>
__device__ __forceinline__ void convolve(float (&y)[kRows][kWidth], const GdnScratch &scratch, const float *weights,
                                         int channels, int input, int i) {
    float weight[kConvTaps][kWidth];
#pragma unroll
    for (int t = 0; t < kConvTaps; ++t) read_floats(weight[t], weights + t * channels);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int e = 0; e < kWidth; ++e) y[r][e] = 0;
#pragma unroll
    for (int from = 0; from < kRows + kGdnHistory; ++from) {
        const int row = i + from - kGdnHistory;
        const float factor = scratch.factors[row & 15];
        float x[kWidth];
        read_floats(x, scratch.inputs[input_slot(row, 0)] + input);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int t = from - r;  // tap of this input in row r
            if (t < 0 || t >= kConvTaps) continue;
#pragma unroll
            for (int e = 0; e < kWidth; ++e) y[r][e] = fmaf(weight[t][e], x[e] * factor, y[r][e]);
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int e = 0; e < kWidth; ++e) y[r][e] *= sigmoid(y[r][e]);
}

// Four channels of a row to unit length and to their places: channel 4 lane + e belongs to group e.
__device__ __forceinline__ void put_unit(float *to, const float (&y)[4], float eps, int lane) {
    float squares = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) squares = fmaf(y[e], y[e], squares);
    const float scale = 1.0f / sqrtf(warp_sum(squares) + eps);
#pragma unroll
    for (int e = 0; e < 4; ++e) to[e * kKeyPitch + lane] = y[e] * scale;
}

// The batch that begins at row first, from its inputs in shared memory.
__device__ __forceinline__ void prepare(GdnScratch &scratch, const GdnRaw &raw, const GdnItem &item,
                                        const GdnShare &share, int first) {
    const GdnInput &in = item.in;
    const int lane = threadIdx.x & 31, odd = threadIdx.x >> 5 & 1, channels = gdn_channels(in.s.shape);
    const int qk = first + share.qk_row, value = first + share.v_row;
    if (qk < in.n_total) {
        float y[2][4];
        convolve(y, scratch, in.op.conv + share.qk_column.column, channels, share.qk, qk);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            GdnRow &row = scratch.rows[share.qk_row + r];
            put_unit(odd ? row.k : row.q, y[r], in.s.shape.rms_eps, lane);
        }
    }
    if (value < in.n_total) {
        float y[1][2];
        convolve(y, scratch, in.op.conv + share.v_column.column, channels, share.v, value);
        GdnRow &row = scratch.rows[share.v_row];
        *reinterpret_cast<float2 *>(row.v + 2 * lane) = make_float2(y[0][0], y[0][1]);
        const float gate = raw.sum_gate(in, share, value) * scratch.factors[value & 15];
        if (lane == 0) row.beta = sigmoid(gate);
        if (lane == 1) row.decay = expf(__ldg(in.op.a + item.head) * softplus(gate + __ldg(in.op.dt_bias + item.head)));
    }
}

// Brings to the L2 cache what an item reads of earlier launches apart from its state.
__device__ __forceinline__ void prefetch_inputs(const GdnItem &item) {
    constexpr int kLine = 128 / sizeof(float), kLines = kGdnInputs / kLine, kPerRow = kLines + 2;
    const GdnInput &in = item.in;
    const int channels = gdn_channels(in.s.shape);
    // Rows of lines: the window, the taps, the pending rows with their two gates.
    for (int n = threadIdx.x; n < (kGdnHistory + kConvTaps + in.n_accept) * kPerRow; n += kConsumerWarps * 32) {
        const int row = n / kPerRow, line = n % kPerRow, i = row - kGdnHistory - kConvTaps;
        const GdnColumn c = line < kLines    ? channel_column(item.channel(line * kLine))
                            : line == kLines ? beta_column(in.s.shape, item.head)
                                             : alpha_column(in.s.shape, item.head);
        if (i >= 0)
            prefetch(in.finished(c, i));
        else if (line >= kLines)
            prefetch((line == kLines ? in.op.a : in.op.dt_bias) + item.head);
        else if (row < kGdnHistory)
            prefetch(in.finished(c, row - kGdnHistory));
        else
            prefetch(in.op.conv + (row - kGdnHistory) * channels + c.column);
    }
}

}  // namespace pj::cuda
