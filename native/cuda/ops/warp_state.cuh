// Where the consumer warps are in the rings, and what they keep while they multiply.
#pragma once

#include "cuda/megakernel.h"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

// Where a warp is in the rings: advanced by every matrix of every op, as the loaders advance.
struct RingUses {
    uint32_t weights, acts, cursor;
};

// What a warp keeps in shared memory while it multiplies. In registers it would be alive in calls, and so on the stack:
// in local memory, half a microsecond away when the memory is busy.
struct WarpState {
    RingUses uses;
    uint32_t acts_before;  // the op
    int gemm;              // of the op
};

__device__ __forceinline__ WarpState &warp_state() {
    __shared__ WarpState states[kConsumerWarps];
    return states[threadIdx.x >> 5];
}

struct Rings {
    ByteRing weights;
    SlotRing acts;
};

__device__ __forceinline__ Rings divide_shared(const StepArgs &s) {
    const int slot_bytes = s.pass_tiles * static_cast<int>(sizeof(ActTile));
    const uint32_t slots = shared_address(kActSlots);
    return {{slots + s.act_slots * slot_bytes, s.ring_bytes},
            {slots, shared_address(kActFull), shared_address(kActEmpty), s.act_slots, slot_bytes}};
}

// Runs body(rings, uses) with the warp's uses of them, which it advances.
template <class Body>
__device__ __forceinline__ void with_rings(const StepArgs &s, const Body &body) {
    RingUses uses = warp_state().uses;
    body(divide_shared(s), uses);
    __syncwarp();
    if (threadIdx.x % 32 == 0) warp_state().uses = uses;
    __syncwarp();
}

}  // namespace pj::cuda
