// Products of float weights (f32, f16, bf16) with f32 activations.
//
// Two accumulators per (row, output), for even and odd inputs, added at the end: the same order for
// any number of rows and tiles.
#pragma once

#include "cpu/kernels/gemm_lanes.h"

namespace pj::cpu::PJ_ISA {

template <WeightFormat kFormat>
static inline VF load_weights(const uint8_t *values, int64_t index) {
    if constexpr (kFormat == WeightFormat::kF32) return vf_load((const float *)values + index);
    if constexpr (kFormat == WeightFormat::kF16) return vf_load_half((const uint16_t *)values + index);
    if constexpr (kFormat == WeightFormat::kBF16) return vf_load_bf16((const uint16_t *)values + index);
}

// kRows rows and the same part of kTiles adjoining tiles.
template <WeightFormat kFormat, int kRows, int kTiles>
static void multiply_float_part(const GemmArgs &args, int tile, int part, int row_begin) {
    const PackedView &w = args.weight;
    const float *x = args.x + row_begin * args.x_stride;
    VF acc[2][kTiles][kRows];
    for (int odd = 0; odd < 2; ++odd)
        for (int t = 0; t < kTiles; ++t)
            for (int r = 0; r < kRows; ++r) acc[odd][t][r] = vf_zero();
    const auto step = [&](int64_t k, VF(&sums)[kTiles][kRows]) {
        for (int t = 0; t < kTiles; ++t) {
            const uint8_t *values = w.values + (tile + t) * w.values_tile;
            const VF weight = load_weights<kFormat>(values, k * kTile + part * kWidth);
            for (int r = 0; r < kRows; ++r) sums[t][r] = vf_fma(weight, vf_set(x[r * args.x_stride + k]), sums[t][r]);
        }
    };
    int64_t k = 0;
    for (; k + 2 <= w.n_in; k += 2) {
        step(k, acc[0]);
        step(k + 1, acc[1]);
    }
    if (k < w.n_in) step(k, acc[0]);
    for (int t = 0; t < kTiles; ++t) {
        const int first = (tile + t) * kTile + part * kWidth;
        const int n_lanes = w.n_out - first < kWidth ? w.n_out - first : kWidth;
        if (n_lanes <= 0) continue;
        for (int r = 0; r < kRows; ++r)
            vf_store(args.y + (row_begin + r) * args.y_stride + first, vf_add(acc[0][t][r], acc[1][t][r]), n_lanes);
    }
}

template <WeightFormat kFormat, int kRows, int kTiles>
static void multiply_float_rows(const GemmArgs &args, int row_begin) {
    int tile = args.tile_begin;
    for (; tile + kTiles <= args.tile_end; tile += kTiles)
        for (int part = 0; part < kParts; ++part)
            multiply_float_part<kFormat, kRows, kTiles>(args, tile, part, row_begin);
    for (; tile < args.tile_end; ++tile)
        for (int part = 0; part < kParts; ++part) multiply_float_part<kFormat, kRows, 1>(args, tile, part, row_begin);
}

// Blocks of eight rows: a tile's weights stay in cache while the rows of a chunk pass.
template <WeightFormat kFormat>
static void multiply_float_blocks(const GemmArgs &args, int n_rows) {
    constexpr int kBlock = 8, kChunkFloats = 128 * 1024;
    int chunk = kChunkFloats / args.weight.n_in / kBlock * kBlock;
    if (chunk < 4 * kBlock) chunk = 4 * kBlock;
    for (int begin = 0; begin < n_rows; begin += chunk) {
        const int end = begin + chunk < n_rows ? begin + chunk : n_rows;
        for (int tile = args.tile_begin; tile < args.tile_end; ++tile)
            for (int part = 0; part < kParts; ++part)
                for (int row = begin; row < end; row += kBlock)
                    multiply_float_part<kFormat, kBlock, 1>(args, tile, part, row);
    }
}

template <WeightFormat kFormat>
static void multiply_float(const GemmArgs &args) {
    int row = args.n_rows / 8 * 8;
    multiply_float_blocks<kFormat>(args, row);
    for (; row + 4 <= args.n_rows; row += 4) multiply_float_rows<kFormat, 4, 1>(args, row);
    for (; row + 2 <= args.n_rows; row += 2) multiply_float_rows<kFormat, 2, 2>(args, row);
    for (; row < args.n_rows; ++row) multiply_float_rows<kFormat, 1, 4>(args, row);
}

}  // namespace pj::cpu::PJ_ISA
