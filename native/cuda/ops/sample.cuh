// Tokens of the rows to sample (core/sample_row.h): a row is one CTA's, which has the maxima that op_logits leaves. All
// of its logits come from the L2 cache for top_p of the whole vocabulary, and where the maxima are of no use. Masks
// that the host fills meanwhile come over the bus before the stage is complete that the logits wait for.
//
// Shared memory: SampleScratch in the scratch of the ops.
#pragma once

#include "core/sample_row.h"
#include "cuda/ops/warp_sum.cuh"

namespace pj::cuda {

static_assert(sizeof(SampleScratch) <= kScratchBytes, "scratch");
static_assert(kTeamThreads == kConsumerWarps * 32, "the consumers are the team");
static_assert(kSampleGroups % (4 * kTeamThreads) == 0, "keys are read by fours");

struct ConsumerTeam {
    static constexpr int kVectors = kSampleGroups / 4 / kTeamThreads;  // of four keys, a thread

    template <class Body>
    __device__ __forceinline__ void for_each(int n, const Body &body) const {
#pragma unroll 1
        for (int i = threadIdx.x; i < n; i += kTeamThreads) body(i);
    }

    // The loads of 16 elements on their way together, and of their words of the mask: none sinks below the barrier, to
    // where its value is used. Other CTAs have written the logits in this launch.
    template <class Body>
    __device__ __forceinline__ void values(const float *logits, const uint32_t *mask, int n, const Body &body) const {
        constexpr int kTogether = 16, kStep = kTogether * kTeamThreads;
        static_assert(kStep % kSampleGroups == 0, "the group of an element depends on its thread and its load only");
#pragma unroll 1
        for (int first = 0; first < n; first += kStep) {
            const auto index = [&](int j) { return first + j * kTeamThreads + static_cast<int>(threadIdx.x); };
            float v[kTogether];
            uint32_t words[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) v[j] = index(j) < n ? __ldcg(logits + index(j)) : 0.0f;
#pragma unroll
            for (int j = 0; j < kTogether; ++j) words[j] = ~0u;
            if (mask) {
#pragma unroll
                for (int j = 0; j < kTogether; ++j)
                    if (index(j) < n) words[j] = sample::mask_word(mask, index(j));
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const int i = index(j), group = (threadIdx.x + j * kTeamThreads) % kSampleGroups;
                if (i < n) body(i, group, sample::masked(words[j], i, v[j]));
            }
        }
    }

    // Likewise those of eight items.
    template <class At, class Body>
    __device__ __forceinline__ void picked(int n, const At &at, const float *logits, const Body &body) const {
        constexpr int kTogether = 8;
#pragma unroll 1
        for (int first = 0; first < n; first += kTogether * kTeamThreads) {
            int index[kTogether];
            float v[kTogether];
#pragma unroll
            for (int j = 0; j < kTogether; ++j) {
                const int item = first + threadIdx.x + j * kTeamThreads;
                index[j] = item < n ? at(item) : -1;
                v[j] = index[j] < 0 ? 0.0f : __ldcg(logits + index[j]);
            }
            __syncwarp();
#pragma unroll
            for (int j = 0; j < kTogether; ++j)
                if (index[j] >= 0) body(index[j], v[j]);
        }
    }

    __device__ __forceinline__ float value(const float *logits, int i) const { return __ldcg(logits + i); }

    template <class Body>
    __device__ __forceinline__ void keys(const uint32_t *groups, const Body &body) const {
        const uint4 *const of_thread = reinterpret_cast<const uint4 *>(groups) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            const uint4 four = of_thread[i * kTeamThreads];
            body(four.x);
            body(four.y);
            body(four.z);
            body(four.w);
        }
    }

    __device__ __forceinline__ void copy(uint32_t *groups, const uint32_t *from) const {
        uint4 v[kVectors];
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
            v[i] = __ldcg(reinterpret_cast<const uint4 *>(from) + threadIdx.x + i * kTeamThreads);
#pragma unroll
        for (int i = 0; i < kVectors; ++i) reinterpret_cast<uint4 *>(groups)[threadIdx.x + i * kTeamThreads] = v[i];
    }

    __device__ __forceinline__ void raise(uint32_t &own, uint32_t key) const {
        if (key > own) own = key;
    }

    __device__ __forceinline__ void sum(uint32_t &shared, uint32_t own) const {
        own = __reduce_add_sync(~0u, own);
        if (threadIdx.x % 32 == 0) atomicAdd(&shared, own);
    }

    __device__ __forceinline__ void sum(Wide &shared, Wide own) const {
        for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
        if (threadIdx.x % 32 == 0) atomicAdd(&shared, own);
    }

    __device__ __forceinline__ void largest(uint32_t &shared, uint32_t own) const {
        own = __reduce_max_sync(~0u, own);
        if (threadIdx.x % 32 == 0) atomicMax(&shared, own);
    }

    __device__ __forceinline__ void largest(Wide &shared, Wide own) const {
        own = warp_largest(own);
        if (threadIdx.x % 32 == 0) atomicMax(&shared, own);
    }

    __device__ __forceinline__ uint32_t next(uint32_t &shared) const { return atomicAdd(&shared, 1u); }
    __device__ __forceinline__ void sync() const { consumers_sync(); }
};

__device__ __forceinline__ RowMaxima maxima_of(const StepArgs &s, int logits_row) {
    const uint32_t *const keys = s.buf.maxima;
    return {keys ? keys + logits_row * kSampleGroups : nullptr, __ldcg(s.buf.best + logits_row)};
}

// Waits until the host has filled the step's masks, then brings one to where `mask` points; it may be read behind the
// next barrier. Each word comes once, sixteen bytes a thread, eight loads on their way together.
__device__ __forceinline__ void bring_mask(const LateMaskArgs &late, const uint32_t *mask) {
    if (threadIdx.x == 0)
        while (load_acquire_host(late.ready) != late.step) __nanosleep(1000);
    consumers_sync();
    constexpr int kTogether = 8;
    const int64_t begin = mask - late.device;
    const auto *from = reinterpret_cast<const uint4 *>(late.host + begin);
    auto *to = reinterpret_cast<uint4 *>(late.device + begin);
    const int n = late.n_words / 4;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += kTogether * kTeamThreads) {
        uint4 words[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) words[j] = __ldcv(from + min(i + j * kTeamThreads, n - 1));
#pragma unroll
        for (int j = 0; j < kTogether; ++j)
            if (i + j * kTeamThreads < n) to[i + j * kTeamThreads] = words[j];
    }
}

template <class Wait>
__device__ __noinline__ void op_sample(const StepArgs &s, Wait wait) {
    if (s.late_masks.step)
        for (int i = blockIdx.x; i < s.n_samples; i += gridDim.x)
            if (const uint32_t *mask = s.samples[i].mask) bring_mask(s.late_masks, mask);
    wait();
    SampleScratch &scratch = *reinterpret_cast<SampleScratch *>(scratch_memory());
#pragma unroll 1
    for (int i = blockIdx.x; i < s.n_samples; i += gridDim.x) {
        const SampleRow row = s.samples[i];
        float *logits = s.buf.logits + int64_t{row.logits_row} * s.shape.n_vocab;
        const RowMaxima maxima = maxima_of(s, row.logits_row);
        const int token = sample_row(ConsumerTeam(), scratch, logits, s.shape.n_vocab, row, AllIds(), maxima);
        if (threadIdx.x == 0) s.sampled[i] = token;
    }
}

}  // namespace pj::cuda
