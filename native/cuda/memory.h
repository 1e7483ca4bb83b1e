// Device and pinned host memory that frees itself, and CUDA errors as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace pj::cuda {

// Throws Error(PJ_ERR_MEMORY) when the device or the pinnable host memory is exhausted, else
// Error(PJ_ERR_DEVICE). what: the action, e.g. "copying weights to the GPU".
void check(cudaError_t status, const char *what);

// "1.5 GiB", "640 MiB"
struct ByteText {
    explicit ByteText(uint64_t bytes);
    char text[32];
};

enum class MemoryKind { kDevice, kPinned };

// Throws Error(PJ_ERR_MEMORY) that says what was needed and what is free. nullptr for 0 bytes.
void *allocate(MemoryKind kind, size_t bytes, const char *what);
void release(MemoryKind kind, void *memory) noexcept;

// Uninitialised memory for T.
template <class T, MemoryKind kKind>
class Buffer {
  public:
    Buffer() = default;
    Buffer(size_t n, const char *what) : data_(static_cast<T *>(allocate(kKind, n * sizeof(T), what))), size_(n) {}
    Buffer(Buffer &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Buffer &operator=(Buffer &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Buffer() { release(kKind, data_); }

    T *data() const { return data_; }
    size_t size() const { return size_; }
    size_t bytes() const { return size_ * sizeof(T); }

  private:
    T *data_ = nullptr;
    size_t size_ = 0;
};

template <class T>
using DeviceBuffer = Buffer<T, MemoryKind::kDevice>;
template <class T>
using PinnedBuffer = Buffer<T, MemoryKind::kPinned>;

class Stream {
  public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    ~Stream() {
        cudaStreamSynchronize(stream_);
        cudaStreamDestroy(stream_);
    }
    operator cudaStream_t() const { return stream_; }
    void synchronize(const char *what) const { check(cudaStreamSynchronize(stream_), what); }

  private:
    cudaStream_t stream_ = nullptr;
};

class Event {
  public:
    Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "creating an event"); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    ~Event() { cudaEventDestroy(event_); }
    operator cudaEvent_t() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace pj::cuda
