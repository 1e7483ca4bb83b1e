// The ggml weight types: block sizes and exact dequantisation.
// Reference for every layout: gguf.quants.dequantize (tests/native/test_weight_types.py).
#pragma once

#include <cstdint>
#include <string>

namespace pj {

enum GgmlType : int32_t {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q4_1 = 3,
    GGML_Q5_0 = 6,
    GGML_Q5_1 = 7,
    GGML_Q8_0 = 8,
    GGML_Q2_K = 10,
    GGML_Q3_K = 11,
    GGML_Q4_K = 12,
    GGML_Q5_K = 13,
    GGML_Q6_K = 14,
    GGML_IQ4_NL = 20,
    GGML_IQ4_XS = 23,
    GGML_BF16 = 30,
};

struct TypeTraits {
    int32_t type;
    const char *name;
    int32_t block_elements;
    int32_t block_bytes;
};

// nullptr for a type this library cannot read.
const TypeTraits *type_traits(int32_t type);

// "F32, F16, BF16, Q8_0, ..." for error messages.
std::string supported_types();

// Bytes of one row of n elements; n must be a multiple of the block size.
uint64_t row_bytes(const TypeTraits &traits, int64_t n);

// n elements (a multiple of the block size) of one row to f32.
void dequantize_row(int32_t type, const void *row, int64_t n, float *out);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);  // round to nearest even

}  // namespace pj
