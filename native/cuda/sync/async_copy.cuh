// Copies from global to shared memory that a thread begins and waits for later (cp.async).
#pragma once

#include <cstdint>

namespace pj::cuda {

// By 16 bytes past the L1 cache, by fewer through it. `to`: a shared address.
template <int kBytes>
__device__ __forceinline__ void start_copy(uint32_t to, const void *from) {
    static_assert(kBytes == 8 || kBytes == 16, "sizes in use");
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

// For all that this thread began.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace pj::cuda
