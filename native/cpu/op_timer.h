// Time per kind of op, collected when pj_config.profile is set.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "pyjet.h"

namespace pj::cpu {

enum class Op {
    kEmbed,
    kNorm,
    kProject,
    kConv,
    kGdn,
    kRope,
    kAttention,
    kOutput,
    kFfnUp,
    kFfnDown,
    kHead,
    kSample,
    kCount
};

class OpTimer {
  public:
    explicit OpTimer(bool enabled) : enabled_(enabled) {}

    // Runs body and adds its time to op.
    template <class Body>
    void run(Op op, const Body &body) {
        if (!enabled_) return body();
        const auto begin = std::chrono::steady_clock::now();
        body();
        const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
        total_us_[static_cast<int>(op)] += us.count();
        ++calls_[static_cast<int>(op)];
    }

    std::vector<pj_op_time> times() const;

  private:
    bool enabled_;
    double total_us_[static_cast<int>(Op::kCount)] = {};
    uint64_t calls_[static_cast<int>(Op::kCount)] = {};
};

}  // namespace pj::cpu
