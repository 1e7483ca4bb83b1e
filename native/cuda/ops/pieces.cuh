// Which units of a matrix a group of warps multiplies, and where their sums go: pieces of blocks, cut by split.h.
#pragma once

#include "cuda/ops/products.cuh"
#include "cuda/ops/warp_state.cuh"
#include "cuda/ops/warpgroup_unit.cuh"

namespace pj::cuda {

// Warps that multiply a block with eight row tiles: a warpgroup where there are products of warpgroups.
constexpr int kTeamWarps = kWarpgroups ? 4 : 2;
constexpr int kTeamBlocks = kConsumerWarps / kTeamWarps;  // neighbouring blocks that a CTA multiplies side by side

__device__ __forceinline__ int wide_spans(int n_blocks) {
    return static_cast<int>(static_cast<unsigned>(n_blocks + kTeamBlocks - 1) / kTeamBlocks);
}

__device__ __forceinline__ int gemm_rows(const StepArgs &s, int32_t rows) {
    return rows == kRowsAll ? s.n_rows : rows == kRowsSelected ? s.n_selected : s.draft.n;
}

// Row tiles that share one read of the weights. In wide steps eight, unless half of that deals the items much more
// evenly to the CTAs: the last round of a matrix with few blocks would keep few of them busy.
__device__ __forceinline__ int gemm_tiles(const StepArgs &s, int n_rows, int n_blocks) {
    const int tiles = (n_rows + 7) / 8;
    // All matrices of a launch are for the same teams of warps: whose pieces of weights come next is known by team.
    if (!s.wide) return s.pass_tiles < kPassTiles ? tiles : kPassTiles;
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

// Steps of few rows: the slices of a CTA; of: a Gemm or a LoadTask.
template <class Of>
__device__ __forceinline__ SliceRange slices_of_cta(const Of &of, int cta) {
    return cta_range(slices_of(of.n_blocks, of.k_units), cta, of.n_ctas);
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
    __device__ __forceinline__ int first_block(int item) const { return item / n_groups * kTeamBlocks; }
    __device__ __forceinline__ int row_group(int item) const { return item % n_groups; }
};

// Steps of few rows with room for more than four row tiles: turns in which a CTA multiplies its slices of a quad, one
// for every kTeamBlocks of its blocks and 64 rows.
struct QuadTurns {
    int first, n_groups, n;  // block, row groups, turns

    __device__ __forceinline__ QuadTurns(int quad, int n_blocks, int n_rows)
        : first(quad * kGroups),
          n_groups((n_rows + kPassTiles * 8 - 1) / (kPassTiles * 8)),
          n((min(kGroups, n_blocks - first) + kTeamBlocks - 1) / kTeamBlocks * n_groups) {}
    __device__ __forceinline__ int first_block(int turn) const { return first + turn / n_groups * kTeamBlocks; }
    __device__ __forceinline__ int row_group(int turn) const { return turn % n_groups; }
};

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

// Of a step of few rows: where the piece of a block goes, and which rows, from `row` on.
__device__ __forceinline__ void place_piece(Piece &p, const StepArgs &s, const Gemm &gemm, int block, int cta, int row,
                                            int n_rows) {
    p.row_stride = kUnitOutputs;
    p.out = gemm.out + static_cast<int64_t>(piece_slot(block, cta)) * piece_rows(s, gemm) * kUnitOutputs +
            row * kUnitOutputs;
    p.n_rows = n_rows;
    p.add = false;
}

// Steps of few rows: the CTA's range, quad by quad.
struct NarrowPieces {
    const StepArgs &s;
    const Gemm &gemm;
    const int group, n_rows;
    RingUses &uses;
    int cta, slice, end;

    __device__ __forceinline__ NarrowPieces(const StepArgs &s, const Gemm &gemm, int group, int n_rows, int,
                                            RingUses &uses)
        : s(s), gemm(gemm), group(group), n_rows(n_rows), uses(uses), cta(split_cta(gemm.first_cta)) {
        const SliceRange range = slices_of_cta(gemm, cta);
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
        place_piece(p, s, gemm, block, cta, 0, n_rows);
        return true;
    }
};

// The same range, by QuadTurns.
struct QuadPieces {
    const StepArgs &s;
    const Gemm &gemm;
    const int team, n_rows;
    RingUses &uses;
    int cta, slice, end, n_units = 0, turn = 0;
    QuadTurns turns{0, 0, 0};

    __device__ __forceinline__ QuadPieces(const StepArgs &s, const Gemm &gemm, int team, int n_rows, int,
                                          RingUses &uses)
        : s(s), gemm(gemm), team(team), n_rows(n_rows), uses(uses), cta(split_cta(gemm.first_cta)) {
        const SliceRange range = slices_of_cta(gemm, cta);
        slice = range.begin;
        end = range.end;
    }

    __device__ __forceinline__ bool next_quad() {
        slice += n_units;
        if (slice >= end) return false;
        const int quad = static_cast<int>(static_cast<unsigned>(slice) / gemm.k_units);
        n_units = min(end, (quad + 1) * gemm.k_units) - slice;
        turns = QuadTurns(quad, gemm.n_blocks, n_rows);
        turn = 0;
        return true;
    }

    __device__ __forceinline__ bool next(Piece &p, const SlotRing &acts, int lane) {
        for (;; skip_units(n_units, acts, uses, lane)) {
            if (turn == turns.n && !next_quad()) return false;
            const int block = turns.first_block(turn) + team, row = turns.row_group(turn) * kPassTiles * 8;
            ++turn;
            if (block >= gemm.n_blocks) continue;
            p.n_units = n_units;
            place_piece(p, s, gemm, block, cta, row, min(kPassTiles * 8, n_rows - row));
            return true;
        }
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

}  // namespace pj::cuda
