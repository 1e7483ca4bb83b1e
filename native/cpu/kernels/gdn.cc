#include "cpu/kernels/gdn.h"

#include "cpu/kernels/functions.h"
#include "cpu/kernels/simd.h"

namespace pj::cpu::PJ_ISA {

namespace {

constexpr int kSums = 4;

// One row for 16 columns; in and state are their block.
void gdn_row(const GdnArgs &a, int row, int column, const float *in, float *state) {
    const float *k = a.k + row * a.k_stride;
    const F16 decay = broadcast(a.decay[row * a.gate_stride]);
    F16 s[kSums] = {};
    for (int i = 0; i < a.dim; i += kSums)
        for (int j = 0; j < kSums; ++j) s[j] = fma(broadcast(k[i + j]), load(in + (i + j) * kLanes), s[j]);
    const F16 kv = decay * ((s[0] + s[1]) + (s[2] + s[3]));
    const F16 delta = broadcast(a.beta[row * a.gate_stride]) * (load(a.v + row * a.v_stride + column) - kv);
    if (!a.q) {
        for (int i = 0; i < a.dim; ++i)
            store(state + i * kLanes, fma(broadcast(k[i]), delta, decay * load(in + i * kLanes)));
        return;
    }
    const float *q = a.q + row * a.q_stride;
    F16 o[kSums] = {};
    for (int i = 0; i < a.dim; i += kSums) {
        for (int j = 0; j < kSums; ++j) {
            const F16 updated = fma(broadcast(k[i + j]), delta, decay * load(in + (i + j) * kLanes));
            store(state + (i + j) * kLanes, updated);
            o[j] = fma(broadcast(q[i + j]), updated, o[j]);
        }
    }
    store(a.out + row * a.out_stride + column, ((o[0] + o[1]) + (o[2] + o[3])) * broadcast(a.scale));
}

}  // namespace

void gdn(const GdnArgs &a) {
    for (int column = a.column_begin; column < a.column_end; column += kLanes) {
        const float *in = a.state_in + column * (int64_t)a.dim;
        float *state = a.state_out + column * (int64_t)a.dim;
        for (int row = 0; row < a.n_rows; ++row) {
            gdn_row(a, row, column, in, state);
            in = state;
        }
    }
}

void conv(const ConvArgs &a) {
    for (int row = 0; row < a.n_rows; ++row) {
        for (int c = a.channel_begin; c < a.channel_end; c += kLanes) {
            F16 sum = {};
            for (int t = 0; t < a.taps; ++t) {
                const int from = row - a.taps + 1 + t;
                const float *x =
                    from < 0 ? a.window + (from + a.taps - 1) * (int64_t)a.n_channels : a.input + from * a.stride;
                sum = fma(load(a.weight + t * (int64_t)a.n_channels + c), load(x + c), sum);
            }
            store(a.out + row * a.stride + c, sum * sigmoid16(sum));
        }
    }
}

}  // namespace pj::cpu::PJ_ISA
