// Sixteen float lanes with the compiler's vector extension: AVX-512 and plain code.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "cpu/kernels/half.h"

namespace pj::cpu::PJ_ISA {

typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));

static inline F16 load(const float *p) {
    F16 v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, F16 v) { std::memcpy(p, &v, sizeof v); }

static inline F16 broadcast(float x) { return F16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

static inline float first_lane(F16 v) { return v[0]; }

static inline F16 fma(F16 a, F16 b, F16 c) {
#if defined(__AVX512F__)
    return (F16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return a * b + c;
#endif
}

static inline F16 max(F16 a, F16 b) { return a > b ? a : b; }
static inline F16 min(F16 a, F16 b) { return a < b ? a : b; }

// x where a >= b, 0 elsewhere
static inline F16 keep_if_not_less(F16 a, F16 b, F16 x) { return a < b ? F16{} : x; }

// 2^n for the integer n that sits in the low bits of magic_sum = 1.5 * 2^23 + n
static inline F16 power_of_two(F16 magic_sum) {
    I16 bits;
    std::memcpy(&bits, &magic_sum, sizeof bits);
    bits = (bits << 23) + 0x3f800000;
    F16 power;
    std::memcpy(&power, &bits, sizeof power);
    return power;
}

// Lanes of a (0..15) and b (16..31) by number.
template <int... kIndex>
static inline F16 pick(F16 a, F16 b) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, kIndex...);
#else
    return __builtin_shuffle(a, b, I16{kIndex...});
#endif
}

// One step of sum_lanes for two vectors that hold 16 / kGroup groups of kGroup lanes each.
template <int kGroup>
static inline F16 fold(F16 a, F16 b) {
    if constexpr (kGroup == 16)
        return pick<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(a, b) +
               pick<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(a, b);
    else if constexpr (kGroup == 8)
        return pick<0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27>(a, b) +
               pick<4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31>(a, b);
    else if constexpr (kGroup == 4)
        return pick<0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29>(a, b) +
               pick<2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31>(a, b);
    else
        return pick<0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30>(a, b) +
               pick<1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31>(a, b);
}

static inline float max_lanes(F16 v) {
    v = max(v, pick<8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7>(v, v));
    v = max(v, pick<4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11>(v, v));
    v = max(v, pick<2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13>(v, v));
    v = max(v, pick<1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14>(v, v));
    return v[0];
}

static inline F16 load_half(const uint16_t *p) {
#if defined(__AVX512F__)
    return (F16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#else
    float t[16];
    for (int i = 0; i < 16; ++i) t[i] = half_bits_to_float(p[i]);
    return load(t);
#endif
}

}  // namespace pj::cpu::PJ_ISA
