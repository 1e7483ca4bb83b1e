// Products of quantised weights with int8 activations; the formula is in gemm.h.
#pragma once

#include "cpu/kernels/gemm_lanes.h"

namespace pj::cpu::PJ_ISA {

constexpr int kGroupQuads = kGroup / 4;

// One way of storing weights; every member is known at compile time.
template <WeightFormat kFormat_, Range kRange_, int kSubBlocks_, bool kCodes_, bool kMin_, int kOffset_>
struct Layout {
    static constexpr WeightFormat kFormat = kFormat_;
    static constexpr Range kRange = kRange_;
    static constexpr int kSubBlocks = kSubBlocks_;
    static constexpr bool kCodes = kCodes_;
    static constexpr bool kMin = kMin_;
    // Value = integer that dot() sees - kOffset.
    static constexpr int kOffset = kRange_ == Range::k8Bits && !kUnsigned8 ? 0 : kOffset_;
    static constexpr int kSpan = kCodes_ ? 256 : kGroup;
    static constexpr int kScaleVectors = kMin_ ? 2 : 1;
    static constexpr int kGroupBytes = kTile * kGroup / (kFormat_ == WeightFormat::kByte ? 1 : 2);
};

// The weights of kWidth outputs and one group, ready for dot().
template <class L>
struct GroupWeights {
    VI quads[kGroupQuads];
    VF scale[L::kSubBlocks];
    VF min[L::kSubBlocks];
};

template <class L>
static inline void unpack_values(const uint8_t *values, VI table, VI *quads) {
    constexpr int kLine = kTile * 4;  // bytes of a quad of the whole tile
    if constexpr (L::kFormat == WeightFormat::kByte) {
        for (int i = 0; i < kGroupQuads; ++i) {
            const VI line = vi_load(values + i * kLine);
            quads[i] = L::kRange == Range::k8Bits && !kUnsigned8 ? vi_flip_sign(line) : line;
        }
    } else {
        for (int i = 0; i < kGroupQuads / 2; ++i) {
            const VI line = vi_load(values + i * kLine);
            quads[2 * i] = vi_low_nibbles(line);
            quads[2 * i + 1] = vi_high_nibbles(line);
        }
        if constexpr (L::kFormat == WeightFormat::kTable)
            for (int i = 0; i < kGroupQuads; ++i) quads[i] = vi_lookup(table, quads[i]);
    }
}

// d and dmin: the f16 scales of the span; codes: the integers of this group.
template <class L>
static inline void unpack_scales(VF d, VF dmin, const int8_t *codes, GroupWeights<L> &group) {
    for (int s = 0; s < L::kSubBlocks; ++s) {
        group.scale[s] = L::kCodes ? vf_mul(d, vf_load_int8(codes + s * kTile)) : d;
        if constexpr (L::kMin)
            group.min[s] = L::kCodes ? vf_mul(dmin, vf_load_int8(codes + (L::kSubBlocks + s) * kTile)) : dmin;
    }
}

// Adds one group to the accumulators of kRows rows: (scale * dot - min * sum, over the sub-blocks) *
// scale of the activations.
template <class L, int kRows>
static inline void add_group(const GroupWeights<L> &group, const int8_t *q, int64_t q_stride, const QuantGroup *stats,
                             int64_t stats_stride, VF *acc) {
    constexpr int kQuads = kGroupQuads / L::kSubBlocks;
    const auto sum_of = [&](int row, int s) {
        const QuantGroup &g = stats[row * stats_stride];
        return vf_set(L::kSubBlocks == 1 ? g.sum : g.sub_sum[s]);
    };
    VF term[kRows];
    for (int s = 0; s < L::kSubBlocks; ++s) {
        VI sums[kRows];
        dot<L::kRange, kQuads, kRows>(group.quads + s * kQuads, q + s * kQuads * 4, q_stride, sums);
        for (int r = 0; r < kRows; ++r) {
            VF product = vf_from_int(sums[r]);
            // Integers below 2^24 on both sides: exact.
            if constexpr (L::kOffset != 0) product = vf_fnma(vf_set(L::kOffset), sum_of(r, s), product);
            term[r] = s == 0 ? vf_mul(group.scale[0], product) : vf_fma(group.scale[s], product, term[r]);
        }
    }
    for (int r = 0; r < kRows; ++r) {
        if constexpr (L::kMin)
            for (int s = 0; s < L::kSubBlocks; ++s) term[r] = vf_fnma(group.min[s], sum_of(r, s), term[r]);
        acc[r] = vf_fma(term[r], vf_set(stats[r * stats_stride].scale), acc[r]);
    }
}

// kRows rows from row_begin on, the outputs of one part of one tile.
template <class L, int kRows>
static void multiply_part(const GemmArgs &args, int tile, int part, int row_begin) {
    const PackedView &w = args.weight;
    const uint8_t *values = w.values + tile * w.values_tile + part * kWidth * 4;
    const int8_t *codes = L::kCodes ? w.codes + tile * w.codes_tile + part * kWidth : nullptr;
    const uint16_t *scales = w.scales + tile * w.scales_tile + part * kWidth;
    const int8_t *q = args.q + row_begin * args.q_stride;
    const QuantGroup *stats = args.groups + row_begin * args.groups_stride;
    VI table = {};
    if constexpr (L::kFormat == WeightFormat::kTable)
        table = kUnsigned8 ? vi_flip_sign(vi_table(w.table)) : vi_table(w.table);

    VF acc[kRows];
    for (int r = 0; r < kRows; ++r) acc[r] = vf_zero();
    VF d = vf_zero(), dmin = vf_zero();
    const int n_groups = w.n_in / kGroup;
    for (int g = 0; g < n_groups; ++g) {
        if (g % (L::kSpan / kGroup) == 0) {
            d = vf_load_half(scales);
            if constexpr (L::kMin) dmin = vf_load_half(scales + kTile);
            scales += L::kScaleVectors * kTile;
        }
        GroupWeights<L> group;
        unpack_values<L>(values, table, group.quads);
        unpack_scales<L>(d, dmin, codes, group);
        add_group<L, kRows>(group, q + g * kGroup, args.q_stride, stats + g, args.groups_stride, acc);
        values += L::kGroupBytes;
        if constexpr (L::kCodes) codes += L::kSubBlocks * L::kScaleVectors * kTile;
    }
    const int first = tile * kTile + part * kWidth;
    const int n_lanes = w.n_out - first < kWidth ? w.n_out - first : kWidth;
    if (n_lanes <= 0) return;
    for (int r = 0; r < kRows; ++r) vf_store(args.y + (row_begin + r) * args.y_stride + first, acc[r], n_lanes);
}

template <class L, int kRows>
static void multiply_rows(const GemmArgs &args, int tile, int row_begin) {
    for (int part = 0; part < kParts; ++part) multiply_part<L, kRows>(args, tile, part, row_begin);
}

// n rows (1..kMaxRows) through the code for exactly that many.
template <class L, int kRows = kMaxRows>
static inline void dispatch_rows(const GemmArgs &args, int tile, int row_begin, int n) {
    if constexpr (kRows > 1)
        if (n < kRows) return dispatch_rows<L, kRows - 1>(args, tile, row_begin, n);
    multiply_rows<L, kRows>(args, tile, row_begin);
}

// A tile's weights stay in the first-level cache while all rows of a chunk pass; a chunk's
// activations stay in the second-level cache while all tiles pass.
template <class L>
static void multiply(const GemmArgs &args) {
    constexpr int kChunkBytes = 512 * 1024;
    int chunk = kChunkBytes / args.weight.n_in / kMaxRows * kMaxRows;
    if (chunk < 4 * kMaxRows) chunk = 4 * kMaxRows;
    for (int begin = 0; begin < args.n_rows; begin += chunk) {
        const int end = begin + chunk < args.n_rows ? begin + chunk : args.n_rows;
        for (int tile = args.tile_begin; tile < args.tile_end; ++tile)
            for (int row = begin; row < end; row += kMaxRows)
                dispatch_rows<L>(args, tile, row, end - row < kMaxRows ? end - row : kMaxRows);
    }
}

}  // namespace pj::cpu::PJ_ISA
