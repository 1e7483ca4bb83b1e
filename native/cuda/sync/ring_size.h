// Size of the weight ring's table, for the host and ring.cuh.
#pragma once

#include "cuda/split.h"

namespace pj::cuda {

constexpr int kGroupUses = 8;                       // pieces of a group that a ByteRing holds at most
constexpr int kRingUses = kGroups * kGroupUses;     // one per lane of the loader warp

}  // namespace pj::cuda
