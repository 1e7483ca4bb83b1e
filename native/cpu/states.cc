#include "cpu/states.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/status.h"
#include "cpu/float_mode.h"
#include "cpu/kernels/gdn.h"

namespace pj::cpu {

States::States(const Shape &shape, const pj_config &config, int n_layers)
    : shape_(shape), n_layers_(n_layers), max_spec_(config.max_spec), pending_(config.n_state_slots, 0) {
    window_floats_ = int64_t{shape.conv_kernel - 1} * shape.conv_channels();
    layer_floats_ = window_floats_ + int64_t{shape.n_gdn_head_v} * shape.gdn_dim * shape.gdn_dim;
    slot_floats_ = layer_floats_ * n_layers;
    pending_row_floats_ =
        shape.conv_channels() + shape.gdn_key_width() + shape.gdn_value_width() + 2 * shape.n_gdn_head_v;
    try {
        memory_.resize(slot_floats_ * config.n_state_slots);
        pending_memory_.resize(pending_row_floats_ * max_spec_ * n_layers * config.n_state_slots);
    } catch (const std::bad_alloc &) {
        fail(PJ_ERR_MEMORY, "no memory for %d recurrent states of %lld bytes; use fewer slots", config.n_state_slots,
             static_cast<long long>(slot_floats_ * sizeof(float)));
    }
}

PendingRows States::pending_rows(int slot, int layer) {
    float *p = pending_memory_.data() + (int64_t{slot} * n_layers_ + layer) * max_spec_ * pending_row_floats_;
    PendingRows rows;
    rows.conv_input = p;
    rows.key = rows.conv_input + int64_t{max_spec_} * shape_.conv_channels();
    rows.value = rows.key + int64_t{max_spec_} * shape_.gdn_key_width();
    rows.decay = rows.value + int64_t{max_spec_} * shape_.gdn_value_width();
    rows.beta = rows.decay + int64_t{max_spec_} * shape_.n_gdn_head_v;
    return rows;
}

void States::reset(int slot) {
    std::fill_n(slot_data(slot), slot_floats_, 0.0f);
    pending_[slot] = 0;
}

void States::copy(int from, int to) {
    if (from != to) std::memcpy(slot_data(to), slot_data(from), slot_bytes());
    pending_[to] = 0;
}

void States::read(int slot, void *host) const { std::memcpy(host, memory_.data() + slot * slot_floats_, slot_bytes()); }

void States::write(int slot, const void *host) {
    std::memcpy(slot_data(slot), host, slot_bytes());
    pending_[slot] = 0;
}

void States::advance_window(float *window, const float *input, int64_t stride, int n, int channel_begin,
                            int channel_end) {
    const int kept_rows = shape_.conv_kernel - 1;
    const int64_t channels = shape_.conv_channels();
    for (int i = 0; i < kept_rows; ++i) {
        const int from = n - kept_rows + i;  // row of input, negative: row of the old window
        const float *source = from < 0 ? window + (from + kept_rows) * channels : input + from * stride;
        if (source != window + i * channels)
            std::memmove(window + i * channels + channel_begin, source + channel_begin,
                         (channel_end - channel_begin) * sizeof(float));
    }
}

void States::accept_window(int slot, int layer, int n, int channel_begin, int channel_end) {
    advance_window(window(slot, layer), pending_rows(slot, layer).conv_input, shape_.conv_channels(), n, channel_begin,
                   channel_end);
}

void States::accept_matrix(const Kernels &kernels, int slot, int layer, int head, int n, int column_begin,
                           int column_end) {
    const PendingRows rows = pending_rows(slot, layer);
    GdnArgs a = {};
    a.k = rows.key + head % shape_.n_gdn_head_k * shape_.gdn_dim;
    a.k_stride = shape_.gdn_key_width();
    a.v = rows.value + head * shape_.gdn_dim;
    a.v_stride = shape_.gdn_value_width();
    a.decay = rows.decay + head;
    a.beta = rows.beta + head;
    a.gate_stride = shape_.n_gdn_head_v;
    a.state_in = a.state_out = matrix(slot, layer, head);
    a.n_rows = n;
    a.dim = shape_.gdn_dim;
    a.column_begin = column_begin;
    a.column_end = column_end;
    kernels.gdn(a);
}

void States::commit(const Kernels &kernels, int slot, int n) {
    const FlushDenormals mode;
    for (int layer = 0; n > 0 && layer < n_layers_; ++layer) {
        accept_window(slot, layer, n, 0, shape_.conv_channels());
        for (int head = 0; head < shape_.n_gdn_head_v; ++head)
            accept_matrix(kernels, slot, layer, head, n, 0, shape_.gdn_dim);
    }
    pending_[slot] = 0;
}

}  // namespace pj::cpu
