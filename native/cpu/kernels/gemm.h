// Matrix times rows: the packed weights as the kernels see them.
//
// Weights are packed for 16 outputs at a time (a tile), so that one vector lane is one output.
// Quantised weights keep the integers of the file as unsigned values (value + offset) next to their
// scales; the product with int8 activations is exact in int32 within a group of 32 inputs:
//
//     t   = scale_w * float(sum of w * q) - min_w * float(sum of q)     (one term per sub-block)
//     acc = fma(t, scale_x, acc)                                        (groups in order)
//
// One accumulator per (row, output) and this one formula on every path: a result does not depend on
// the rows, tiles or threads beside it.
#pragma once

#include <cstdint>

namespace pj::cpu {

constexpr int kTile = 16;   // outputs of a tile
constexpr int kGroup = 32;  // inputs of an exact integer sum

enum class WeightFormat : int32_t { kF32, kF16, kBF16, kNibble, kTable, kByte };

// Non-owning. For float formats `values` is [tile][k][16]. For integer formats it is, per tile and
// group of 32, eight quads of [16 outputs][4 inputs] bytes; nibbles put quads 2i (low) and 2i + 1
// (high) into one 64-byte line. Rows beyond n_out are zero.
struct PackedView {
    WeightFormat format;
    int32_t n_in;
    int32_t n_out;
    int32_t n_tiles;
    int32_t sub_blocks;  // per group: 1, or 2 when the type scales blocks of 16
    int32_t has_codes;   // 1: scale = d * code (K-quants), 0: scale = d
    int32_t has_min;
    int32_t offset;       // value = stored - offset
    int32_t scale_span;   // inputs per d: 32 or 256
    int64_t values_tile;  // bytes of one tile in `values`
    int64_t codes_tile;
    int64_t scales_tile;  // elements of one tile in `scales`
    const uint8_t *values;
    const int8_t *codes;     // [tile][group][scale sub-blocks, then min sub-blocks][16]
    const uint16_t *scales;  // f16 [tile][span][d, then min][16]
    const int8_t *table;     // [16] values of kTable
};

// What the kernels need to know of 32 quantised activations.
struct QuantGroup {
    float scale;       // x = scale * q
    float sum;         // of the 32 q, exact
    float sub_sum[2];  // of each 16
};

struct GemmArgs {
    PackedView weight;
    const float *x;  // f32 rows, for float formats
    int64_t x_stride;
    const int8_t *q;  // quantised rows, for integer formats
    int64_t q_stride;
    const QuantGroup *groups;
    int64_t groups_stride;
    int32_t n_rows;
    int32_t tile_begin;
    int32_t tile_end;
    float *y;  // y[row * y_stride + output]
    int64_t y_stride;
};

}  // namespace pj::cpu
