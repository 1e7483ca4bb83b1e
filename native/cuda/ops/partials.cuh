// Partial results of attention: a running softmax over the positions of some segments.
//
// Scores are in units of log2, and weights 2^8 times their size: an f16 half of a weight keeps more of a
// small one, and one whose score lies above its reference (kRise) still fits. The factor is in the values and in the
// sum, so it cancels.
#pragma once

#include "cuda/ops/kv_blocks.cuh"

namespace pj::cuda {

constexpr float kNoScore = -1e30f;
constexpr float kWeightBits = 8;
constexpr int kPartialFloats = kPartialHeader + kHeadDim;

__device__ __forceinline__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct Softmax {
    float largest = kNoScore, sum = 0;
};

// What multiplies the values so far and those that join.
struct MergeFactors {
    float keep, take;
};

__device__ __forceinline__ MergeFactors merge(Softmax &total, float largest, float sum) {
    const float both = fmaxf(total.largest, largest);
    const MergeFactors f = {exp2_of(total.largest - both), exp2_of(largest - both)};
    total.largest = both;
    total.sum = total.sum * f.keep + sum * f.take;
    return f;
}

// First float of a row's partials of one head, a segment kPartialFloats after the other.
__device__ __forceinline__ float *partials_of(const StepArgs &s, const SeqPlan &plan, int row_of_sequence, int head) {
    return s.buf.partial + plan.partial +
           (static_cast<int64_t>(row_of_sequence) * s.shape.n_head + head) * plan.n_segments * kPartialFloats;
}

__device__ __forceinline__ float *head_of(const StepArgs &s, int row, int head) {
    return s.buf.heads + (static_cast<int64_t>(row) * s.shape.n_head + head) * kHeadDim;
}

}  // namespace pj::cuda
