// How a step's sequences are dealt to the CTAs in attention and convolution. No GPU is needed to plan.
#pragma once

#include <vector>

#include "cuda/step_args.h"

namespace pj::cuda {

struct PlanLimits {
    int n_cta;
    int most_column_groups;  // of an item
    int64_t partial_floats;  // of all partial results
};

struct SequencePlans {
    int column_groups = 1, n_convolve_items = 0;
    std::vector<SeqPlan> plans;
    std::vector<AttentionItem> attention;  // by attention_index(); those that do not exist() are left out
};

// Whatever out held is replaced. Its memory is used again: fresh memory for thousands of items takes longer than they
// do.
void plan_sequences(const pj_step_in &in, const DeviceShape &shape, const PlanLimits &limits, SequencePlans &out);

}  // namespace pj::cuda
