#include "cpu/engine.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/sample_params.h"
#include "core/status.h"
#include "cpu/isa.h"
#include "cpu/sample.h"

namespace pj::cpu {

namespace {

int k_rotation(const Shape &s, int kv_type) {
    if (kv_type != PJ_KV_Q8_0 || s.head_dim % 64) return 0;
    int block = 64;
    while (s.head_dim % (2 * block) == 0) block *= 2;
    return block;
}

int v_rotation(const Shape &s, int kv_type) { return kv_type == PJ_KV_Q8_0 && s.head_dim % 64 == 0 ? 64 : 0; }

std::vector<int> rows_with(const pj_step_in &in, uint32_t flags, uint32_t without = 0) {
    std::vector<int> rows;
    for (int row = 0; row < in.n_rows; ++row)
        if ((in.row_flags[row] & flags) && !(in.row_flags[row] & without)) rows.push_back(row);
    return rows;
}

}  // namespace

CpuEngine::CpuEngine(const Model &model, const pj_config &config)
    : shape_(model.shape),
      rope_factors_(model.rope_factors),
      config_(config),
      isa_(resolve_isa(config.isa)),
      kernels_(*kernels_for(isa_)),
      pool_(config.n_threads),
      weights_(pack_weights(pool_, model, config)),
      kv_(model.shape, config, weights_.n_attention_layers),
      states_(model.shape, config, weights_.n_gdn_layers),
      ws_(model.shape, config.max_rows),
      timer_(config.profile != 0),
      k_rotation_(k_rotation(model.shape, config.kv_type_k)),
      v_rotation_(v_rotation(model.shape, config.kv_type_v)) {}

void CpuEngine::finish(const pj_step_in &in, pj_step_out &out) {
    const auto begin = std::chrono::steady_clock::now();
    rope_tables(in);
    plan_attention(in);
    if (in.kind == PJ_STEP_MTP) {
        const PackedMtp &mtp = weights_.mtp[0];
        mtp_input(in);
        block(mtp.block, in);
        emit(mtp.head_norm.data(), mtp.own_head.empty() ? weights_.output : mtp.own_head, in, out);
    } else {
        for (int i = 0; i < in.n_seqs; ++i)
            if (in.seqs[i].flags & PJ_SEQ_RESET) states_.reset(in.seqs[i].state_slot);
        embed(in);
        for (const PackedBlock &b : weights_.blocks) block(b, in);
        for (int i = 0; i < in.n_seqs; ++i) states_.set_pending(in.seqs[i].state_slot, in.seqs[i].n_spec);
        emit(weights_.output_norm.data(), weights_.output, in, out);
        if (in.row_next) draft(in, out);
    }
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
    out.step_us = us.count();
}

void CpuEngine::embed(const pj_step_in &in) {
    timer_.run(Op::kEmbed, [&] {
        pool_.for_each(in.n_rows, [&](int row) {
            weights_.embedding.row(in.row_token[row], ws_.x.data() + int64_t{row} * shape_.n_embd);
        });
    });
}

// x = eh_proj [norm(embedding of the token) ; norm(hidden of the position before)]
void CpuEngine::mtp_input(const pj_step_in &in) {
    const PackedMtp &mtp = weights_.mtp[0];
    const int n = shape_.n_embd;
    ws_.input.bind(ws_.h.data(), 2 * n, 2 * n, mtp.eh_proj.form());
    timer_.run(Op::kEmbed, [&] {
        pool_.for_each(in.n_rows, [&](int row) {
            float *h = ws_.h.data() + int64_t{row} * 2 * n;
            mtp.embedding.row(in.row_token[row], h);
            kernels_.rms_norm(h, mtp.e_norm.data(), n, shape_.rms_eps, h);
            kernels_.rms_norm(in.row_hidden + int64_t{row} * n, mtp.h_norm.data(), n, shape_.rms_eps, h + n);
            ws_.input.quantize_row(kernels_, row);
        });
        matmul(pool_, kernels_, mtp.eh_proj, ws_.input, in.n_rows, ws_.x.data(), n);
    });
}

// What the block's first matrices read.
void CpuEngine::norm_input(const PackedBlock &b, int n_rows) {
    timer_.run(Op::kNorm, [&] {
        norm_rows(b.norm.data(), n_rows, forms_of({&b.q, &b.k, &b.v, &b.qkv, &b.z, &b.beta, &b.alpha}));
    });
}

void CpuEngine::block(const PackedBlock &b, const pj_step_in &in) {
    norm_input(b, in.n_rows);
    if (b.is_attention) {
        attention_layer(b, in);
    } else {
        gdn_layer(b, in);
    }
    timer_.run(Op::kNorm, [&] { add_norm_rows(b.post_norm.data(), in.n_rows, forms_of({&b.ffn_gate, &b.ffn_up})); });
    feed_forward(b, in.n_rows);
    pool_.for_each(in.n_rows, [&](int row) {
        kernels_.add(ws_.x.data() + int64_t{row} * shape_.n_embd, ws_.delta.data() + int64_t{row} * shape_.n_embd,
                     shape_.n_embd);
    });
}

// h = norm(x), as input of the next matrices
void CpuEngine::norm_rows(const float *weight, int n_rows, uint32_t forms) {
    const int n = shape_.n_embd;
    ws_.input.bind(ws_.h.data(), n, n, forms);
    pool_.for_each(n_rows, [&](int row) {
        kernels_.rms_norm(ws_.x.data() + int64_t{row} * n, weight, n, shape_.rms_eps, ws_.h.data() + int64_t{row} * n);
        ws_.input.quantize_row(kernels_, row);
    });
}

// x += delta; h = norm(x)
void CpuEngine::add_norm_rows(const float *weight, int n_rows, uint32_t forms) {
    const int n = shape_.n_embd;
    ws_.input.bind(ws_.h.data(), n, n, forms);
    pool_.for_each(n_rows, [&](int row) {
        float *x = ws_.x.data() + int64_t{row} * n;
        kernels_.add(x, ws_.delta.data() + int64_t{row} * n, n);
        kernels_.rms_norm(x, weight, n, shape_.rms_eps, ws_.h.data() + int64_t{row} * n);
        ws_.input.quantize_row(kernels_, row);
    });
}

void CpuEngine::feed_forward(const PackedBlock &b, int n_rows) {
    const int n = shape_.n_ff;
    timer_.run(Op::kFfnUp, [&] {
        matmul_many(pool_, kernels_, {{&b.ffn_gate, ws_.gate.data(), n}, {&b.ffn_up, ws_.up.data(), n}}, ws_.input,
                    n_rows);
    });
    ws_.ffn_input.bind(ws_.gate.data(), n, n, b.ffn_down.form());
    timer_.run(Op::kFfnDown, [&] {
        pool_.for_each(n_rows, [&](int row) {
            kernels_.swiglu(ws_.gate.data() + int64_t{row} * n, ws_.up.data() + int64_t{row} * n, n);
            ws_.ffn_input.quantize_row(kernels_, row);
        });
        matmul(pool_, kernels_, b.ffn_down, ws_.ffn_input, n_rows, ws_.delta.data(), shape_.n_embd);
    });
}

// Final norm, hidden rows, logits, argmax and sampled tokens of the rows that ask for them.
void CpuEngine::emit(const float *norm, const PackedMatrix &head, const pj_step_in &in, pj_step_out &out) {
    const int n = shape_.n_embd;
    if (out.argmax) std::fill_n(out.argmax, in.n_rows, -1);
    if (out.sampled) std::fill_n(out.sampled, in.n_rows, -1);
    const auto normed = [&](int row, float *to) {
        kernels_.rms_norm(ws_.x.data() + int64_t{row} * n, norm, n, shape_.rms_eps, to);
    };
    const std::vector<int> hidden = rows_with(in, PJ_ROW_HIDDEN);
    pool_.for_each(static_cast<int>(hidden.size()), [&](int i) { normed(hidden[i], out.hidden + int64_t{i} * n); });

    constexpr uint32_t kLogits = PJ_ROW_LOGITS | PJ_ROW_SAMPLE;
    const std::vector<int> full = rows_with(in, kLogits), best = rows_with(in, PJ_ROW_ARGMAX, kLogits);
    std::vector<int> rows = full;
    rows.insert(rows.end(), best.begin(), best.end());
    if (rows.empty()) return;
    timer_.run(Op::kHead, [&] {
        ws_.input.bind(ws_.h.data(), n, n, head.form());
        const auto prepare = [&](const std::vector<int> &which) {
            pool_.for_each(static_cast<int>(which.size()), [&](int i) {
                normed(which[i], ws_.h.data() + int64_t{i} * n);
                ws_.input.quantize_row(kernels_, i);
            });
        };
        if (!full.empty()) {
            prepare(full);
            matmul(pool_, kernels_, head, ws_.input, static_cast<int>(full.size()), out.logits, shape_.n_vocab);
            for (size_t i = 0; i < full.size(); ++i)
                if (in.row_flags[full[i]] & PJ_ROW_ARGMAX)
                    out.argmax[full[i]] = kernels_.argmax(out.logits + i * shape_.n_vocab, shape_.n_vocab);
        }
        for (size_t first = 0; first < best.size(); first += kArgmaxRows) {
            const size_t last = std::min(first + kArgmaxRows, best.size());
            const std::vector<int> some(best.begin() + first, best.begin() + last);
            prepare(some);
            emit_argmax(head, some, out);
        }
    });
    timer_.run(Op::kSample, [&] { emit_sampled(full, in, out); });
}

// logits_rows: the rows of out.logits.
void CpuEngine::emit_sampled(const std::vector<int> &logits_rows, const pj_step_in &in, pj_step_out &out) {
    std::vector<int> sampled;  // indices of logits_rows
    for (size_t i = 0; i < logits_rows.size(); ++i)
        if (in.row_flags[logits_rows[i]] & PJ_ROW_SAMPLE) sampled.push_back(static_cast<int>(i));
    pool_.for_each(static_cast<int>(sampled.size()), [&](int i) {
        const uint32_t *masks = in.n_mask_words ? in.masks : nullptr;
        const SampleRow row = sample_params(in.samples[i], shape_.n_vocab, in.counts, in.biases, masks);
        float *logits = out.logits + int64_t{sampled[i]} * shape_.n_vocab;
        out.sampled[logits_rows[sampled[i]]] = sample(logits, shape_.n_vocab, row);
    });
}

void CpuEngine::emit_argmax(const PackedMatrix &head, const std::vector<int> &rows, pj_step_out &out) {
    const int n = static_cast<int>(rows.size());
    ws_.logits.resize(std::max(ws_.logits.size(), size_t{kArgmaxRows} * shape_.n_vocab));
    matmul(pool_, kernels_, head, ws_.input, n, ws_.logits.data(), shape_.n_vocab);
    pool_.for_each(n, [&](int i) {
        out.argmax[rows[i]] = kernels_.argmax(ws_.logits.data() + int64_t{i} * shape_.n_vocab, shape_.n_vocab);
    });
}

void CpuEngine::pages_copy(const int32_t *from, const int32_t *to, int n) {
    pool_.for_each(n, [&](int i) { kv_.copy(from[i], to[i]); });
}

void CpuEngine::pages_read(const int32_t *pages, int n, void *host) {
    pool_.for_each(n, [&](int i) { kv_.read(pages[i], static_cast<uint8_t *>(host) + i * kv_.page_bytes()); });
}

void CpuEngine::pages_write(const int32_t *pages, int n, const void *host) {
    pool_.for_each(n, [&](int i) { kv_.write(pages[i], static_cast<const uint8_t *>(host) + i * kv_.page_bytes()); });
}

void CpuEngine::info(pj_info &out) const {
    out = {};
    out.weight_bytes = weights_.bytes;
    out.kv_bytes = kv_.bytes();
    out.state_bytes = states_.bytes();
    out.workspace_bytes = ws_.bytes();
    out.device = PJ_DEVICE_CPU;
    out.isa = isa_;
    out.n_threads = pool_.size();
    std::snprintf(out.device_name, sizeof out.device_name, "CPU (%s, %d threads)", isa_name(isa_), pool_.size());
}

}  // namespace pj::cpu
