// Causal convolution and the gated delta rule of one sequence.
#pragma once

#include <cstdint>

namespace pj::cpu {

// out[r][c] = silu(sum_t weight[t][c] * input[r - taps + 1 + t][c]), t ascending, for a range of
// channels. Rows before the first one come from window.
struct ConvArgs {
    const float *input;   // [n_rows][stride]
    int64_t stride;       // floats between rows of input and out
    const float *window;  // [taps - 1][n_channels], oldest first
    const float *weight;  // [taps][n_channels]
    float *out;           // [n_rows][stride]
    int32_t n_rows, n_channels, taps;
    int32_t channel_begin, channel_end;  // multiples of 16 apart from the end
};

// Token recurrence of one value head for a range of state columns (Yang et al., "Gated Delta
// Networks", 2024, eq. 10, with the state transposed to [key][value]):
//   kv_j = decay * sum_i k_i S_ij          delta_j = beta (v_j - kv_j)
//   S_ij = decay * S_ij + k_i delta_j      out_j = sum_i (q_i S_ij) * scale
// i ascending in four interleaved sums (i mod 4) that are added as (0 + 1) + (2 + 3).
struct GdnArgs {
    const float *q, *k, *v;  // [n_rows] rows; q may be nullptr (state update only)
    int64_t q_stride, k_stride, v_stride;
    const float *decay, *beta;  // [n_rows] rows
    int64_t gate_stride;
    const float *state_in;  // [dim / 16][dim][16]: blocks of 16 columns, key rows inside
    float *state_out;       // the same, may equal state_in
    float *out;             // [n_rows][out_stride]
    int64_t out_stride;
    int32_t n_rows, dim;
    int32_t column_begin, column_end;  // multiples of 16
    float scale;
};

}  // namespace pj::cpu
