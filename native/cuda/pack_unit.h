// The bytes of packed units (tiles.h) from rows as in the file: what the repacking kernel runs, one
// call per 4-byte word, and what a test runs on the host.
//
// The block layouts of the K-quants already keep the bits of 32 inputs side by side, so most words
// are four bytes of the file; only Q6_K's nibbles are paired anew.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/quants.h"
#include "cuda/tiles.h"

namespace pj::cuda {

// 64 rows of a matrix from a multiple of 64 on; rows from n_rows on do not exist and give zeros.
struct RowBlock {
    const uint8_t *rows;
    int64_t row_bytes;
    int32_t n_rows;
};

constexpr int kQ4KBlockBytes = 144, kQ5KBlockBytes = 176, kQ6KBlockBytes = 210, kQ8BlockBytes = 34;

// Where word i of a lane lies: output within the unit, first of four inputs within a block of 32.
struct WordPlace {
    int32_t output, input;
};

PJ_HOST_DEVICE WordPlace word_place(int row_tile, int lane, int i) {
    return {row_tile * 16 + lane / 4 + 8 * (i & 1), 4 * (lane % 4) + 16 * (i >> 1)};
}

PJ_HOST_DEVICE uint32_t word_of(const uint8_t *p) {
    return p[0] | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
           static_cast<uint32_t>(p[3]) << 24;
}

// Eight 6-bit scales and eight 6-bit minimums from 12 bytes; index 0..15 (block_decode.cc).
PJ_HOST_DEVICE uint32_t k4_code(const uint8_t *s, int index) {
    const int i = index & 7, is_min = index >> 3;
    if (i < 4) return s[i + 4 * is_min] & 63;
    return (s[i + 4] >> (4 * is_min) & 15) | s[i - 4 + 4 * is_min] >> 6 << 4;
}

// Q4_K and Q5_K: block of 256 inputs of one output, nibbles from byte `nibbles` on.
PJ_HOST_DEVICE uint32_t k45_word(const RowBlock &b, int k, int w, int block_bytes, int nibbles) {
    const auto block = [&](int output) { return b.rows + output * b.row_bytes + int64_t{k} * block_bytes; };
    if (w < kQ4KCodes / 4) {
        const int row_tile = w / 512, pair = w / 128 % 4;
        const WordPlace at = word_place(row_tile, w / 4 % 32, w % 4);
        return at.output < b.n_rows ? word_of(block(at.output) + nibbles + 32 * pair + at.input) : 0;
    }
    if (w < kQ4KScales / 4) {
        const int i = w - kQ4KCodes / 4, output = i / 4;
        if (output >= b.n_rows) return 0;
        uint32_t word = 0;
        for (int j = 0; j < 4; ++j) word |= k4_code(block(output) + 4, i % 4 * 4 + j) << (8 * j);
        return word;
    }
    if (w < kQ4KUnit / 4) {
        const int output = w - kQ4KScales / 4;
        return output < b.n_rows ? word_of(block(output)) : 0;
    }
    const int i = w - kQ5KFifth / 4;
    const WordPlace at = word_place(i / 128, i / 4 % 32, i % 4);
    return at.output < b.n_rows ? word_of(block(at.output) + 16 + at.input) : 0;
}

PJ_HOST_DEVICE uint32_t q6k_word(const RowBlock &b, int k, int w) {
    const auto block = [&](int output) { return b.rows + output * b.row_bytes + int64_t{k} * kQ6KBlockBytes; };
    if (w < kQ6KUpper / 4) {
        const int pair = w / 128 % 4;
        const WordPlace at = word_place(w / 512, w / 4 % 32, w % 4);
        if (at.output >= b.n_rows) return 0;
        const uint8_t *low = block(at.output) + pair / 2 * 64 + at.input;
        const int shift = pair % 2 * 4;
        return (word_of(low) >> shift & 0x0f0f0f0fu) | (word_of(low + 32) >> shift & 0x0f0f0f0fu) << 4;
    }
    if (w < kQ6KCodes / 4) {
        const int i = w - kQ6KUpper / 4, half = i / 128 % 2;
        const WordPlace at = word_place(i / 256, i / 4 % 32, i % 4);
        return at.output < b.n_rows ? word_of(block(at.output) + 128 + 32 * half + at.input) : 0;
    }
    if (w < kQ6KScales / 4) {
        const int i = w - kQ6KCodes / 4, output = i / 4;
        return output < b.n_rows ? word_of(block(output) + 192 + i % 4 * 4) : 0;
    }
    const int output = (w - kQ6KScales / 4) * 2;
    uint32_t word = 0;
    for (int j = 0; j < 2; ++j)
        if (output + j < b.n_rows) {
            const uint8_t *d = block(output + j) + 208;
            word |= (d[0] | static_cast<uint32_t>(d[1]) << 8) << (16 * j);
        }
    return word;
}

PJ_HOST_DEVICE uint32_t q8_word(const RowBlock &b, int k, int w) {
    const auto block = [&](int output, int k_block) {
        return b.rows + output * b.row_bytes + (int64_t{k} * 8 + k_block) * kQ8BlockBytes;
    };
    if (w < kQ8Scales / 4) {
        const WordPlace at = word_place(w / 1024, w / 4 % 32, w % 4);
        return at.output < b.n_rows ? word_of(block(at.output, w / 128 % 8) + 2 + at.input) : 0;
    }
    const int i = w - kQ8Scales / 4, output = i / 4, k_block = i % 4 * 2;
    if (output >= b.n_rows) return 0;
    const uint8_t *first = block(output, k_block), *second = block(output, k_block + 1);
    return first[0] | static_cast<uint32_t>(first[1]) << 8 | static_cast<uint32_t>(second[0]) << 16 |
           static_cast<uint32_t>(second[1]) << 24;
}

// Word w of the unit of inputs 256 k .. 256 k + 255.
PJ_HOST_DEVICE uint32_t unit_word(int32_t format, const RowBlock &b, int k, int w) {
    switch (format) {
        case kTileQ4K:
            return k45_word(b, k, w, kQ4KBlockBytes, 16);
        case kTileQ5K:
            return k45_word(b, k, w, kQ5KBlockBytes, 48);
        case kTileQ6K:
            return q6k_word(b, k, w);
        default:
            return q8_word(b, k, w);
    }
}

// The format a matrix is packed in. K-quants are whole units by definition; a Q8_0 row may not be.
inline TileFormat tile_format(int32_t type, int32_t n_in) {
    const bool whole = n_in % kUnitInputs == 0;
    switch (type) {
        case GGML_Q4_K:
            return kTileQ4K;
        case GGML_Q5_K:
            return kTileQ5K;
        case GGML_Q6_K:
            return kTileQ6K;
        case GGML_Q8_0:
            return whole ? kTileQ8 : kTileRaw;
        case GGML_F32:
        case GGML_F16:
        case GGML_BF16:
            return kTileFloat;
        default:
            return kTileRaw;
    }
}

}  // namespace pj::cuda
