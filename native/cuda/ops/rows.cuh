// Ops that work on 256 columns of a row at a time: embedding, residual, norms, SwiGLU, logits.
#pragma once

#include "cuda/ops/lanes.cuh"

namespace pj::cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Calls body(item, lane) for items dealt to all consumer warps of the grid.
template <class Body>
__device__ __forceinline__ void for_each_warp(int64_t n, const Body &body) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) + static_cast<int64_t>(warp) * gridDim.x; i < n;
         i += static_cast<int64_t>(gridDim.x) * kConsumerWarps)
        body(i, lane);
}

__device__ __noinline__ void op_embed(const StepArgs &s) {
    const int groups = s.shape.n_embd / 256;
    for_each_warp(static_cast<int64_t>(s.n_rows) * groups, [&](int64_t item, int lane) {
        store256(s.buf.x + item * 256, lane, load256(s.row_embedding + item * 256, lane));
    });
}

// x += parts; act = quantised x * norm; square sums of x for the row factor of the next matrices.
__device__ __noinline__ void op_residual(const StepArgs &s, const Op &op) {
    const int groups = s.shape.n_embd / 256;
    for_each_warp(static_cast<int64_t>(s.n_rows) * groups, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / groups), group = static_cast<int>(item % groups);
        Lane8 x;
        if (op.flags & kOpOverwrite) {
            x = parts256(op.input[0], row, group * 256, lane);
        } else {
            x = load256(s.buf.x + item * 256, lane);
            if (op.n_inputs) {
                const Lane8 delta = parts256(op.input[0], row, group * 256, lane);
#pragma unroll
                for (int i = 0; i < 8; ++i) x.v[i] += delta.v[i];
            }
        }
        store256(s.buf.x + item * 256, lane, x);
        const float squares = square_sum(x);
        if (lane == 0) s.buf.square_sums[item] = squares;
        quantize(s, op, row, group, multiply(x, load256(op.norm + group * 256, lane)), lane);
    });
}

__device__ __noinline__ void op_swiglu(const StepArgs &s, const Op &op) {
    const int groups = op.width / 256;
    for_each_warp(static_cast<int64_t>(s.n_rows) * groups, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / groups), group = static_cast<int>(item % groups);
        const Lane8 gate = parts256(op.input[0], row, group * 256, lane);
        const Lane8 up = parts256(op.input[1], row, group * 256, lane);
        Lane8 out;
#pragma unroll
        for (int i = 0; i < 8; ++i) out.v[i] = gate.v[i] * sigmoid(gate.v[i]) * up.v[i];
        quantize(s, op, row, group, out, lane);
    });
}

// The finished residual row, normalised: what the output head and the MTP block read.
template <class Emit>
__device__ __forceinline__ void final_norm(const StepArgs &s, const Op &op, int row, int lane, const Emit &emit) {
    const int groups = s.shape.n_embd / 256;
    float sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
        const float factor = pass ? 1.0f / sqrtf(sum / s.shape.n_embd + s.shape.rms_eps) : 0.0f;
        for (int group = 0; group < groups; ++group) {
            Lane8 x = load256(s.buf.x + static_cast<int64_t>(row) * s.shape.n_embd + group * 256, lane);
            const Lane8 delta = parts256(op.input[0], row, group * 256, lane);
#pragma unroll
            for (int i = 0; i < 8; ++i) x.v[i] += delta.v[i];
            if (pass == 0)
                sum += square_sum(x);
            else
                emit(group, multiply(scale(x, factor), load256(op.norm + group * 256, lane)));
        }
    }
}

__device__ __noinline__ void op_select(const StepArgs &s, const Op &op) {
    for_each_warp(s.n_selected + s.n_hidden, [&](int64_t item, int lane) {
        const int i = static_cast<int>(item);
        if (i < s.n_selected) {
            final_norm(s, op, s.selected[i], lane,
                       [&](int group, const Lane8 &h) { quantize(s, op, i, group, h, lane); });
        } else {
            const int j = i - s.n_selected;
            final_norm(s, op, s.hidden_rows[j], lane, [&](int group, const Lane8 &h) {
                store256(s.buf.hidden + static_cast<int64_t>(j) * s.shape.n_embd + group * 256, lane, h);
            });
        }
    });
}

// act = quantised [norm(embedding) ; norm(hidden of the position before)]
__device__ __noinline__ void op_mtp_input(const StepArgs &s, const Op &op) {
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

__device__ __noinline__ void op_logits(const StepArgs &s, const Op &op) {
    const int chunks = (s.shape.n_vocab + 1023) / 1024;
    for_each_warp(static_cast<int64_t>(s.n_selected) * chunks, [&](int64_t item, int lane) {
        const int row = static_cast<int>(item / chunks), first = static_cast<int>(item % chunks) * 1024;
        const int last = min(first + 1024, s.shape.n_vocab);
        unsigned long long best = 0;
        for (int i = first + lane; i < last; i += 32) {
            const float value = sum_parts(op.input[0], row, i, gridDim.x);
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
