#include "cpu/kernels/functions.h"
#include "cpu/kernels/gemm_lanes.h"

namespace pj::cpu::PJ_ISA {

namespace {

constexpr float kLargest = 127.0f;
constexpr float kTiny = 1e-30f;  // groups below this become zero: 127 / amax would overflow

#if defined(__AVX2__)

struct Group {
    __m256 x[4];
};

Group read_group(const float *p) {
    return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)}};
}

float largest_size(const Group &g) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 size[4];
    for (int i = 0; i < 4; ++i) size[i] = _mm256_andnot_ps(sign, g.x[i]);
    const __m256 eight = _mm256_max_ps(_mm256_max_ps(size[0], size[1]), _mm256_max_ps(size[2], size[3]));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Stores round(x * inverse); sums: of the first and the second 16.
void round_group(const Group &g, float inverse, int8_t *q, int32_t *sums) {
    __m256i n[4];
    for (int i = 0; i < 4; ++i) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(g.x[i], _mm256_set1_ps(inverse)));
    // The packs work within 128-bit halves; the permutation restores the order.
    const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    const __m256i bytes = _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)q, bytes);
    // Sums of eight unsigned bytes, of value + 128.
    const __m256i flipped = _mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80));
    const __m256i eights = _mm256_sad_epu8(flipped, _mm256_setzero_si256());
    const __m128i low = _mm256_castsi256_si128(eights), high = _mm256_extracti128_si256(eights, 1);
    sums[0] = _mm_cvtsi128_si32(low) + _mm_extract_epi32(low, 2) - 16 * 128;
    sums[1] = _mm_cvtsi128_si32(high) + _mm_extract_epi32(high, 2) - 16 * 128;
}

#else

constexpr int kVectors = kGroup / kWidth;

struct Group {
    VF x[kVectors];
};

Group read_group(const float *p) {
    Group g;
    for (int i = 0; i < kVectors; ++i) g.x[i] = vf_load(p + i * kWidth);
    return g;
}

float largest_size(const Group &g) {
    VF m = vf_zero();
    for (int i = 0; i < kVectors; ++i) {
        const VF size = g.x[i] < vf_zero() ? -g.x[i] : g.x[i];
        m = size > m ? size : m;
    }
    float largest = m[0];
    for (int i = 1; i < kWidth; ++i) largest = m[i] > largest ? m[i] : largest;
    return largest;
}

void round_group(const Group &g, float inverse, int8_t *q, int32_t *sums) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
    VI half_sums[2] = {};
    for (int i = 0; i < kVectors; ++i) {
        const VF shifted = g.x[i] * vf_set(inverse) + vf_set(magic);
        const VI n = (VI)shifted - 0x4b400000;  // the bits of magic
        half_sums[i * kWidth / 16] += n;
        for (int j = 0; j < kWidth; ++j) q[i * kWidth + j] = (int8_t)n[j];
    }
    for (int h = 0; h < 2; ++h) {
        sums[h] = 0;
        for (int j = 0; j < kWidth; ++j) sums[h] += half_sums[h][j];
    }
}

#endif

// The scale that goes with a span's largest magnitude. Spans of 32 keep it in f16, wider ones in f32,
// as llama.cpp's q8_0 and q8_K do: with the same integers and scales the results stay in its class.
float span_scale(float largest, int span) {
    if (span != kGroup) return 1.0f / (kLargest / largest);
    const float scale = largest / kLargest;
    return scale < 65504.0f ? half_bits_to_float(float_to_half_bits(scale)) : scale;
}

void quantize_span(const float *x, int n, int span, int8_t *q, QuantGroup *groups) {
    float largest = 0;
    for (int i = 0; i < n; i += kGroup) {
        const float m = largest_size(read_group(x + i));
        largest = m > largest ? m : largest;
    }
    const bool zero = largest < kTiny;
    const float inverse = zero ? 0.0f : kLargest / largest;
    const float scale = zero ? 0.0f : span_scale(largest, span);
    for (int i = 0; i < n; i += kGroup, ++groups) {
        int32_t sums[2];
        round_group(read_group(x + i), inverse, q + i, sums);
        groups->scale = scale;
        groups->sum = (float)(sums[0] + sums[1]);
        groups->sub_sum[0] = (float)sums[0];
        groups->sub_sum[1] = (float)sums[1];
    }
}

}  // namespace

// q = round(x * (127 / amax of the span)), ties to even. Every operation is rounded the same way on
// all instruction sets, so their results are equal.
void quantize_row(const float *x, int n, int span, int8_t *q, QuantGroup *groups) {
    for (int i = 0; i < n; i += span)
        quantize_span(x + i, n - i < span ? n - i : span, span, q + i, groups + i / kGroup);
}

}  // namespace pj::cpu::PJ_ISA
