// Sixteen float lanes, the same arithmetic on every instruction set.
//
// Written with the compiler's vector extension, so one source gives AVX-512, AVX2 or plain code.
// fma() is fused wherever the hardware can; the portable build multiplies, then adds. Two builds
// may differ in their last bits, two code paths of one build may not.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace pj::cpu::PJ_ISA {

typedef float F16 __attribute__((vector_size(64)));
typedef int32_t I16 __attribute__((vector_size(64)));

constexpr int kLanes = 16;

static inline F16 load(const float *p) {
    F16 v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, F16 v) { std::memcpy(p, &v, sizeof v); }

static inline F16 broadcast(float x) { return F16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

static inline F16 fma(F16 a, F16 b, F16 c) {
#if defined(__AVX512F__)
    return (F16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    union Halves {
        F16 v;
        __m256 h[2];
    };
    Halves x{a}, y{b}, z{c};
    z.h[0] = _mm256_fmadd_ps(x.h[0], y.h[0], z.h[0]);
    z.h[1] = _mm256_fmadd_ps(x.h[1], y.h[1], z.h[1]);
    return z.v;
#else
    return a * b + c;
#endif
}

static inline F16 max(F16 a, F16 b) { return a > b ? a : b; }
static inline F16 min(F16 a, F16 b) { return a < b ? a : b; }

// Lanes of a (0..15) and b (16..31) by number.
template <int... kIndex>
static inline F16 pick(F16 a, F16 b) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, kIndex...);
#else
    return __builtin_shuffle(a, b, I16{kIndex...});
#endif
}

// The one order in which lanes are added: halves onto each other, 16 -> 8 -> 4 -> 2 -> 1.
// fold<n>(a, b) does one of these steps for two vectors that hold 16 / n groups of n lanes each.
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

static inline float sum_lanes(F16 v) {
    v = fold<16>(v, v);
    v = fold<8>(v, v);
    v = fold<4>(v, v);
    return fold<2>(v, v)[0];
}

// Lane i of the result is sum_lanes(v[i]). Overwrites v.
static inline F16 sum_each(F16 *v) {
    for (int i = 0; i < 8; ++i) v[i] = fold<16>(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 4; ++i) v[i] = fold<8>(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; ++i) v[i] = fold<4>(v[2 * i], v[2 * i + 1]);
    return fold<2>(v[0], v[1]);
}

static inline float max_lanes(F16 v) {
    v = max(v, pick<8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7>(v, v));
    v = max(v, pick<4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11>(v, v));
    v = max(v, pick<2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13>(v, v));
    v = max(v, pick<1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14>(v, v));
    return v[0];
}

// e^x for 16 lanes: 2^n * p(r) with n = round(x log2 e), |r| <= ln2 / 2 and the Taylor polynomial of
// degree 7 (relative error below 2e-7 over [-87, 88]; smaller x give 0, larger are clamped).
static inline F16 exp16(F16 x) {
    const F16 lowest = broadcast(-87.3f);
    const I16 underflow = x < lowest;
    x = min(max(x, lowest), broadcast(88.0f));
    const F16 magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const F16 shifted = fma(x, broadcast(1.44269504088896341f), magic);
    const F16 n = shifted - magic;
    F16 r = fma(n, broadcast(-0.693359375f), x);
    r = fma(n, broadcast(2.12194440e-4f), r);
    F16 p = broadcast(1.0f / 5040);
    p = fma(p, r, broadcast(1.0f / 720));
    p = fma(p, r, broadcast(1.0f / 120));
    p = fma(p, r, broadcast(1.0f / 24));
    p = fma(p, r, broadcast(1.0f / 6));
    p = fma(p, r, broadcast(0.5f));
    p = fma(p, r, broadcast(1.0f));
    p = fma(p, r, broadcast(1.0f));
    I16 bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000;  // low bits of `shifted` hold n
    F16 scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return underflow ? F16{} : p * scale;
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

static inline float half_bits_to_float(uint16_t h) {
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff, bits;
    if (magnitude >= 0x7c00) {
        bits = sign | 0x7f800000 | ((magnitude & 0x3ff) << 13);
    } else if (magnitude >= 0x0400) {
        bits = sign | ((magnitude << 13) + 0x38000000);
    } else {  // subnormal: exact in f32
        const float value = (float)magnitude * 5.9604644775390625e-8f;
        std::memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    }
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
#endif
}

// Round to nearest even.
static inline uint16_t float_to_half_bits(float value) {
#if defined(__F16C__)
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) {  // subnormal or zero: let the f32 adder round at 2^-24
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        std::memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xc8000fff + (bits >> 13 & 1);  // rebias the exponent, round to nearest even
    return (uint16_t)(sign | bits >> 13);
#endif
}

static inline F16 load_half(const uint16_t *p) {
#if defined(__AVX512F__)
    return (F16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
    F16 v;
    for (int i = 0; i < 2; ++i) {
        const __m256 half = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + i));
        std::memcpy((char *)&v + i * sizeof half, &half, sizeof half);
    }
    return v;
#else
    float t[kLanes];
    for (int i = 0; i < kLanes; ++i) t[i] = half_bits_to_float(p[i]);
    return load(t);
#endif
}

}  // namespace pj::cpu::PJ_ISA
