// What the card can do at most, as JSON: bytes read per second with 16-byte loads from a buffer much larger than the
// L2, and int8 operations per second through mma.m16n8k32, the instruction of the product kernels.
//
//   nvcc -O3 -arch=native -o ceilings bench/native/ceilings.cu && ./ceilings
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kThreads = 512;
constexpr int kTries = 12;
constexpr int kMmaRounds = 1 << 14;
constexpr int kChains = 8;  // independent accumulators of a warp, so that latency does not count
constexpr size_t kMostBytes = size_t{8} << 30;

void check(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

// Four loads in flight per thread; the xor keeps the compiler from dropping them.
__global__ void __launch_bounds__(kThreads) read_all(const uint4 *data, size_t n, uint32_t *sink) {
    const size_t stride = size_t{gridDim.x} * kThreads;
    uint32_t sum = 0;
    size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = __ldcs(data + i + k * stride);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += stride) sum ^= data[i].x;
    if (sum == 0x9e3779b9u) *sink = sum;
}

__device__ __forceinline__ void mma(int (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(kThreads) multiply(uint32_t *sink) {
    const uint32_t a[4] = {threadIdx.x, threadIdx.x * 3, threadIdx.x * 5, threadIdx.x * 7};
    const uint32_t b[2] = {threadIdx.x * 11, threadIdx.x * 13};
    int c[kChains][4] = {};
    for (int round = 0; round < kMmaRounds; ++round)
#pragma unroll
        for (int k = 0; k < kChains; ++k) mma(c[k], a, b);
    int sum = 0;
#pragma unroll
    for (int k = 0; k < kChains; ++k) sum ^= c[k][0] ^ c[k][1] ^ c[k][2] ^ c[k][3];
    if (sum == 0x5bd1e995) *sink = sum;
}

// Fastest of several runs, in seconds.
template <class Launch>
double best_seconds(const Launch &launch) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "creating an event");
    check(cudaEventCreate(&end), "creating an event");
    float best = 1e30f;
    for (int i = 0; i < kTries; ++i) {
        check(cudaEventRecord(begin), "recording an event");
        launch();
        check(cudaGetLastError(), "starting a kernel");
        check(cudaEventRecord(end), "recording an event");
        check(cudaEventSynchronize(end), "running a kernel");
        float ms;
        check(cudaEventElapsedTime(&ms, begin, end), "reading an event");
        best = std::min(best, ms);
    }
    return best * 1e-3;
}

}  // namespace

int main() {
    int n_sm = 0;
    check(cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, 0), "opening the GPU");
    size_t free_bytes, total_bytes;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free memory");
    const size_t n = std::min(kMostBytes, free_bytes / 2) / sizeof(uint4);
    uint4 *data;
    uint32_t *sink;
    check(cudaMalloc(&data, n * sizeof(uint4)), "allocating a buffer");
    check(cudaMalloc(&sink, sizeof *sink), "allocating a buffer");
    check(cudaMemset(data, 0x5a, n * sizeof(uint4)), "filling a buffer");

    double read = 0;
    for (int per_sm : {1, 2, 4}) {
        const double s = best_seconds([&] { read_all<<<n_sm * per_sm, kThreads>>>(data, n, sink); });
        read = std::max(read, n * sizeof(uint4) / s);
    }
    const double s = best_seconds([&] { multiply<<<n_sm * 2, kThreads>>>(sink); });
    const double warps = n_sm * 2.0 * kThreads / 32, operations = warps * kMmaRounds * kChains * 2.0 * 16 * 8 * 32;
    std::printf("{\"read_gb_s\": %.1f, \"int8_tops\": %.1f}\n", read * 1e-9, operations / s * 1e-12);
    return 0;
}
