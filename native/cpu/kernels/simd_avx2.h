// Sixteen float lanes as two AVX registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/kernels/half.h"

namespace pj::cpu::PJ_ISA {

struct F16 {
    __m256 h[2];  // lanes 0..7, 8..15
};

static inline F16 load(const float *p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }

static inline void store(float *p, F16 v) {
    _mm256_storeu_ps(p, v.h[0]);
    _mm256_storeu_ps(p + 8, v.h[1]);
}

static inline F16 broadcast(float x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
static inline float first_lane(F16 v) { return _mm256_cvtss_f32(v.h[0]); }

static inline F16 operator+(F16 a, F16 b) { return {{_mm256_add_ps(a.h[0], b.h[0]), _mm256_add_ps(a.h[1], b.h[1])}}; }
static inline F16 operator-(F16 a, F16 b) { return {{_mm256_sub_ps(a.h[0], b.h[0]), _mm256_sub_ps(a.h[1], b.h[1])}}; }
static inline F16 operator*(F16 a, F16 b) { return {{_mm256_mul_ps(a.h[0], b.h[0]), _mm256_mul_ps(a.h[1], b.h[1])}}; }
static inline F16 operator/(F16 a, F16 b) { return {{_mm256_div_ps(a.h[0], b.h[0]), _mm256_div_ps(a.h[1], b.h[1])}}; }

static inline F16 operator-(F16 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {{_mm256_xor_ps(a.h[0], sign), _mm256_xor_ps(a.h[1], sign)}};
}

static inline F16 fma(F16 a, F16 b, F16 c) {
    return {{_mm256_fmadd_ps(a.h[0], b.h[0], c.h[0]), _mm256_fmadd_ps(a.h[1], b.h[1], c.h[1])}};
}

static inline F16 max(F16 a, F16 b) { return {{_mm256_max_ps(a.h[0], b.h[0]), _mm256_max_ps(a.h[1], b.h[1])}}; }
static inline F16 min(F16 a, F16 b) { return {{_mm256_min_ps(a.h[0], b.h[0]), _mm256_min_ps(a.h[1], b.h[1])}}; }

// x where a >= b, 0 elsewhere
static inline F16 keep_if_not_less(F16 a, F16 b, F16 x) {
    F16 out;
    for (int i = 0; i < 2; ++i) out.h[i] = _mm256_andnot_ps(_mm256_cmp_ps(a.h[i], b.h[i], _CMP_LT_OQ), x.h[i]);
    return out;
}

// 2^n for the integer n that sits in the low bits of magic_sum = 1.5 * 2^23 + n
static inline F16 power_of_two(F16 magic_sum) {
    F16 out;
    for (int i = 0; i < 2; ++i) {
        const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(magic_sum.h[i]), 23);
        out.h[i] = _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3f800000)));
    }
    return out;
}

// The two registers' 64-bit pairs in the order 0, 2, 1, 3.
static inline __m256 swap_middle_pairs(__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

// Half of fold(): the groups of one vector, halved, in one register.
template <int kGroup>
static inline __m256 fold_one(F16 v) {
    if constexpr (kGroup == 16)
        return _mm256_add_ps(v.h[0], v.h[1]);
    else if constexpr (kGroup == 8)
        return _mm256_add_ps(_mm256_permute2f128_ps(v.h[0], v.h[1], 0x20),
                             _mm256_permute2f128_ps(v.h[0], v.h[1], 0x31));
    else if constexpr (kGroup == 4)
        return swap_middle_pairs(
            _mm256_add_ps(_mm256_shuffle_ps(v.h[0], v.h[1], 0x44), _mm256_shuffle_ps(v.h[0], v.h[1], 0xee)));
    else
        return swap_middle_pairs(
            _mm256_add_ps(_mm256_shuffle_ps(v.h[0], v.h[1], 0x88), _mm256_shuffle_ps(v.h[0], v.h[1], 0xdd)));
}

// One step of sum_lanes for two vectors that hold 16 / kGroup groups of kGroup lanes each.
template <int kGroup>
static inline F16 fold(F16 a, F16 b) {
    return {{fold_one<kGroup>(a), fold_one<kGroup>(b)}};
}

static inline float max_lanes(F16 v) {
    const __m256 eight = _mm256_max_ps(v.h[0], v.h[1]);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static inline F16 load_half(const uint16_t *p) {
    const __m128i *source = (const __m128i *)p;
    return {{_mm256_cvtph_ps(_mm_loadu_si128(source)), _mm256_cvtph_ps(_mm_loadu_si128(source + 1))}};
}

}  // namespace pj::cpu::PJ_ISA
