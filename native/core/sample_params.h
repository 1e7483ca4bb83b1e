// From pj_sample to what sample_row reads.
#pragma once

#include "core/sampling.h"

namespace pj {

// Words of a mask: a bit for each token.
inline int mask_words(int n_vocab) { return (n_vocab + 31) / 32; }

// Throws Error(PJ_ERR_ARGUMENT) that names the field. samples[index]; the arrays have n_counts and n_biases entries,
// all masks n_mask_words words.
void check_sample(const pj_sample &sample, int index, int n_vocab, const pj_token_count *counts, int n_counts,
                  const pj_token_bias *biases, int n_biases, int n_mask_words);

// All of a checked step: one sample for each flagged row, and room for its results.
void check_samples(const pj_step_in &in, const pj_step_out &out, int n_flagged, int most, int n_vocab);

// Of a checked sample. before and logits_row are left to the backend; counts, biases and mask are the sample's own.
// masks: null when there are none, or when the row shall do without.
SampleRow sample_params(const pj_sample &sample, int n_vocab, const pj_token_count *counts, const pj_token_bias *biases,
                        const uint32_t *masks);

}  // namespace pj
