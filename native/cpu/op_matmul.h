// The single-op entry points of pyjet.h, before the C boundary. Both throw pj::Error.
#pragma once

#include <cstdint>

namespace pj::cpu {

void op_matmul(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_out, const float *x,
               int32_t n_rows, float *y, int32_t isa, int32_t n_threads, int32_t repeat, double *us_per_call);

void op_dequantize(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_rows, float *out);

}  // namespace pj::cpu
