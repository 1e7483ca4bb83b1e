// Rings in shared memory between a loader warp and the consumer warps.
//
// A slot's `full` barrier completes when its bytes have arrived, its `empty` barrier when its readers
// are done. sm_90 copies with the bulk engine (one lane), older cards with 16-byte cp.async (the whole
// warp).
#pragma once

#include <cstdint>

#include "cuda/sync/async_copy.cuh"
#include "cuda/sync/shared_layout.h"

namespace pj::cuda {

extern __shared__ __align__(256) uint8_t shared_memory[];

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
// kCount times at once; before sm_90 once.
template <int kCount>
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    if constexpr (kCount == 1)
        barrier_arrive(barrier);
    else
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0], %1;\n}" ::"r"(barrier),
                     "n"(kCount)
                     : "memory");
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

// Arrivals that complete a full barrier: of bulk copies one, plus the bytes; of others one per lane when its
// copies are there, and lane 0's own.
constexpr int kLaneArrivals = 33;

__device__ __forceinline__ int full_arrivals() {
#if __CUDA_ARCH__ >= 900
    return 1;
#else
    return kLaneArrivals;
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

// The whole loader warp calls these; slot and full are shared addresses, bytes is a multiple of 16.

// By the lanes: sooner there than a bulk copy when it is small.
__device__ __forceinline__ void copy_by_lanes(uint32_t slot, const void *source, int bytes, uint32_t full, int lane) {
    for (int i = lane * 16; i < bytes; i += 32 * 16) start_copy<16>(slot + i, static_cast<const char *>(source) + i);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
    if (lane == 0) barrier_arrive(full);
}

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
    copy_by_lanes(slot, source, bytes, full, lane);
#endif
}

// The copies of several lanes, those with `mine`, of equal size; arguments are the lane's own.
__device__ __forceinline__ void copy_to_slots(bool mine, uint32_t slot, const void *source, int bytes, uint32_t full,
                                              int lane, uint64_t policy) {
#if __CUDA_ARCH__ >= 900
    if (mine) copy_to_slot(slot, source, bytes, full, 0, policy);
#else
    // What lanes stored before their copies belongs to what the barriers of other lanes tell.
    __syncwarp();
    for (int from = 0; from < kGroups; ++from) {
        if (!__shfl_sync(~0u, mine, from)) continue;
        const auto address = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(source), from);
        copy_to_slot(__shfl_sync(~0u, slot, from), reinterpret_cast<const void *>(address), bytes,
                     __shfl_sync(~0u, full, from), lane, policy);
    }
#endif
}

// Data that other CTAs wrote before a stage ended becomes visible to the bulk engine.
__device__ __forceinline__ void fence_for_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

// A reader must see every use of a slot: it waits for the parity of a phase, which says nothing about
// the one before last. So pieces of weights belong to a group each, and all groups read every slot.

// Slots of equal size; n_slots is a power of two. Use n has slot n % n_slots.
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
};

// Arrivals that release a piece of weights, by teams of two warps or, where there are products of warpgroups, of two or
// four.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int kPieceArrivals = 4;
#else
constexpr int kPieceArrivals = 2;
#endif

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
    // By each warp of a team of kTeamWarps.
    template <int kTeamWarps>
    __device__ __forceinline__ void release(int team, uint32_t use) const {
        barrier_arrive<kPieceArrivals / kTeamWarps>(empty(index(team, use)));
    }
};

// The loader warp's end of a ByteRing: lane g < kGroups pushes the pieces of group g. A round is what the
// lanes push together, one piece each, side by side in the ring. Rounds leave in order.
class ByteRingWriter {
  public:
    __device__ __forceinline__ ByteRingWriter(const ByteRing &ring, uint64_t policy, int lane)
        : ring_(ring), policy_(policy), lane_(lane), free_(ring.bytes) {}

    // Lanes that push together: as many as leave room for four rounds, which fill the ring evenly enough.
    __device__ __forceinline__ int round_lanes(int bytes) const {
        int lanes = kGroups;
        while (lanes > 1 && ring_.bytes < 4 * lanes * bytes) lanes /= 2;
        return lanes;
    }

    // The next pieces of the lanes that have one.
    __device__ __forceinline__ void push(bool mine, const uint8_t *source, int bytes) {
        const uint32_t lanes = __ballot_sync(~0u, mine);
        if (lanes == 0) return;
        int begin = at_, span = __popc(lanes) * bytes;
        const int end = span;
        if (begin + span > ring_.bytes) {
            span += ring_.bytes - begin;
            begin = 0;
        }
        while (free_ < span || head_ - tail_ == kGroupUses) release_oldest();
        if (lane_ == static_cast<int>(head_ % kGroupUses)) round_ = span * 16 + static_cast<int>(lanes);
        ++head_;
        free_ -= span;
        at_ = begin + end;
        const uint32_t i = ByteRing::index(lane_, uses_);
        begin += __popc(lanes & ((1u << lane_) - 1)) * bytes;
        if (mine) {
            *ByteRing::offset(i) = begin;
            ++uses_;
        }
        copy_to_slots(mine, ring_.memory + begin, source, bytes, ByteRing::full(i), lane_, policy_);
    }

  private:
    __device__ __forceinline__ void release_oldest() {
        const int round = __shfl_sync(~0u, round_, tail_++ % kGroupUses);
        if (round >> lane_ & 1 && lane_ < kGroups) {
            barrier_wait(ByteRing::empty(ByteRing::index(lane_, released_)), ByteRing::parity(released_));
            ++released_;
        }
        __syncwarp();
        free_ += round / 16;
    }

    static_assert(kGroups <= 4, "four bits for the lanes of a round");
    const ByteRing ring_;
    const uint64_t policy_;
    const int lane_;
    uint32_t head_ = 0, tail_ = 0;      // rounds so far, rounds known to be released
    uint32_t uses_ = 0, released_ = 0;  // pieces of this lane's group
    int at_ = 0, free_;
    int round_ = 0;  // lane i: of round i, modulo kGroupUses: 16 * the bytes that it keeps busy + its lanes
};

}  // namespace pj::cuda
