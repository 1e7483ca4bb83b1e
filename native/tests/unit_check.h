// Reads packed units as cuda/tiles.h describes them and compares them with decode_block: an
// independent reading of the layout, for tests of the packing on host and device.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/block_decode.h"
#include "core/quants.h"
#include "cuda/pack_unit.h"
#include "tests/check.h"

namespace pj::cuda {

// Random rows as in a file; every byte pattern is a valid block.
inline std::vector<uint8_t> random_rows(int32_t type, int n_in, int n_out, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> rows(row_bytes(*type_traits(type), n_in) * n_out);
    for (uint8_t &byte : rows) byte = static_cast<uint8_t>(random());
    return rows;
}

inline int nibble_of(const uint8_t *unit, int output, int input) {
    const int row_tile = output / 16, g = output % 8, upper = output / 8 % 2;
    const int k_block = input / 32, in_block = input % 32, t = in_block % 16 / 4, right = in_block / 16;
    const int lane = 4 * g + t, word = upper + 2 * right;
    const int byte = (((row_tile * 4 + k_block / 2) * 32 + lane) * 4 + word) * 4 + in_block % 4;
    return unit[byte] >> (k_block % 2 * 4) & 15;
}

// Byte offset of a word within [..][32 lanes][4 words], and the byte of the input in it.
inline int lane_byte(int output, int input) {
    const int in_block = input % 32, lane = 4 * (output % 8) + in_block % 16 / 4;
    return (lane * 4 + output / 8 % 2 + 2 * (in_block / 16)) * 4 + in_block % 4;
}

inline int unit_q(int32_t format, const uint8_t *unit, int output, int input) {
    const int row_tile = output / 16, k_block = input / 32, at = lane_byte(output, input);
    if (format == kTileQ8) return unit[(row_tile * 8 + k_block) * 512 + at];
    int q = nibble_of(unit, output, input);
    if (format == kTileQ5K) q |= (unit[kQ5KFifth + row_tile * 512 + at] >> k_block & 1) << 4;
    if (format == kTileQ6K)
        q |= (unit[kQ6KUpper + (row_tile * 2 + k_block / 4) * 512 + at] >> (2 * (k_block & 3)) & 3) << 4;
    return q;
}

inline uint16_t half_at(const uint8_t *p) {
    uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half;
}

inline void check_k_scales(int32_t format, const uint8_t *unit, int output, const DecodedBlock &block) {
    if (format == kTileQ6K) {
        CHECK(!std::memcmp(unit + kQ6KCodes + output * 16, block.codes, 16), "codes of output %d", output);
        CHECK(half_at(unit + kQ6KScales + output * 2) == block.d, "d of output %d", output);
        return;
    }
    CHECK(!std::memcmp(unit + kQ4KCodes + output * 16, block.codes, 8), "codes of output %d", output);
    CHECK(!std::memcmp(unit + kQ4KCodes + output * 16 + 8, block.min_codes, 8), "minimums of output %d", output);
    CHECK(half_at(unit + kQ4KScales + output * 4) == block.d, "d of output %d", output);
    CHECK(half_at(unit + kQ4KScales + output * 4 + 2) == block.dmin, "dmin of output %d", output);
}

// units: all units of a matrix of n_out rows.
inline void check_units(int32_t type, const std::vector<uint8_t> &rows, int n_in, int n_out,
                        const std::vector<uint8_t> &units) {
    const int32_t format = tile_format(type, n_in);
    const TypeTraits &traits = *type_traits(type);
    const int k_units = n_in / kUnitInputs, n_blocks = (n_out + kUnitOutputs - 1) / kUnitOutputs;
    CHECK(units.size() == size_t(unit_bytes(format)) * k_units * n_blocks, "%zu bytes", units.size());
    for (int out = 0; out < n_blocks * kUnitOutputs; ++out)
        for (int k = 0; k < k_units; ++k) {
            const int output = out % kUnitOutputs;
            const uint8_t *unit = units.data() + (size_t(out / kUnitOutputs) * k_units + k) * unit_bytes(format);
            const uint8_t *row = rows.data() + row_bytes(traits, n_in) * out + row_bytes(traits, int64_t{k} * 256);
            for (int first = 0; first < kUnitInputs; first += traits.block_elements) {
                DecodedBlock block = {};
                if (out < n_out) decode_block(type, row + row_bytes(traits, first), block);
                // Bytes of Q8_0 are signed in a unit and offset by 128 in a decoded block.
                const int offset = format == kTileQ8 && out < n_out ? 128 : 0;
                for (int i = 0; i < traits.block_elements; ++i)
                    CHECK(unit_q(format, unit, output, first + i) == (block.q[i] ^ offset),
                          "type %d output %d input %d", type, out, k * 256 + first + i);
                if (format == kTileQ8)
                    CHECK(half_at(unit + kQ8Scales + output * 16 + first / 32 * 2) == block.d, "d of %d", out);
                else
                    check_k_scales(format, unit, output, block);
            }
        }
}

}  // namespace pj::cuda
