// How a token is drawn from logits: the formulas, the same for host and device.
//
// Probabilities are integers, exp(x) * 2^42 cut off. Their sums are exact, so no order of adding them has to be
// fixed, and the first candidate past a border is the same wherever and by how many threads it is looked for. The
// exponential is made of plain float operations, none of which may be fused (CMakeLists.txt): it has the same bits
// everywhere. The random numbers are those of core/sample_noise.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/host_device.h"
#include "pyjet.h"

namespace pj {

using Wide = unsigned long long;  // what CUDA's atomics add

// pj_sample, ready for use (core/sample_params.cc).
struct SampleRow {
    uint64_t seed;
    double top_p;
    const pj_token_count *counts;
    const pj_token_bias *biases;
    float *before;         // [n_counts + n_biases]: logits before they were changed
    const uint32_t *mask;  // bit token % 32 of word token / 32: it may be chosen; null: every token may
    float temperature, repeat, frequency, presence;
    float log_min_p;     // -inf: off
    int32_t n_possible;  // candidates that top_k leaves
    int32_t n_keep;      // the best of them, which are looked at: at most PJ_MAX_CANDIDATES
    int32_t min_keep;    // >= 1
    int32_t n_counts, n_biases;
    int32_t logits_row;  // which row of the backend's buffer
    int32_t index;       // of the token in its answer, >= 0
};

constexpr uint32_t kLowestKey = 0x007fffffu;    // of -inf
constexpr uint32_t kInfiniteKey = 0xff800000u;  // of +inf; NaN is above

// Larger for a larger logit; the same for 0 and -0.
PJ_HOST_DEVICE uint32_t logit_key(float logit) {
    if (logit != logit) return ~0u;
    const float x = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

PJ_HOST_DEVICE float logit_of_key(uint32_t key) {
    const uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

// Larger for a better candidate: no two tokens are equally good.
PJ_HOST_DEVICE Wide candidate_key(uint32_t key, int token) {
    return static_cast<Wide>(key) << 32 | static_cast<uint32_t>(~token);
}

PJ_HOST_DEVICE float logit_of(Wide candidate) { return logit_of_key(static_cast<uint32_t>(candidate >> 32)); }
PJ_HOST_DEVICE int token_of(Wide candidate) { return static_cast<int>(~static_cast<uint32_t>(candidate)); }

// exp(x) * 2^42, cut off, for x <= 0. 0 from where that is below 1, and for NaN.
PJ_HOST_DEVICE Wide weight_of(float x) {
    if (!(x > -29.2f)) return 0;
    // x = n ln 2 + r, |r| <= ln 2 / 2. The first part of ln 2 has 10 bits, so its product with n is exact.
    const int n = static_cast<int>(x * 1.44269504f - 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float sum = 1.0f / 5040;
    sum = sum * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    const Wide mantissa = static_cast<Wide>(sum * 16777216.0f);
    const int shift = 42 - 24 + n;
    return shift >= 0 ? mantissa << shift : mantissa >> -shift;
}

PJ_HOST_DEVICE float penalised(const SampleRow &row, float logit, int count) {
    const float scaled = logit <= 0 ? logit * row.repeat : logit / row.repeat;
    return scaled - (static_cast<float>(count) * row.frequency + row.presence);
}

// Whether candidates with this running sum are still below top_p.
PJ_HOST_DEVICE bool below_top_p(const SampleRow &row, Wide sum, Wide total) {
    return static_cast<double>(sum) < row.top_p * static_cast<double>(total);
}

// The best candidates that were looked at, and what of them the cuts keep.
struct Cuts {
    int n;             // looked at
    bool is_complete;  // there are no others
    int n_below;       // of these, their running sum is below top_p
    int n_probable;    // of these, probable enough for min_p
};

// How many of the best are left; -1: a cut lies beyond those that were looked at.
PJ_HOST_DEVICE int n_left(const SampleRow &row, const Cuts &cuts) {
    constexpr int kBeyond = INT32_MAX;
    const bool top_p_cuts = row.top_p < 1 && (cuts.n_below < cuts.n || cuts.is_complete);
    const bool min_p_cuts = cuts.n_probable < cuts.n || cuts.is_complete;
    int by_top_p = kBeyond, by_min_p = kBeyond;
    if (top_p_cuts) by_top_p = cuts.n_below + 1 > row.min_keep ? cuts.n_below + 1 : row.min_keep;
    if (min_p_cuts) by_min_p = cuts.n_probable > row.min_keep ? cuts.n_probable : row.min_keep;
    const int left = by_top_p < by_min_p ? by_top_p : by_min_p;
    if (left <= cuts.n) return left;
    return cuts.is_complete ? cuts.n : -1;
}

}  // namespace pj
