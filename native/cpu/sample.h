// Sampling by one thread.
#pragma once

#include "core/draft_ids.h"
#include "core/sampling.h"

namespace pj::cpu {

// The token of a row of logits, or -1 (core/sample_row.h). row.before: set here. The logits are changed meanwhile.
int sample(float *logits, int n_vocab, SampleRow row);

// Likewise from the logits of a part of the vocabulary; those of ids from n_vocab on become -inf.
int sample(float *logits, int n_vocab, SampleRow row, const DraftIds &ids);

// pj_op_sample, checked here.
int op_sample(const float *logits, int n_vocab, const pj_sample &sample, const pj_token_count *counts, int n_counts,
              const pj_token_bias *biases, int n_biases, const uint32_t *masks, int n_mask_words);

}  // namespace pj::cpu
