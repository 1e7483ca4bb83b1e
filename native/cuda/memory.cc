#include "cuda/memory.h"

#include <cstdio>

#include "core/status.h"

namespace pj::cuda {

ByteText::ByteText(uint64_t bytes) {
    const double mib = static_cast<double>(bytes) / (1 << 20);
    if (mib >= 1024)
        std::snprintf(text, sizeof text, "%.2f GiB", mib / 1024);
    else
        std::snprintf(text, sizeof text, "%.1f MiB", mib);
}

void check(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // the next call shall not report this error again
    if (status == cudaErrorMemoryAllocation) fail(PJ_ERR_MEMORY, "%s: the GPU is out of memory", what);
    fail(PJ_ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void *allocate(MemoryKind kind, size_t bytes, const char *what) {
    if (bytes == 0) return nullptr;
    void *memory = nullptr;
    const cudaError_t status =
        kind == MemoryKind::kDevice ? cudaMalloc(&memory, bytes) : cudaMallocHost(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        if (kind == MemoryKind::kPinned)
            fail(PJ_ERR_MEMORY, "%s needs %s of pinned host memory, which the system does not give", what,
                 ByteText(bytes).text);
        size_t free_bytes = 0, total = 0;
        cudaMemGetInfo(&free_bytes, &total);
        fail(PJ_ERR_MEMORY, "%s: %s of GPU memory are needed, %s are free; use a smaller context or fewer slots", what,
             ByteText(bytes).text, ByteText(free_bytes).text);
    }
    check(status, what);
    return memory;
}

void release(MemoryKind kind, void *memory) noexcept {
    if (!memory) return;
    if (kind == MemoryKind::kDevice)
        cudaFree(memory);
    else
        cudaFreeHost(memory);
}

}  // namespace pj::cuda
