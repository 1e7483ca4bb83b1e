// Memory layouts of the megakernel: packed weights and quantised activations.
//
// A unit is 64 outputs x 256 inputs: four row tiles of 16 outputs, eight k-blocks of 32 inputs, in
// the register order of mma.m16n8k32 (A operand). Lane = 4 * g + t holds, for word i of a k-block,
// output g + 8 * (i & 1) and inputs 4 * t + 16 * (i >> 1) .. + 3.
//
//   kQ4K  nibbles [4 row tiles][4 pairs of k-blocks][32 lanes][4 words] (low nibbles: even k-block),
//         codes [64 outputs][8 scales, 8 mins] bytes, d and dmin [64] half2
//   kQ5K  as kQ4K, then fifth bits [4][32 lanes][4 words]: bit 8 j + b is byte j of k-block b
//   kQ6K  nibbles as kQ4K, upper bits [4][2 halves][32 lanes][4 words]: bits 8 j + 2 (b & 3) of
//         half b / 4, codes [64][16] int8, d [64] half
//   kQ8   bytes [4][8 k-blocks][32 lanes][4 words], d [64][8] half
//
// Integers and scales are those of the file. Outputs beyond n_out are zero.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace pj::cuda {

constexpr int kUnitOutputs = 64;
constexpr int kUnitInputs = 256;

// Columns of a row in memory: whole groups of kUnitInputs.
constexpr int padded_columns(int n) { return (n + kUnitInputs - 1) / kUnitInputs * kUnitInputs; }

enum TileFormat : int32_t { kTileQ4K, kTileQ5K, kTileQ6K, kTileQ8, kTileRaw, kTileFloat };

constexpr int kNibbleBytes = kUnitOutputs * kUnitInputs / 2;
constexpr int kCodes16Bytes = kUnitOutputs * 16;

constexpr int kQ4KCodes = kNibbleBytes;
constexpr int kQ4KScales = kQ4KCodes + kCodes16Bytes;
constexpr int kQ4KUnit = kQ4KScales + kUnitOutputs * 4;

constexpr int kQ5KFifth = kQ4KUnit;
constexpr int kQ5KUnit = kQ5KFifth + kUnitOutputs * kUnitInputs / 8;

constexpr int kQ6KUpper = kNibbleBytes;
constexpr int kQ6KCodes = kQ6KUpper + kUnitOutputs * kUnitInputs / 4;
constexpr int kQ6KScales = kQ6KCodes + kCodes16Bytes;
constexpr int kQ6KUnit = kQ6KScales + kUnitOutputs * 2;

constexpr int kQ8Scales = kUnitOutputs * kUnitInputs;
constexpr int kQ8Unit = kQ8Scales + kUnitOutputs * 8 * 2;

constexpr int unit_bytes(int32_t format) {
    return format == kTileQ4K   ? kQ4KUnit
           : format == kTileQ5K ? kQ5KUnit
           : format == kTileQ6K ? kQ6KUnit
           : format == kTileQ8  ? kQ8Unit
                                : 0;
}
static_assert(kQ4KUnit % 16 == 0 && kQ5KUnit % 16 == 0 && kQ6KUnit % 16 == 0 && kQ8Unit % 16 == 0, "16-byte copies");

// Quantised activations of 8 rows and 256 inputs.
//   q      [8 k-blocks][32 lanes][8 bytes]: B operand of mma.m16n8k32; lane 4 n + t holds row n,
//          inputs 4 t .. + 3 and 16 + 4 t .. + 3. Of rows 4 .. 7 lanes t and t + 2 have changed
//          places (place), which is how wgmma reads rows of 32 bytes
//   sums   [32 lanes][4 halves]: sums of each 16 inputs (exact, at most 2032), as B operand of
//          mma.m16n8k16; lane 4 n + t holds row n, sums 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, at the
//          places of q
//   scale  [8 k-blocks][8 rows]: all eight equal in the form with one scale per 256
struct ActTile {
    // Where the bytes of a lane are.
    static PJ_HOST_DEVICE int place(int lane) { return lane ^ (lane >> 3 & 2); }
    // Where sum s of a lane's row is among its lanes' halves: sum_lane(s) of four, sum_half(s) of four.
    static PJ_HOST_DEVICE int sum_lane(int s) { return (s & 7) >> 1; }
    static PJ_HOST_DEVICE int sum_half(int s) { return (s >> 3) * 2 + (s & 1); }

    int8_t q[8][32][8];
    uint16_t sums[32][4];
    float scale[8][8];
};
static_assert(sizeof(ActTile) == 2560, "copied in 16-byte pieces");

}  // namespace pj::cuda
