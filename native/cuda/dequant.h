// Single elements of blocks as in the file: what the generic matrix product reads of the weight types without
// tensor-core tiles, what an embedding row is made of on the device, and what a test compares on the host.
//
// The operations and their order are those of dequantize_row (core/quants.cc), so the bits are too.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/block_decode.h"
#include "core/host_device.h"
#include "core/quants.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace pj::cuda {

// As TypeTraits::block_elements and block_bytes, for the compiler.
template <int32_t kType>
constexpr int kRawElements = kType == GGML_F32 || kType == GGML_F16 || kType == GGML_BF16 ? 1
                             : kType == GGML_Q2_K || kType == GGML_Q3_K || kType == GGML_Q4_K || kType == GGML_Q5_K ||
                                     kType == GGML_Q6_K || kType == GGML_IQ4_XS
                                 ? 256

                                 : 32;
template <int32_t kType>
constexpr int kRawBytes = kType == GGML_F32      ? 4
                          : kType == GGML_F16    ? 2
                          : kType == GGML_BF16   ? 2
                          : kType == GGML_Q4_0   ? 18
                          : kType == GGML_Q4_1   ? 20
                          : kType == GGML_Q5_0   ? 22
                          : kType == GGML_Q5_1   ? 24
                          : kType == GGML_Q8_0   ? 34
                          : kType == GGML_Q2_K   ? 84
                          : kType == GGML_Q3_K   ? 110
                          : kType == GGML_Q4_K   ? 144
                          : kType == GGML_Q5_K   ? 176
                          : kType == GGML_Q6_K   ? 210
                          : kType == GGML_IQ4_NL ? 18
                          : kType == GGML_IQ4_XS ? 136
                                                 : 0;

template <int32_t kType>
struct RawType {
    static constexpr int32_t value = kType;
};

// Calls use(RawType<type>{}); false for a type that this file does not read.
template <class Use>
PJ_HOST_DEVICE bool with_raw_type(int32_t type, const Use &use) {
    switch (type) {
        case GGML_F32:
            return use(RawType<GGML_F32>{}), true;
        case GGML_F16:
            return use(RawType<GGML_F16>{}), true;
        case GGML_BF16:
            return use(RawType<GGML_BF16>{}), true;
        case GGML_Q4_0:
            return use(RawType<GGML_Q4_0>{}), true;
        case GGML_Q4_1:
            return use(RawType<GGML_Q4_1>{}), true;
        case GGML_Q5_0:
            return use(RawType<GGML_Q5_0>{}), true;
        case GGML_Q5_1:
            return use(RawType<GGML_Q5_1>{}), true;
        case GGML_Q8_0:
            return use(RawType<GGML_Q8_0>{}), true;
        case GGML_Q2_K:
            return use(RawType<GGML_Q2_K>{}), true;
        case GGML_Q3_K:
            return use(RawType<GGML_Q3_K>{}), true;
        case GGML_IQ4_NL:
            return use(RawType<GGML_IQ4_NL>{}), true;
        case GGML_IQ4_XS:
            return use(RawType<GGML_IQ4_XS>{}), true;
        default:
            return false;
    }
}

// Likewise for every type that an embedding table may have.
template <class Use>
PJ_HOST_DEVICE bool with_any_type(int32_t type, const Use &use) {
    switch (type) {
        case GGML_Q4_K:
            return use(RawType<GGML_Q4_K>{}), true;
        case GGML_Q5_K:
            return use(RawType<GGML_Q5_K>{}), true;
        case GGML_Q6_K:
            return use(RawType<GGML_Q6_K>{}), true;
        default:
            return with_raw_type(type, use);
    }
}

// Blocks begin at multiples of two bytes, whatever the row.
PJ_HOST_DEVICE int raw8(const uint8_t *p) {
#ifdef __CUDA_ARCH__
    return *p;
#else
    return *p;
#endif
}

PJ_HOST_DEVICE uint16_t raw16(const uint8_t *p) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const unsigned short *>(p);
#else
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return bits;
#endif
}

PJ_HOST_DEVICE float raw_half(const uint8_t *p) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(raw16(p)));
#else
    return half_to_float(raw16(p));
#endif
}

PJ_HOST_DEVICE float raw_float(const uint8_t *p) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const float *>(p);
#else
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
#endif
}

PJ_HOST_DEVICE float bfloat_to_float(uint16_t bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
#else
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
#endif
}

// Element i of 32 whose low nibbles come first in 16 bytes.
PJ_HOST_DEVICE int nibble32(const uint8_t *bytes, int i) { return raw8(bytes + i % 16) >> (i / 16 * 4) & 15; }

// Element i of 256 in 64 bytes: two bits each, 32 neighbours in neighbouring bytes.
PJ_HOST_DEVICE int pair256(const uint8_t *bytes, int i) {
    return raw8(bytes + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}

// Eight bytes of a table in a register: an array indexed at run time would go to memory.
constexpr uint64_t packed8(const int8_t *values) {
    uint64_t packed = 0;
    for (int i = 0; i < 8; ++i) packed |= static_cast<uint64_t>(static_cast<uint8_t>(values[i])) << (8 * i);
    return packed;
}

PJ_HOST_DEVICE int iq4_value(int q) {
    constexpr uint64_t low = packed8(kIq4Values), high = packed8(kIq4Values + 8);
    return static_cast<int8_t>((q < 8 ? low : high) >> (q % 8 * 8));
}

PJ_HOST_DEVICE float q2_k_value(const uint8_t *b, int i) {
    const int codes = raw8(b + i / 16);
    const float scale = raw_half(b + 80) * static_cast<float>(codes & 15);
    const float minimum = raw_half(b + 82) * static_cast<float>(codes >> 4);
    return scale * static_cast<float>(pair256(b + 16, i)) - minimum;
}

PJ_HOST_DEVICE float q3_k_value(const uint8_t *b, int i) {
    const uint8_t *codes = b + 96;
    const int s = i / 16, low = raw8(codes + s % 8) >> (s / 8 * 4) & 15,
              high = raw8(codes + 8 + s % 4) >> (s / 4 * 2) & 3;
    const float scale = raw_half(b + 108) * static_cast<float>((low | high << 4) - 32);
    const int upper = raw8(b + i % 32) >> (i / 32) & 1;
    return scale * static_cast<float>((pair256(b + 32, i) | upper << 2) - 4);
}

// Scale and minimum of 32 elements of a Q4_K or Q5_K block, as integers (core/block_decode.cc).
struct ScaleK4 {
    int scale, minimum;

    PJ_HOST_DEVICE ScaleK4(const uint8_t *codes, int s) {
        const int i = s % 4, low = raw8(codes + i), high = raw8(codes + 4 + i);
        if (s < 4) {
            scale = low & 63;
            minimum = high & 63;
        } else {
            const int last = raw8(codes + 8 + i);
            scale = (last & 15) | low >> 6 << 4;
            minimum = last >> 4 | high >> 6 << 4;
        }
    }
};

PJ_HOST_DEVICE float k4_value(const uint8_t *b, int s, int q) {
    const ScaleK4 code(b + 4, s);
    const float scale = raw_half(b) * static_cast<float>(code.scale);
    return scale * static_cast<float>(q) - raw_half(b + 2) * static_cast<float>(code.minimum);
}

PJ_HOST_DEVICE int k4_nibble(const uint8_t *bytes, int i) {
    return raw8(bytes + i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & 15;
}

PJ_HOST_DEVICE float q5_k_value(const uint8_t *b, int i) {
    const int fifth = raw8(b + 16 + i % 32) >> (i / 32) & 1;
    return k4_value(b, i / 32, k4_nibble(b + 48, i) | fifth << 4);
}

PJ_HOST_DEVICE float q6_k_value(const uint8_t *b, int i) {
    const int half = i / 128, quarter = i % 128 / 32, lane = i % 32;
    const int low = raw8(b + half * 64 + quarter % 2 * 32 + lane) >> (quarter / 2 * 4) & 15;
    const int high = raw8(b + 128 + half * 32 + lane) >> (quarter * 2) & 3;
    const float scale = raw_half(b + 208) * static_cast<float>(static_cast<int8_t>(raw8(b + 192 + i / 16)));
    return scale * static_cast<float>((low | high << 4) - 32);
}

PJ_HOST_DEVICE float iq4_xs_value(const uint8_t *b, int i) {
    const int s = i / 32, low = raw8(b + 4 + s / 2) >> (s % 2 * 4) & 15, high = raw16(b + 2) >> (2 * s) & 3;
    const float scale = raw_half(b) * static_cast<float>((low | high << 4) - 32);
    return scale * static_cast<float>(iq4_value(nibble32(b + 8 + 16 * s, i % 32)));
}

// Element i of a block.
template <int32_t kType>
PJ_HOST_DEVICE float raw_value(const uint8_t *b, int i) {
    if constexpr (kType == GGML_F32) return raw_float(b);
    if constexpr (kType == GGML_F16) return raw_half(b);
    if constexpr (kType == GGML_BF16) return bfloat_to_float(raw16(b));
    if constexpr (kType == GGML_Q4_0) return raw_half(b) * static_cast<float>(nibble32(b + 2, i) - 8);
    if constexpr (kType == GGML_Q4_1) return raw_half(b) * static_cast<float>(nibble32(b + 4, i)) + raw_half(b + 2);
    if constexpr (kType == GGML_Q5_0) {
        const int fifth = raw8(b + 2 + i / 8) >> (i % 8) & 1;
        return raw_half(b) * static_cast<float>((nibble32(b + 6, i) | fifth << 4) - 16);
    }
    if constexpr (kType == GGML_Q5_1) {
        const int fifth = raw8(b + 4 + i / 8) >> (i % 8) & 1;
        return raw_half(b) * static_cast<float>(nibble32(b + 8, i) | fifth << 4) + raw_half(b + 2);
    }
    if constexpr (kType == GGML_Q8_0) return raw_half(b) * static_cast<float>(static_cast<int8_t>(raw8(b + 2 + i)));
    if constexpr (kType == GGML_IQ4_NL) return raw_half(b) * static_cast<float>(iq4_value(nibble32(b + 2, i)));
    if constexpr (kType == GGML_Q2_K) return q2_k_value(b, i);
    if constexpr (kType == GGML_Q3_K) return q3_k_value(b, i);
    if constexpr (kType == GGML_Q4_K) return k4_value(b, i / 32, k4_nibble(b + 16, i));
    if constexpr (kType == GGML_Q5_K) return q5_k_value(b, i);
    if constexpr (kType == GGML_Q6_K) return q6_k_value(b, i);
    if constexpr (kType == GGML_IQ4_XS) return iq4_xs_value(b, i);
}

}  // namespace pj::cuda
