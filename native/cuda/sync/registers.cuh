// Registers that loader warps leave to the consumers, on sm_90a.
//
// A launch gives every thread the same number, 168 for three warpgroups; the consumers keep more sums of wide products
// alive than fit into those, and a loader needs fewer. All warps of a warpgroup call these. PTX ISA, setmaxnreg.
#pragma once

namespace pj::cuda {

constexpr int kLoaderRegisters = 72, kConsumerRegisters = 216;
static_assert(kLoaderRegisters + 2 * kConsumerRegisters <= 65536 / 128, "one warpgroup of loaders, two of consumers");

__device__ __forceinline__ void become_loader() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kLoaderRegisters));
#endif
}

__device__ __forceinline__ void become_consumer() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
#endif
}

}  // namespace pj::cuda
