#include "cuda/device.h"

#include <cuda_runtime.h>

#include "core/status.h"
#include "cuda/memory.h"

namespace pj::cuda {

namespace {

// CUDA versions are 1000 * major + 10 * minor.
void check_driver() {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0)
        fail(PJ_ERR_DEVICE, "no NVIDIA driver was found; install one for CUDA %d.%d or newer, or use the CPU device",
             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    // Within a major version a driver runs what newer toolkits compiled.
    if (driver / 1000 < CUDART_VERSION / 1000)
        fail(PJ_ERR_DEVICE,
             "the NVIDIA driver supports CUDA %d.%d, this library needs %d.0; update the driver or use the CPU device",
             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
}

int device_count() {
    check_driver();
    int n = 0;
    const cudaError_t status = cudaGetDeviceCount(&n);
    if (status == cudaErrorNoDevice) {
        cudaGetLastError();
        return 0;
    }
    check(status, "looking for GPUs");
    return n;
}

}  // namespace

const char *compiled_archs() { return PJ_CUDA_ARCHS; }

int usable_devices() {
    const int n = device_count();
    if (n == 0)
        fail(PJ_ERR_DEVICE, "no GPU is visible to this process; check CUDA_VISIBLE_DEVICES or use the CPU device");
    return n;
}

Device open_device(int index) {
    const int n = usable_devices();
    if (index < 0 || index >= n)
        fail(PJ_ERR_DEVICE, "GPU %d does not exist; this process sees %d (0..%d)", index, n, n - 1);
    check(cudaSetDevice(index), "opening the GPU");
    cudaDeviceProp p;
    check(cudaGetDeviceProperties(&p, index), "reading the GPU's properties");
    if (!has_kernel_image())
        fail(PJ_ERR_DEVICE,
             "%s is sm_%d%d, this library was compiled for %s; build it with -DPJ_ARCHS=%d%d or use the CPU device",
             p.name, p.major, p.minor, compiled_archs(), p.major, p.minor);
    int cooperative = 0, shared = 0;
    check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, index), "reading the GPU's attributes");
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
          "reading the GPU's attributes");
    if (!cooperative)
        fail(PJ_ERR_DEVICE, "%s cannot launch cooperative grids here; use another GPU or the CPU device", p.name);
    Device d;
    d.index = index;
    d.name = p.name;
    d.capability = 10 * p.major + p.minor;
    d.n_sm = p.multiProcessorCount;
    d.shared_limit = shared;
    check(cudaMemGetInfo(&d.free_bytes, &d.total_bytes), "reading the GPU's free memory");
    return d;
}

}  // namespace pj::cuda
