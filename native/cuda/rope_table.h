// Rotations of all positions, made once: sines take longer than the rest of what the host does for a step.
#pragma once

#include <vector>

#include "core/model.h"

namespace pj::cuda {

class RopeTable {
  public:
    RopeTable() = default;
    // Positions 0 .. n - 1; factors as in core/rope.h.
    RopeTable(const Shape &shape, const Vector &factors, int n);

    const float *cos(int position) const { return values_.data() + int64_t{position} * 2 * half_; }
    const float *sin(int position) const { return cos(position) + half_; }

  private:
    int half_ = 0;
    std::vector<float> values_;  // [position][cos, sin][rope_dim / 2]
};

}  // namespace pj::cuda
