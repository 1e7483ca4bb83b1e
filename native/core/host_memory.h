// The memory of this machine.
#pragma once

#include <cstdint>

namespace pj {

struct HostMemory {
    uint64_t free_bytes = 0, total_bytes = 0;  // 0: unknown
};

// Free is what programs can get without swapping: file pages in memory count as free.
HostMemory host_memory();

}  // namespace pj
