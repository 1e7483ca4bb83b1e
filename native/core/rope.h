// Angles of the rotary embedding, the same for all backends.
#pragma once

#include "core/model.h"

namespace pj {

// cos and sin of position * base^(-2 i / rope_dim) for i < rope_dim / 2, that angle divided by factors[i] unless there
// are none (Llama 3's rope_freqs). The angle is multiplied up in f32, as llama.cpp does: at position 1,000 that is 1e-4
// away from the exact one, far more than any other rounding, so an exact angle would part us from it.
void rope_angles(const Shape &shape, const Vector &factors, int position, float *cos, float *sin);

}  // namespace pj
