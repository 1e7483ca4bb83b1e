// What a layer of gated delta net reads of a sequence's rows before the convolution: channels, and the
// projections that give beta and the decay.
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

// The rows of one sequence, `index` of the step, in one layer.
struct GdnRows {
    int slot, n_accept, n_total, n_committed;
    int step_row;  // row of the step = number in the sequence + step_row
    int prepared;  // first row of the sequence in Buffers::gdn_rows

    GdnRows() = default;
    __device__ __forceinline__ GdnRows(const StepArgs &s, const pj_seq &seq, int index)
        : slot(seq.state_slot),
          n_accept(seq.n_accept),
          n_total(n_accept + seq.n_rows),
          n_committed(n_total - seq.n_spec),
          step_row(seq.row_begin - n_accept),
          prepared(seq.row_begin + index * s.max_spec) {}

    __device__ __forceinline__ bool of_step(int i) const { return i >= n_accept && i < n_total; }
};

// What the recurrence reads of a row: query, key and value channels after the convolution, then beta and decay
// of every value head.
__device__ __forceinline__ float *prepared_row(const StepArgs &s, const GdnRows &rows, int i) {
    return s.buf.gdn_rows + static_cast<int64_t>(rows.prepared + i) * s.buf.pending_row_floats;
}

// Neighbouring outputs of a projection.
struct GdnColumns {
    const Product *product;
    PieceSpan span;
    int column;   // of the product
    int channel;  // of a pending row
};

__device__ __forceinline__ GdnColumns gdn_columns(const StepArgs &s, const Product &product, int column, int channel) {
    return {&product, pieces_at(s, product, column), column, channel};
}

// kWidth neighbouring floats that other CTAs may have written in this launch.
template <int kWidth>
__device__ __forceinline__ void load_floats(float (&x)[kWidth], const float *p) {
    static_assert(kWidth == 1 || kWidth == 4, "one load");
    if constexpr (kWidth == 4) {
        const float4 v = __ldcg(reinterpret_cast<const float4 *>(p));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
        x[0] = __ldcg(p);
    }
}

template <int kWidth>
__device__ __forceinline__ void store_floats(float *p, const float (&x)[kWidth]) {
    if constexpr (kWidth == 4)
        *reinterpret_cast<float4 *>(p) = make_float4(x[0], x[1], x[2], x[3]);
    else
        *p = x[0];
}

// Row i < n_accept, from its first channel on.
__device__ __noinline__ const float *finished_row(const StepArgs &s, int layer, int slot, int i) {
    return i < 0 ? gdn_window(s, slot, layer) + (i + kGdnHistory) * gdn_channels(s.shape)
                 : pending_row(s, slot, layer, i);
}

// The rows of a lane's columns, some at a time.
template <int kWidth>
struct GdnInputs {
    const StepArgs &s;
    const int layer;
    const GdnRows &rows;
    const GdnColumns at;

    // Raw values of the rows from `begin` on; zero beyond the last. The whole warp calls it. kTogether: pieces
    // whose loads are on their way at a time.
    template <int kTogether, int kRows>
    __device__ __forceinline__ void load(float (&x)[kRows][kWidth], int begin) const {
        const int64_t stride = piece_stride(s, *at.product);
        const int64_t row_stride = s.wide ? at.product->row_stride : kUnitOutputs;
        const float *from[kRows];
        float pieces[kTogether][kRows][kWidth] = {};
        const float *const step = first_piece(s, *at.product, at.span, begin + rows.step_row, at.column);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int i = begin + r, n = i >= rows.n_total ? 0 : rows.of_step(i) ? at.span.n : 1;
            from[r] = step + r * row_stride;
            if (i < rows.n_accept) from[r] = finished_row(s, layer, rows.slot, i) + at.channel;
#pragma unroll
            for (int p = 0; p < kTogether; ++p)
                if (p < n) load_floats(pieces[p][r], from[r] + p * stride);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int e = 0; e < kWidth; ++e) {
                x[r][e] = pieces[0][r][e];
#pragma unroll
                for (int p = 1; p < kTogether; ++p) x[r][e] += pieces[p][r][e];
            }
#pragma unroll 1
        for (int p = kTogether; p < at.span.n; ++p)
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                if (!rows.of_step(begin + r)) continue;
                float more[kWidth];
                load_floats(more, from[r] + p * stride);
#pragma unroll
                for (int e = 0; e < kWidth; ++e) x[r][e] += more[e];
            }
        if (!at.product->row_factor) return;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            if (!rows.of_step(begin + r)) continue;
            const float factor = shared_factor(s, begin + r + rows.step_row, threadIdx.x & 31);
#pragma unroll
            for (int e = 0; e < kWidth; ++e) x[r][e] *= factor;
        }
    }

    // Row i, with value x: the speculative rows become pending, the last committed ones the window.
    __device__ __forceinline__ void advance(const float (&x)[kWidth], int i) const {
        const int of_window = i - (rows.n_committed - kGdnHistory);
        if (i >= rows.n_committed)
            store_floats(pending_row(s, rows.slot, layer, i - rows.n_committed) + at.channel, x);
        else if (kWidth == 4 && of_window >= 0)  // beta and decay have no window
            store_floats(window_row(of_window), x);
    }

    // Rows of the old window that stay in the new one; x begins with the old one.
    template <int kRows>
    __device__ __forceinline__ void keep_history(const float (&x)[kRows][kWidth]) const {
#pragma unroll
        for (int r = 0; r < kGdnHistory; ++r)
            if (r >= rows.n_committed) store_floats(window_row(r - rows.n_committed), x[r]);
    }

  private:
    __device__ __forceinline__ float *window_row(int i) const {
        return gdn_window(s, rows.slot, layer) + i * gdn_channels(s.shape) + at.channel;
    }
};

}  // namespace pj::cuda
