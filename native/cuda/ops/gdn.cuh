// Gated delta net: the recurrence of half a value head of a sequence per CTA.
//
// Columns of a state are independent, so halves are: a step of one sequence keeps twice as many CTAs
// busy, and the items of several sequences spread more evenly. Rows (gdn_convolve.cuh) come in batches of
// eight through shared memory; each warp runs its columns alone. What comes next, of this item or the next
// one, is on its way meanwhile. The gated norm needs whole heads (gdn_heads.cuh).
#pragma once

#include "cuda/ops/gdn_recurrence.cuh"
#include "cuda/sync/grid.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

struct GdnScratch {
    GdnRow rows[2][kGdnBatch];
};
static_assert(sizeof(GdnScratch) <= kScratchBytes, "scratch");

__device__ __forceinline__ GdnItem gdn_item(const StepArgs &s, int layer, int index) {
    const int per_seq = s.shape.n_gdn_head_v * 2, sequence = static_cast<int>(static_cast<unsigned>(index) / per_seq);
    const int part = index - sequence * per_seq;
    return {GdnRows(s, s.seqs[sequence], sequence), layer, part / 2, part % 2};
}

// All items of a CTA: index, index + stride, ... below n, at least one. Rows come after wait().
template <class Wait>
__device__ __forceinline__ void run_gdn_items(const StepArgs &s, const GdnItem &first_item, int index, int n,
                                              int stride, GdnScratch &scratch, const Wait &wait) {
    constexpr int kAhead = 2;  // items whose states come to the L2 cache
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    GdnItem item = first_item, next = first_item;
    GdnRowLoad load = {};
    GdnState state, next_state;
    next_state.load(s, item);
    wait();
    load.load(s, item, warp, lane);
    int turn = 0;
#pragma unroll 1
    for (; index < n; index += stride) {
        if (index + kAhead * stride < n) GdnState::prefetch_all(s, gdn_item(s, item.layer, index + kAhead * stride));
        state = next_state;
#pragma unroll 1
        for (int first = 0; first < item.rows.n_total; first += kGdnBatch, turn ^= 1) {
            if (first + warp < item.rows.n_total) load.put(scratch.rows[turn][warp], lane);
            consumers_sync();  // the batch is there; all warps are done with the one before the last
            if (first + kGdnBatch < item.rows.n_total) {
                load.load(s, item, first + kGdnBatch + warp, lane);
            } else if (index + stride < n) {
                next = gdn_item(s, item.layer, index + stride);
                load.load(s, next, warp, lane);
                next_state.load(s, next);
            }
            recur_batch(s, state, item, scratch.rows[turn], first);
        }
        item = next;
    }
}

template <class Wait>
__device__ __noinline__ void op_gdn(const StepArgs &s, const Op &op, Wait wait) {
    const int n = s.n_seqs * s.shape.n_gdn_head_v * 2, index = blockIdx.x, stride = gridDim.x;
    if (index >= n) return wait();
    if (index + stride < n) GdnState::prefetch_all(s, gdn_item(s, op.layer, index + stride));
    run_gdn_items(s, gdn_item(s, op.layer, index), index, n, stride, *reinterpret_cast<GdnScratch *>(scratch_memory()),
                  wait);
}

}  // namespace pj::cuda
