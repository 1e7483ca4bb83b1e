// The random numbers of a draw: an exponential time per (seed, index, token), the same for host and device.
//
// A token is drawn by a race: candidate i arrives at time E_i / w_i, E_i exponential, w_i its weight, and the first
// wins with probability w_i / sum of w. Times belong to tokens, not to places in a list, so draws from two similar
// distributions that share seed and index mostly agree (Daliri, Musco, Suresh, "Coupling without communication and
// drafter-invariant speculative decoding", 2024, arXiv:2408.07978). Nothing depends on the order of the candidates.
//
// The bits of token t are the t-th output of a SplitMix64 generator (Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014) whose state comes from seed and index; pyjet/engine/noise.py makes the same.
// No libm: its results differ between host and device.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

namespace pj {

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

PJ_HOST_DEVICE uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// The generator of one token of an answer. Seed and index go through the mixer one after the other: neither small
// seeds nor neighbouring indices give states that are near each other.
PJ_HOST_DEVICE uint64_t noise_state(uint64_t seed, int32_t index) {
    const uint64_t start = mixed(seed + kGoldenGamma);
    return mixed(start + (static_cast<uint64_t>(index) + 1) * kGoldenGamma);
}

PJ_HOST_DEVICE uint64_t noise_bits(uint64_t state, int32_t token) {
    return mixed(state + (static_cast<uint64_t>(token) + 1) * kGoldenGamma);
}

// -ln(u) of u = odd / 2^53, 0 < odd < 2^53: within a few units in the last place, also where u is nearly 1.
PJ_HOST_DEVICE double minus_log(uint64_t odd) {
    double f = static_cast<double>(odd);
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    int n = 1023 + 53 - static_cast<int>(bits >> 52);
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&f, &bits, sizeof f);
    if (f > 1.4142135623730951) {
        f *= 0.5;
        --n;
    }
    // u = f / 2^n, |f - 1| small. ln f = 2 atanh(s); f - 1 is exact.
    const double s = (f - 1.0) / (f + 1.0), z = s * s;
    double sum = 1.0 / 19;
    sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15;
    sum = sum * z + 1.0 / 13;
    sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9;
    sum = sum * z + 1.0 / 7;
    sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    sum = sum * z + 1.0;
    return n * 0.69314718055994531 - 2.0 * s * sum;
}

// Exponential with mean 1. u is an odd multiple of 2^-53, so it is neither 0 nor 1.
PJ_HOST_DEVICE double exponential(uint64_t bits) { return minus_log(bits >> 11 | 1); }

// Larger for who arrives earlier; 0 for weight 0, which never does. The bits of positive doubles ascend with them.
PJ_HOST_DEVICE unsigned long long arrival(double exponential_time, unsigned long long weight) {
    if (weight == 0) return 0;
    const double time = exponential_time / static_cast<double>(weight);
    unsigned long long bits;
    memcpy(&bits, &time, sizeof bits);
    return ~bits;
}

}  // namespace pj
