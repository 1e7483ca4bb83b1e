// The recurrent state of every slot: convolution window and GDN matrix of each GDN layer after the
// last committed row, and the inputs of the speculative rows that wait for their verdict.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "core/model.h"
#include "cpu/kernels/table.h"
#include "pyjet.h"

namespace pj::cpu {

// What one layer needs to apply a speculative row later. Row strides are those of the fields' names.
struct PendingRows {
    float *conv_input;  // [max_spec][conv_channels]
    float *key;         // [max_spec][key width], normalised
    float *value;       // [max_spec][value width]
    float *decay;       // [max_spec][n_gdn_head_v]
    float *beta;        // [max_spec][n_gdn_head_v]
};

class States {
  public:
    States(const Shape &shape, const pj_config &config, int n_layers);

    float *window(int slot, int layer) { return slot_data(slot) + layer * layer_floats_; }
    float *matrix(int slot, int layer, int head) {
        return window(slot, layer) + window_floats_ + static_cast<int64_t>(head) * shape_.gdn_dim * shape_.gdn_dim;
    }
    PendingRows pending_rows(int slot, int layer);

    int pending(int slot) const { return pending_[slot]; }
    void set_pending(int slot, int n) { pending_[slot] = n; }

    void reset(int slot);
    void copy(int from, int to);
    void read(int slot, void *host) const;
    void write(int slot, const void *host);

    // Shifts the first n pending inputs of channels [begin, end) into the window.
    void accept_window(int slot, int layer, int n, int channel_begin, int channel_end);
    // Shifts n rows of input into the window.
    void advance_window(float *window, const float *input, int64_t stride, int n, int channel_begin, int channel_end);
    // Applies the first n pending rows to state columns [begin, end) of a head.
    void accept_matrix(const Kernels &kernels, int slot, int layer, int head, int n, int column_begin, int column_end);
    // Both, for all layers; the others are dropped.
    void commit(const Kernels &kernels, int slot, int n);

    uint64_t slot_bytes() const { return slot_floats_ * sizeof(float); }
    uint64_t bytes_per_slot() const {
        return (slot_floats_ + pending_row_floats_ * max_spec_ * n_layers_) * sizeof(float);
    }
    uint64_t bytes() const { return (memory_.size() + pending_memory_.size()) * sizeof(float); }

  private:
    float *slot_data(int slot) { return memory_.data() + slot * slot_floats_; }

    Shape shape_;
    int n_layers_, max_spec_;
    int64_t window_floats_, layer_floats_, slot_floats_, pending_row_floats_;
    AlignedVector<float> memory_, pending_memory_;
    std::vector<int> pending_;
};

}  // namespace pj::cpu
