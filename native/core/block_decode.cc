#include "core/block_decode.h"

#include <cstring>

namespace pj {

namespace {

constexpr uint16_t kHalfSign = 0x8000;

uint16_t read16(const uint8_t *p) {
    uint16_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

uint32_t read32(const uint8_t *p) {
    uint32_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// n bytes: low nibbles give the first n elements, high nibbles the next n.
void split_nibbles(const uint8_t *bytes, int n, uint8_t *q) {
    for (int i = 0; i < n; ++i) {
        q[i] = bytes[i] & 15;
        q[i + n] = bytes[i] >> 4;
    }
}

// Adds bit i of `bits` to element i as its fifth bit.
void add_fifth_bits(uint32_t bits, uint8_t *q) {
    for (int i = 0; i < 32; ++i) q[i] |= (uint8_t)((bits >> i & 1) << 4);
}

// Eight 6-bit scales and eight 6-bit minimums in 12 bytes (Q4_K, Q5_K): the first four of each lie
// in the low 6 bits of bytes 0-3 and 4-7, the upper 2 bits of these bytes complete the last four.
void decode_scales_k4(const uint8_t *s, int8_t *codes, int8_t *min_codes) {
    for (int i = 0; i < 4; ++i) {
        codes[i] = s[i] & 63;
        min_codes[i] = s[i + 4] & 63;
        codes[i + 4] = (int8_t)((s[i + 8] & 15) | (s[i] >> 6 << 4));
        min_codes[i + 4] = (int8_t)((s[i + 8] >> 4) | (s[i + 4] >> 6 << 4));
    }
}

void decode_q2_k(const uint8_t *b, DecodedBlock &out) {
    const uint8_t *scales = b, *qs = b + 16;
    for (int i = 0; i < 16; ++i) {
        out.codes[i] = scales[i] & 15;
        out.min_codes[i] = (int8_t)(scales[i] >> 4);
    }
    for (int i = 0; i < 256; ++i) out.q[i] = qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    out.d = read16(b + 80);
    out.dmin = read16(b + 82);
}

void decode_q3_k(const uint8_t *b, DecodedBlock &out) {
    const uint8_t *mask = b, *qs = b + 32, *scales = b + 96;
    for (int i = 0; i < 256; ++i) {
        const int low = qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        const int high = mask[i % 32] >> (i / 32) & 1;
        out.q[i] = (uint8_t)(low | high << 2);
    }
    for (int i = 0; i < 16; ++i) {
        const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
        const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
        out.codes[i] = (int8_t)((low | high << 4) - 32);
    }
    out.d = read16(b + 108);
}

void decode_q4_k(const uint8_t *b, DecodedBlock &out) {
    out.d = read16(b);
    out.dmin = read16(b + 2);
    decode_scales_k4(b + 4, out.codes, out.min_codes);
    for (int c = 0; c < 4; ++c) split_nibbles(b + 16 + 32 * c, 32, out.q + 64 * c);
}

void decode_q5_k(const uint8_t *b, DecodedBlock &out) {
    const uint8_t *high = b + 16;
    out.d = read16(b);
    out.dmin = read16(b + 2);
    decode_scales_k4(b + 4, out.codes, out.min_codes);
    for (int c = 0; c < 4; ++c) split_nibbles(b + 48 + 32 * c, 32, out.q + 64 * c);
    for (int i = 0; i < 256; ++i) out.q[i] |= (uint8_t)((high[i % 32] >> (i / 32) & 1) << 4);
}

void decode_q6_k(const uint8_t *b, DecodedBlock &out) {
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
        const int low = b[half * 64 + quarter % 2 * 32 + lane] >> (quarter / 2 * 4) & 15;
        const int high = b[128 + half * 32 + lane] >> (quarter * 2) & 3;
        out.q[i] = (uint8_t)(low | high << 4);
    }
    std::memcpy(out.codes, b + 192, 16);
    out.d = read16(b + 208);
}

void decode_iq4_xs(const uint8_t *b, DecodedBlock &out) {
    const uint16_t high = read16(b + 2);
    out.d = read16(b);
    for (int i = 0; i < 8; ++i) {
        const int low = b[4 + i / 2] >> (i % 2 * 4) & 15;
        out.codes[i] = (int8_t)((low | (high >> (2 * i) & 3) << 4) - 32);
        split_nibbles(b + 8 + 16 * i, 16, out.q + 32 * i);
    }
}

constexpr BlockFormat kQ40 = {4, 32, false, false, 8, nullptr};
constexpr BlockFormat kQ41 = {4, 32, false, true, 0, nullptr};
constexpr BlockFormat kQ50 = {8, 32, false, false, 16, nullptr};
constexpr BlockFormat kQ51 = {8, 32, false, true, 0, nullptr};
constexpr BlockFormat kQ80 = {8, 32, false, false, 128, nullptr};
constexpr BlockFormat kQ2K = {4, 16, true, true, 0, nullptr};
constexpr BlockFormat kQ3K = {4, 16, true, false, 4, nullptr};
constexpr BlockFormat kQ4K = {4, 32, true, true, 0, nullptr};
constexpr BlockFormat kQ5K = {8, 32, true, true, 0, nullptr};
constexpr BlockFormat kQ6K = {8, 16, true, false, 32, nullptr};
constexpr BlockFormat kIq4Nl = {4, 32, false, false, 0, kIq4Values};
constexpr BlockFormat kIq4Xs = {4, 32, true, false, 0, kIq4Values};

}  // namespace

const BlockFormat *block_format(int32_t type) {
    switch (type) {
        case GGML_Q4_0:
            return &kQ40;
        case GGML_Q4_1:
            return &kQ41;
        case GGML_Q5_0:
            return &kQ50;
        case GGML_Q5_1:
            return &kQ51;
        case GGML_Q8_0:
            return &kQ80;
        case GGML_Q2_K:
            return &kQ2K;
        case GGML_Q3_K:
            return &kQ3K;
        case GGML_Q4_K:
            return &kQ4K;
        case GGML_Q5_K:
            return &kQ5K;
        case GGML_Q6_K:
            return &kQ6K;
        case GGML_IQ4_NL:
            return &kIq4Nl;
        case GGML_IQ4_XS:
            return &kIq4Xs;
        default:
            return nullptr;
    }
}

void decode_block(int32_t type, const uint8_t *b, DecodedBlock &out) {
    switch (type) {
        case GGML_Q4_0:
        case GGML_IQ4_NL:
            out.d = read16(b);
            return split_nibbles(b + 2, 16, out.q);
        case GGML_Q4_1:
            out.d = read16(b);
            out.dmin = read16(b + 2) ^ kHalfSign;
            return split_nibbles(b + 4, 16, out.q);
        case GGML_Q5_0:
            out.d = read16(b);
            split_nibbles(b + 6, 16, out.q);
            return add_fifth_bits(read32(b + 2), out.q);
        case GGML_Q5_1:
            out.d = read16(b);
            out.dmin = read16(b + 2) ^ kHalfSign;
            split_nibbles(b + 8, 16, out.q);
            return add_fifth_bits(read32(b + 4), out.q);
        case GGML_Q8_0:
            out.d = read16(b);
            for (int i = 0; i < 32; ++i) out.q[i] = b[2 + i] ^ 128;
            return;
        case GGML_Q2_K:
            return decode_q2_k(b, out);
        case GGML_Q3_K:
            return decode_q3_k(b, out);
        case GGML_Q4_K:
            return decode_q4_k(b, out);
        case GGML_Q5_K:
            return decode_q5_k(b, out);
        case GGML_Q6_K:
            return decode_q6_k(b, out);
        case GGML_IQ4_XS:
            return decode_iq4_xs(b, out);
    }
}

}  // namespace pj
