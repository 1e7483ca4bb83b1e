#include "cuda/weights.h"

#include <algorithm>

#include "cuda/pack_unit.h"
#include "cuda/repack.h"

namespace pj::cuda {

namespace {

constexpr uint64_t kAlignment = 256;

Vector filled(const Vector &v, size_t n, bool repeats) {
    Vector out(n);
    for (size_t i = 0; i < n; ++i) out[i] = i < v.size() || repeats ? v[i % v.size()] : 0.0f;
    return out;
}

}  // namespace

uint64_t Weights::take(uint64_t bytes) {
    const uint64_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
}

void Weights::add(const Matrix &m) {
    if (matrices_.count(m.data)) return;
    max_unit_bytes_ = std::max(max_unit_bytes_, unit_bytes(tile_format(m.type, m.n_in)));
    matrices_[m.data] = {&m, take(packed_bytes(m)), 0, false};
}

void Weights::add(const Vector &v, uint64_t n_floats, bool repeats) {
    if (!v.empty()) vectors_[v.data()] = {&v, take(n_floats * sizeof(float)), n_floats, repeats};
}

void Weights::add(const Vector &v) { add(v, v.size(), false); }

// Of columns of a row: zeros follow, up to a whole group.
void Weights::add_row(const Vector &v) { add(v, padded_columns(static_cast<int>(v.size())), false); }

// Of a head: once for each head of a group of columns.
void Weights::add_head(const Vector &v) { add(v, std::max<uint64_t>(v.size(), kUnitInputs), true); }

void Weights::add(const AttentionWeights &w) {
    for (const Matrix *m : {&w.q, &w.k, &w.v, &w.output}) add(*m);
    for (const Vector *v : {&w.q_norm, &w.k_norm}) add_head(*v);
    for (const Vector *v : {&w.q_bias, &w.k_bias, &w.v_bias, &w.out_bias}) add_row(*v);
}

void Weights::add(const Block &b) {
    add_row(b.norm);
    add_row(b.post_norm);
    if (b.is_attention) {
        add(b.attention);
    } else {
        for (const Matrix *m : {&b.gdn.qkv, &b.gdn.z, &b.gdn.beta, &b.gdn.alpha, &b.gdn.output}) add(*m);
        for (const Vector *v : {&b.gdn.conv, &b.gdn.dt_bias, &b.gdn.a, &b.gdn.norm}) add(*v);
    }
    for (const Matrix *m : {&b.ffn_gate, &b.ffn_up, &b.ffn_down}) add(*m);
}

Weights::Weights(const Model &model) {
    for (const Block &b : model.blocks) add(b);
    for (const MtpWeights &m : model.mtp) {
        add(m.block);
        add(m.eh_proj);
        for (const Vector *v : {&m.e_norm, &m.h_norm, &m.head_norm}) add_row(*v);
        add(m.head);
    }
    add(model.output);
    add_row(model.output_norm);
}

void Weights::upload(const pj_config &config) {
    memory_ = DeviceBuffer<uint8_t>(bytes_, "the model's weights");
    uint64_t total = 0;
    for (const auto &[key, place] : matrices_) total += place.source->n_bytes;
    Uploader uploader(config, total);
    // By address, which is the order of the file: a disk reads on.
    for (const auto &[key, place] : matrices_) {
        const Matrix &m = *place.source;
        uint8_t *const target = memory_.data() + place.offset;
        if (unit_bytes(tile_format(m.type, m.n_in)))
            uploader.upload_packed(m, target);
        else
            uploader.upload_rows(m, target);
    }
    for (const auto &[key, place] : vectors_) {
        const Vector *v = place.source;
        if (v->size() != place.n_floats) v = &filled_.emplace_back(filled(*v, place.n_floats, place.repeats));
        uploader.upload(v->data(), place.n_floats * sizeof(float), memory_.data() + place.offset);
    }
    uploader.finish();
    filled_.clear();
}

}  // namespace pj::cuda
