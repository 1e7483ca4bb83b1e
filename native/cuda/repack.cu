#include "cuda/repack.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "core/quants.h"
#include "core/status.h"
#include "cuda/device.h"

namespace pj::cuda {

namespace {

constexpr size_t kPieceBytes = size_t{32} << 20;
constexpr int kRepackThreads = 256;
constexpr int kCopyThreads = 4;

// One CTA per unit.
__global__ void __launch_bounds__(kRepackThreads)
    repack(int32_t format, const uint8_t *rows, int64_t row_bytes, int n_rows, int k_units, uint8_t *units) {
    const int block = blockIdx.x / k_units, k = blockIdx.x % k_units;
    const int first = block * kUnitOutputs, n_words = unit_bytes(format) / 4;
    const RowBlock source = {rows + first * row_bytes, row_bytes, n_rows - first};
    uint32_t *unit = reinterpret_cast<uint32_t *>(units + static_cast<int64_t>(blockIdx.x) * unit_bytes(format));
    for (int w = threadIdx.x; w < n_words; w += kRepackThreads) unit[w] = unit_word(format, source, k, w);
}

// One thread does not read a memory map as fast as the bus takes it.
void copy_parallel(uint8_t *to, const uint8_t *from, size_t n) {
    const size_t share = std::max((n + kCopyThreads - 1) / kCopyThreads, size_t{1} << 20);
    std::vector<std::thread> threads;
    for (size_t begin = share; begin < n; begin += share)
        threads.emplace_back([=] { std::memcpy(to + begin, from + begin, std::min(share, n - begin)); });
    std::memcpy(to, from, std::min(share, n));
    for (std::thread &thread : threads) thread.join();
}

int64_t file_row_bytes(const Matrix &m) { return static_cast<int64_t>(row_bytes(*type_traits(m.type), m.n_in)); }

int blocks_of(const Matrix &m) { return (m.n_out + kUnitOutputs - 1) / kUnitOutputs; }

}  // namespace

bool has_kernel_image() {
    cudaFuncAttributes attributes;
    const bool found = cudaFuncGetAttributes(&attributes, repack) == cudaSuccess;
    cudaGetLastError();
    return found;
}

uint64_t packed_bytes(const Matrix &m) {
    const int32_t format = tile_format(m.type, m.n_in);
    if (!unit_bytes(format)) return m.n_bytes;
    return static_cast<uint64_t>(unit_bytes(format)) * blocks_of(m) * (m.n_in / kUnitInputs);
}

cudaError_t launch_repack(int32_t format, const uint8_t *rows, int64_t row_bytes, int n_rows, int k_units,
                          uint8_t *units, cudaStream_t stream) {
    const int n_blocks = (n_rows + kUnitOutputs - 1) / kUnitOutputs;
    repack<<<n_blocks * k_units, kRepackThreads, 0, stream>>>(format, rows, row_bytes, n_rows, k_units, units);
    return cudaGetLastError();
}

Uploader::Uploader(const pj_config &config, uint64_t total) : config_(config), total_(total) { reserve(kPieceBytes); }

// Grows the staging memory: a piece holds at least the 64 rows of a block.
void Uploader::reserve(size_t bytes) {
    if (bytes <= piece_bytes_) return;
    stream_.synchronize("copying weights to the GPU");
    staging_ = DeviceBuffer<uint8_t>(bytes, "staging of weights");
    for (auto &pinned : pinned_) pinned = PinnedBuffer<uint8_t>(bytes, "staging of weights");
    piece_bytes_ = bytes;
}

// Pinned memory that holds a copy of the bytes; waits until its last use is over.
uint8_t *Uploader::next_slot(const uint8_t *source, size_t bytes) {
    slot_ = (slot_ + 1) % kSlots;
    check(cudaEventSynchronize(free_[slot_]), "copying weights to the GPU");
    copy_parallel(pinned_[slot_].data(), source, bytes);
    return pinned_[slot_].data();
}

void Uploader::slot_is_busy() { check(cudaEventRecord(free_[slot_], stream_), "copying weights to the GPU"); }

void Uploader::report(uint64_t bytes) {
    done_ += bytes;
    if (config_.progress && config_.progress(config_.progress_user, "uploading weights", done_, total_))
        fail(PJ_ERR_CANCELLED, "loading was stopped by the caller");
}

void Uploader::upload_packed(const Matrix &m, uint8_t *units) {
    const int32_t format = tile_format(m.type, m.n_in);
    const int64_t stride = file_row_bytes(m);
    const int k_units = m.n_in / kUnitInputs;
    reserve(stride * kUnitOutputs);
    const int piece_rows = static_cast<int>(piece_bytes_ / (stride * kUnitOutputs)) * kUnitOutputs;
    for (int first = 0; first < m.n_out; first += piece_rows) {
        const int n_rows = std::min(piece_rows, m.n_out - first);
        const size_t bytes = n_rows * stride;
        const uint8_t *pinned = next_slot(static_cast<const uint8_t *>(m.data) + first * stride, bytes);
        check(cudaMemcpyAsync(staging_.data(), pinned, bytes, cudaMemcpyHostToDevice, stream_),
              "copying weights to the GPU");
        slot_is_busy();
        uint8_t *target = units + static_cast<int64_t>(first / kUnitOutputs) * k_units * unit_bytes(format);
        check(launch_repack(format, staging_.data(), stride, n_rows, k_units, target, stream_), "repacking weights");
        report(bytes);
    }
}

void Uploader::upload_rows(const Matrix &m, uint8_t *rows) {
    for (uint64_t first = 0; first < m.n_bytes; first += piece_bytes_) {
        const size_t bytes = std::min<uint64_t>(piece_bytes_, m.n_bytes - first);
        const uint8_t *pinned = next_slot(static_cast<const uint8_t *>(m.data) + first, bytes);
        check(cudaMemcpyAsync(rows + first, pinned, bytes, cudaMemcpyHostToDevice, stream_),
              "copying weights to the GPU");
        slot_is_busy();
        report(bytes);
    }
}

void Uploader::upload(const void *source, size_t bytes, void *target) {
    check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream_), "copying weights to the GPU");
}

void Uploader::finish() { stream_.synchronize("copying weights to the GPU"); }

}  // namespace pj::cuda
