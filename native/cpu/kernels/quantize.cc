#include "cpu/kernels/functions.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/simd.h"

namespace pj::cpu::PJ_ISA {

namespace {

constexpr float kLargest = 127.0f;
constexpr float kTiny = 1e-30f;                 // groups below this become zero: 127 / amax would overflow
constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
constexpr int32_t kRoundToIntegerBits = 0x4b400000;

F16 absolute(F16 v) { return v < F16{} ? -v : v; }

// Rounds 16 values of [-127, 127] and stores them; returns their sum.
float round_and_store(F16 v, int8_t *q) {
    const F16 shifted = v + broadcast(kRoundToInteger);
    I16 integers;
    std::memcpy(&integers, &shifted, sizeof integers);
    integers -= kRoundToIntegerBits;
    typedef int8_t Bytes __attribute__((vector_size(16)));
    const Bytes bytes = __builtin_convertvector(integers, Bytes);
    std::memcpy(q, &bytes, sizeof bytes);
    return sum_lanes(shifted - broadcast(kRoundToInteger));  // small integers: exact in any order
}

}  // namespace

// scale = amax / 127 and q = round(x * (127 / amax)), ties to even. Every operation is rounded the
// same way on all instruction sets, so their results are equal.
void quantize_row(const float *x, int n, int8_t *q, QuantGroup *groups) {
    for (int i = 0; i < n; i += kGroup, ++groups) {
        const F16 low = load(x + i), high = load(x + i + kLanes);
        const float largest = max_lanes(max(absolute(low), absolute(high)));
        const bool zero = largest < kTiny;
        const F16 inverse = broadcast(zero ? 0.0f : kLargest / largest);
        groups->scale = zero ? 0.0f : largest / kLargest;
        groups->sub_sum[0] = round_and_store(low * inverse, q + i);
        groups->sub_sum[1] = round_and_store(high * inverse, q + i + kLanes);
        groups->sum = groups->sub_sum[0] + groups->sub_sum[1];
    }
}

}  // namespace pj::cpu::PJ_ISA
