#include "core/rope.h"

#include <cmath>

namespace pj {

void rope_angles(const Shape &shape, const Vector &factors, int position, float *cos, float *sin) {
    const float step = std::pow(shape.rope_base, -2.0f / static_cast<float>(shape.rope_dim));
    float angle = static_cast<float>(position);
    for (int i = 0; i < shape.rope_dim / 2; ++i, angle *= step) {
        const float divided = factors.empty() ? angle : angle / factors[i];
        cos[i] = std::cos(divided);
        sin[i] = std::sin(divided);
    }
}

}  // namespace pj
