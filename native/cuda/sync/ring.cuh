// Rings in shared memory between a loader warp and the consumer warps.
//
// A slot's `full` barrier completes when its bytes have arrived, its `empty` barrier when its readers
// are done. sm_90 copies with the bulk engine (one lane), older cards with 16-byte cp.async (the whole
// warp).
#pragma once

#include <cstdint>

#include "cuda/sync/shared_layout.h"

namespace pj::cuda {

extern __shared__ __align__(128) uint8_t shared_memory[];

// Rings are known by addresses in the shared window: pointers that pass through calls would become
// generic ones, whose loads cost several instructions each.
__device__ __forceinline__ uint32_t shared_address(uint32_t offset) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory)) + offset;
}

template <class T = void>
__device__ __forceinline__ T *shared_pointer(uint32_t address) {
    return static_cast<T *>(__cvta_shared_to_generic(address));
}

__device__ __forceinline__ float *scratch_memory() { return reinterpret_cast<float *>(shared_memory + kScratch); }

// Barriers are 8 bytes each, known by their shared address.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::
            "r"(barrier),
        "r"(parity)
        : "memory");
#else
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
        "again;\n}" ::"r"(barrier),
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

// The whole loader warp calls this; slot and full are shared addresses, bytes is a multiple of 16.
// policy 0: none.
__device__ __forceinline__ void copy_to_slot(uint32_t slot, const void *source, int bytes, uint32_t full, int lane,
                                             uint64_t policy) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(full),
                     "r"(bytes)
                     : "memory");
        if (policy)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                "[%3], %4;" ::"r"(slot),
                "l"(source), "r"(bytes), "r"(full), "l"(policy)
                : "memory");
        else
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(slot),
                "l"(source), "r"(bytes), "r"(full)
                : "memory");
    }
#else
    (void)policy;
    for (int i = lane * 16; i < bytes; i += 32 * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot + i),
                     "l"(static_cast<const char *>(source) + i)
                     : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
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
    uint32_t slots, full, empty;  // shared addresses
    int n_slots, slot_bytes;

    __device__ __forceinline__ uint32_t index(uint32_t use) const { return use & (n_slots - 1); }
    __device__ __forceinline__ uint32_t parity(uint32_t use) const { return use >> (31 - __clz(n_slots)) & 1; }
    __device__ __forceinline__ uint32_t slot(uint32_t use) const { return slots + index(use) * slot_bytes; }
    __device__ __forceinline__ uint32_t full_of(uint32_t use) const { return full + index(use) * 8; }
    __device__ __forceinline__ uint32_t empty_of(uint32_t use) const { return empty + index(use) * 8; }
    __device__ __forceinline__ void wait_full(uint32_t use) const { barrier_wait(full_of(use), parity(use)); }
    // The first round finds every slot empty.
    __device__ __forceinline__ void wait_empty(uint32_t use) const { barrier_wait(empty_of(use), parity(use) ^ 1); }
    __device__ __forceinline__ void release(uint32_t use) const { barrier_arrive(empty_of(use)); }

    // The part of a group.
    __device__ __forceinline__ SlotRing of(int group) const {
        const uint32_t first = group * n_slots;
        return {slots + first * slot_bytes, full + first * 8, empty + first * 8, n_slots, slot_bytes};
    }
};

// Pieces of any size, one after the other for all groups; a piece that would cross the end begins at
// the start.
struct ByteRing {
    uint32_t memory;  // shared address
    int bytes;

    static __device__ __forceinline__ uint32_t index(int group, uint32_t use) {
        return group * kGroupUses + use % kGroupUses;
    }
    static __device__ __forceinline__ uint32_t parity(uint32_t use) { return use / kGroupUses & 1; }
    static __device__ __forceinline__ uint32_t full(uint32_t i) { return shared_address(kWeightFull) + i * 8; }
    static __device__ __forceinline__ uint32_t empty(uint32_t i) { return shared_address(kWeightEmpty) + i * 8; }
    static __device__ __forceinline__ int32_t *offset(uint32_t i) {
        return reinterpret_cast<int32_t *>(shared_memory + kWeightOffsets) + i;
    }

    // Shared address of the piece.
    __device__ __forceinline__ uint32_t wait_full(int group, uint32_t use) const {
        const uint32_t i = index(group, use);
        barrier_wait(full(i), parity(use));
        return memory + *offset(i);
    }
    __device__ __forceinline__ void release(int group, uint32_t use) const { barrier_arrive(empty(index(group, use))); }
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
        if (lane == 0) *ByteRing::offset(i) = begin;
        copy_to_slot(ring_.memory + begin, source, bytes, ByteRing::full(i), lane, policy_);
        busy_ |= 1u << i;
        free_ -= span;
        at_ = begin + bytes;
    }

  private:
    __device__ __forceinline__ void release_oldest() {
        const int from = tail_++ % kRingUses, slot = __shfl_sync(~0u, slot_, from);
        barrier_wait(ByteRing::empty(slot), __shfl_sync(~0u, parity_, from));
        free_ += __shfl_sync(~0u, span_, from);
        busy_ &= ~(1u << slot);
    }

    const ByteRing ring_;
    const uint64_t policy_;
    uint32_t head_ = 0, tail_ = 0;  // pieces so far, pieces known to be released
    uint32_t busy_ = 0;             // slots of pieces not known to be released
    int at_ = 0, free_;
    // Lane i: of piece i, modulo kRingUses. The bytes that it keeps busy, its slot and the slot's parity.
    int span_ = 0, slot_ = 0;
    uint32_t parity_ = 0;
};

}  // namespace pj::cuda
