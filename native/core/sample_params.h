// From pj_sample to what sample_row reads.
#pragma once

#include "core/sampling.h"

namespace pj {

// Throws Error(PJ_ERR_ARGUMENT) that names the field. samples[index]; the arrays have n_counts and n_biases entries.
void check_sample(const pj_sample &sample, int index, int n_vocab, const pj_token_count *counts, int n_counts,
                  const pj_token_bias *biases, int n_biases);

// All of a checked step: one sample for each flagged row, and room for its results.
void check_samples(const pj_step_in &in, const pj_step_out &out, int n_flagged, int most, int n_vocab);

// Of a checked sample. before and logits_row are left to the backend; counts and biases are the sample's own.
SampleRow sample_params(const pj_sample &sample, int n_vocab, const pj_token_count *counts,
                        const pj_token_bias *biases);

}  // namespace pj
