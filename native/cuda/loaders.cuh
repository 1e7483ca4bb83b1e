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
        task.all_rows = word(7);
        task.stage = word(8);
        task.n_ctas = word(10);
        body(task);
    }
}

// Lane g < kGroups acts for group g: the units that the group multiplies in a step of few rows; none for the
// other lanes.
__device__ __forceinline__ UnitRange units_of_lane(const LoadTask &task, int lane) {
    if (lane >= kGroups) return {0, 0};
    return worker_range(task.n_blocks * task.k_units, split_cta(task.first_cta) * kGroups + lane, task.n_ctas);
}

// Calls body(mine) until every lane has had its n turns, `width` lanes at a time; mine: this lane has one.
template <class Body>
__device__ __forceinline__ void for_each_round(int n, int width, int lane, const Body &body) {
    const int rounds = __reduce_max_sync(~0u, n);
    for (int i = 0; i < rounds; ++i)
        for (int first = 0; first < kGroups; first += width) body(i < n && lane >= first && lane < first + width);
}

__device__ __forceinline__ void load_weights(const StepArgs &s, const ByteRing &ring, int lane) {
    ByteRingWriter writer(ring, s.wide ? 0 : evict_first_policy(), lane);
    uint32_t cursor = 0;
    for_each_task(s, lane, [&](const LoadTask &task) {
        const int width = writer.round_lanes(task.unit_bytes);
        // Of the lane's group, consecutive units from `unit` on.
        const auto push_units = [&](int unit, int n) {
            const uint8_t *source = task.weight + static_cast<int64_t>(unit) * task.unit_bytes;
            for_each_round(n, width, lane, [&](bool mine) {
                writer.push(mine, source, task.unit_bytes);
                if (mine) source += task.unit_bytes;
            });
        };
        if (!s.wide) {
            const UnitRange units = units_of_lane(task, lane);
            return push_units(units.begin, units.size());
        }
        const int n_rows = gemm_rows(s, task.all_rows);
        const WideItems items(task.n_blocks, n_rows, gemm_tiles(s, n_rows, task.n_blocks), cursor);
        for (int item = items.first; item < items.n; item += gridDim.x) {
            const int block = items.quad(item) * kGroups + lane;
            push_units(block * task.k_units, lane < kGroups && block < task.n_blocks ? task.k_units : 0);
        }
    });
}

// Narrow steps: a tile for every unit, in the ring of the group that multiplies it.
struct NarrowActs {
    const SlotRing ring;  // of the lane's group
    uint32_t use = 0;

    __device__ __forceinline__ void load(const StepArgs &s, const LoadTask &task, const ActTile *act, int n_tiles,
                                         int lane) {
        const UnitRange units = units_of_lane(task, lane);
        int k = static_cast<int>(static_cast<unsigned>(units.begin) % task.k_units);
        const int64_t stride = s.row_tiles;
        const int bytes = n_tiles * static_cast<int>(sizeof(ActTile));
        for_each_round(units.size(), kGroups, lane, [&](bool mine) {
            if (mine) ring.wait_empty(use);
            __syncwarp();
            copy_to_slots(mine, ring.slot(use), act + k * stride, bytes, ring.full_of(use), lane, 0);
            use += mine;
            if (++k == task.k_units) k = 0;
        });
    }
};

// Wide steps: a tile for all groups, in the first ring, which is all there is.
struct WideActs {
    const SlotRing &ring;
    uint32_t use = 0, cursor = 0;

    __device__ __forceinline__ void load(const StepArgs &s, const LoadTask &task, const ActTile *act, int n_rows,
                                         int lane) {
        const int n_tiles = (n_rows + 7) / 8, tiles = gemm_tiles(s, n_rows, task.n_blocks);
        const WideItems items(task.n_blocks, n_rows, tiles, cursor);
        for (int item = items.first; item < items.n; item += gridDim.x) {
            const int tile = items.row_group(item) * tiles;
            const int bytes = min(tiles, n_tiles - tile) * static_cast<int>(sizeof(ActTile));
            for (int k = 0; k < task.k_units; ++k, ++use) {
                ring.wait_empty(use);
                copy_to_slot(ring.slot(use), act + static_cast<int64_t>(k) * s.row_tiles + tile, bytes,
                             ring.full_of(use), lane, 0);
            }
        }
    }
};

__device__ __forceinline__ void load_activations(const StepArgs &s, const SlotRing &rings, int lane) {
    NarrowActs narrow = {s.wide ? rings : rings.of(min(lane, kGroups - 1))};
    WideActs wide = {rings};
    for_each_task(s, lane, [&](const LoadTask &task) {
        if (lane == 0) wait_stage(s.buf.barrier, task.stage);
        __syncwarp();
        fence_for_copies();
        const ActTile *act = task.act_span == 256 ? s.buf.act256 : s.buf.act32;
        const int n_rows = gemm_rows(s, task.all_rows);
        if (s.wide)
            wide.load(s, task, act, n_rows, lane);
        else
            narrow.load(s, task, act, (n_rows + 7) / 8, lane);
    });
}

}  // namespace pj::cuda
