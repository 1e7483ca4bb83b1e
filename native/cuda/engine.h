// The CUDA backend: one cooperative launch per step.
#pragma once

#include <memory>
#include <vector>

#include "core/engine.h"
#include "cuda/compiler.h"
#include "cuda/device.h"
#include "cuda/kv_layout.h"
#include "cuda/memory.h"
#include "cuda/step_args.h"
#include "cuda/step_blob.h"
#include "cuda/weights.h"

namespace pj::cuda {

// Rows of a step by what they want, in the order of the outputs.
struct WantedRows {
    std::vector<int32_t> selected;  // logits first, then those that want the best token only
    int n_logits = 0;
    std::vector<int32_t> hidden;
};

class CudaEngine final : public Engine {
  public:
    CudaEngine(const Model &model, const pj_config &config);
    ~CudaEngine() override;

    void step(const pj_step_in &in, pj_step_out &out) override;

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
    struct Rings {
        int ring_slots, act_slots;
        size_t shared_bytes;
    };

    // Sizes and places of everything, before anything is allocated (plan.cc).
    void plan_shared_memory();
    Rings plan_rings(size_t limit, int tiles) const;
    void plan_states();
    void check_memory() const;
    void allocate();
    void fill_constants();
    uint64_t workspace_bytes() const;

    // One step (engine.cc)
    const Program &program_of(int kind, bool first) const;
    const Op *device_ops(const Program &program) const;
    void fill_blob(const pj_step_in &in, const WantedRows &wanted, int first);
    void add_rows(const pj_step_in &in, StepArgs &a);
    std::vector<SeqPlan> plan_attention(const pj_step_in &in, StepArgs &a) const;
    int column_items(const pj_seq &seq, const StepArgs &a) const;
    void launch(const pj_step_in &in, const WantedRows &wanted, int first);
    void fetch(const pj_step_in &in, const WantedRows &wanted, int first, pj_step_out &out);
    void add_times(const Program &program, int n_ops);
    void make_current() const;
    float *state(int slot) const { return states_.data() + slot * slot_floats_; }
    uint8_t *page(int32_t index) const { return pool_.data() + index * kv_.page_bytes; }
    void finish(const char *what) const { stream_.synchronize(what); }

    const Shape shape_;
    const pj_config config_;
    const Device device_;
    const int max_selected_;
    const Matrix embedding_, mtp_embedding_;  // in the file, which outlives the engine
    Weights weights_;
    Programs programs_;
    KvLayout kv_;
    int64_t window_floats_, layer_floats_, slot_floats_, pending_row_floats_;
    int64_t partial_floats_;
    StepArgs base_ = {};  // what does not change from step to step
    Rings rings_[3];      // for launches with 1, 2 and 3 or more row tiles

    DeviceBuffer<float> parts_residual_, parts_wide_, floats_;
    DeviceBuffer<float> states_, pending_rows_;
    DeviceBuffer<uint8_t> pool_;
    DeviceBuffer<ActTile> act_;
    DeviceBuffer<Op> ops_;
    PinnedBuffer<unsigned long long> best_;
    DeviceBuffer<long long> op_clock_;  // pj_config.profile only
    int clock_khz_ = 1;
    std::vector<pj_op_time> times_;
    StepBlob blob_;
    // Of the last launch, in the blob.
    StepArgs *blob_args_ = nullptr, *device_args_ = nullptr;
    unsigned long long *device_best_ = nullptr;
    std::vector<int> pending_;
    Stream stream_;
};

}  // namespace pj::cuda
