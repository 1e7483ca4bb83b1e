// The grid-wide dependency: a counter in global memory that every CTA raises once per stage.
//
// Consumer warps arrive and wait; the activation loader only waits. The weight loader does neither:
// weights depend on nothing.
#pragma once

#include <cstdint>

#include "cuda/sync/trace.cuh"

namespace pj::cuda {

__device__ __forceinline__ uint32_t load_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// A number that the host writes while the kernel runs, in pinned memory.
__device__ __forceinline__ uint32_t load_acquire_host(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ void add_release(uint32_t *p) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory");
}

// Named barrier of the consumer warps (id 1).
__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// Waits until all CTAs have finished `stage` stages of this launch.
__device__ __forceinline__ void wait_stage(const uint32_t *counter, uint32_t stage) {
    const uint32_t target = stage * gridDim.x;
    while (load_acquire(counter) < target) {
    }
}

// All consumer threads: everything that they wrote is visible to all CTAs once the stage is complete. What
// happened before the barrier happened before the release: one thread's is enough.
__device__ __forceinline__ void finish_stage(uint32_t *counter) {
    consumers_sync();
    trace(kTraceEnd);
    if (threadIdx.x == 0) add_release(counter);
}

// All consumer threads wait for a stage.
__device__ __forceinline__ void enter_stage(const uint32_t *counter, uint32_t stage) {
    if (threadIdx.x == 0) wait_stage(counter, stage);
    consumers_sync();
    trace(kTraceInput);
}

}  // namespace pj::cuda
