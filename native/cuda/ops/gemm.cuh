// Weights times quantised rows: which units a group of warps multiplies, and where the sums go.
//
// Order of sums: integers are exact within a unit (256 inputs); the units of a piece (split.h) are
// added in order, then the pieces of a block. Steps of few rows: a CTA computes its own range of
// slices, stores pieces, and readers add them. Wide steps: a CTA takes whole blocks, as many as it has
// teams of warps, and a group of rows, reads every weight once for them, and adds the same pieces in the
// same order itself.
#pragma once

#include <type_traits>

#include "cuda/ops/multiply_few.cuh"
#include "cuda/ops/products.cuh"
#include "cuda/ops/warpgroup_unit.cuh"
#include "cuda/sync/grid.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

// Warps that multiply a block in wide steps: a warpgroup where there are products of warpgroups.
constexpr int kWideTeamWarps = kWarpgroups ? 4 : 2;
constexpr int kWideBlocks = kConsumerWarps / kWideTeamWarps;  // neighbouring blocks of a CTA's item

__device__ __forceinline__ int wide_spans(int n_blocks) {
    return static_cast<int>(static_cast<unsigned>(n_blocks + kWideBlocks - 1) / kWideBlocks);
}

__device__ __forceinline__ int gemm_rows(const StepArgs &s, int32_t rows) {
    return rows == kRowsAll ? s.n_rows : rows == kRowsSelected ? s.n_selected : s.draft.n;
}

// Row tiles that share one read of the weights. In wide steps eight, unless half of that deals the items much more
// evenly to the CTAs: the last round of a matrix with few blocks would keep few of them busy.
__device__ __forceinline__ int gemm_tiles(const StepArgs &s, int n_rows, int n_blocks) {
    const int tiles = (n_rows + 7) / 8;
    if (!s.wide) return tiles <= 4 ? tiles : 8;
    if (kWarpgroups) return kWarpgroupTiles;
    if (tiles <= 4 || s.pass_tiles == 4) return 4;
    const unsigned spans = wide_spans(n_blocks), grid = gridDim.x;
    const unsigned rounds8 = (spans * ((tiles + 7) / 8) + grid - 1) / grid * 2;
    const unsigned rounds4 = (spans * ((tiles + 3) / 4) + grid - 1) / grid;
    return rounds4 * 8 <= rounds8 * 7 ? 4 : 8;
}

// This CTA's number in the split of a matrix.
__device__ __forceinline__ int split_cta(int first_cta) {
    const int cta = static_cast<int>(blockIdx.x) - first_cta;
    return cta < 0 ? cta + static_cast<int>(gridDim.x) : cta;
}

// Wide steps: the (blocks, row group) items of a matrix, dealt to the CTAs from the one after the
// last item of the matrix before.
struct WideItems {
    int n_groups, n, first;  // row groups, items, this CTA's first item

    __device__ __forceinline__ WideItems(int n_blocks, int n_rows, int tiles, uint32_t &cursor) {
        n_groups = (n_rows + tiles * 8 - 1) / (tiles * 8);
        n = wide_spans(n_blocks) * n_groups;
        const int grid = static_cast<int>(gridDim.x);
        first = static_cast<int>(blockIdx.x) - static_cast<int>(cursor);
        if (first < 0) first += grid;
        cursor = (cursor + n) % grid;
    }
    // Neighbouring items share their weights.
    __device__ __forceinline__ int first_block(int item) const { return item / n_groups * kWideBlocks; }
    __device__ __forceinline__ int row_group(int item) const { return item % n_groups; }
};

// Where a warp is in the rings: advanced by every matrix of every op, as the loaders advance.
struct RingUses {
    uint32_t weights, acts, cursor;
};

// What a warp keeps in shared memory while it multiplies. In registers it would be alive in calls, and so on the stack:
// in local memory, half a microsecond away when the memory is busy.
struct WarpState {
    RingUses uses;
    uint32_t acts_before;  // the op
    int gemm;              // of the op
};

__device__ __forceinline__ WarpState &warp_state() {
    __shared__ WarpState states[kConsumerWarps];
    return states[threadIdx.x >> 5];
}

struct Rings {
    ByteRing weights;
    SlotRing acts;
};

__device__ __forceinline__ Rings divide_shared(const StepArgs &s) {
    const int slot_bytes = s.pass_tiles * static_cast<int>(sizeof(ActTile));
    const uint32_t slots = shared_address(kActSlots);
    return {{slots + s.act_slots * slot_bytes, s.ring_bytes},
            {slots, shared_address(kActFull), shared_address(kActEmpty), s.act_slots, slot_bytes}};
}

// An item may have no block for a team: it only lets go of the activations.
__device__ __forceinline__ void skip_units(int n, const SlotRing &acts, RingUses &uses, int lane) {
    for (int i = 0; i < n; ++i, ++uses.acts) {
        acts.wait_full(uses.acts);
        if (lane == 0) acts.release(uses.acts);
    }
}

// The next units of one output block that a group adds up.
struct Piece {
    int n_units;
    float *out;  // of the block's first output and the rows' first
    int64_t row_stride;
    int n_rows;  // of the step, from the first on
    bool add;    // to what is there
};

// Steps of few rows: the CTA's range, quad by quad.
struct NarrowPieces {
    const StepArgs &s;
    const Gemm &gemm;
    const int group, n_rows;
    RingUses &uses;
    int cta, slice, end;

    __device__ __forceinline__ NarrowPieces(const StepArgs &s, const Gemm &gemm, int group, int n_rows, RingUses &uses)
        : s(s), gemm(gemm), group(group), n_rows(n_rows), uses(uses), cta(split_cta(gemm.first_cta)) {
        const SliceRange range = cta_range(slices_of(gemm.n_blocks, gemm.k_units), cta, gemm.n_ctas);
        slice = range.begin;
        end = range.end;
    }

    __device__ __forceinline__ bool next(Piece &p, const SlotRing &acts, int lane) {
        if (slice >= end) return false;
        const int quad = static_cast<int>(static_cast<unsigned>(slice) / gemm.k_units), block = quad * kGroups + group;
        p.n_units = min(end, (quad + 1) * gemm.k_units) - slice;
        slice += p.n_units;
        if (block >= gemm.n_blocks) {  // only the last quad has fewer
            skip_units(p.n_units, acts, uses, lane);
            return false;
        }
        p.row_stride = kUnitOutputs;
        p.out = gemm.out + static_cast<int64_t>(piece_slot(block, cta)) * s.piece_rows * kUnitOutputs;
        p.n_rows = n_rows;
        p.add = false;
        return true;
    }
};

// Wide steps: one block of every quad, cut where the CTAs of a step of few rows would begin.
struct WidePieces {
    const StepArgs &s;
    const Gemm &gemm;
    const int team, tiles, n_rows, n_slices;
    WideItems items;
    RingUses &uses;
    int item, slice = 0, quad_end = 0, cta = 0;

    __device__ __forceinline__ WidePieces(const StepArgs &s, const Gemm &gemm, int team, int n_rows, int tiles,
                                          RingUses &uses)
        : s(s),
          gemm(gemm),
          team(team),
          tiles(tiles),
          n_rows(n_rows),
          n_slices(slices_of(gemm.n_blocks, gemm.k_units)),
          items(gemm.n_blocks, n_rows, tiles, uses.cursor),
          uses(uses),
          item(items.first - static_cast<int>(gridDim.x)) {}

    __device__ __forceinline__ bool next_item(const SlotRing &acts, int lane) {
        for (item += gridDim.x; item < items.n; item += gridDim.x) {
            const int block = items.first_block(item) + team;
            if (block < gemm.n_blocks) {
                slice = static_cast<int>(static_cast<unsigned>(block) / kGroups) * gemm.k_units;
                quad_end = slice + gemm.k_units;
                cta = cta_of(n_slices, slice, gemm.n_ctas);
                return true;
            }
            skip_units(gemm.k_units, acts, uses, lane);
        }
        return false;
    }

    __device__ __forceinline__ bool next(Piece &p, const SlotRing &acts, int lane) {
        const bool first = slice == quad_end;
        if (first && !next_item(acts, lane)) return false;
        const int row = items.row_group(item) * tiles * 8;
        const int block = items.first_block(item) + team;
        p.n_units = min(quad_end, cta_range(n_slices, cta++, gemm.n_ctas).end) - slice;
        p.row_stride = static_cast<int64_t>(gemm.n_blocks) * kUnitOutputs;
        p.out = gemm.out + row * p.row_stride + block * kUnitOutputs;
        p.n_rows = min(tiles * 8, n_rows - row);
        p.add = !first;
        slice += p.n_units;
        return true;
    }
};

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
template <class Multiply>
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
                weights.release(team, uses.weights);
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
        loaded.add_to(acc, at);
    }
    __device__ __forceinline__ void store(const Piece &p, int first_tile, int) const {
#pragma unroll
        for (int i = 0; i < P; ++i)
            if (at.row(i) < p.n_rows) __stcg(p.out + at.row(i) * p.row_stride + first_tile * 16 + at.output(i), acc[i]);
    }
};

// Runs body(rings, uses) with the warp's uses of them, which it advances.
template <class Body>
__device__ __forceinline__ void with_rings(const StepArgs &s, const Body &body) {
    RingUses uses = warp_state().uses;
    body(divide_shared(s), uses);
    __syncwarp();
    if (threadIdx.x % 32 == 0) warp_state().uses = uses;
    __syncwarp();
}

template <class Products, bool kWide>
__device__ __noinline__ void gemm_tiled(const StepArgs &s, const Gemm &gemm, int n_rows) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = warp / 2, first_tile = warp % 2 * kWarpTiles;
    with_rings(s, [&](const Rings &rings, RingUses &uses) {
        const auto run = [&](const Piece &p) {
            Products products;
            for_each_unit(p.n_units, group, rings.weights, rings.acts, uses,
                          [&](const uint8_t *unit, uint32_t act, const auto &release) {
                              products.add(unit, act, first_tile, lane, release);
                          });
            products.store(p, first_tile, lane);
        };
        Piece p;
        if constexpr (kWide) {
            WidePieces pieces(s, gemm, group, n_rows, Products::kTiles, uses);
            while (pieces.next(p, rings.acts, lane)) run(p);
        } else {
            NarrowPieces pieces(s, gemm, group, n_rows, uses);
            while (pieces.next(p, rings.acts, lane)) run(p);
        }
    });
}

// Wide steps by warpgroups, of which a warp has one tile of outputs. Not a function of its own: the assembler would
// wait for every product before it begins the next.
template <int kFormat>
__device__ __forceinline__ void gemm_warpgroups(const StepArgs &s, const Gemm &gemm, int n_rows) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, team = warp / kWideTeamWarps, tile = warp % 4;
    with_rings(s, [&](const Rings &rings, RingUses &uses) {
        WidePieces pieces(s, gemm, team, n_rows, kWarpgroupTiles, uses);
        Piece p;
        while (pieces.next(p, rings.acts, lane)) {
            float acc[1][kWarpgroupTiles][4] = {};
            for_each_unit(p.n_units, team, rings.weights, rings.acts, uses,
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
    const auto run_as = [&](auto products, auto wide) {
        gemm_tiled<typename decltype(products)::Type, wide>(s, gemm, n_rows);
    };
    const auto run = [&](auto n_tiles, auto wide) { run_as(As<TileProducts<kFormat, n_tiles>>{}, wide); };
    using Narrow = std::false_type;
    using Wide = std::true_type;
    if constexpr (kWarpgroups)
        if (s.wide) return gemm_warpgroups<kFormat>(s, gemm, n_rows);
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
            return run(Tiles<8>{}, Narrow{});
    }
}

}  // namespace pj::cuda
