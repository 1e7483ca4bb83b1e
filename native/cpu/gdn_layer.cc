// Gated delta net of one block: projections, causal convolution, recurrence, gated norm, output.
//
// Rows of a sequence run in order. The last n_spec rows use a copy of the state: the slot keeps the
// state after the committed rows, and the inputs of the speculative ones until their verdict.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/engine.h"
#include "cpu/kernels/gdn.h"

namespace pj::cpu {

namespace {

constexpr int kChannelBlock = 256;
constexpr int kColumnBlock = 64;

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

int blocks_of(int n, int block) { return (n + block - 1) / block; }

}  // namespace

void CpuEngine::gdn_layer(const PackedBlock &b, const pj_step_in &in) {
    const int channels = shape_.conv_channels(), value_width = shape_.gdn_value_width(), heads = shape_.n_gdn_head_v;
    timer_.run(Op::kProject, [&] {
        matmul_many(pool_, kernels_,
                    {{&b.qkv, ws_.wide.data(), channels},
                     {&b.z, ws_.z.data(), value_width},
                     {&b.beta, ws_.beta.data(), heads},
                     {&b.alpha, ws_.decay.data(), heads}},
                    ws_.input, in.n_rows);
    });
    timer_.run(Op::kConv, [&] {
        const int n = blocks_of(channels, kChannelBlock);
        pool_.for_each(in.n_seqs * n, [&](int i) {
            const int begin = i % n * kChannelBlock;
            convolve(b, in.seqs[i / n], begin, std::min(begin + kChannelBlock, channels));
        });
        pool_.for_each(in.n_rows, [&](int row) { prepare_row(b, row); });
    });
    timer_.run(Op::kGdn, [&] {
        const int n = blocks_of(shape_.gdn_dim, kColumnBlock);
        pool_.for_each(in.n_seqs * heads * n, [&](int i) {
            const int begin = i % n * kColumnBlock;
            recur(b, in.seqs[i / (heads * n)], i / n % heads, begin, std::min(begin + kColumnBlock, shape_.gdn_dim));
        });
        for (int i = 0; i < in.n_seqs; ++i) keep_pending(b, in.seqs[i]);
    });
    ws_.heads_input.bind(ws_.heads.data(), value_width, value_width, b.gdn_output.form());
    timer_.run(Op::kOutput, [&] {
        pool_.for_each(in.n_rows, [&](int row) {
            for (int head = 0; head < heads; ++head) {
                float *o = ws_.heads.data() + int64_t{row} * value_width + head * shape_.gdn_dim;
                const float *z = ws_.z.data() + int64_t{row} * value_width + head * shape_.gdn_dim;
                kernels_.gated_norm(o, b.gdn_norm.data(), z, shape_.gdn_dim, shape_.rms_eps, o);
            }
            ws_.heads_input.quantize_row(kernels_, row);
        });
        matmul(pool_, kernels_, b.gdn_output, ws_.heads_input, in.n_rows, ws_.delta.data(), shape_.n_embd);
    });
}

void CpuEngine::convolve(const PackedBlock &b, const pj_seq &seq, int channel_begin, int channel_end) {
    const int channels = shape_.conv_channels();
    float *window = states_.window(seq.state_slot, b.layer);
    if (seq.n_accept) states_.accept_window(seq.state_slot, b.layer, seq.n_accept, channel_begin, channel_end);
    const int64_t first = int64_t{seq.row_begin} * channels;
    ConvArgs a = {};
    a.input = ws_.wide.data() + first;
    a.stride = channels;
    a.window = window;
    a.weight = b.conv.data();
    a.out = ws_.mixed.data() + first;
    a.n_rows = seq.n_rows;
    a.n_channels = channels;
    a.taps = shape_.conv_kernel;
    a.channel_begin = channel_begin;
    a.channel_end = channel_end;
    kernels_.conv(a);
    if (seq.n_rows > seq.n_spec)
        states_.advance_window(window, a.input, channels, seq.n_rows - seq.n_spec, channel_begin, channel_end);
}

// Unit-length q and k per head; beta and the decay from their projections.
void CpuEngine::prepare_row(const PackedBlock &b, int row) {
    float *channels = ws_.mixed.data() + int64_t{row} * shape_.conv_channels();
    for (int head = 0; head < 2 * shape_.n_gdn_head_k; ++head)
        kernels_.l2_norm(channels + head * shape_.gdn_dim, shape_.gdn_dim, shape_.rms_eps);
    float *beta = ws_.beta.data() + int64_t{row} * shape_.n_gdn_head_v;
    float *decay = ws_.decay.data() + int64_t{row} * shape_.n_gdn_head_v;
    for (int head = 0; head < shape_.n_gdn_head_v; ++head) {
        beta[head] = sigmoid(beta[head]);
        decay[head] = std::exp(b.a[head] * softplus(decay[head] + b.dt_bias[head]));
    }
}

void CpuEngine::recur(const PackedBlock &b, const pj_seq &seq, int head, int column_begin, int column_end) {
    const int dim = shape_.gdn_dim, key_width = shape_.gdn_key_width(), channels = shape_.conv_channels();
    const int value_width = shape_.gdn_value_width(), key_head = head % shape_.n_gdn_head_k;
    if (seq.n_accept)
        states_.accept_matrix(kernels_, seq.state_slot, b.layer, head, seq.n_accept, column_begin, column_end);
    const float *row = ws_.mixed.data() + int64_t{seq.row_begin} * channels;
    GdnArgs a = {};
    a.q = row + key_head * dim;
    a.k = row + key_width + key_head * dim;
    a.v = row + 2 * key_width + head * dim;
    a.q_stride = a.k_stride = a.v_stride = channels;
    a.decay = ws_.decay.data() + int64_t{seq.row_begin} * shape_.n_gdn_head_v + head;
    a.beta = ws_.beta.data() + int64_t{seq.row_begin} * shape_.n_gdn_head_v + head;
    a.gate_stride = shape_.n_gdn_head_v;
    a.state_in = a.state_out = states_.matrix(seq.state_slot, b.layer, head);
    a.out = ws_.heads.data() + int64_t{seq.row_begin} * value_width + head * dim;
    a.out_stride = value_width;
    a.dim = dim;
    a.column_begin = column_begin;
    a.column_end = column_end;
    a.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    a.n_rows = seq.n_rows - seq.n_spec;
    if (a.n_rows) kernels_.gdn(a);
    if (!seq.n_spec) return;
    thread_local AlignedVector<float> scratch;
    scratch.resize(static_cast<size_t>(dim) * dim);
    const int n = a.n_rows;
    a.q += n * a.q_stride;
    a.k += n * a.k_stride;
    a.v += n * a.v_stride;
    a.decay += n * a.gate_stride;
    a.beta += n * a.gate_stride;
    a.out += n * a.out_stride;
    a.state_out = scratch.data();
    a.n_rows = seq.n_spec;
    kernels_.gdn(a);
}

void CpuEngine::keep_pending(const PackedBlock &b, const pj_seq &seq) {
    if (!seq.n_spec) return;
    const PendingRows to = states_.pending_rows(seq.state_slot, b.layer);
    const int channels = shape_.conv_channels(), heads = shape_.n_gdn_head_v;
    const int key_width = shape_.gdn_key_width(), value_width = shape_.gdn_value_width();
    const auto copy = [](float *out, const float *in, int n) { std::memcpy(out, in, n * sizeof(float)); };
    for (int i = 0; i < seq.n_spec; ++i) {
        const int64_t row = seq.row_begin + seq.n_rows - seq.n_spec + i;
        const float *mixed = ws_.mixed.data() + row * channels;
        copy(to.conv_input + int64_t{i} * channels, ws_.wide.data() + row * channels, channels);
        copy(to.key + int64_t{i} * key_width, mixed + key_width, key_width);
        copy(to.value + int64_t{i} * value_width, mixed + 2 * key_width, value_width);
        copy(to.decay + int64_t{i} * heads, ws_.decay.data() + row * heads, heads);
        copy(to.beta + int64_t{i} * heads, ws_.beta.data() + row * heads, heads);
    }
}

}  // namespace pj::cpu
