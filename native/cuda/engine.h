// The CUDA backend: one cooperative launch per step.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/engine.h"
#include "cuda/compiler.h"
#include "cuda/device.h"
#include "cuda/kv_layout.h"
#include "cuda/late_masks.h"
#include "cuda/memory.h"
#include "cuda/rope_table.h"
#include "cuda/sequence_plans.h"
#include "cuda/step_args.h"
#include "cuda/step_blob.h"
#include "cuda/weights.h"

namespace pj::cuda {

// Rows of a step by what they want, in the order of the outputs.
struct WantedRows {
    std::vector<int32_t> selected;  // logits and samples first, then those that want the best token only
    int n_logits = 0;               // with logits on the device
    std::vector<int32_t> samples;   // indices in selected
    std::vector<int32_t> hidden;
};

// Those of WantedRows::samples that one launch has.
struct SampleRange {
    int begin = 0, n = 0;
    size_t n_counts = 0, n_biases = 0;  // tokens that they change
    size_t n_mask_words = 0;            // of their masks
};

// Of the residual stream.
inline int row_columns(const Shape &s) { return padded_columns(s.n_embd); }

// Most bytes that the host sends with a step (engine.cc).
size_t most_blob_bytes(const pj_config &config, const Shape &shape, int max_selected, int64_t partial_floats);

// Of that for drafts (drafts.cc).
size_t most_draft_bytes(size_t rows, const pj_config &config, const Shape &shape);

// Rows to sample of a step at most.
inline int most_samples(const pj_config &c) { return c.max_seqs * (c.max_spec + 1); }

class CudaEngine final : public Engine {
  public:
    CudaEngine(const Model &model, const pj_config &config);
    ~CudaEngine() override;

    // What such an engine would allocate. Refuses what the constructor refuses, except too little memory.
    static pj_memory_plan plan(const Model &model, const pj_config &config);

    void start(const pj_step_in &in, pj_step_out &out) override;
    void masks_ready(const pj_step_in &in, pj_step_out &out, bool is_ok) override;
    void finish(const pj_step_in &in, pj_step_out &out) override;

    void state_commit(int slot, int n_accept) override;
    void state_reset(int slot) override;
    void state_copy(int from, int to) override;
    void state_read(int slot, void *host) override;
    void state_write(int slot, const void *host) override;
    void pages_copy(const int32_t *from, const int32_t *to, int n) override;
    void pages_read(const int32_t *pages, int n, void *host) override;
    void pages_write(const int32_t *pages, int n, const void *host) override;

    uint64_t state_bytes() const override { return slot_floats_ * sizeof(float); }
    uint64_t page_bytes() const override { return kv_.page_bytes; }
    int pending(int slot) const override { return pending_[slot]; }
    void info(pj_info &out) const override;
    std::vector<pj_op_time> op_times() const override { return times_; }

  private:
    // Shared memory of one kind of launch (StepArgs).
    struct Launch {
        int pass_tiles, act_slots;
        int row_tiles;  // of a step at most, unless it is a wide one
        size_t ring_bytes;
        size_t shared_bytes;
    };

    // Sizes and places of everything, before anything is allocated (plan.cc).
    struct PlanOnly {};
    CudaEngine(const Model &model, const pj_config &config, PlanOnly);
    void plan_launches();
    Launch plan_launch(int tiles, bool wide) const;
    void plan_states();
    ProgramLimits program_limits() const;
    pj_memory_plan memory_plan() const;
    void check_memory() const;
    void allocate();
    void fill_constants();
    uint64_t workspace_bytes() const;
    int most_masks() const { return std::min(max_selected_, most_samples(config_)); }  // of a launch

    // One step (engine.cc)
    const Program &program_of(const pj_step_in &in, const WantedRows &wanted, bool first) const;
    const Op *device_ops(const Program &program) const { return ops_.data() + device_programs_.at(&program).first; }
    const LoadTask *device_tasks(const Program &program) const {
        return tasks_.data() + device_programs_.at(&program).second;
    }
    void choose_launch(StepArgs &a);
    void fill_blob(const pj_step_in &in, const WantedRows &wanted, int first);
    void add_rows(const pj_step_in &in, StepArgs &a);
    int op_count(const pj_step_in &in, const Program &program, const StepArgs &a) const;
    // Drafts (drafts.cc)
    void add_drafts(const pj_step_in &in, const WantedRows &wanted, StepArgs *args);
    void add_draft_rows(const pj_step_in &in, const WantedRows &wanted, DraftArgs &d);
    void add_head_blocks(const pj_step_in &in, DraftArgs &d);
    void add_draft_seqs(const pj_step_in &in, DraftArgs &d);
    void add_draft_plan(const pj_step_in &in, StepArgs *args);
    void fetch_drafts(const pj_step_in &in, pj_step_out &out) const;
    void add_samples(const pj_step_in &in, const WantedRows &wanted, int first, StepArgs &a);
    void launch(const pj_step_in &in, const WantedRows &wanted, int first);
    void copy_late_masks(const pj_step_in &in);
    void start_fetch(const pj_step_in &in, const WantedRows &wanted, int first, pj_step_out &out);
    void fetch(const pj_step_in &in, const WantedRows &wanted, int first, pj_step_out &out);
    template <class Which>
    bool copy_logits(const WantedRows &wanted, int first, pj_step_out &out, const Which &which) const;
    void add_times(const Program &program, int n_ops);
    void make_current() const;
    float *state(int slot) const { return states_.data() + slot * slot_floats_; }
    // Of the first layer.
    uint8_t *page(int32_t index) const { return pool_.data() + index * kv_.layer_bytes; }
    // States and pages (copies.cc)
    void copy_page(void *to, size_t to_pitch, const void *from, size_t from_pitch, cudaMemcpyKind kind,
                   const char *what) const;
    void synchronize(const char *what) const { stream_.synchronize(what); }
    void copy_state(void *to, const void *from, cudaMemcpyKind kind, const char *what) const;

    const Shape shape_;
    const Vector rope_factors_;
    const pj_config config_;
    const Device device_;
    const int max_selected_;
    const Matrix embedding_, mtp_embedding_;  // in the file, which outlives the engine
    Weights weights_;
    Programs programs_;
    KvLayout kv_;
    int64_t window_floats_, layer_floats_, slot_floats_, pending_row_floats_;
    int64_t partial_floats_;
    StepArgs base_ = {};          // what does not change from step to step
    std::vector<Launch> narrow_;  // in order of their row tiles
    Launch wide_ = {};
    std::map<const Program *, std::pair<size_t, size_t>> device_programs_;  // first op, first task

    DeviceBuffer<float> residual_products_, products_, floats_;
    DeviceBuffer<PieceSpan> pieces_;
    DeviceBuffer<float> states_, pending_rows_;
    DeviceBuffer<uint8_t> pool_;
    DeviceBuffer<ActTile> act_;
    DeviceBuffer<Op> ops_;
    DeviceBuffer<LoadTask> tasks_;
    RopeTable rope_;
    PinnedBuffer<LaunchOutput> output_;
    PinnedBuffer<uint8_t> draft_table_;  // mtp_embedding_, where the GPU reads it
    std::vector<int32_t> drafting_;      // sequences of the last launch that want drafts
    SequencePlans plans_, draft_plans_;  // of the last launch, and of its passes for drafts
    DeviceBuffer<long long> op_clock_;   // pj_config.profile only
    std::vector<pj_op_time> times_;
    StepBlob blob_;
    LateMasks late_masks_;
    // Of the last launch, in the blob.
    size_t shared_bytes_ = 0;
    int n_ops_ = 0;
    StepArgs *blob_args_ = nullptr, *device_args_ = nullptr;
    LaunchOutput *device_output_ = nullptr;
    SampleRange samples_;
    WantedRows wanted_;  // of the step that was started
    std::chrono::steady_clock::time_point begin_;
    std::vector<int> pending_;
    bool is_computing_ = false;  // between start() and finish()
    Stream stream_;
    Stream copies_;      // states to and from the host, beside a step of stream_
    Event before_step_;  // in stream_: all that came before the step that was started
};

}  // namespace pj::cuda
