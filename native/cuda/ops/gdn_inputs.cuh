// What a layer of gated delta net reads, row by row: channels before the convolution, beta, decay.
//
// A sequence's rows are numbered over its history: -3..-1 are the stored window, 0..n_accept - 1 the
// pending rows that were accepted, then come the rows of this step. The first two kinds are finished
// values of earlier launches; those of this step are sums of pieces times the row's factor.
#pragma once

#include "cuda/ops/rows.cuh"

namespace pj::cuda {

constexpr int kGdnDim = 128;
constexpr int kConvTaps = 4;
constexpr int kGdnHistory = kConvTaps - 1;  // rows before its own that an output needs

__device__ __forceinline__ int gdn_channels(const DeviceShape &shape) {
    return (2 * shape.n_gdn_head_k + shape.n_gdn_head_v) * kGdnDim;
}

// A slot's part of a layer: the convolution window, then the matrices of all value heads.
__device__ __forceinline__ float *gdn_window(const StepArgs &s, int slot, int layer) {
    return s.buf.states + slot * s.buf.state_slot_floats + layer * s.buf.state_layer_floats;
}

__device__ __forceinline__ float *gdn_state(const StepArgs &s, int slot, int layer, int head) {
    return gdn_window(s, slot, layer) + s.buf.window_floats + static_cast<int64_t>(head) * kGdnDim * kGdnDim;
}

// A speculative row that waits for its verdict: channels before the convolution, then the
// projections that give beta and the decay of every value head.
__device__ __forceinline__ float *pending_row(const StepArgs &s, int slot, int layer, int i) {
    const int64_t row = (static_cast<int64_t>(slot) * s.shape.n_gdn_layers + layer) * s.max_spec + i;
    return s.buf.pending + row * s.buf.pending_row_floats;
}

// What every projection output of a row of this step is multiplied by. The whole warp calls it.
__device__ __forceinline__ float input_factor(const StepArgs &s, const Op &op, int row, int lane) {
    return factor_of(s, op.input[0], row, lane);
}

// One output of a projection, in a row of this step and in a pending row.
struct GdnColumn {
    int input;  // of Op::input
    int column;
    int pending;
    PieceSpan pieces = {0, 1};  // GdnInput::located() knows
};

__device__ __forceinline__ GdnColumn channel_column(int channel) { return {0, channel, channel}; }

__device__ __forceinline__ GdnColumn beta_column(const DeviceShape &shape, int head) {
    return {2, head, gdn_channels(shape) + head};
}

__device__ __forceinline__ GdnColumn alpha_column(const DeviceShape &shape, int head) {
    return {3, head, gdn_channels(shape) + shape.n_gdn_head_v + head};
}

template <int kWidth>
__device__ __forceinline__ void load_floats(float (&x)[kWidth], const float *p) {
    static_assert(kWidth == 1 || kWidth == 2 || kWidth == 4, "one load");
    if constexpr (kWidth == 4) {
        const float4 v = __ldcg(reinterpret_cast<const float4 *>(p));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else if constexpr (kWidth == 2) {
        const float2 v = __ldcg(reinterpret_cast<const float2 *>(p));
        x[0] = v.x, x[1] = v.y;
    } else {
        x[0] = __ldcg(p);
    }
}

// The same of shared memory or constants.
template <int kWidth>
__device__ __forceinline__ void read_floats(float (&x)[kWidth], const float *p) {
    static_assert(kWidth == 2 || kWidth == 4, "one load");
    if constexpr (kWidth == 4) {
        const float4 v = *reinterpret_cast<const float4 *>(p);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
        const float2 v = *reinterpret_cast<const float2 *>(p);
        x[0] = v.x, x[1] = v.y;
    }
}

// The rows of one sequence in one layer.
struct GdnInput {
    const StepArgs &s;
    const Op &op;
    int slot, n_accept, n_total, n_committed;
    int step_row;  // row of the step = number in the sequence + step_row

    __device__ __forceinline__ GdnInput(const StepArgs &s, const Op &op, const pj_seq &seq)
        : s(s),
          op(op),
          slot(seq.state_slot),
          n_accept(seq.n_accept),
          n_total(n_accept + seq.n_rows),
          n_committed(n_total - seq.n_spec),
          step_row(seq.row_begin - n_accept) {}

    // The column and where its pieces are. A load: once per column, not per row.
    __device__ __forceinline__ GdnColumn located(GdnColumn c) const {
        c.pieces = pieces_at(s, op.input[c.input], c.column);
        return c;
    }
    // From a row of this step to the next.
    __device__ __forceinline__ int row_stride(const GdnColumn &c) const {
        return s.wide ? op.input[c.input].row_stride : kUnitOutputs;
    }
    __device__ __forceinline__ const float *finished(const GdnColumn &c, int i) const {
        return i < 0 ? gdn_window(s, slot, op.layer) + (i + kGdnHistory) * gdn_channels(s.shape) + c.column
                     : pending_row(s, slot, op.layer, i) + c.pending;
    }
    __device__ __forceinline__ const float *piece(const GdnColumn &c, int i, int n) const {
        return first_piece(s, op.input[c.input], c.pieces, i + step_row, c.column) + n * piece_stride(s);
    }
    // Of one row, of either kind.
    __device__ __forceinline__ const float *address(const GdnColumn &c, int i, int n) const {
        return i < n_accept ? finished(c, i) : piece(c, i, n);
    }
    __device__ __forceinline__ int pieces_of_row(int i, const GdnColumn &c) const {
        return i < n_accept ? 1 : c.pieces.n;
    }
    __device__ __forceinline__ bool is_of_step(int i) const { return i >= n_accept && i < n_total; }

    // Loads of kWidth neighbouring columns of the rows first .. first + kRows - 1, without their factors.
    // First what is stored finished and piece 0 of the others; zero beyond the last row.
    template <int kWidth, int kRows>
    __device__ __forceinline__ void start(float (&x)[kRows][kWidth], const GdnColumn &c, int first) const {
        const int64_t stride = row_stride(c);
        const float *from = piece(c, first, 0);  // outside when not of this step
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int i = first + r;
#pragma unroll
            for (int e = 0; e < kWidth; ++e) x[r][e] = 0;
            const float *at = from + r * stride;
            if (i < n_accept) at = finished(c, i);
            if (i < n_total) load_floats(x[r], at);
        }
    }
    // Then piece n of the rows of this step, zero of the others: registers that are not always set would
    // count as live in all of the caller's loop.
    template <int kWidth, int kRows>
    __device__ __forceinline__ void load_piece(float (&x)[kRows][kWidth], const GdnColumn &c, int first, int n) const {
        const int64_t stride = row_stride(c);
        const float *from = piece(c, first, n);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int e = 0; e < kWidth; ++e) x[r][e] = 0;
            if (n < c.pieces.n && is_of_step(first + r)) load_floats(x[r], from + r * stride);
        }
    }
    // It is added when it is there; nothing, not even zero, is added to a finished value.
    template <int kWidth, int kRows>
    __device__ __forceinline__ void add_piece(float (&x)[kRows][kWidth], const float (&more)[kRows][kWidth],
                                              const GdnColumn &c, int first, int n) const {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int e = 0; e < kWidth; ++e)
                if (n < c.pieces.n && is_of_step(first + r)) x[r][e] += more[r][e];
    }
    // Pieces from begin on, kTogether of them under way at once.
    template <int kTogether, int kWidth, int kRows>
    __device__ __forceinline__ void add_pieces(float (&x)[kRows][kWidth], const GdnColumn &c, int first,
                                               int begin) const {
#pragma unroll 1
        for (int n = begin; n < c.pieces.n; n += kTogether) {
            float more[kTogether][kRows][kWidth];
#pragma unroll
            for (int t = 0; t < kTogether; ++t) load_piece(more[t], c, first, n + t);
#pragma unroll
            for (int t = 0; t < kTogether; ++t) add_piece(x, more[t], c, first, n + t);
        }
    }
    // 1 for rows that are stored finished. The whole warp calls it.
    __device__ __forceinline__ float factor(int i, int lane) const {
        return is_of_step(i) ? input_factor(s, op, i + step_row, lane) : 1.0f;
    }
};

}  // namespace pj::cuda
