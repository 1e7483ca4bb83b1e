// Gated delta net: convolution and recurrence of half a value head of a sequence per CTA.
//
// Columns of a state are independent, so halves are: a step of one sequence keeps twice as many CTAs
// busy, and the items of several sequences spread more evenly. Rows come in batches of eight: all warps
// make the batch (gdn_batch.cuh), then each runs its columns alone (gdn_recurrence.cuh). The inputs of
// a batch are loaded while the one before it runs. The gated norm needs whole heads (gdn_heads.cuh).
#pragma once

#include "cuda/ops/gdn_recurrence.cuh"
#include "cuda/sync/grid.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

__device__ __forceinline__ void gdn_rows(const GdnItem &item, const GdnShare &share, GdnScratch &scratch) {
    const GdnInput &in = item.in;
    GdnRaw raw;
    raw.load(in, share, 0);
    GdnState state;
    state.load(item);
    put_window(item, scratch);
    put_factors(in, scratch, 0);
#pragma unroll 1
    for (int first = 0; first < in.n_total; first += kGdnBatch) {
        raw.finish(in, share, first);
        raw.put(scratch, share, first);
        consumers_sync();  // inputs and factors are there; all warps are done with the batch before
        prepare(scratch, raw, item, share, first);
        consumers_sync();
        if (first + kGdnBatch < in.n_total) {
            raw.load(in, share, first + kGdnBatch);
            put_factors(in, scratch, first + kGdnBatch);
        }
        recur_batch(state, item, scratch.rows, first);
    }
}

__device__ __forceinline__ GdnItem gdn_item(const StepArgs &s, const Op &op, int item) {
    const int per_seq = s.shape.n_gdn_head_v * 2;
    return GdnItem(s, op, s.seqs[item / per_seq], item % per_seq / 2, item % 2);
}

// What an item will read of earlier launches comes to the L2 cache: of the first items before the wait,
// of the others some items ahead.
__device__ __forceinline__ void prefetch_item(const StepArgs &s, const Op &op, int i) {
    if (i >= s.n_seqs * s.shape.n_gdn_head_v * 2) return;
    const GdnItem item = gdn_item(s, op, i);
    GdnState::prefetch_all(item);
    prefetch_inputs(item);
}

template <class Wait>
__device__ __noinline__ void op_gdn(const StepArgs &s, const Op &op, const Wait &wait) {
    constexpr int kAhead = 3;
    GdnScratch &scratch = *reinterpret_cast<GdnScratch *>(scratch_memory());
    const int n_items = s.n_seqs * s.shape.n_gdn_head_v * 2, stride = gridDim.x;
#pragma unroll 1
    for (int ahead = 0; ahead < kAhead; ++ahead) prefetch_item(s, op, blockIdx.x + ahead * stride);
    // Where the next item's inputs are.
    GdnShare share(gdn_item(s, op, min(static_cast<int>(blockIdx.x), n_items - 1)));
    wait();
#pragma unroll 1
    for (int i = blockIdx.x; i < n_items; i += stride) {
        prefetch_item(s, op, i + kAhead * stride);
        gdn_rows(gdn_item(s, op, i), share, scratch);
        if (i + stride < n_items) share = GdnShare(gdn_item(s, op, i + stride));
    }
}

}  // namespace pj::cuda
