// Rings in shared memory between a loader warp and the consumer warps.
//
// A slot's `full` barrier completes when its bytes have arrived, its `empty` barrier when its readers
// are done. sm_90 copies with the bulk engine (one lane), older cards with 16-byte cp.async (the whole
// warp).
#pragma once

#include <cstdint>

#include "cuda/sync/ring_size.h"

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

// Arrivals that complete a full barrier: one (sm_90, plus the bytes); or one per lane when its copies are
// there, and lane 0's own.
__device__ __forceinline__ int full_arrivals() {
#if __CUDA_ARCH__ >= 900
    return 1;
#else
    return 33;
#endif
}

// L2 policy of bytes that are read once a step: they leave first, so that activations stay.
__device__ __forceinline__ uint64_t evict_first_policy() {
    uint64_t policy = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

// The whole loader warp calls this; bytes is a multiple of 16. policy 0: none.
__device__ __forceinline__ void copy_to_slot(void *slot, const void *source, int bytes, uint64_t *full, int lane,
                                             uint64_t policy) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
                         shared_address(full)),
                     "r"(bytes)
                     : "memory");
        if (policy)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                "[%3], %4;" ::"r"(shared_address(slot)),
                "l"(source), "r"(bytes), "r"(shared_address(full)), "l"(policy)
                : "memory");
        else
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_address(slot)),
                "l"(source), "r"(bytes), "r"(shared_address(full))
                : "memory");
    }
#else
    (void)policy;
    const uint32_t to = shared_address(slot);
    for (int i = lane * 16; i < bytes; i += 32 * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i),
                     "l"(static_cast<const char *>(source) + i)
                     : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(full)) : "memory");
    if (lane == 0) barrier_arrive(full);
#endif
}

// Data that other CTAs wrote before a stage ended becomes visible to the bulk engine.
__device__ __forceinline__ void fence_for_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

// A reader must see every use of a slot: it waits for the parity of a phase, which says nothing about
// the one before last. So each group of warps has slots of its own, and a use is counted per group.

// Slots of equal size; n_slots (of one group) is a power of two. Use n has slot n % n_slots.
struct SlotRing {
    uint8_t *slots;
    uint64_t *full, *empty;
    int n_slots, slot_bytes;

    __device__ __forceinline__ uint32_t index(uint32_t use) const { return use & (n_slots - 1); }
    __device__ __forceinline__ uint32_t parity(uint32_t use) const { return use >> (31 - __clz(n_slots)) & 1; }
    __device__ __forceinline__ uint8_t *slot(uint32_t use) const { return slots + index(use) * slot_bytes; }
    __device__ __forceinline__ void wait_full(uint32_t use) const { barrier_wait(full + index(use), parity(use)); }
    // The first round finds every slot empty.
    __device__ __forceinline__ void wait_empty(uint32_t use) const { barrier_wait(empty + index(use), parity(use) ^ 1); }
    __device__ __forceinline__ void release(uint32_t use) const { barrier_arrive(empty + index(use)); }

    // The part of a group.
    __device__ __forceinline__ SlotRing of(int group) const {
        return {slots + group * n_slots * slot_bytes, full + group * n_slots, empty + group * n_slots, n_slots,
                slot_bytes};
    }
};

// Pieces of any size, one after the other for all groups; a piece that would cross the end begins at
// the start.
struct ByteRing {
    uint8_t *memory;
    uint64_t *full, *empty;  // [kGroups][kGroupUses]
    int32_t *offset;         // the same, of pieces on their way or there
    int bytes;

    static __device__ __forceinline__ uint32_t index(int group, uint32_t use) {
        return group * kGroupUses + use % kGroupUses;
    }
    static __device__ __forceinline__ uint32_t parity(uint32_t use) { return use / kGroupUses & 1; }

    __device__ __forceinline__ const uint8_t *wait_full(int group, uint32_t use) const {
        const uint32_t i = index(group, use);
        barrier_wait(full + i, parity(use));
        return memory + offset[i];
    }
    __device__ __forceinline__ void release(int group, uint32_t use) const { barrier_arrive(empty + index(group, use)); }
};

// The loader warp's end of a ByteRing, whose size is at least that of two pieces.
class ByteRingWriter {
  public:
    __device__ __forceinline__ ByteRingWriter(const ByteRing &ring, uint64_t policy)
        : ring_(ring), policy_(policy), free_(ring.bytes) {}

    // The next piece of a group; `use` counts the group's pieces.
    __device__ __forceinline__ void push(const uint8_t *source, int bytes, int group, uint32_t use, int lane) {
        int begin = at_, span = bytes;
        if (begin + bytes > ring_.bytes) {
            span += ring_.bytes - begin;
            begin = 0;
        }
        const uint32_t i = ByteRing::index(group, use);
        // The slot's piece before this one is gone when the tail has passed it.
        while (free_ < span || head_ - tail_ == kRingUses || busy_ >> i & 1) release_oldest();
        if (lane == static_cast<int>(head_ % kRingUses)) {
            span_ = span;
            slot_ = static_cast<int>(i);
            parity_ = ByteRing::parity(use);
        }
        ++head_;
        if (lane == 0) ring_.offset[i] = begin;
        copy_to_slot(ring_.memory + begin, source, bytes, ring_.full + i, lane, policy_);
        busy_ |= 1u << i;
        free_ -= span;
        at_ = begin + bytes;
    }

  private:
    __device__ __forceinline__ void release_oldest() {
        const int from = tail_++ % kRingUses, slot = __shfl_sync(~0u, slot_, from);
        barrier_wait(ring_.empty + slot, __shfl_sync(~0u, parity_, from));
        free_ += __shfl_sync(~0u, span_, from);
        busy_ &= ~(1u << slot);
    }

    const ByteRing &ring_;
    const uint64_t policy_;
    uint32_t head_ = 0, tail_ = 0;  // pieces so far, pieces known to be released
    uint32_t busy_ = 0;             // slots of pieces not known to be released
    int at_ = 0, free_;
    // Lane i: of piece i, modulo kRingUses. The bytes that it keeps busy, its slot and the slot's parity.
    int span_ = 0, slot_ = 0;
    uint32_t parity_ = 0;
};

}  // namespace pj::cuda
