// f16 as bits, one value at a time.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace pj::cpu::PJ_ISA {

static inline float half_bits_to_float(uint16_t h) {
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7fff, bits;
    if (magnitude >= 0x7c00) {
        bits = sign | 0x7f800000 | ((magnitude & 0x3ff) << 13);
    } else if (magnitude >= 0x0400) {
        bits = sign | ((magnitude << 13) + 0x38000000);
    } else {  // subnormal: exact in f32
        const float value = (float)magnitude * 5.9604644775390625e-8f;
        std::memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    }
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
#endif
}

// Round to nearest even.
static inline uint16_t float_to_half_bits(float value) {
#if defined(__F16C__)
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) {  // subnormal or zero: let the f32 adder round at 2^-24
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        std::memcpy(&bits, &magnitude, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xc8000fff + (bits >> 13 & 1);  // rebias the exponent, round to nearest even
    return (uint16_t)(sign | bits >> 13);
#endif
}

}  // namespace pj::cpu::PJ_ISA
