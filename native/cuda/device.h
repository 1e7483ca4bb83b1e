// The GPU that computes: chosen by index, checked before anything is loaded.
#pragma once

#include <cstddef>
#include <string>

namespace pj::cuda {

struct Device {
    int index = 0;
    std::string name;
    int capability = 0;       // 10 * major + minor
    int n_sm = 0;             // CTAs of the persistent grid
    size_t shared_limit = 0;  // bytes of shared memory that one CTA may ask for
    size_t free_bytes = 0, total_bytes = 0;
};

// GPUs that this process sees, at least 1. Throws Error(PJ_ERR_DEVICE) when there is none or no
// driver that runs this library.
int usable_devices();

// Makes the GPU current. Throws Error(PJ_ERR_DEVICE) with what is needed, what is there and what to
// change: no driver, driver too old, no such GPU, an architecture that was not compiled in.
Device open_device(int index);

// The architectures compiled in, e.g. "sm_86 sm_90".
const char *compiled_archs();

// Whether the code of this library runs on the current device (repack.cu).
bool has_kernel_image();

}  // namespace pj::cuda
