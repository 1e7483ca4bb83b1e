// The model's weights on the device: one allocation, found by the address that they have on the host.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/model.h"
#include "cuda/memory.h"
#include "pyjet.h"

namespace pj::cuda {

// Matrices are packed once however many uses they have. Embedding tables stay in the file: a step
// brings its rows along.
class Weights {
  public:
    // Lays everything out; allocates and copies nothing. The model must outlive upload().
    explicit Weights(const Model &model);

    uint64_t bytes() const { return bytes_; }
    int max_unit_bytes() const { return max_unit_bytes_; }

    void upload(const pj_config &config);

    // Before upload() all pointers are null, so that a program can be sized and printed without a GPU.
    const uint8_t *matrix(const Matrix &m) const { return at(matrices_, m.data); }
    // Null for an empty one.
    const float *vector(const Vector &v) const {
        return v.empty() ? nullptr : reinterpret_cast<const float *>(at(vectors_, v.data()));
    }

  private:
    template <class Source>
    struct Place {
        const Source *source;
        uint64_t offset;
        uint64_t n_floats;  // of a vector on the device: so many,
        bool repeats;       // the same again and again; false: zeros behind it
    };
    template <class Source>
    using Places = std::map<const void *, Place<Source>>;

    template <class Source>
    const uint8_t *at(const Places<Source> &places, const void *key) const {
        return memory_.data() ? memory_.data() + places.at(key).offset : nullptr;
    }
    void add(const Matrix &m);
    void add(const Vector &v);
    void add_row(const Vector &v);
    void add_head(const Vector &v);
    void add(const Vector &v, uint64_t n_floats, bool repeats);
    void add(const Block &b);
    void add(const AttentionWeights &w);
    uint64_t take(uint64_t bytes);

    Places<Matrix> matrices_;
    Places<Vector> vectors_;
    std::vector<Vector> filled_;  // of vectors that are longer on the device, until they are there
    uint64_t bytes_ = 0;
    int max_unit_bytes_ = 0;
    DeviceBuffer<uint8_t> memory_;
};

}  // namespace pj::cuda
