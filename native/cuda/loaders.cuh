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
        body(task);
    }
}

// Calls body(unit, group) for the units of a CTA: one for each group in turn.
template <class Body>
__device__ __forceinline__ void for_each_unit(const LoadTask &task, const Body &body) {
    const UnitRange units = cta_range(task.n_blocks * task.k_units, split_cta(task.first_cta), gridDim.x);
    const int n = units.size();
    for (int i = 0; i < n; ++i) {
        const int group = i % kGroups;
        body(units.begin + group_range(n, group).begin + i / kGroups, group);
    }
}

// Pieces so far of every group, one per lane.
class GroupCounts {
  public:
    __device__ __forceinline__ uint32_t next(int group, int lane) {
        const uint32_t use = __shfl_sync(~0u, count_, group);
        if (lane == group) ++count_;
        return use;
    }

  private:
    uint32_t count_ = 0;
};

__device__ __forceinline__ void load_weights(const StepArgs &s, const ByteRing &ring, int lane) {
    ByteRingWriter writer(ring, s.wide ? 0 : evict_first_policy());
    GroupCounts counts;
    uint32_t cursor = 0;
    for_each_task(s, lane, [&](const LoadTask &task) {
        const auto push = [&](int unit, int group) {
            writer.push(task.weight + static_cast<int64_t>(unit) * task.unit_bytes, task.unit_bytes, group,
                        counts.next(group, lane), lane);
        };
        if (!s.wide) return for_each_unit(task, push);
        const int n_rows = gemm_rows(s, task.all_rows);
        const WideItems items(task.n_blocks, n_rows, gemm_tiles(s, n_rows, task.n_blocks), cursor);
        for (int item = items.first; item < items.n; item += gridDim.x) {
            const int block = items.quad(item) * kGroups, n = min(kGroups, task.n_blocks - block);
            for (int k = 0; k < task.k_units; ++k)
                for (int group = 0; group < n; ++group) push((block + group) * task.k_units + k, group);
        }
    });
}

// Narrow steps: a tile for every unit, in the ring of the group that multiplies it.
struct NarrowActs {
    const SlotRing &rings;
    GroupCounts counts;

    __device__ __forceinline__ void load(const StepArgs &s, const LoadTask &task, const ActTile *act, int n_tiles,
                                         int lane) {
        for_each_unit(task, [&](int unit, int group) {
            const SlotRing ring = rings.of(group);
            const uint32_t use = counts.next(group, lane);
            const int k = static_cast<int>(static_cast<unsigned>(unit) % task.k_units);
            ring.wait_empty(use);
            copy_to_slot(ring.slot(use), act + static_cast<int64_t>(k) * s.row_tiles,
                         n_tiles * static_cast<int>(sizeof(ActTile)), ring.full_of(use), lane, 0);
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
    NarrowActs narrow = {rings, {}};
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
