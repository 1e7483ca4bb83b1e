// Rings of shared-memory slots between a loader warp and the consumer warps.
//
// A slot's `full` barrier completes when its bytes have arrived, its `empty` barrier when its
// readers are done. Uses n of a slot have parity n & 1. sm_90 copies with the bulk engine (one
// lane), older cards with 16-byte cp.async (the whole warp).
#pragma once

#include <cstdint>

namespace pj::cuda {

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::
            "r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
#else
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
        "again;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
#endif
}

// Arrivals that complete a full barrier: one (sm_90, plus the bytes) or one per lane.
__device__ __forceinline__ int full_arrivals() {
#if __CUDA_ARCH__ >= 900
    return 1;
#else
    return 32;
#endif
}

// The whole loader warp calls this; bytes is a multiple of 16.
__device__ __forceinline__ void copy_to_slot(void *slot, const void *source, int bytes, uint64_t *full, int lane) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
                         shared_address(full)),
                     "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(slot)),
                     "l"(source), "r"(bytes), "r"(shared_address(full))
                     : "memory");
    }
#else
    const uint32_t to = shared_address(slot);
    for (int i = lane * 16; i < bytes; i += 32 * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i),
                     "l"(static_cast<const char *>(source) + i)
                     : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(full)) : "memory");
#endif
}

// Data that other CTAs wrote before a stage ended becomes visible to the bulk engine.
__device__ __forceinline__ void fence_for_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

struct Ring {
    uint8_t *slots;
    uint64_t *full, *empty;
    int n_slots, slot_bytes;

    __device__ __forceinline__ uint8_t *slot(uint32_t use) const { return slots + use % n_slots * slot_bytes; }
    __device__ __forceinline__ uint64_t *full_of(uint32_t use) const { return full + use % n_slots; }
    __device__ __forceinline__ uint64_t *empty_of(uint32_t use) const { return empty + use % n_slots; }
    __device__ __forceinline__ uint32_t parity(uint32_t use) const { return use / n_slots & 1; }

    __device__ __forceinline__ void wait_full(uint32_t use) const { barrier_wait(full_of(use), parity(use)); }
    // The first round finds every slot empty.
    __device__ __forceinline__ void wait_empty(uint32_t use) const { barrier_wait(empty_of(use), parity(use) ^ 1); }
};

}  // namespace pj::cuda
