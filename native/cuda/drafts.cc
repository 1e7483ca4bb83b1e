// The drafts' part of a launch: which sequences want some, where their rows may be, and what comes back.
#include <algorithm>
#include <numeric>
#include <utility>

#include "cuda/engine.h"

namespace pj::cuda {

namespace {

// Tiles of columns of one row, times segments of the longest context.
size_t most_draft_items(const pj_config &c, const Shape &shape) {
    const int64_t positions = std::min<int64_t>(int64_t{c.n_pages} * c.page_tokens, shape.n_ctx_train);
    const int64_t segments = segment_of(static_cast<int>(positions - 1)) + 1;
    return std::min(c.max_seqs, PJ_MAX_DRAFT_ROWS) * int64_t{shape.n_head_kv} * segments;
}

int blocks_of_ids(int n) { return (n + PJ_DRAFT_BLOCK - 1) / PJ_DRAFT_BLOCK; }

}  // namespace

size_t most_draft_bytes(size_t rows, const pj_config &c, const Shape &shape) {
    const size_t seqs = std::min(c.max_seqs, PJ_MAX_DRAFT_ROWS), half = shape.rope_dim / 2;
    return 4 * StepBlob::size_of<int32_t>(rows) +
           StepBlob::size_of<int32_t>(blocks_of_ids(shape.n_vocab) + PJ_MAX_DRAFT_BLOCKS) +
           StepBlob::size_of<DraftSeq>(seqs) + StepBlob::size_of<DraftPlace>(seqs) +
           2 * StepBlob::size_of<int32_t>(seqs) + 2 * StepBlob::size_of<float>(seqs * half * (kDraftSpan + 1)) +
           2 * StepBlob::size_of<float>(seqs * half) + StepBlob::size_of<AttentionItem>(most_draft_items(c, shape)) +
           StepBlob::size_of<unsigned long long>(PJ_MAX_DRAFT * PJ_MAX_DRAFT_ROWS) + StepBlob::size_of<pj_seq>(seqs) +
           StepBlob::size_of<SeqPlan>(seqs);
}

// args: of the step, complete but for this; of its drafts.
void CudaEngine::add_drafts(const pj_step_in &in, const WantedRows &wanted, StepArgs *args) {
    DraftArgs &d = args[0].draft;
    for (int i = 0; i < in.n_seqs; ++i)
        if (in.seqs[i].n_draft) {
            drafting_.push_back(i);
            d.n_passes = std::max(d.n_passes, in.seqs[i].n_draft);
        }
    d.n = static_cast<int32_t>(drafting_.size());
    add_draft_rows(in, wanted, d);
    if (!d.n) return;
    add_head_blocks(in, d);
    add_draft_seqs(in, d);
    add_draft_plan(in, args);
}

void CudaEngine::add_draft_rows(const pj_step_in &in, const WantedRows &wanted, DraftArgs &d) {
    d.row_next = blob_.add(in.row_next, in.n_rows);
    int32_t *device;
    int32_t *const selected = blob_.reserve<int32_t>(in.n_rows, &device);
    d.row_selected = device;
    int32_t *const sample = blob_.reserve<int32_t>(in.n_rows, &device);
    d.row_sample = device;
    std::fill_n(selected, in.n_rows, -1);
    std::fill_n(sample, in.n_rows, -1);
    for (size_t i = 0; i < wanted.selected.size(); ++i) selected[wanted.selected[i]] = static_cast<int32_t>(i);
    for (size_t i = 0; i < wanted.samples.size(); ++i)
        sample[wanted.selected[wanted.samples[i]]] = static_cast<int32_t>(i);
}

// The head multiplies as many blocks in every step: unused ones are the first.
void CudaEngine::add_head_blocks(const pj_step_in &in, DraftArgs &d) {
    const int low_blocks = blocks_of_ids(draft_low_ids(config_, shape_.n_vocab));
    int32_t *device;
    int32_t *const blocks = blob_.reserve<int32_t>(low_blocks + PJ_MAX_DRAFT_BLOCKS, &device);
    std::iota(blocks, blocks + low_blocks, 0);
    std::fill_n(blocks + low_blocks, PJ_MAX_DRAFT_BLOCKS, 0);
    d.ids = draft_ids(config_, shape_.n_vocab, device + low_blocks, in.n_draft_blocks);
    std::copy_n(in.draft_blocks, d.ids.n_blocks, blocks + low_blocks);
    d.head_blocks = device;
    d.n_chunks = (d.ids.n_logits(shape_.n_vocab) + kDraftChunkIds - 1) / kDraftChunkIds;
    unsigned long long *best;
    std::fill_n(blob_.reserve<unsigned long long>(PJ_MAX_DRAFT * PJ_MAX_DRAFT_ROWS, &best),
                PJ_MAX_DRAFT * PJ_MAX_DRAFT_ROWS, 0ull);
    d.best = best;
}

void CudaEngine::add_draft_seqs(const pj_step_in &in, DraftArgs &d) {
    const int half = shape_.rope_dim / 2;
    DraftSeq *device_seqs;
    DraftSeq *const seqs = blob_.reserve<DraftSeq>(d.n, &device_seqs);
    d.seqs = device_seqs;
    blob_.reserve<DraftPlace>(d.n, &d.places);
    blob_.reserve<int32_t>(d.n, &d.position);
    float *device;
    float *const cos = blob_.reserve<float>(int64_t{d.n} * kDraftSpan * half, &device);
    d.cos_table = device;
    float *const sin = blob_.reserve<float>(int64_t{d.n} * kDraftSpan * half, &device);
    d.sin_table = device;
    blob_.reserve<float>(d.n * half, &d.cos);
    blob_.reserve<float>(d.n * half, &d.sin);
    d.tokens = device_output_->tokens;
    d.probs = device_output_->probs;
    for (int i = 0; i < d.n; ++i) {
        const pj_seq &seq = in.seqs[drafting_[i]];
        const int row = seq.row_begin + seq.n_rows - 1 - seq.n_verify, position = in.row_position[row];
        seqs[i] = {row, seq.n_verify, seq.n_draft, seq.draft_sample, position};
        for (int t = 0; t <= seq.n_verify + seq.n_draft; ++t)
            for (const auto &[from, to] : {std::pair{rope_.cos(position + t), cos}, {rope_.sin(position + t), sin}})
                std::copy_n(from, half, to + (i * kDraftSpan + t) * half);
    }
}

// Passes after the first one as a step of a row per sequence, at the last position that it can have.
void CudaEngine::add_draft_plan(const pj_step_in &in, StepArgs *args) {
    DraftArgs &d = args[0].draft;
    std::vector<pj_seq> seqs;
    std::vector<int32_t> position, sequence;
    for (int i : drafting_) {
        const pj_seq &seq = in.seqs[i];
        sequence.push_back(static_cast<int32_t>(seqs.size()));
        position.push_back(in.row_position[seq.row_begin + seq.n_rows - 1] + seq.n_draft);
        seqs.push_back(seq);
        seqs.back().row_begin = sequence.back();
        seqs.back().n_rows = 1;
        seqs.back().n_accept = 0;
    }
    pj_step_in rows = in;
    rows.n_rows = rows.n_seqs = d.n;
    rows.row_position = position.data();
    rows.seqs = seqs.data();
    SequencePlans &plans = draft_plans_;
    plan_sequences(rows, base_.shape, {device_.n_sm, most_column_groups(config_.kv_type_k), partial_floats_}, plans);
    d.n_items = static_cast<int32_t>(plans.attention.size());
    AttentionItem *const items = blob_.reserve<AttentionItem>(plans.attention.size(), &d.items);
    std::copy(plans.attention.begin(), plans.attention.end(), items);
    StepArgs &b = args[1] = args[0];
    b.n_rows = b.n_seqs = d.n;
    b.row_position = d.position;
    b.row_seq = blob_.add(sequence.data(), sequence.size());
    b.seqs = blob_.add(seqs.data(), seqs.size());
    b.plans = blob_.add(plans.plans.data(), plans.plans.size());
    b.attention = d.items;
    b.n_attention_items = d.n_items;
    b.column_groups = plans.column_groups;
    b.cos = d.cos;
    b.sin = d.sin;
}

void CudaEngine::fetch_drafts(const pj_step_in &in, pj_step_out &out) const {
    if (out.drafts) std::fill_n(out.drafts, in.n_seqs * PJ_MAX_DRAFT, -1);
    const int n = static_cast<int>(drafting_.size());
    const LaunchOutput &output = *output_.data();
    for (int i = 0; i < n; ++i) {
        const int seq = drafting_[i], n_draft = in.seqs[seq].n_draft;
        std::copy_n(output.tokens + i * PJ_MAX_DRAFT, n_draft, out.drafts + seq * PJ_MAX_DRAFT);
        std::copy_n(output.probs + i * PJ_MAX_DRAFT, n_draft, out.draft_probs + seq * PJ_MAX_DRAFT);
    }
}

}  // namespace pj::cuda
