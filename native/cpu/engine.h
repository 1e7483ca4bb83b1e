// The CPU backend: the model, row by row of a step, in the order that is the contract for every
// other backend.
#pragma once

#include <memory>
#include <vector>

#include "core/draft_ids.h"
#include "core/engine.h"
#include "cpu/kv_pool.h"
#include "cpu/op_timer.h"
#include "cpu/states.h"
#include "cpu/thread_pool.h"
#include "cpu/weights.h"
#include "cpu/workspace.h"

namespace pj::cpu {

// Part of a layer's attention: some rows of one sequence, one key/value head.
struct AttentionTask {
    int seq, kv_head, row, n_rows;  // row is an index into the step
    int segment_begin, segment_end;
    bool split;  // writes partial results that are merged afterwards
};

// A row of a sequence whose attention is split by segments.
struct SplitRow {
    int row, seq, n_segments;
    int64_t partial;  // first float in Workspace::partial
};

class CpuEngine final : public Engine {
  public:
    CpuEngine(const Model &model, const pj_config &config);

    void start(const pj_step_in &, pj_step_out &) override {}
    void masks_ready(const pj_step_in &, pj_step_out &, bool) override {}
    void finish(const pj_step_in &in, pj_step_out &out) override;

    void state_commit(int slot, int n) override { states_.commit(kernels_, slot, n); }
    void state_reset(int slot) override { states_.reset(slot); }
    void state_copy(int from, int to) override { states_.copy(from, to); }
    void state_read(int slot, void *host) override { states_.read(slot, host); }
    void state_write(int slot, const void *host) override { states_.write(slot, host); }
    void pages_copy(const int32_t *from, const int32_t *to, int n) override;
    void pages_read(const int32_t *pages, int n, void *host) override;
    void pages_write(const int32_t *pages, int n, const void *host) override;

    uint64_t state_bytes() const override { return states_.slot_bytes(); }
    uint64_t page_bytes() const override { return kv_.page_bytes(); }
    int pending(int slot) const override { return states_.pending(slot); }
    void info(pj_info &out) const override;
    std::vector<pj_op_time> op_times() const override { return timer_.times(); }

  private:
    // One step (engine.cc)
    void embed(const pj_step_in &in);
    void mtp_input(const pj_step_in &in);
    void block(const PackedBlock &b, const pj_step_in &in);
    void feed_forward(const PackedBlock &b, int n_rows);
    void norm_rows(const float *weight, int n_rows, uint32_t forms);
    void add_norm_rows(const float *weight, int n_rows, uint32_t forms);
    void emit(const float *norm, const PackedMatrix &head, const pj_step_in &in, pj_step_out &out);
    void emit_argmax(const PackedMatrix &head, const std::vector<int> &rows, pj_step_out &out);
    void emit_sampled(const std::vector<int> &logits_rows, const pj_step_in &in, pj_step_out &out);

    // Attention (attention_layer.cc)
    void rope_tables(const pj_step_in &in);
    void plan_attention(const pj_step_in &in);
    void plan_split(const pj_step_in &in, int seq, int n_segments);
    void attention_layer(const PackedBlock &b, const pj_step_in &in);
    void project(const PackedBlock &b, const pj_step_in &in);
    void store_keys(const PackedBlock &b, const pj_step_in &in);
    void norm_input(const PackedBlock &b, int n_rows);
    void rotate_and_store(const PackedBlock &b, const pj_step_in &in, int row);
    void normalize_and_rotate(const Vector &norm, int row, float *head);
    void round_like_keys(float *q);
    void attend(int layer, const pj_step_in &in, const AttentionTask &task);
    void merge_split_row(const SplitRow &row);
    void finish_heads(int row);

    // Drafts (draft.cc)
    struct DraftStep;
    struct Drafting {
        int seq, row;      // of the step: the row that was accepted last
        int n_right;       // drafts before it that were
        int32_t position;  // of the row
    };
    void draft(const pj_step_in &in, pj_step_out &out);
    std::vector<int32_t> best_tokens(const pj_step_in &in, const pj_step_out &out);
    std::vector<Drafting> drafting(const pj_step_in &in, const std::vector<int32_t> &next, pj_step_out &out) const;
    void draft_passes(const pj_step_in &in, const std::vector<Drafting> &wanted, pj_step_out &out);
    void draft_tokens(const pj_step_in &in, const std::vector<Drafting> &wanted, int pass, int32_t *tokens,
                      pj_step_out &out);
    int draft_index(const pj_step_in &in, const pj_seq &seq, int places, const DraftIds &ids, float *logits) const;

    // Gated delta net (gdn_layer.cc)
    void gdn_layer(const PackedBlock &b, const pj_step_in &in);
    void convolve(const PackedBlock &b, const pj_seq &seq, int channel_begin, int channel_end);
    void prepare_row(const PackedBlock &b, int row);
    void recur(const PackedBlock &b, const pj_seq &seq, int head, int column_begin, int column_end);
    void keep_pending(const PackedBlock &b, const pj_seq &seq);

    const Shape shape_;
    const Vector rope_factors_;
    const pj_config config_;
    const int isa_;
    const Kernels &kernels_;  // of isa_
    ThreadPool pool_;
    Weights weights_;
    KvPool kv_;
    States states_;
    Workspace ws_;
    OpTimer timer_;
    // Quantised K and V are stored rotated, which spreads outliers over a block (Ashkboos et al.,
    // "QuaRot", 2024). Block of the transform, 0: none. The widths are those of llama.cpp.
    const int k_rotation_, v_rotation_;
    std::vector<AttentionTask> attention_tasks_;
    std::vector<SplitRow> split_rows_;
};

}  // namespace pj::cpu
