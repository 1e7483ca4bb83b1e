// Sixteen float lanes, the same arithmetic on every instruction set.
//
// fma() is fused wherever the hardware can; the portable build multiplies, then adds. Two builds
// may differ in their last bits, two code paths of one build may not.
#pragma once

#include <cstdint>

#if defined(__AVX2__) && !defined(__AVX512F__)
#include "cpu/kernels/simd_avx2.h"
#else
#include "cpu/kernels/simd_vector.h"
#endif

namespace pj::cpu::PJ_ISA {

constexpr int kLanes = 16;

// The one order in which lanes are added: halves onto each other, 16 -> 8 -> 4 -> 2 -> 1.
static inline float sum_lanes(F16 v) {
    v = fold<16>(v, v);
    v = fold<8>(v, v);
    v = fold<4>(v, v);
    return first_lane(fold<2>(v, v));
}

// Lane i of the result is sum_lanes(v[i]). Overwrites v.
static inline F16 sum_each(F16 *v) {
    for (int i = 0; i < 8; ++i) v[i] = fold<16>(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 4; ++i) v[i] = fold<8>(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; ++i) v[i] = fold<4>(v[2 * i], v[2 * i + 1]);
    return fold<2>(v[0], v[1]);
}

// e^x for 16 lanes: 2^n * p(r) with n = round(x log2 e), |r| <= ln2 / 2 and the Taylor polynomial of
// degree 7 (relative error below 2e-7 over [-87, 88]; smaller x give 0, larger are clamped).
static inline F16 exp16(F16 x) {
    const F16 lowest = broadcast(-87.3f);
    const F16 clamped = min(max(x, lowest), broadcast(88.0f));
    const F16 magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const F16 shifted = fma(clamped, broadcast(1.44269504088896341f), magic);
    const F16 n = shifted - magic;
    F16 r = fma(n, broadcast(-0.693359375f), clamped);
    r = fma(n, broadcast(2.12194440e-4f), r);
    F16 p = broadcast(1.0f / 5040);
    p = fma(p, r, broadcast(1.0f / 720));
    p = fma(p, r, broadcast(1.0f / 120));
    p = fma(p, r, broadcast(1.0f / 24));
    p = fma(p, r, broadcast(1.0f / 6));
    p = fma(p, r, broadcast(0.5f));
    p = fma(p, r, broadcast(1.0f));
    p = fma(p, r, broadcast(1.0f));
    return keep_if_not_less(x, lowest, p * power_of_two(shifted));
}

static inline F16 sigmoid16(F16 x) { return broadcast(1.0f) / (broadcast(1.0f) + exp16(-x)); }

// Sum over n floats (any n): lane i % 16 collects element i, then sum_lanes.
static inline float dot(const float *a, const float *b, int n) {
    F16 acc = {};
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) acc = fma(load(a + i), load(b + i), acc);
    if (i < n) {
        float x[kLanes] = {}, y[kLanes] = {};
        for (int j = 0; i + j < n; ++j) x[j] = a[i + j], y[j] = b[i + j];
        acc = fma(load(x), load(y), acc);
    }
    return sum_lanes(acc);
}

}  // namespace pj::cpu::PJ_ISA
