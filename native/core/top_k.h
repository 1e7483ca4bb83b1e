// The best of a vocabulary's logits, without sorting them all.
#pragma once

#include <cstdint>

namespace pj {

// Indices of the k largest of n values, best first, the lowest index first among equals; NaN comes after everything.
// 0 <= k <= n.
void top_indices(const float *values, int n, int k, int32_t *out);

}  // namespace pj
