// Weights from the file's memory map to the device, in tile order.
//
// The map is read once, in pieces: host threads copy a piece into pinned memory while the one before
// crosses the bus and a kernel turns it into units. No second copy of the model exists anywhere.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/model.h"
#include "cuda/memory.h"
#include "cuda/pack_unit.h"
#include "pyjet.h"

namespace pj::cuda {

// Device bytes of a matrix in its tile format; a generic format keeps the file's rows.
uint64_t packed_bytes(const Matrix &m);

// units: device, unit_bytes * k_units * n_blocks. rows: device, rows as in the file.
cudaError_t launch_repack(int32_t format, const uint8_t *rows, int64_t row_bytes, int n_rows, int k_units,
                          uint8_t *units, cudaStream_t stream);

class Uploader {
  public:
    // total: bytes of all matrices, for the progress callback.
    Uploader(const pj_config &config, uint64_t total);

    // Both throw Error(PJ_ERR_CANCELLED) when the callback asks to stop.
    void upload_packed(const Matrix &m, uint8_t *units);
    void upload_rows(const Matrix &m, uint8_t *rows);

    // For vectors: small, not counted.
    void upload(const void *source, size_t bytes, void *target);

    // Everything has arrived.
    void finish();

  private:
    static constexpr int kSlots = 2;

    uint8_t *next_slot(const uint8_t *source, size_t bytes);
    void slot_is_busy();
    void report(uint64_t bytes);
    void reserve(size_t bytes);

    const pj_config &config_;
    uint64_t total_, done_ = 0;
    size_t piece_bytes_ = 0;
    DeviceBuffer<uint8_t> staging_;
    PinnedBuffer<uint8_t> pinned_[kSlots];
    Event free_[kSlots];
    int slot_ = 0;
    Stream stream_;  // last member: waits for the copies before the buffers go
};

}  // namespace pj::cuda
