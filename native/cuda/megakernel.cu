// One persistent kernel per step: every CTA walks the same list of ops (program.h).
//
// Eight consumer warps compute; one warp streams weights into a ring in shared memory and never
// waits for other CTAs, so it is already inside the next matrix while the consumers wait; one warp
// brings the activations of the current matrix.
#include "cuda/megakernel.h"

#include "cuda/loaders.cuh"
#include "cuda/ops/attention.cuh"
#include "cuda/ops/draft.cuh"
#include "cuda/ops/gdn.cuh"
#include "cuda/ops/gdn_convolve.cuh"
#include "cuda/ops/gdn_heads.cuh"
#include "cuda/ops/gemm_generic.cuh"
#include "cuda/ops/merge_heads.cuh"
#include "cuda/ops/rotate.cuh"
#include "cuda/ops/rows.cuh"
#include "cuda/ops/sample.cuh"
#include "cuda/sync/registers.cuh"

namespace pj::cuda {

namespace {

__device__ __forceinline__ StepArgs (&step_args())[2] {
    __shared__ StepArgs both[2];  // of the step, of its drafts
    return both;
}

// What an op waits for: the stages before it. A number, so that it travels in a register.
struct StageWait {
    uint32_t stage;

    __device__ __forceinline__ void operator()() const { enter_stage(step_args()[0].buf.barrier, stage); }
    __device__ __forceinline__ void alone() const { wait_stage(step_args()[0].buf.barrier, stage); }
};

// Readers of a piece of weights are the warps of a team, those of activations all of them.
__device__ __forceinline__ void init_rings(int act_slots, bool bulk_acts) {
    for (int i = 0; i < kRingUses; ++i) {
        barrier_init(ByteRing::full(i), full_arrivals());
        barrier_init(ByteRing::empty(i), kPieceArrivals);
    }
    for (int i = 0; i < act_slots; ++i) {
        barrier_init(shared_address(kActFull) + i * 8, bulk_acts ? full_arrivals() : kLaneArrivals);
        barrier_init(shared_address(kActEmpty) + i * 8, kConsumerWarps);
    }
}

__device__ __forceinline__ int next_gemm() {
    const int next = warp_state().gemm + 1;
    __syncwarp();
    if (threadIdx.x % 32 == 0) warp_state().gemm = next;
    __syncwarp();
    return next;
}

// Matrices side by side. Activations come when their stage is complete, so a CTA that multiplied any
// needs no wait of its own. One without units here must not go on to count for the next stage before.
template <class Wait>
__device__ __forceinline__ void op_gemm(const StepArgs &s, const Op &op, Wait wait) {
    if (threadIdx.x % 32 == 0) {
        warp_state().acts_before = warp_state().uses.acts;
        warp_state().gemm = 0;
    }
    __syncwarp();
    for (int i = 0; i < op.n_gemms; i = next_gemm()) {
        const Gemm &gemm = op.gemm[i];
        switch (gemm.format) {
            case kTileQ4K:
                gemm_of_format<kTileQ4K>(s, gemm);
                break;
            case kTileQ5K:
                gemm_of_format<kTileQ5K>(s, gemm);
                break;
            case kTileQ6K:
                gemm_of_format<kTileQ6K>(s, gemm);
                break;
            case kTileQ8:
                gemm_of_format<kTileQ8>(s, gemm);
                break;
            default:
                wait();
                gemm_generic(s, gemm, gemm_rows(s, gemm.rows));
        }
    }
    // The thread that counts belongs to the first group, for which every quad has a block.
    if (threadIdx.x == 0 && warp_state().uses.acts == warp_state().acts_before) wait.alone();
}

template <class Wait>
__device__ __forceinline__ void run_op(const StepArgs &s, const Op &op, Wait wait) {
    switch (op.kind) {
        case OpKind::kEmbed:
            return op_embed(s, wait);
        case OpKind::kNextRows:
            return op_next_rows(s, op, wait);
        case OpKind::kMtpInput:
            return op_mtp_input(s, op, wait);
        case OpKind::kResidual:
            return op_residual(s, op, wait);
        case OpKind::kNormalize:
            return op_normalize(s, op, wait);
        case OpKind::kGemm:
            return op_gemm(s, op, wait);
        case OpKind::kConvolve:
            return op_gdn_convolve(s, op, wait);
        case OpKind::kGdn:
            return op_gdn(s, op, wait);
        case OpKind::kQuantHeads:
            return op_quantize_heads(s, op, wait);
        case OpKind::kRotate:
            return op_rotate(s, op, wait);
        case OpKind::kAttention:
            return op_attention(s, op, wait);
        case OpKind::kMergeHeads:
            return op_merge_heads(s, op, wait);
        case OpKind::kSwiglu:
            return op_swiglu(s, op, wait);
        case OpKind::kSelect:
            return op_select(s, op, wait);
        case OpKind::kLogits:
            return op_logits(s, op, wait);
        case OpKind::kSample:
            return op_sample(s, wait);
        case OpKind::kDraftRows:
            return op_draft_rows(s, op, wait);
        case OpKind::kDraftLogits:
            return op_draft_logits(s, op, wait);
        case OpKind::kDraft:
            return op_draft(s, op, wait);
    }
}

// Global to shared memory by `n_threads` threads; T is a multiple of 8 bytes.
template <class T>
__device__ __forceinline__ void copy_words(T &to, const T &from, int thread, int n_threads) {
    static_assert(sizeof(T) % 8 == 0, "copied in 8-byte words");
    for (int i = thread; i < static_cast<int>(sizeof(T) / 8); i += n_threads)
        reinterpret_cast<uint64_t *>(&to)[i] = reinterpret_cast<const uint64_t *>(&from)[i];
}

// The same by a warp that does not wait for it: wait_for_copies() does.
template <class T>
__device__ __forceinline__ void fetch_words(T &to, const T &from, int lane) {
    static_assert(sizeof(T) % 8 == 0, "copied in 8-byte words");
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(&to));
    for (int i = lane * 8; i < static_cast<int>(sizeof(T)); i += 32 * 8)
        start_copy<8>(at + i, reinterpret_cast<const char *>(&from) + i);
}

// A clock that ticks coarsely but does not change its pace.
__device__ __forceinline__ long long nanoseconds() {
    long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

// The consumers' walk. An op's description comes to shared memory while the one before it runs: first
// reads from global memory would cost every op a microsecond, and so would a warp that waits for them.
__device__ __forceinline__ void consume(const StepArgs (&args)[2], Op (&ops)[2]) {
    const StepArgs &s = args[0];
    const bool timed = s.op_clock && blockIdx.x == 0 && threadIdx.x == 0;
    const int fetcher = static_cast<int>(threadIdx.x) - (kConsumerWarps - 1) * 32;  // the last warp
    uint32_t stages_passed = 0;
    if (threadIdx.x % 32 == 0) warp_state().uses = {0, 0, 0};
    __syncwarp();
    if (timed) {
        s.op_clock[s.n_ops] = clock64();
        s.op_clock[s.n_ops + 1] = nanoseconds();
    }
    copy_words(ops[0], s.ops[0], threadIdx.x, kConsumerWarps * 32);
    trace_clear(kConsumerWarps * 32);
    consumers_sync();
    for (int i = 0; i < s.n_ops; ++i) {
        const Op &op = ops[i % 2];
        if (fetcher >= 0 && i + 1 < s.n_ops) fetch_words(ops[(i + 1) % 2], s.ops[i + 1], fetcher);
        trace_begin(i);
        run_op(args[op.flags & kOpDrafting ? 1 : 0], op, StageWait{stages_passed});
        trace(kTraceDone);
        if (fetcher >= 0) wait_for_copies();
        if (op.flags & kOpBarrier) {
            finish_stage(s.buf.barrier);
            ++stages_passed;
        } else {
            consumers_sync();
        }
        if (timed) s.op_clock[i] = clock64();
    }
    if (timed) s.op_clock[s.n_ops + 2] = nanoseconds();
}

__global__ void __launch_bounds__(kThreads, 1) megakernel(const StepArgs *args) {
    __shared__ Op ops[2];
    StepArgs(&both)[2] = step_args();
    const StepArgs &s = both[0];
    copy_words(both[0], args[0], threadIdx.x, kThreads);
    copy_words(both[1], args[1], threadIdx.x, kThreads);
    __syncthreads();
    const Rings rings = divide_shared(s);
    if (threadIdx.x == 0) {
        init_rings(s.act_slots, s.pass_tiles == kPassTiles);
        fence_for_copies();
    }
    __syncthreads();
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (warp >= kConsumerWarps) {
        become_loader();
        if (warp == kConsumerWarps) load_weights(s, rings.weights, lane);
        if (warp == kConsumerWarps + 1) load_activations(s, rings.acts, lane);
        return;
    }
    become_consumer();
    consume(both, ops);
}

// The convolution of a GDN layer; the recurrence is the op behind it.
__device__ __forceinline__ const Op &convolve_op(const Op *ops, int layer) {
    while (ops->kind != OpKind::kConvolve || ops->layer != layer) ++ops;
    return *ops;
}

// Layers run side by side here, so each prepares rows of its own.
__device__ __forceinline__ GdnRows accepted_rows(const StepArgs &s, int layer, int slot, int n) {
    pj_seq seq = {};
    seq.state_slot = slot;
    seq.n_accept = n;
    GdnRows rows(s, seq, 0);
    rows.prepared = layer * n;
    return rows;
}

// One warp per (layer, head of channels or gates).
__global__ void __launch_bounds__(256) commit_rows(const StepArgs *args, const Op *ops, int slot, int n) {
    const int per_layer = convolve_heads(args->shape), lane = threadIdx.x & 31;
    const int i = blockIdx.x * kConsumerWarps + (threadIdx.x >> 5), layer = i / per_layer;
    if (layer >= args->shape.n_gdn_layers) return;
    const Op &op = convolve_op(ops, layer);
    convolve(*args, op, convolve_item(*args, op, accepted_rows(*args, layer, slot, n), n, i % per_layer, lane), lane);
}

// One CTA per (layer, half of a value head), after commit_rows.
__global__ void __launch_bounds__(256) commit_states(const StepArgs *args, int slot, int n) {
    __shared__ GdnScratch scratch;
    const int items = args->shape.n_gdn_head_v * 2, layer = blockIdx.x / items, i = blockIdx.x % items;
    run_gdn_items(*args, {accepted_rows(*args, layer, slot, n), layer, i / 2, i % 2}, 0, 1, 1, scratch, [] {});
}

}  // namespace

cudaError_t launch_megakernel(const StepArgs *args, int n_cta, size_t shared_bytes, cudaStream_t stream) {
    static size_t allowed = 0;
    if (shared_bytes > allowed) {
        const cudaError_t error = cudaFuncSetAttribute(megakernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(shared_bytes));
        if (error != cudaSuccess) return error;
        allowed = shared_bytes;
    }
    void *parameters[] = {&args};
    return cudaLaunchCooperativeKernel(reinterpret_cast<void *>(megakernel), dim3(n_cta), dim3(kThreads), parameters,
                                       shared_bytes, stream);
}

cudaError_t launch_commit(const StepArgs *args, const Op *trunk, int slot, int n, const DeviceShape &shape,
                          cudaStream_t stream) {
    const int n_warps = shape.n_gdn_layers * convolve_heads(shape);
    commit_rows<<<(n_warps + kConsumerWarps - 1) / kConsumerWarps, 256, 0, stream>>>(args, trunk, slot, n);
    commit_states<<<shape.n_gdn_layers * shape.n_gdn_head_v * 2, 256, 0, stream>>>(args, slot, n);
    return cudaGetLastError();
}

#ifdef PJ_TRACE
// unsigned long long [kTraceCtas][kTraceOps][kTraceEvents] of the last step.
extern "C" PJ_API int32_t pj_trace_read(void *values) {
    return cudaMemcpyFromSymbol(values, trace_values, sizeof(trace_values)) == cudaSuccess ? PJ_OK : PJ_ERR_DEVICE;
}
#endif

}  // namespace pj::cuda
