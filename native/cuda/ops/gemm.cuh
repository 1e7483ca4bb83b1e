// Weights times quantised rows.
//
// Order of sums: integers are exact within a unit (256 inputs); the units of a piece (split.h) are
// added in order, then the pieces of a block. Steps of few rows: a CTA computes its own range of
// slices, stores pieces, and readers add them. Wide steps: a CTA takes whole blocks, as many as it has
// teams of warps, and a group of rows, reads every weight once for them, and adds the same pieces in the
// same order itself.
#pragma once

#include <type_traits>

#include "cuda/ops/multiply_few.cuh"
#include "cuda/ops/pieces.cuh"
#include "cuda/ops/warpgroup_unit.cuh"
#include "cuda/sync/grid.cuh"

namespace pj::cuda {

// kTiles tiles of outputs, from first_tile on.
template <int kTiles, int NT>
__device__ __forceinline__ void store_piece(const Piece &p, int first_tile, int lane,
                                            const float (&acc)[kTiles][NT][4]) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = n * 8 + 2 * t + j;
            if (row >= p.n_rows) continue;
            float *at = p.out + row * p.row_stride + first_tile * 16 + g;
            float value[2 * kTiles];
#pragma unroll
            for (int i = 0; i < 2 * kTiles; ++i) value[i] = acc[i / 2][n][i % 2 * 2 + j];
            if (p.add) {
#pragma unroll
                for (int i = 0; i < 2 * kTiles; ++i) value[i] = __ldcg(at + 8 * i) + value[i];
            }
#pragma unroll
            for (int i = 0; i < 2 * kTiles; ++i) __stcg(at + 8 * i, value[i]);
        }
}

// Calls multiply(unit of weights, activations, release) for n_units slices; both are shared addresses, and release()
// lets go of them.
template <int kTeamWarps, class Multiply>
__device__ __forceinline__ void for_each_unit(int n_units, int team, const ByteRing &weights, const SlotRing &acts,
                                              RingUses &uses, const Multiply &multiply) {
    const int lane = threadIdx.x & 31;
    for (int i = 0; i < n_units; ++i, ++uses.weights, ++uses.acts) {
        TraceLap lap;
        const uint8_t *w = shared_pointer<const uint8_t>(weights.wait_full(team, uses.weights));
        lap.add(kTraceWeightWait);
        acts.wait_full(uses.acts);
        lap.add(kTraceActWait);
        lap.count();
        __syncwarp();  // lanes leave the waits one by one, mma wants them together
        multiply(w, acts.slot(uses.acts), [&] {
            __syncwarp();
            if (lane == 0) {
                weights.release<kTeamWarps>(team, uses.weights);
                acts.release(uses.acts);
            }
        });
    }
}

// What a pair of warps adds up of a piece: NT row tiles.
template <int kFormat, int NT>
struct TileProducts {
    static constexpr int kTiles = NT;
    Accumulators<NT> acc = {};

    template <class Release>
    __device__ __forceinline__ void add(const uint8_t *unit, uint32_t act, int first_tile, int lane,
                                        const Release &release) {
        multiply_unit<kFormat, NT>(unit, shared_pointer<const ActTile>(act), first_tile, lane, acc);
        release();
    }
    __device__ __forceinline__ void store(const Piece &p, int first_tile, int lane) const {
        store_piece(p, first_tile, lane, acc);
    }
};

// One row (P = 1) or up to four (P = 4) of a step of few rows.
template <int kFormat, int P>
struct FewProducts {
    static constexpr int kTiles = 1;
    const FewLane<P> at{static_cast<int>(threadIdx.x & 31)};
    FewAccumulators<P> acc = {};

    template <class Release>
    __device__ __forceinline__ void add(const uint8_t *unit, uint32_t act, int first_tile, int lane,
                                        const Release &release) {
        FewUnit<kFormat, P> loaded;
        loaded.load(unit, *shared_pointer<const ActTile>(act), first_tile, lane, at);
        hold_order<1>();
        release();
        add_unit<P>(acc, loaded, at);
    }
    __device__ __forceinline__ void store(const Piece &p, int first_tile, int) const {
#pragma unroll
        for (int i = 0; i < P; ++i)
            if (at.row(i) < p.n_rows) __stcg(p.out + at.row(i) * p.row_stride + first_tile * 16 + at.output(i), acc[i]);
    }
};

// Pieces: NarrowPieces, QuadPieces or WidePieces.
template <class Products, class Pieces>
__device__ __noinline__ void gemm_tiled(const StepArgs &s, const Gemm &gemm, int n_rows) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = warp / 2, first_tile = warp % 2 * kWarpTiles;
    with_rings(s, [&](const Rings &rings, RingUses &uses) {
        Pieces pieces(s, gemm, group, n_rows, Products::kTiles, uses);
        Piece p;
        while (pieces.next(p, rings.acts, lane)) {
            Products products;
            for_each_unit<2>(p.n_units, group, rings.weights, rings.acts, uses,
                             [&](const uint8_t *unit, uint32_t act, const auto &release) {
                                 products.add(unit, act, first_tile, lane, release);
                             });
            products.store(p, first_tile, lane);
        }
    });
}

// By warpgroups, of which a warp has one tile of outputs. Not a function of its own: the assembler would wait for every
// product before it begins the next.
template <int kFormat, class Pieces>
__device__ __forceinline__ void gemm_warpgroups(const StepArgs &s, const Gemm &gemm, int n_rows) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, team = warp / kTeamWarps, tile = warp % 4;
    with_rings(s, [&](const Rings &rings, RingUses &uses) {
        Pieces pieces(s, gemm, team, n_rows, kWarpgroupTiles, uses);
        Piece p;
        while (pieces.next(p, rings.acts, lane)) {
            float acc[1][kWarpgroupTiles][4] = {};
            for_each_unit<4>(p.n_units, team, rings.weights, rings.acts, uses,
                             [&](const uint8_t *unit, uint32_t act, const auto &release) {
                                 warpgroup_unit<kFormat>(unit, act, tile, lane, acc[0]);
                                 release();
                             });
            store_piece(p, tile, lane, acc);
        }
    });
}

template <int kTiles>
using Tiles = std::integral_constant<int, kTiles>;

template <class T>
struct As {
    using Type = T;
};

template <int kFormat>
__device__ __forceinline__ void gemm_of_format(const StepArgs &s, const Gemm &gemm) {
    const int n_rows = gemm_rows(s, gemm.rows), tiles = gemm_tiles(s, n_rows, gemm.n_blocks);
    const auto run_as = [&](auto products, auto pieces) {
        gemm_tiled<typename decltype(products)::Type, typename decltype(pieces)::Type>(s, gemm, n_rows);
    };
    const auto run = [&](auto n_tiles, auto pieces) { run_as(As<TileProducts<kFormat, n_tiles>>{}, pieces); };
    using Narrow = As<NarrowPieces>;
    using Quads = As<QuadPieces>;
    using Wide = As<WidePieces>;
    if constexpr (kWarpgroups) {
        if (s.wide) return gemm_warpgroups<kFormat, WidePieces>(s, gemm, n_rows);
        if (tiles == kPassTiles) return gemm_warpgroups<kFormat, QuadPieces>(s, gemm, n_rows);
    }
    if (s.wide) return tiles == 4 ? run(Tiles<4>{}, Wide{}) : run(Tiles<8>{}, Wide{});
    if constexpr (kFormat == kTileQ4K || kFormat == kTileQ6K) {
        if (n_rows == 1) return run_as(As<FewProducts<kFormat, 1>>{}, Narrow{});
        if (n_rows <= 4) return run_as(As<FewProducts<kFormat, 4>>{}, Narrow{});
    }
    switch (tiles) {
        case 1:
            return run(Tiles<1>{}, Narrow{});
        case 2:
            return run(Tiles<2>{}, Narrow{});
        case 3:
            return run(Tiles<3>{}, Narrow{});
        case 4:
            return run(Tiles<4>{}, Narrow{});
        default:
            return run(Tiles<8>{}, Quads{});
    }
}

}  // namespace pj::cuda
