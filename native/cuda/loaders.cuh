// The two loader warps: they walk the list of matrices and fill the rings of the consumers.
//
// Weights depend on nothing, so their loader runs ahead into the next matrices as far as the ring
// reaches. Activations wait for the stage that makes them.
#pragma once

#include "cuda/ops/gemm.cuh"

namespace pj::cuda {

// Calls body(task) for every tiled matrix; a task's words arrive while the one before is loaded.
template <class Body>
__device__ __forceinline__ void for_each_task(const StepArgs &s, int lane, const Body &body) {
    const auto fetch = [&](int i) {
        return i < s.n_tasks ? reinterpret_cast<const uint32_t *>(s.tasks + i)[lane % 16] : 0u;
    };
    uint32_t next = fetch(0);
    for (int i = 0; i < s.n_tasks; ++i) {
        const uint32_t words = next;
        next = fetch(i + 1);
        const auto word = [&](int at) { return __shfl_sync(~0u, words, at); };
        LoadTask task;
        task.weight = reinterpret_cast<const uint8_t *>(word(0) | static_cast<uint64_t>(word(1)) << 32);
        task.n_blocks = word(2);
        task.k_units = word(3);
        task.unit_bytes = word(4);
        task.first_cta = word(5);
        task.act_span = word(6);
        task.rows = word(7);
        task.stage = word(8);
        task.n_ctas = word(10);
        task.mapped = word(11);
        body(task);
    }
}

// Lane g < kGroups acts for group g. Calls body(mine) until every lane has had its n turns, `width` lanes at a time;
// mine: this lane has one.
template <class Body>
__device__ __forceinline__ void for_each_round(int n, int width, int lane, const Body &body) {
    const int rounds = __reduce_max_sync(~0u, n);
    for (int i = 0; i < rounds; ++i)
        for (int first = 0; first < kGroups; first += width) body(i < n && lane >= first && lane < first + width);
}

// Steps of few rows: calls body(quad, first k, slices of it) for the CTA's range of a matrix.
template <class Body>
__device__ __forceinline__ void for_each_quad(const LoadTask &task, const Body &body) {
    const SliceRange range = slices_of_cta(task, split_cta(task.first_cta));
    for (int slice = range.begin; slice < range.end;) {
        const int quad = static_cast<int>(static_cast<unsigned>(slice) / task.k_units), k = slice - quad * task.k_units;
        const int n = min(range.end - slice, task.k_units - k);
        body(quad, k, n);
        slice += n;
    }
}

// The same by QuadTurns: body(turns, turn, first k, slices).
template <class Body>
__device__ __forceinline__ void for_each_turn(const LoadTask &task, int n_rows, const Body &body) {
    for_each_quad(task, [&](int quad, int k, int n) {
        const QuadTurns turns(quad, task.n_blocks, n_rows);
        for (int turn = 0; turn < turns.n; ++turn) body(turns, turn, k, n);
    });
}

__device__ __forceinline__ void load_weights(const StepArgs &s, const ByteRing &ring, int lane) {
    const bool read_once = !s.wide && s.n_rows <= kPassTiles * 8;
    ByteRingWriter writer(ring, read_once ? evict_first_policy() : 0, lane);
    uint32_t cursor = 0;
    for_each_task(s, lane, [&](const LoadTask &task) {
        const int width = writer.round_lanes(task.unit_bytes);
        // The lane's units of n slices of n_lanes blocks, from k on.
        const auto push_units = [&](int first_block, int n_lanes, int k, int n) {
            const int block = first_block + lane;
            const bool exists = lane < n_lanes && block < task.n_blocks;
            const int of_matrix = task.mapped && exists ? __ldg(s.draft.head_blocks + block) : block;
            const uint8_t *source = task.weight + static_cast<int64_t>(of_matrix * task.k_units + k) * task.unit_bytes;
            for_each_round(exists ? n : 0, width, lane, [&](bool mine) {
                writer.push(mine, source, task.unit_bytes);
                if (mine) source += task.unit_bytes;
            });
        };
        const int n_rows = gemm_rows(s, task.rows), tiles = gemm_tiles(s, n_rows, task.n_blocks);
        if (!s.wide && tiles < kPassTiles)
            return for_each_quad(task, [&](int quad, int k, int n) { push_units(quad * kGroups, kGroups, k, n); });
        if (!s.wide)
            return for_each_turn(task, n_rows, [&](const QuadTurns &turns, int turn, int k, int n) {
                push_units(turns.first_block(turn), kTeamBlocks, k, n);
            });
        const WideItems items(task.n_blocks, n_rows, tiles, cursor);
        for (int item = items.first; item < items.n; item += gridDim.x)
            push_units(items.first_block(item), kTeamBlocks, 0, task.k_units);
    });
}

// A tile for every slice, for all groups.
__device__ __forceinline__ void load_activations(const StepArgs &s, const SlotRing &ring, int lane) {
    uint32_t use = 0, cursor = 0;
    for_each_task(s, lane, [&](const LoadTask &task) {
        bool waited = false;  // just before the first copy: what to copy where is found meanwhile
        const auto wait = [&] {
            if (waited) return;
            waited = true;
            if (lane == 0) wait_stage(s.buf.barrier, task.stage);
            __syncwarp();
            if (s.pass_tiles == kPassTiles) fence_for_copies();
        };
        const ActTile *act = task.act_span == 256 ? s.buf.act256 : s.buf.act32;
        const int n_rows = gemm_rows(s, task.rows), n_tiles = (n_rows + 7) / 8;
        // n slices from k on, of the row tiles from `tile` on.
        const auto load = [&](int tile, int most_tiles, int k, int n) {
            const int bytes = min(most_tiles, n_tiles - tile) * static_cast<int>(sizeof(ActTile));
            for (int end = k + n; k < end; ++k, ++use) {
                ring.wait_empty(use);
                const ActTile *from = act + static_cast<int64_t>(k) * s.row_tiles + tile;
                wait();
                if (s.pass_tiles == kPassTiles)
                    copy_to_slot(ring.slot(use), from, bytes, ring.full_of(use), lane, 0);
                else
                    copy_by_lanes(ring.slot(use), from, bytes, ring.full_of(use), lane);
            }
        };
        const int tiles = gemm_tiles(s, n_rows, task.n_blocks);
        if (!s.wide && tiles < kPassTiles)
            return for_each_quad(task, [&](int, int k, int n) { load(0, n_tiles, k, n); });
        if (!s.wide)
            return for_each_turn(task, n_rows, [&](const QuadTurns &turns, int turn, int k, int n) {
                load(turns.row_group(turn) * kPassTiles, kPassTiles, k, n);
            });
        const WideItems items(task.n_blocks, n_rows, tiles, cursor);
        for (int item = items.first; item < items.n; item += gridDim.x)
            load(items.row_group(item) * tiles, tiles, 0, task.k_units);
    });
}

}  // namespace pj::cuda
