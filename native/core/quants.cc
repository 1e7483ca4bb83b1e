#include "core/quants.h"

#include <cstring>

#include "core/block_decode.h"

namespace pj {

namespace {

constexpr TypeTraits kTraits[] = {
    {GGML_F32, "F32", 1, 4},       {GGML_F16, "F16", 1, 2},         {GGML_BF16, "BF16", 1, 2},
    {GGML_Q8_0, "Q8_0", 32, 34},   {GGML_Q4_0, "Q4_0", 32, 18},     {GGML_Q4_1, "Q4_1", 32, 20},
    {GGML_Q5_0, "Q5_0", 32, 22},   {GGML_Q5_1, "Q5_1", 32, 24},     {GGML_Q2_K, "Q2_K", 256, 84},
    {GGML_Q3_K, "Q3_K", 256, 110}, {GGML_Q4_K, "Q4_K", 256, 144},   {GGML_Q5_K, "Q5_K", 256, 176},
    {GGML_Q6_K, "Q6_K", 256, 210}, {GGML_IQ4_NL, "IQ4_NL", 32, 18}, {GGML_IQ4_XS, "IQ4_XS", 256, 136},
};

float bits_to_float(uint32_t bits) {
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
}

uint32_t float_to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint16_t read16(const uint8_t *p) {
    uint16_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

void dequantize_block(const BlockFormat &format, const DecodedBlock &block, int n, float *out) {
    const float d = half_to_float(block.d);
    const float dmin = format.has_min ? half_to_float(block.dmin) : 0.0f;
    for (int begin = 0; begin < n; begin += format.sub_elements) {
        const int sub = begin / format.sub_elements;
        const float scale = format.has_codes ? d * (float)block.codes[sub] : d;
        const float minimum = format.has_codes ? dmin * (float)block.min_codes[sub] : dmin;
        for (int i = begin; i < begin + format.sub_elements; ++i) {
            const int value = format.table ? format.table[block.q[i]] : block.q[i] - format.offset;
            const float product = scale * (float)value;
            out[i] = format.has_min ? product - minimum : product;
        }
    }
}

}  // namespace

const TypeTraits *type_traits(int32_t type) {
    for (const TypeTraits &traits : kTraits)
        if (traits.type == type) return &traits;
    return nullptr;
}

std::string supported_types() {
    std::string names;
    for (const TypeTraits &traits : kTraits) {
        if (!names.empty()) names += ", ";
        names += traits.name;
    }
    return names;
}

uint64_t row_bytes(const TypeTraits &traits, int64_t n) {
    return (uint64_t)n / traits.block_elements * traits.block_bytes;
}

void dequantize_row(int32_t type, const void *row, int64_t n, float *out) {
    const uint8_t *bytes = static_cast<const uint8_t *>(row);
    switch (type) {
        case GGML_F32:
            std::memcpy(out, bytes, (size_t)n * sizeof(float));
            return;
        case GGML_F16:
            for (int64_t i = 0; i < n; ++i) out[i] = half_to_float(read16(bytes + 2 * i));
            return;
        case GGML_BF16:
            for (int64_t i = 0; i < n; ++i) out[i] = bits_to_float((uint32_t)read16(bytes + 2 * i) << 16);
            return;
    }
    const BlockFormat *format = block_format(type);
    const TypeTraits *traits = type_traits(type);
    if (!format || !traits) return;
    DecodedBlock block = {};
    for (int64_t i = 0; i < n; i += traits->block_elements, bytes += traits->block_bytes) {
        decode_block(type, bytes, block);
        dequantize_block(*format, block, traits->block_elements, out + i);
    }
}

float half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00) return bits_to_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x0400) return bits_to_float(sign | ((magnitude << 13) + 0x38000000));
    const float value = (float)magnitude * 5.9604644775390625e-8f;  // subnormal: exact in f32
    return bits_to_float(sign | float_to_bits(value));
}

uint16_t float_to_half(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
    if (magnitude < 0x38800000) {                       // subnormal half: adding 0.5 rounds at 2^-24
        const float shifted = bits_to_float(magnitude) + 0.5f;
        return sign | (uint16_t)(float_to_bits(shifted) - 0x3f000000);
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return sign | (uint16_t)((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

}  // namespace pj
