// The vector operations that the products are written in, for one instruction set each.
//
// A vector holds kWidth outputs of a tile: floats, or four consecutive inputs of each as bytes.
// dot() is exact in int32 on every instruction set; everything in float is the same operation on
// each lane, so AVX2 and AVX-512 give the same bits.
#pragma once

#include "cpu/kernels/gemm.h"
#include "cpu/kernels/simd.h"

namespace pj::cpu::PJ_ISA {

// Largest stored integer of a weight, which decides how a dot product may be summed.
enum class Range { k4Bits = 15, k5Bits = 31, k6Bits = 63, k8Bits = 255 };

static inline int32_t read_quad(const int8_t *p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return four;
}

#if defined(__AVX512VNNI__)

constexpr int kWidth = 16;
constexpr int kMaxRows = 8;
// Whether integers of Range::k8Bits are kept as value + 128 (true) or as the value itself.
constexpr bool kUnsigned8 = true;
typedef __m512 VF;
typedef __m512i VI;

static inline VF vf_zero() { return _mm512_setzero_ps(); }
static inline VF vf_set(float x) { return _mm512_set1_ps(x); }
static inline VF vf_add(VF a, VF b) { return _mm512_add_ps(a, b); }
static inline VF vf_mul(VF a, VF b) { return _mm512_mul_ps(a, b); }
static inline VF vf_fma(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
static inline VF vf_fnma(VF a, VF b, VF c) { return _mm512_fnmadd_ps(a, b, c); }
static inline VF vf_from_int(VI a) { return _mm512_cvtepi32_ps(a); }
static inline VF vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline VF vf_load_half(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline VF vf_load_bf16(const uint16_t *p) {
    const VI wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline VF vf_load_int8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline void vf_store(float *p, VF v, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v); }

static inline VI vi_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
static inline VI vi_low_nibbles(VI v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
static inline VI vi_high_nibbles(VI v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
static inline VI vi_flip_sign(VI v) { return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80)); }
static inline VI vi_table(const int8_t *table) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
}
static inline VI vi_lookup(VI table, VI index) { return _mm512_shuffle_epi8(table, index); }

// sums[r] = sum over kQuads quads of the weights times row r. Rows take turns, so that their chains
// of additions overlap.
template <Range kRange, int kQuads, int kRows>
static inline void dot(const VI *w, const int8_t *x, int64_t stride, VI *sums) {
    for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_si512();
    for (int i = 0; i < kQuads; ++i)
        for (int r = 0; r < kRows; ++r)
            sums[r] = _mm512_dpbusd_epi32(sums[r], w[i], _mm512_set1_epi32(read_quad(x + r * stride + 4 * i)));
}

#elif defined(__AVX2__)

constexpr int kWidth = 8;
constexpr int kMaxRows = 4;
constexpr bool kUnsigned8 = false;
typedef __m256 VF;
typedef __m256i VI;

static inline VF vf_zero() { return _mm256_setzero_ps(); }
static inline VF vf_set(float x) { return _mm256_set1_ps(x); }
static inline VF vf_add(VF a, VF b) { return _mm256_add_ps(a, b); }
static inline VF vf_mul(VF a, VF b) { return _mm256_mul_ps(a, b); }
static inline VF vf_fma(VF a, VF b, VF c) { return _mm256_fmadd_ps(a, b, c); }
static inline VF vf_fnma(VF a, VF b, VF c) { return _mm256_fnmadd_ps(a, b, c); }
static inline VF vf_from_int(VI a) { return _mm256_cvtepi32_ps(a); }
static inline VF vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline VF vf_load_half(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline VF vf_load_bf16(const uint16_t *p) {
    const VI wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline VF vf_load_int8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline void vf_store(float *p, VF v, int n) {
    if (n == kWidth) return _mm256_storeu_ps(p, v);
    float lanes[kWidth];
    _mm256_storeu_ps(lanes, v);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

static inline VI vi_load(const uint8_t *p) { return _mm256_loadu_si256((const VI *)p); }
static inline VI vi_low_nibbles(VI v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
static inline VI vi_high_nibbles(VI v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15)); }
static inline VI vi_flip_sign(VI v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)); }
static inline VI vi_table(const int8_t *table) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}
static inline VI vi_lookup(VI table, VI index) { return _mm256_shuffle_epi8(table, index); }

// maddubs adds two products in 16 bits: 2 * 127 * weight. This many such sums fit an int16.
template <Range kRange>
constexpr int sums_in_int16() {
    return kRange == Range::k8Bits ? 1 : 32767 / (2 * 127 * (int)kRange);
}

template <Range kRange, int kQuads, int kRows>
static inline void dot(const VI *w, const int8_t *x, int64_t stride, VI *sums) {
    constexpr int kSums = sums_in_int16<kRange>();
    const VI ones = _mm256_set1_epi16(1);
    for (int r = 0; r < kRows; ++r) sums[r] = _mm256_setzero_si256();
    for (int begin = 0; begin < kQuads; begin += kSums) {
        VI partial[kRows];
        for (int r = 0; r < kRows; ++r) partial[r] = _mm256_setzero_si256();
        for (int i = begin; i < begin + kSums && i < kQuads; ++i) {
            // |w| * (x with the sign of w) is at most 128 * 127
            const VI size = kRange == Range::k8Bits ? _mm256_abs_epi8(w[i]) : w[i];
            for (int r = 0; r < kRows; ++r) {
                VI four = _mm256_set1_epi32(read_quad(x + r * stride + 4 * i));
                if (kRange == Range::k8Bits) four = _mm256_sign_epi8(four, w[i]);
                partial[r] = _mm256_add_epi16(partial[r], _mm256_maddubs_epi16(size, four));
            }
        }
        for (int r = 0; r < kRows; ++r) sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(partial[r], ones));
    }
}

#else

constexpr int kWidth = 4;  // what every 128-bit unit has
constexpr int kMaxRows = 4;
constexpr bool kUnsigned8 = true;
typedef float VF __attribute__((vector_size(16)));
typedef int32_t VI __attribute__((vector_size(16)));
typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef int16_t Words __attribute__((vector_size(16)));
typedef uint16_t UnsignedWords __attribute__((vector_size(16)));

static inline VF vf_zero() { return VF{}; }
static inline VF vf_set(float x) { return VF{} + x; }
static inline VF vf_add(VF a, VF b) { return a + b; }
static inline VF vf_mul(VF a, VF b) { return a * b; }
static inline VF vf_fma(VF a, VF b, VF c) { return a * b + c; }
static inline VF vf_fnma(VF a, VF b, VF c) { return c - a * b; }
static inline VF vf_from_int(VI a) { return __builtin_convertvector(a, VF); }
static inline VF vf_load(const float *p) {
    VF v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
static inline VF vf_load_half(const uint16_t *p) {
    return VF{half_bits_to_float(p[0]), half_bits_to_float(p[1]), half_bits_to_float(p[2]), half_bits_to_float(p[3])};
}
static inline VF vf_load_bf16(const uint16_t *p) {
    const uint32_t wide[kWidth] = {(uint32_t)p[0] << 16, (uint32_t)p[1] << 16, (uint32_t)p[2] << 16,
                                   (uint32_t)p[3] << 16};
    VF v;
    std::memcpy(&v, wide, sizeof v);
    return v;
}
static inline VF vf_load_int8(const int8_t *p) { return VF{(float)p[0], (float)p[1], (float)p[2], (float)p[3]}; }
static inline void vf_store(float *p, VF v, int n) { std::memcpy(p, &v, n * sizeof(float)); }

static inline VI vi_load(const uint8_t *p) {
    VI v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
static inline VI vi_low_nibbles(VI v) { return (VI)((Bytes)v & 15); }
static inline VI vi_high_nibbles(VI v) { return (VI)((UnsignedWords)v >> 4 & 0x0f0f); }
static inline VI vi_flip_sign(VI v) { return (VI)((Bytes)v ^ 0x80); }
static inline VI vi_table(const int8_t *table) { return vi_load((const uint8_t *)table); }
static inline VI vi_lookup(VI table, VI index) {
    uint8_t from[16], to[16];
    std::memcpy(to, &index, sizeof to);
    std::memcpy(from, &table, sizeof from);
    for (int i = 0; i < 16; ++i) to[i] = from[to[i]];
    return vi_load(to);
}

// Products of bytes fit int16 (255 * 127); the two halves of each 32-bit lane are added as int32.
static inline VI add_halves(Words v) { return ((VI)v << 16 >> 16) + ((VI)v >> 16); }

template <Range kRange, int kQuads, int kRows>
static inline void dot(const VI *w, const int8_t *x, int64_t stride, VI *sums) {
    for (int r = 0; r < kRows; ++r) sums[r] = VI{};
    for (int i = 0; i < kQuads; ++i) {
        const Words even_w = (Words)((UnsignedWords)w[i] & 255), odd_w = (Words)((UnsignedWords)w[i] >> 8);
        for (int r = 0; r < kRows; ++r) {
            const Words four = (Words)(VI{} + read_quad(x + r * stride + 4 * i));
            sums[r] += add_halves(even_w * (four << 8 >> 8)) + add_halves(odd_w * (four >> 8));
        }
    }
}

#endif

constexpr int kParts = kTile / kWidth;  // vectors of a tile

}  // namespace pj::cpu::PJ_ISA
