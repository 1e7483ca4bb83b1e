// Ops that work on 256 columns of a row at a time: embedding, residual, norms, SwiGLU, logits.
#pragma once

#include "core/sample_maxima.h"
#include "cuda/ops/lanes.cuh"

namespace pj::cuda {

// The approximate division is off by two units in the last place, and has no branches.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Brings a line of 128 bytes to the L2 cache.
__device__ __forceinline__ void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Calls body(prepare(item, lane), lane) for items dealt to all consumer warps of the grid, the first prepare
// before the wait.
template <class Wait, class Prepare, class Body>
__device__ __forceinline__ void for_each_warp_after(const Wait &wait, int n, const Prepare &prepare, const Body &body) {
    const int lane = threadIdx.x & 31, stride = gridDim.x * kConsumerWarps;
    int i = blockIdx.x + (threadIdx.x >> 5) * gridDim.x;
    if (i >= n) return wait();
    auto item = prepare(i, lane);
    wait();
#pragma unroll 1
    for (;;) {
        body(item, lane);
        i += stride;
        if (i >= n) return;
        item = prepare(i, lane);
    }
}

// The same where nothing can be prepared; the caller has waited.
template <class Body>
__device__ __forceinline__ void for_each_warp(int n, const Body &body) {
    const int lane = threadIdx.x & 31, stride = gridDim.x * kConsumerWarps;
#pragma unroll 1
    for (int i = blockIdx.x + (threadIdx.x >> 5) * gridDim.x; i < n; i += stride) body(i, lane);
}

// A row and 256 of its columns.
struct RowGroup {
    int row = 0, group = 0;

    RowGroup() = default;
    __device__ __forceinline__ RowGroup(int item, int groups)
        : row(static_cast<int>(static_cast<unsigned>(item) / groups)), group(item - row * groups) {}
};

// Ops call wait() once, before they read what others wrote in this launch.
// What a residual item needs of constants and of its own thread.
struct ResidualItem {
    int index;
    RowGroup at;
    PieceSpan span;
    Lane8 norm, x;
};

__device__ __forceinline__ ResidualItem residual_item(const StepArgs &s, const Op &op, int index, int lane) {
    ResidualItem item = {index, RowGroup(index, s.shape.n_embd / 256), {}, {}, {}};
    const int column = item.at.group * 256;
    if (op.n_inputs) item.span = pieces_at(s, op.input[0], column + lane_column(lane));
    if (op.act_forms) item.norm = load256(op.norm + column, lane);
    // x was written by this very thread, in the residual op before.
    if (!(op.flags & kOpOverwrite)) item.x = load256(s.buf.x + int64_t{index} * 256, lane);
    return item;
}

// x += product + bias; square sums of x for the row factor; act = quantised x * norm.
template <class Wait>
__device__ __noinline__ void op_residual(const StepArgs &s, const Op &op, Wait wait) {
    const int groups = s.shape.n_embd / 256;
    const bool adds = !(op.flags & kOpOverwrite);
    for_each_warp_after(
        wait, s.n_rows * groups, [&](int index, int lane) { return residual_item(s, op, index, lane); },
        [&](const ResidualItem &item, int lane) {
            const RowGroup &at = item.at;
            Lane8 x = item.x;
            if (op.n_inputs) {
                Lane8 delta = product256(s, op.input[0], item.span, at.row, at.group * 256, lane);
                if (op.bias) delta = add(delta, load256(op.bias + at.group * 256, lane));
#pragma unroll
                for (int i = 0; i < 8; ++i) x.v[i] = adds ? x.v[i] + delta.v[i] : delta.v[i];
                store256(s.buf.x + int64_t{item.index} * 256, lane, x);
            }
            const float squares = square_sum(x);
            if (lane == 0) s.buf.square_sums[item.index] = squares;
            if (op.act_forms) quantize(s, op, at.row, at.group, multiply(x, item.norm), lane);
        });
}

__device__ __forceinline__ Lane8 normalized(const StepArgs &s, const Op &op, int row, int group, int lane) {
    const Lane8 x = load256(s.buf.x + static_cast<int64_t>(row) * s.shape.n_embd + group * 256, lane);
    return multiply(scale(x, row_factor(s, row, lane)), load256(op.norm + group * 256, lane));
}

template <class Wait>
__device__ __noinline__ void op_normalize(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(s.n_rows * groups, [&](int item, int lane) {
        const RowGroup at(item, groups);
        quantize(s, op, at.row, at.group, normalized(s, op, at.row, at.group, lane), lane);
    });
}

struct SwigluItem {
    RowGroup at;
    PieceSpan gate, up;
};

// silu(gate) * up; the loads of both on their way together.
__device__ __forceinline__ Lane8 gated_products(const StepArgs &s, const Op &op, const SwigluItem &item, int lane) {
    constexpr int kTogether = 3;  // pieces of the 27B shape
    const Product &gate_product = op.input[0], &up_product = op.input[1];
    const int row = item.at.row, column = item.at.group * 256;
    const LanePieces gate(s, gate_product, item.gate, row, column, lane);
    const LanePieces up(s, up_product, item.up, row, column, lane);
    PieceBatch<kTogether> gate_pieces, up_pieces;
    gate_pieces.load(gate.at, gate.n, gate.stride);
    up_pieces.load(up.at, up.n, up.stride);
    const float factor = factor_of(s, gate_product, row, lane);
    float4 low[2] = {}, high[2] = {};
    gate_pieces.add(low[0], high[0]);
    up_pieces.add(low[1], high[1]);
    gate.add_from<1>(kTogether, low[0], high[0]);
    up.add_from<1>(kTogether, low[1], high[1]);
    const Lane8 g = scale(make_lane8(low[0], high[0]), factor), u = scale(make_lane8(low[1], high[1]), factor);
    Lane8 out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.v[i] = g.v[i] * sigmoid(g.v[i]) * u.v[i];
    return out;
}

template <class Wait>
__device__ __noinline__ void op_swiglu(const StepArgs &s, const Op &op, Wait wait) {
    const int groups = op.width / 256;
    if (op.input[0].row_factor) share_factors(s);
    for_each_warp_after(
        wait, s.n_rows * groups,
        [&](int index, int lane) {
            const RowGroup at(index, groups);
            const int column = at.group * 256 + lane_column(lane);
            return SwigluItem{at, pieces_at(s, op.input[0], column), pieces_at(s, op.input[1], column)};
        },
        [&](const SwigluItem &item, int lane) {
            quantize(s, op, item.at.row, item.at.group, gated_products(s, op, item, lane), lane);
        });
}

// The finished residual rows, normalised: what the output head and the MTP block read.
template <class Wait>
__device__ __noinline__ void op_select(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp((s.n_selected + s.n_hidden) * groups, [&](int item, int lane) {
        const RowGroup at(item, groups);
        const int hidden = at.row - s.n_selected;
        const Lane8 x = normalized(s, op, hidden < 0 ? s.selected[at.row] : s.hidden_rows[hidden], at.group, lane);
        if (hidden < 0)
            quantize(s, op, at.row, at.group, x, lane);
        else
            store256(s.buf.hidden + static_cast<int64_t>(hidden) * s.shape.n_embd + at.group * 256, lane, x);
    });
}

constexpr int kLogitsChunk = 256;  // ids that one warp looks at: a row keeps all warps of a large GPU busy
static_assert(kLogitsChunk % kLongestRun == 0, "a run is one warp's");

// The best id of every row; of rows that are kept their logits, and the largest of each run of ids (RowMaxima).
template <class Wait>
__device__ __noinline__ void op_logits(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const int n_vocab = s.shape.n_vocab, chunks = (n_vocab + kLogitsChunk - 1) / kLogitsChunk;
    const int run = run_of_maxima(n_vocab);
    for_each_warp(s.n_selected * chunks, [&](int item, int lane) {
        constexpr int kTogether = 4;
        const RowGroup at(item, chunks);
        const bool is_kept = s.buf.logits && at.row < s.n_logits;
        float *const logits = s.buf.logits + int64_t{at.row} * n_vocab;
        Wide best = 0;
        uint32_t largest = 0;  // of the run so far
#pragma unroll 1
        for (int first = at.group * kLogitsChunk; first < (at.group + 1) * kLogitsChunk; first += 32 * kTogether) {
            int column[kTogether];
            float value[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const int id = first + 32 * j + lane;
                column[j] = id < n_vocab ? id : -1;
            }
            product_values(s, op.input[0], at.row, column, value);
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const int id = first + 32 * j + lane, end = first + 32 * (j + 1);
                const uint32_t key = id < n_vocab ? logit_key(value[j]) : 0;
                const Wide candidate = candidate_key(key, id);
                best = candidate > best ? candidate : best;
                if (!is_kept) continue;
                if (id < n_vocab) logits[id] = value[j];
                largest = key > largest ? key : largest;
                if (!run || end & (run - 1)) continue;  // a power of two
                largest = __reduce_max_sync(~0u, largest);
                if (lane == 0) s.buf.maxima[at.row * kSampleGroups + end / run - 1] = largest;
                largest = 0;
            }
        }
        best = warp_largest(best);
        if (lane == 0) atomicMax(s.buf.best + at.row, best);
    });
}

}  // namespace pj::cuda
