// How the dynamic shared memory of the megakernel is cut, for host and device.
//
//     full and empty barriers of the weight ring, offsets in it; those of the activation ring;
//     scratch of the ops; activation slots; weights
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/split.h"

namespace pj::cuda {

constexpr int kGroupUses = 8;                    // pieces of a group that the weight ring holds at most
constexpr int kRingUses = kGroups * kGroupUses;  // one per lane of the loader warp
constexpr int kMostActSlots = 16;

constexpr uint32_t kWeightFull = 0;
constexpr uint32_t kWeightEmpty = kWeightFull + kRingUses * 8;
constexpr uint32_t kWeightOffsets = kWeightEmpty + kRingUses * 8;
constexpr uint32_t kActFull = kWeightOffsets + kRingUses * 4;
constexpr uint32_t kActEmpty = kActFull + kMostActSlots * 8;
constexpr uint32_t kScratch = (kActEmpty + kMostActSlots * 8 + 255) / 256 * 256;
constexpr uint32_t kScratchBytes = 28 * 1024 + 256;       // recurrence, attention
constexpr uint32_t kActSlots = kScratch + kScratchBytes;  // a multiple of 256 (ops/wgmma.cuh)

}  // namespace pj::cuda
