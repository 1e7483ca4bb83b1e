// Tests of this folder need a GPU.
#pragma once

#include <cstdio>

#include "core/status.h"
#include "cuda/device.h"

constexpr int kSkipped = 77;  // exit status: there is no GPU here

// Prints the GPU's name, or why there is none.
inline bool has_gpu() {
    try {
        std::printf("%s: ", pj::cuda::open_device(0).name.c_str());
        return true;
    } catch (const pj::Error &error) {
        std::printf("skipped: %s\n", error.what());
        return false;
    }
}
