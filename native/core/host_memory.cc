#include "core/host_memory.h"

#include <fstream>
#include <string>

namespace pj {

HostMemory host_memory() {
    HostMemory memory;
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    for (uint64_t kib; file >> name >> kib; std::getline(file, unit)) {
        if (name == "MemTotal:") memory.total_bytes = kib * 1024;
        if (name == "MemAvailable:") memory.free_bytes = kib * 1024;
    }
    return memory;
}

}  // namespace pj
