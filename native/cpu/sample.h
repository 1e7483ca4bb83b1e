// Sampling by one thread.
#pragma once

#include "core/sampling.h"

namespace pj::cpu {

// The token of a row of logits, or -1 (core/sample_row.h). row.before: set here. The logits are changed meanwhile.
int sample(float *logits, int n_vocab, SampleRow row);

// pj_op_sample, checked here.
int op_sample(const float *logits, int n_vocab, const pj_sample &sample, const pj_token_count *counts, int n_counts,
              const pj_token_bias *biases, int n_biases);

}  // namespace pj::cpu
