#include "core/rope.h"

#include <cmath>

namespace pj {

void rope_angles(const Shape &shape, int position, float *cos, float *sin) {
    const float step = std::pow(shape.rope_base, -2.0f / static_cast<float>(shape.rope_dim));
    float angle = static_cast<float>(position);
    for (int i = 0; i < shape.rope_dim / 2; ++i, angle *= step) {
        cos[i] = std::cos(angle);
        sin[i] = std::sin(angle);
    }
}

}  // namespace pj
