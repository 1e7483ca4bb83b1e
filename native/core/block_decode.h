// One block of any quantised ggml type as integers and scales, whatever its bit layout:
//
//     value[i] = (d * code[s]) * (q[i] - offset) - (dmin * min_code[s])     s = i / sub_elements
//
// in f32, rounded after each operation: the exact values of gguf.quants.dequantize. Types without
// codes have d alone as scale, types without minimum have no second term. The packing for the CPU
// kernels and dequantize_row both start here, so they cannot disagree.
#pragma once

#include <cstdint>

#include "core/quants.h"

namespace pj {

constexpr int kMaxBlock = 256;

// The non-linear 4-bit values of the IQ4 types.
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct BlockFormat {
    int32_t bits;          // 4: q fits a nibble, 8: a byte
    int32_t sub_elements;  // elements per scale: 16 or 32
    bool has_codes;        // d is multiplied by an integer per sub-block
    bool has_min;
    int32_t offset;       // value = q - offset
    const int8_t *table;  // or value = table[q] with offset 0; nullptr if linear
};

struct DecodedBlock {
    uint8_t q[kMaxBlock];
    int8_t codes[kMaxBlock / 16];
    int8_t min_codes[kMaxBlock / 16];
    uint16_t d;     // f16
    uint16_t dmin;  // f16; subtracted (types that add a minimum store it negated here)
};

// nullptr for float types and unknown types.
const BlockFormat *block_format(int32_t type);

// type must have a block_format. Fields that the format does not have are left alone.
void decode_block(int32_t type, const uint8_t *block, DecodedBlock &out);

}  // namespace pj
