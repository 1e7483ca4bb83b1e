// Ops that work on 256 columns of a row at a time: embedding, residual, norms, SwiGLU, logits.
#pragma once

#include "cuda/ops/lanes.cuh"

namespace pj::cuda {

// The approximate division is off by two units in the last place, and has no branches.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// Calls body(item, lane) for items dealt to all consumer warps of the grid.
template <class Body>
__device__ __forceinline__ void for_each_warp(int64_t n, const Body &body) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) + static_cast<int64_t>(warp) * gridDim.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * kConsumerWarps)
        body(i, lane);
}

// This warp's first item of for_each_warp(): what it needs of constants can come before the wait.
__device__ __forceinline__ int64_t first_item() {
    return static_cast<int64_t>(blockIdx.x) + static_cast<int64_t>(threadIdx.x >> 5) * gridDim.x;
}

// A row and 256 of its columns.
struct RowGroup {
    int row, group;
    __device__ __forceinline__ RowGroup(int64_t item, int groups)
        : row(static_cast<int>(item / groups)), group(static_cast<int>(item % groups)) {}
};

// Ops call wait() once, before they read what others wrote in this launch.
template <class Wait>
__device__ __noinline__ void op_embed(const StepArgs &s, const Wait &wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(static_cast<int64_t>(s.n_rows) * groups, [&](int64_t item, int lane) {
        store256(s.buf.x + item * 256, lane, load256(s.row_embedding + item * 256, lane));
    });
}

// x += product; square sums of x for the row factor; act = quantised x * norm.
template <class Wait>
__device__ __noinline__ void op_residual(const StepArgs &s, const Op &op, const Wait &wait) {
    const int groups = s.shape.n_embd / 256, lane = threadIdx.x & 31;
    const int64_t n = static_cast<int64_t>(s.n_rows) * groups;
    const bool adds = op.n_inputs && !(op.flags & kOpOverwrite);
    bool waited = false;
    for (int64_t item = first_item(); item < n; item += static_cast<int64_t>(gridDim.x) * kConsumerWarps) {
        const RowGroup at(item, groups);
        const Product &input = op.input[0];
        const PieceSpan span = op.n_inputs ? pieces_at(s, input, at.group * 256 + lane_column(lane)) : PieceSpan{0, 0};
        const Lane8 norm = op.act_forms ? load256(op.norm + at.group * 256, lane) : Lane8{};
        // x was written by this very thread, in the residual op before.
        Lane8 x = op.flags & kOpOverwrite ? Lane8{} : load256(s.buf.x + item * 256, lane);
        if (!waited) wait();
        waited = true;
        if (op.n_inputs) {
            // The 27B shape has eight pieces here.
            const Lane8 delta = product256<8>(s, input, span, at.row, at.group * 256, lane);
#pragma unroll
            for (int i = 0; i < 8; ++i) x.v[i] = adds ? x.v[i] + delta.v[i] : delta.v[i];
            store256(s.buf.x + item * 256, lane, x);
        }
        const float squares = square_sum(x);
        if (lane == 0) s.buf.square_sums[item] = squares;
        if (op.act_forms) quantize(s, op, at.row, at.group, multiply(x, norm), lane);
    }
    if (!waited) wait();
}

__device__ __forceinline__ Lane8 normalized(const StepArgs &s, const Op &op, int row, int group, int lane) {
    const Lane8 x = load256(s.buf.x + static_cast<int64_t>(row) * s.shape.n_embd + group * 256, lane);
    return multiply(scale(x, row_factor(s, row, lane)), load256(op.norm + group * 256, lane));
}

template <class Wait>
__device__ __noinline__ void op_normalize(const StepArgs &s, const Op &op, const Wait &wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(static_cast<int64_t>(s.n_rows) * groups, [&](int64_t item, int lane) {
        const RowGroup at(item, groups);
        quantize(s, op, at.row, at.group, normalized(s, op, at.row, at.group, lane), lane);
    });
}

template <class Wait>
__device__ __noinline__ void op_swiglu(const StepArgs &s, const Op &op, const Wait &wait) {
    const int groups = op.width / 256, lane = threadIdx.x & 31;
    const int64_t n = static_cast<int64_t>(s.n_rows) * groups;
    bool waited = false;
    for (int64_t item = first_item(); item < n; item += static_cast<int64_t>(gridDim.x) * kConsumerWarps) {
        const RowGroup at(item, groups);
        const int column = at.group * 256 + lane_column(lane);
        const PieceSpan gate_span = pieces_at(s, op.input[0], column), up_span = pieces_at(s, op.input[1], column);
        if (!waited) wait();
        waited = true;
        const Lane8 gate = product256(s, op.input[0], gate_span, at.row, at.group * 256, lane);
        const Lane8 up = product256(s, op.input[1], up_span, at.row, at.group * 256, lane);
        Lane8 out;
#pragma unroll
        for (int i = 0; i < 8; ++i) out.v[i] = gate.v[i] * sigmoid(gate.v[i]) * up.v[i];
        quantize(s, op, at.row, at.group, out, lane);
    }
    if (!waited) wait();
}

// The finished residual rows, normalised: what the output head and the MTP block read.
template <class Wait>
__device__ __noinline__ void op_select(const StepArgs &s, const Op &op, const Wait &wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(static_cast<int64_t>(s.n_selected + s.n_hidden) * groups, [&](int64_t item, int lane) {
        const RowGroup at(item, groups);
        const int hidden = at.row - s.n_selected;
        const Lane8 x = normalized(s, op, hidden < 0 ? s.selected[at.row] : s.hidden_rows[hidden], at.group, lane);
        if (hidden < 0)
            quantize(s, op, at.row, at.group, x, lane);
        else
            store256(s.buf.hidden + static_cast<int64_t>(hidden) * s.shape.n_embd + at.group * 256, lane, x);
    });
}

// act = quantised [norm(embedding) ; norm(hidden of the position before)]
template <class Wait>
__device__ __noinline__ void op_mtp_input(const StepArgs &s, const Op &op, const Wait &wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(static_cast<int64_t>(s.n_rows) * 2, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / 2), second = static_cast<int>(item % 2);
        const float *source = (second ? s.row_hidden : s.row_embedding) + static_cast<int64_t>(row) * s.shape.n_embd;
        const float *weight = second ? op.norm2 : op.norm;
        float sum = 0;
        for (int group = 0; group < groups; ++group) sum += square_sum(load256(source + group * 256, lane));
        const float factor = 1.0f / sqrtf(sum / s.shape.n_embd + s.shape.rms_eps);
        for (int group = 0; group < groups; ++group) {
            const Lane8 h =
                multiply(scale(load256(source + group * 256, lane), factor), load256(weight + group * 256, lane));
            quantize(s, op, row, second * groups + group, h, lane);
        }
    });
}

// Larger value first, then the lower index: one 64-bit maximum decides.
__device__ __forceinline__ unsigned long long argmax_key(float value, int index) {
    const uint32_t bits = __float_as_uint(value);
    const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<unsigned long long>(ordered) << 32 | static_cast<uint32_t>(~index);
}

template <class Wait>
__device__ __noinline__ void op_logits(const StepArgs &s, const Op &op, const Wait &wait) {
    wait();
    const int chunks = (s.shape.n_vocab + 1023) / 1024;
    for_each_warp(static_cast<int64_t>(s.n_selected) * chunks, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / chunks), first = static_cast<int>(item % chunks) * 1024;
        const int last = min(first + 1024, s.shape.n_vocab);
        unsigned long long best = 0;
        for (int i = first + lane; i < last; i += 32) {
            const float value = product_value(s, op.input[0], row, i);
            if (s.buf.logits && row < s.n_logits) s.buf.logits[static_cast<int64_t>(row) * s.shape.n_vocab + i] = value;
            const unsigned long long key = argmax_key(value, i);
            best = key > best ? key : best;
        }
        for (int step = 16; step > 0; step /= 2) {
            const unsigned long long other = __shfl_xor_sync(~0u, best, step);
            best = other > best ? other : best;
        }
        if (lane == 0) atomicMax(s.buf.best + row, best);
    });
}

}  // namespace pj::cuda
