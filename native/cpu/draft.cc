// Drafts of the MTP block behind the rows of a step (pyjet.h, row_next).
//
// The block's row at position i takes the trunk's hidden row i and the token after it. Its first pass has all rows of
// the step, so that its KV is complete; every further one has a row for each sequence that wants another draft, which
// takes the block's own hidden row and the draft before.
#include <algorithm>
#include <cmath>

#include "core/sample_params.h"
#include "cpu/engine.h"
#include "cpu/sample.h"

namespace pj::cpu {

namespace {

// Softmax of one of n logits.
float probability(const float *logits, int n, int index) {
    const float best = *std::max_element(logits, logits + n);
    double total = 0;
    for (int i = 0; i < n; ++i) total += std::exp(static_cast<double>(logits[i] - best));
    return static_cast<float>(std::exp(static_cast<double>(logits[index] - best)) / total);
}

// The token chosen for a row.
int32_t chosen(const pj_step_out &out, int row, const std::vector<int32_t> &best) {
    return out.sampled && out.sampled[row] >= 0 ? out.sampled[row] : best[row];
}

}  // namespace

// Rows of the MTP block as a step of their own.
struct CpuEngine::DraftStep {
    std::vector<int32_t> tokens, positions, row_seq;
    std::vector<pj_seq> seqs;
    pj_step_in in = {};

    pj_step_in &bind(const pj_step_in &step, const float *hidden) {
        in.kind = PJ_STEP_MTP;
        in.n_rows = static_cast<int32_t>(tokens.size());
        in.n_seqs = static_cast<int32_t>(seqs.size());
        in.n_page_entries = step.n_page_entries;
        in.row_token = tokens.data();
        in.row_position = positions.data();
        in.row_seq = row_seq.data();
        in.row_hidden = hidden;
        in.seqs = seqs.data();
        in.page_table = step.page_table;
        return in;
    }
};

// Best tokens where a row's choice is not known to the caller: rows whose logits are all that is wanted.
std::vector<int32_t> CpuEngine::best_tokens(const pj_step_in &in, const pj_step_out &out) {
    std::vector<int32_t> best(in.n_rows, -1);
    int logits_row = 0;
    for (int row = 0; row < in.n_rows; ++row) {
        const uint32_t flags = in.row_flags[row];
        if (flags & PJ_ROW_ARGMAX) best[row] = out.argmax[row];
        if (!(flags & (PJ_ROW_LOGITS | PJ_ROW_SAMPLE))) continue;
        if (best[row] < 0)
            best[row] = kernels_.argmax(out.logits + int64_t{logits_row} * shape_.n_vocab, shape_.n_vocab);
        ++logits_row;
    }
    return best;
}

void CpuEngine::draft(const pj_step_in &in, pj_step_out &out) {
    const int n = shape_.n_embd;
    const std::vector<int32_t> best = best_tokens(in, out);
    ws_.hidden.resize(std::max(ws_.hidden.size(), size_t{2} * in.n_rows * n));
    float *hidden = ws_.hidden.data();
    pool_.for_each(in.n_rows, [&](int row) {
        kernels_.rms_norm(ws_.x.data() + int64_t{row} * n, weights_.output_norm.data(), n, shape_.rms_eps,
                          hidden + int64_t{row} * n);
    });
    DraftStep all;
    for (int row = 0; row < in.n_rows; ++row)
        all.tokens.push_back(in.row_next[row] >= 0 ? in.row_next[row] : chosen(out, row, best));
    all.positions.assign(in.row_position, in.row_position + in.n_rows);
    all.row_seq.assign(in.row_seq, in.row_seq + in.n_rows);
    all.seqs.assign(in.seqs, in.seqs + in.n_seqs);

    const std::vector<Drafting> wanted = drafting(in, all.tokens, out);
    const PackedBlock &b = weights_.mtp[0].block;
    all.bind(in, hidden);
    mtp_input(all.in);
    if (wanted.empty()) return store_keys(b, all.in);
    block(b, all.in);
    draft_passes(in, wanted, out);
}

// Who wants drafts, and the row of each that was accepted last: next[row] is the token after it.
std::vector<CpuEngine::Drafting> CpuEngine::drafting(const pj_step_in &in, const std::vector<int32_t> &next,
                                                     pj_step_out &out) const {
    std::vector<Drafting> wanted;
    for (int i = 0; i < in.n_seqs; ++i) {
        const pj_seq &seq = in.seqs[i];
        if (out.drafts) std::fill_n(out.drafts + i * PJ_MAX_DRAFT, PJ_MAX_DRAFT, -1);
        if (!seq.n_draft) continue;
        int row = seq.row_begin + seq.n_rows - 1 - seq.n_verify, n_right = 0;
        while (n_right < seq.n_verify && next[row] == in.row_token[row + 1]) ++row, ++n_right;
        wanted.push_back({i, row, n_right, in.row_position[row]});
    }
    return wanted;
}

// After the block's first pass.
void CpuEngine::draft_passes(const pj_step_in &in, const std::vector<Drafting> &wanted, pj_step_out &out) {
    const int n = shape_.n_embd, n_wanted = static_cast<int>(wanted.size());
    const PackedMtp &mtp = weights_.mtp[0];
    float *hidden = ws_.hidden.data();
    DraftStep one;
    int n_passes = 0;
    for (const Drafting &d : wanted) {
        one.row_seq.push_back(static_cast<int32_t>(one.seqs.size()));
        one.seqs.push_back(in.seqs[d.seq]);
        one.seqs.back().row_begin = one.row_seq.back();
        one.seqs.back().n_rows = 1;
        one.positions.push_back(d.position);
        n_passes = std::max(n_passes, in.seqs[d.seq].n_draft);
    }
    one.tokens.resize(n_wanted);
    for (int pass = 0; pass < n_passes; ++pass) {
        pool_.for_each(n_wanted, [&](int i) {
            const int64_t row = pass ? i : wanted[i].row;
            kernels_.rms_norm(ws_.x.data() + row * n, mtp.head_norm.data(), n, shape_.rms_eps, hidden + int64_t{i} * n);
        });
        draft_tokens(in, wanted, pass, one.tokens.data(), out);
        if (pass + 1 == n_passes) return;
        // Pages reach as far as drafts are wanted.
        for (int i = 0; i < n_wanted; ++i)
            if (pass < in.seqs[wanted[i].seq].n_draft) ++one.positions[i];
        one.bind(in, hidden);
        rope_tables(one.in);
        plan_attention(one.in);
        mtp_input(one.in);
        block(mtp.block, one.in);
    }
}

// Draft number `pass` of every sequence, from the hidden rows.
void CpuEngine::draft_tokens(const pj_step_in &in, const std::vector<Drafting> &wanted, int pass, int32_t *tokens,
                             pj_step_out &out) {
    const PackedMtp &mtp = weights_.mtp[0];
    const PackedMatrix &head = mtp.own_head.empty() ? weights_.output : mtp.own_head;
    const int n = shape_.n_embd, n_wanted = static_cast<int>(wanted.size()), n_vocab = shape_.n_vocab;
    const DraftIds ids = draft_ids(config_, n_vocab, in.draft_blocks, in.n_draft_blocks);
    const int n_ids = ids.n_logits(n_vocab);
    timer_.run(Op::kHead, [&] {
        ws_.input.bind(ws_.hidden.data(), n, n, head.form());
        pool_.for_each(n_wanted, [&](int i) { ws_.input.quantize_row(kernels_, i); });
        ws_.logits.resize(std::max(ws_.logits.size(), size_t(n_wanted) * (n_vocab + n_ids)));
        float *scores = ws_.logits.data(), *compact = scores + int64_t{n_wanted} * n_vocab;
        matmul_ids(pool_, kernels_, head, ids, ws_.input, n_wanted, scores, n_vocab);
        pool_.for_each(n_wanted, [&](int i) {
            const pj_seq &seq = in.seqs[wanted[i].seq];
            float *logits = compact + int64_t{i} * n_ids;
            for (int j = 0; j < n_ids; ++j) {
                const int id = ids.id_of(j);
                logits[j] = id < n_vocab ? scores[int64_t{i} * n_vocab + id] : -INFINITY;
            }
            const int index = draft_index(in, seq, wanted[i].n_right + pass + 1, ids, logits);
            tokens[i] = ids.id_of(index);
            if (pass >= seq.n_draft) return;
            out.drafts[wanted[i].seq * PJ_MAX_DRAFT + pass] = tokens[i];
            out.draft_probs[wanted[i].seq * PJ_MAX_DRAFT + pass] = probability(logits, n_ids, index);
        });
    });
}

// Which of the draft head's logits is drafted: the best one, or the one that the sequence's sample would draw for the
// token that many places on.
int CpuEngine::draft_index(const pj_step_in &in, const pj_seq &seq, int places, const DraftIds &ids,
                           float *logits) const {
    if (seq.draft_sample >= 0) {
        // The mask belongs to the token of that row; what it leaves of a draft is the caller's to say.
        SampleRow row = sample_params(in.samples[seq.draft_sample], shape_.n_vocab, in.counts, in.biases, nullptr);
        row.index += places;
        const int token = sample(logits, shape_.n_vocab, row, ids);
        if (token >= 0) return ids.index_of(token);
    }
    return static_cast<int>(std::max_element(logits, logits + ids.n_logits(shape_.n_vocab)) - logits);
}

}  // namespace pj::cpu
