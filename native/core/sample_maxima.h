// What the op that makes a row of logits leaves for the choice of a token (core/sample_row.h): it has had each of them
// once, spread over the whole device.
#pragma once

#include "core/sampling.h"

namespace pj {

constexpr int kSampleGroups = 2048;
constexpr int kShortestRun = 32, kLongestRun = 256;

struct RowMaxima {
    const uint32_t *keys = nullptr;  // [kSampleGroups] largest logit_key of each run of ids, 0 behind the last; or null
    Wide best = 0;                   // candidate_key of the best logit; 0: not known
};

// Neighbouring ids of a run: the fewest with which kSampleGroups runs are enough. 0: the vocabulary has no maxima of
// runs, being so large, or so small that a token is chosen as quickly without.
PJ_HOST_DEVICE int run_of_maxima(int n_vocab) {
    if (n_vocab < kSampleGroups * kShortestRun || n_vocab > kSampleGroups * kLongestRun) return 0;
    int run = kShortestRun;
    while (n_vocab > kSampleGroups * run) run *= 2;
    return run;
}

}  // namespace pj
