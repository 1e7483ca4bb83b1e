// Everything that a launch needs from the host, in one piece of pinned memory and one copy.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/status.h"
#include "cuda/memory.h"

namespace pj::cuda {

class StepBlob {
  public:
    // Bytes that steps of at most `most` bytes take on the device: room for growth included.
    static size_t capacity_for(size_t most) { return 2 * most; }

    // Starts a new blob of at most this many bytes. The copy of the one before has ended.
    void begin(size_t bytes) {
        if (bytes > host_.size()) {
            host_ = {};
            device_ = {};
            host_ = PinnedBuffer<uint8_t>(capacity_for(bytes), "input of a step");
            device_ = DeviceBuffer<uint8_t>(capacity_for(bytes), "input of a step");
        }
        used_ = 0;
    }

    // Room for n elements. Returns where to write them; *device is where the GPU finds them.
    template <class T>
    T *reserve(size_t n, T **device) {
        const size_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment, end = begin + n * sizeof(T);
        if (end > host_.size()) fail(PJ_ERR_INTERNAL, "the input of a step is larger than planned");
        used_ = end;
        *device = reinterpret_cast<T *>(device_.data() + begin);
        return reinterpret_cast<T *>(host_.data() + begin);
    }

    // Copies n elements; returns where the GPU finds them.
    template <class T>
    const T *add(const T *data, size_t n) {
        T *device;
        T *host = reserve<T>(n, &device);
        if (n) std::memcpy(host, data, n * sizeof(T));
        return device;
    }

    // Bytes that an array of n takes at most.
    template <class T>
    static size_t size_of(size_t n) {
        return n * sizeof(T) + kAlignment;
    }

    void send(cudaStream_t stream) const {
        check(cudaMemcpyAsync(device_.data(), host_.data(), used_, cudaMemcpyHostToDevice, stream),
              "copying a step's input to the GPU");
    }

    uint64_t bytes() const { return device_.bytes(); }

  private:
    static constexpr size_t kAlignment = 256;  // barrier counters keep a line of their own

    PinnedBuffer<uint8_t> host_;
    DeviceBuffer<uint8_t> device_;
    size_t used_ = 0;
};

}  // namespace pj::cuda
