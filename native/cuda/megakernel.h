// Launching the megakernel (megakernel.cu).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/step_args.h"

namespace pj::cuda {

constexpr int kConsumerWarps = 8;
constexpr int kThreads = (kConsumerWarps + 2) * 32;  // + weight loader + activation loader
constexpr int kPassTiles = 3;                        // row tiles of 8 that share one read of the weights
constexpr int kScratchBytes = 28 * 1024;             // reductions, recurrence, attention

// Dynamic shared memory of a plan: weight ring, activation ring, scratch, barriers, row factors.
constexpr size_t shared_bytes(int ring_slots, int ring_slot_bytes, int act_slots, int pass_tiles) {
    return static_cast<size_t>(ring_slots) * ring_slot_bytes +
           static_cast<size_t>(act_slots) * pass_tiles * sizeof(ActTile) + kScratchBytes +
           static_cast<size_t>(ring_slots + act_slots) * 16 + 128;
}

// One step: a cooperative launch of n_cta blocks that walk args->ops. args lies on the device.
cudaError_t launch_megakernel(const StepArgs *args, int n_cta, size_t shared_bytes, cudaStream_t stream);

// Applies the first n pending speculative rows of a slot to its states and windows. trunk: the op
// list of the model on the device; args: those of any earlier step.
cudaError_t launch_commit(const StepArgs *args, const Op *trunk, int slot, int n, const DeviceShape &shape,
                          cudaStream_t stream);

}  // namespace pj::cuda
