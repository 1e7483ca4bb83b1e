#include "cuda/weights.h"

#include <algorithm>

#include "cuda/pack_unit.h"
#include "cuda/repack.h"

namespace pj::cuda {

namespace {

constexpr uint64_t kAlignment = 256;

}  // namespace

uint64_t Weights::take(uint64_t bytes) {
    const uint64_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
}

void Weights::add(const Matrix &m) {
    if (matrices_.count(m.data)) return;
    max_unit_bytes_ = std::max(max_unit_bytes_, unit_bytes(tile_format(m.type, m.n_in)));
    matrices_[m.data] = {&m, take(packed_bytes(m))};
}

void Weights::add(const Vector &v) { vectors_[v.data()] = {&v, take(v.size() * sizeof(float))}; }

void Weights::add(const Block &b) {
    add(b.norm);
    add(b.post_norm);
    if (b.is_attention) {
        for (const Matrix *m : {&b.attention.q, &b.attention.k, &b.attention.v, &b.attention.output}) add(*m);
        for (const Vector *v : {&b.attention.q_norm, &b.attention.k_norm}) add(*v);
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
        for (const Vector *v : {&m.e_norm, &m.h_norm, &m.head_norm}) add(*v);
        add(m.head);
    }
    add(model.output);
    add(model.output_norm);
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
    for (const auto &[key, place] : vectors_)
        uploader.upload(place.source->data(), place.source->size() * sizeof(float), memory_.data() + place.offset);
    uploader.finish();
}

}  // namespace pj::cuda
