// Launching the megakernel (megakernel.cu).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/step_args.h"
#include "cuda/sync/shared_layout.h"

namespace pj::cuda {

constexpr int kConsumerWarps = 8;
constexpr int kThreads = (kConsumerWarps + 4) * 32;  // + a warpgroup of loaders, of which two warps have work

constexpr size_t shared_bytes(size_t ring_bytes, int act_slots, int pass_tiles) {
    return kActSlots + act_slots * pass_tiles * sizeof(ActTile) + ring_bytes;
}

// One step: a cooperative launch of n_cta blocks that walk args->ops. args lies on the device.
cudaError_t launch_megakernel(const StepArgs *args, int n_cta, size_t shared_bytes, cudaStream_t stream);

// Applies the first n pending speculative rows of a slot to its states and windows. trunk: the op
// list of the model on the device; args: those of any earlier step.
cudaError_t launch_commit(const StepArgs *args, const Op *trunk, int slot, int n, const DeviceShape &shape,
                          cudaStream_t stream);

}  // namespace pj::cuda
