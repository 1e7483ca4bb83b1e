// One persistent kernel per step: every CTA walks the same list of ops (program.h).
//
// Eight consumer warps compute; one warp streams weights into a ring in shared memory and never
// waits for other CTAs, so it is already inside the next matrix while the consumers wait; one warp
// brings the activations of the current matrix.
#include "cuda/megakernel.h"
#include "cuda/ops/attention.cuh"
#include "cuda/ops/gdn.cuh"
#include "cuda/ops/gdn_heads.cuh"
#include "cuda/ops/gemm.cuh"
#include "cuda/ops/rows.cuh"

namespace pj::cuda {

namespace {

struct Shared {
    Ring weights, acts;
    uint8_t *scratch;
    float *factor;  // [kPassTiles * 8]
};

// Where the consumers are in the op list.
struct Walk {
    uint32_t use = 0;    // of the rings
    uint32_t stage = 0;  // grid stages passed
    // What Shared::factor holds: the factors of these rows as of a stage; 0: ones.
    uint32_t factor_stage = ~0u;
    int factor_row = -1;
};

__device__ __forceinline__ Shared divide_shared(const StepArgs &s, uint8_t *memory) {
    Shared out;
    out.weights = {memory, nullptr, nullptr, s.ring_slots, s.ring_slot_bytes};
    memory += static_cast<int64_t>(s.ring_slots) * s.ring_slot_bytes;
    out.acts = {memory, nullptr, nullptr, s.act_slots, static_cast<int>(s.pass_tiles * sizeof(ActTile))};
    memory += static_cast<int64_t>(s.act_slots) * out.acts.slot_bytes;
    out.scratch = memory;
    uint64_t *barriers = reinterpret_cast<uint64_t *>(memory + kScratchBytes);
    out.weights.full = barriers;
    out.weights.empty = barriers + s.ring_slots;
    out.acts.full = barriers + 2 * s.ring_slots;
    out.acts.empty = out.acts.full + s.act_slots;
    out.factor = reinterpret_cast<float *>(out.acts.empty + s.act_slots);
    return out;
}

__device__ __forceinline__ void init_ring(const Ring &ring) {
    for (int i = 0; i < ring.n_slots; ++i) {
        barrier_init(ring.full + i, full_arrivals());
        barrier_init(ring.empty + i, 2);  // the two warps of the group that reads a slot
    }
}

__device__ __forceinline__ bool is_tiled(const Gemm &gemm) { return gemm.format <= kTileQ8; }

__device__ __forceinline__ int gemm_rows_of(const StepArgs &s, const Gemm &gemm) {
    return gemm.all_rows ? s.n_rows : s.n_selected;
}

// Calls body(op, stage) for every tiled GEMM in order.
template <class Body>
__device__ __forceinline__ void for_each_gemm(const StepArgs &s, const Body &body) {
    uint32_t stage = 0;
    for (int i = 0; i < s.n_ops; ++i) {
        const Op &op = s.ops[i];
        if (op.kind == OpKind::kGemm && is_tiled(op.gemm)) body(op.gemm, stage);
        if (op.flags & kOpBarrier) ++stage;
    }
}

__device__ __forceinline__ void load_weights(const StepArgs &s, const Ring &ring, int lane) {
    uint32_t use = 0;
    for_each_gemm(s, [&](const Gemm &gemm, uint32_t) {
        const int n_units = gemm.n_blocks * gemm.k_units;
        const int begin = split_begin(n_units, blockIdx.x, gridDim.x);
        const int end = split_begin(n_units, blockIdx.x + 1, gridDim.x);
        const int bytes = unit_bytes(gemm.format);
        for (int row = 0; row < gemm_rows_of(s, gemm); row += s.pass_tiles * 8)
            for (int unit = begin; unit < end; ++unit, ++use) {
                ring.wait_empty(use);
                copy_to_slot(ring.slot(use), gemm.weight + static_cast<int64_t>(unit) * bytes, bytes, ring.full_of(use),
                             lane);
            }
    });
}

__device__ __forceinline__ void load_activations(const StepArgs &s, const Ring &ring, int lane) {
    uint32_t use = 0;
    for_each_gemm(s, [&](const Gemm &described, uint32_t stage) {
        const Gemm gemm = described;  // read before the wait, not after it
        wait_stage(s.buf.barrier, s.barrier_start, stage);
        fence_for_copies();
        const int n_units = gemm.n_blocks * gemm.k_units;
        const int begin = split_begin(n_units, blockIdx.x, gridDim.x);
        const int end = split_begin(n_units, blockIdx.x + 1, gridDim.x);
        const ActTile *act = gemm.act_span == 256 ? s.buf.act256 : s.buf.act32;
        const int n_rows = gemm_rows_of(s, gemm), n_tiles = (n_rows + 7) / 8;
        for (int tile = 0; tile < n_tiles; tile += s.pass_tiles) {
            const int bytes = min(s.pass_tiles, n_tiles - tile) * static_cast<int>(sizeof(ActTile));
            for (int unit = begin; unit < end; ++unit, ++use) {
                ring.wait_empty(use);
                copy_to_slot(ring.slot(use), act + static_cast<int64_t>(unit % gemm.k_units) * s.row_tiles + tile,
                             bytes, ring.full_of(use), lane);
            }
        }
    });
}

// Matrices side by side share their rows' factors.
__device__ __forceinline__ void update_factors(const StepArgs &s, const Gemm &gemm, int first, int n_rows,
                                               float *factor, Walk &walk) {
    const uint32_t stage = gemm.row_factor ? walk.stage + 1 : 0;
    if (walk.factor_stage == stage && (stage == 0 || walk.factor_row == first)) return;
    walk.factor_stage = stage;
    walk.factor_row = first;
    const int lane = threadIdx.x & 31;
    consumers_sync();  // the last block that used the old ones is done
    for (int i = threadIdx.x >> 5; i < kPassTiles * 8; i += kConsumerWarps) {
        const float value = stage && first + i < n_rows ? row_factor(s, first + i, lane) : 1.0f;
        if (lane == 0) factor[i] = value;
    }
    consumers_sync();
}

// The consumers' side of a GEMM; advances the ring uses as the loaders do.
__device__ __forceinline__ void op_gemm(const StepArgs &s, const Gemm &gemm, const Shared &shared, Walk &walk) {
    uint32_t &use = walk.use;
    const int n_rows = gemm_rows_of(s, gemm);
    if (!is_tiled(gemm)) return gemm_float(s, gemm, n_rows);
    const int n_units = gemm.n_blocks * gemm.k_units;
    const int mine =
        static_cast<int>(split_begin(n_units, blockIdx.x + 1, gridDim.x) - split_begin(n_units, blockIdx.x, gridDim.x));
    float *reduce = reinterpret_cast<float *>(shared.scratch);
    for (int row = 0; row < n_rows; row += s.pass_tiles * 8) {
        const GemmPass pass = {row, min(s.pass_tiles * 8, n_rows - row), shared.factor, reduce, use, use};
        update_factors(s, gemm, row, n_rows, shared.factor, walk);
        if (gemm.format == kTileQ4K)
            gemm_rows<kTileQ4K>(gemm, pass, shared.weights, shared.acts);
        else if (gemm.format == kTileQ5K)
            gemm_rows<kTileQ5K>(gemm, pass, shared.weights, shared.acts);
        else if (gemm.format == kTileQ6K)
            gemm_rows<kTileQ6K>(gemm, pass, shared.weights, shared.acts);
        else
            gemm_rows<kTileQ8>(gemm, pass, shared.weights, shared.acts);
        use += mine;
    }
}

__device__ __forceinline__ void run_op(const StepArgs &s, const Op &op, const Shared &shared, Walk &walk) {
    float *scratch = reinterpret_cast<float *>(shared.scratch);
    switch (op.kind) {
        case OpKind::kEmbed:
            return op_embed(s);
        case OpKind::kMtpInput:
            return op_mtp_input(s, op);
        case OpKind::kResidual:
            return op_residual(s, op);
        case OpKind::kGemm:
            return op_gemm(s, op.gemm, shared, walk);
        case OpKind::kGdn:
            return op_gdn(s, op, scratch, [] {});
        case OpKind::kQuantHeads:
            return op_quantize_heads(s, op, [] {});
        case OpKind::kRotate:
            return op_rotate(s, op);
        case OpKind::kAttention:
            return op_attention(s, op, scratch);
        case OpKind::kMergeHeads:
            return op_merge_heads(s, op);
        case OpKind::kSwiglu:
            return op_swiglu(s, op);
        case OpKind::kSelect:
            return op_select(s, op);
        case OpKind::kLogits:
            return op_logits(s, op);
    }
}

// Global to shared memory by `n_threads` threads; T is a multiple of 8 bytes.
template <class T>
__device__ __forceinline__ void copy_words(T &to, const T &from, int thread, int n_threads) {
    static_assert(sizeof(T) % 8 == 0, "copied in 8-byte words");
    for (int i = thread; i < static_cast<int>(sizeof(T) / 8); i += n_threads)
        reinterpret_cast<uint64_t *>(&to)[i] = reinterpret_cast<const uint64_t *>(&from)[i];
}

// The consumers' walk. An op's description comes to shared memory while the one before it runs: first
// reads from global memory would cost every op a microsecond.
__device__ __forceinline__ void consume(const StepArgs &s, const Shared &shared, Op (&ops)[2]) {
    const bool timed = s.op_clock && blockIdx.x == 0 && threadIdx.x == 0;
    const int fetcher = static_cast<int>(threadIdx.x) - (kConsumerWarps - 1) * 32;  // the last warp
    Walk walk;
    if (timed) s.op_clock[s.n_ops] = clock64();
    copy_words(ops[0], s.ops[0], threadIdx.x, kConsumerWarps * 32);
    consumers_sync();
    for (int i = 0; i < s.n_ops; ++i) {
        const Op &op = ops[i % 2];
        if (fetcher >= 0 && i + 1 < s.n_ops) copy_words(ops[(i + 1) % 2], s.ops[i + 1], fetcher, 32);
        run_op(s, op, shared, walk);
        if (op.flags & kOpBarrier)
            grid_stage(s.buf.barrier, s.barrier_start, ++walk.stage);
        else
            consumers_sync();
        if (timed) s.op_clock[i] = clock64();
    }
}

__global__ void __launch_bounds__(kThreads, 1) megakernel(const StepArgs *args) {
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ StepArgs s;
    __shared__ Op ops[2];
    copy_words(s, *args, threadIdx.x, kThreads);
    __syncthreads();
    const Shared shared = divide_shared(s, memory);
    if (threadIdx.x == 0) {
        init_ring(shared.weights);
        init_ring(shared.acts);
        fence_for_copies();
    }
    __syncthreads();
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (warp == kConsumerWarps) return load_weights(s, shared.weights, lane);
    if (warp == kConsumerWarps + 1) return load_activations(s, shared.acts, lane);
    consume(s, shared, ops);
}

__device__ __forceinline__ const Op &gdn_op(const Op *ops, int layer) {
    while (ops->kind != OpKind::kGdn || ops->layer != layer) ++ops;
    return *ops;
}

__device__ __forceinline__ pj_seq accepted_rows(int slot, int n) {
    pj_seq seq = {};
    seq.state_slot = slot;
    seq.n_accept = n;
    return seq;
}

// One CTA per (layer, half of a value head).
__global__ void __launch_bounds__(256) commit_states(const StepArgs *args, const Op *ops, int slot, int n) {
    __shared__ GdnScratch scratch;
    const int items = args->shape.n_gdn_head_v * 2, i = blockIdx.x % items;
    const GdnItem item(*args, gdn_op(ops, blockIdx.x / items), accepted_rows(slot, n), i / 2, i % 2);
    gdn_rows(item, scratch);
}

// One CTA per layer, after commit_states.
__global__ void __launch_bounds__(256) commit_windows(const StepArgs *args, const Op *ops, int slot, int n) {
    const GdnInput in(*args, gdn_op(ops, blockIdx.x), accepted_rows(slot, n));
    for (int i = threadIdx.x >> 5; i < advance_warps(args->shape); i += kConsumerWarps)
        advance(in, i, threadIdx.x & 31);
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
    commit_states<<<shape.n_gdn_layers * shape.n_gdn_head_v * 2, 256, 0, stream>>>(args, trunk, slot, n);
    commit_windows<<<shape.n_gdn_layers, 256, 0, stream>>>(args, trunk, slot, n);
    return cudaGetLastError();
}

}  // namespace pj::cuda
