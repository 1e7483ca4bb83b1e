// Masks that the host completes while a step computes (pj_masks_ready).
//
// They lie in pinned host memory, with the number of the last step whose masks are complete. A row that chooses its
// token waits for that number and brings its mask to the GPU (ops/sample.cuh). Every step has a number of its own, so
// what an earlier one left there never counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "cuda/memory.h"
#include "cuda/step_args.h"

namespace pj::cuda {

class LateMasks {
  public:
    LateMasks() = default;
    // Room for n_masks of n_words each.
    LateMasks(int n_masks, int n_words)
        : stride_(mask_stride(n_words)),
          host_(static_cast<size_t>(n_masks) * stride_, "masks of a step"),
          device_(static_cast<size_t>(n_masks) * stride_, "masks of a step"),
          ready_(1, "masks of a step") {
        new (ready_.data()) std::atomic<uint32_t>(0);
    }

    static uint64_t device_bytes(int n_masks, int n_words) {
        return static_cast<uint64_t>(n_masks) * mask_stride(n_words) * sizeof(uint32_t);
    }

    // Of a step that begins.
    LateMaskArgs begin() {
        if (++step_ == 0) ++step_;  // 0 is no step's number
        return {reinterpret_cast<const uint32_t *>(ready_.data()), host_.data(), device_.data(), step_, stride_};
    }

    // Where the host writes mask i, and where the GPU then has it.
    uint32_t *host(int i) const { return host_.data() + static_cast<size_t>(i) * stride_; }
    const uint32_t *device(int i) const { return device_.data() + static_cast<size_t>(i) * stride_; }

    // What the host has written are the masks of the step that began last.
    void publish() { ready_.data()->store(step_, std::memory_order_release); }

  private:
    static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the GPU reads it as a plain number");

    static int mask_stride(int n_words) { return (n_words + 3) / 4 * 4; }

    int stride_ = 0;
    uint32_t step_ = 0;
    PinnedBuffer<uint32_t> host_;
    DeviceBuffer<uint32_t> device_;
    PinnedBuffer<std::atomic<uint32_t>> ready_;
};

}  // namespace pj::cuda
