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
    int n_convolve_items = 0;
    std::vector<SeqPlan> plans;
    std::vector<AttentionItem> attention;  // by attention_index(); those that do not exist() are left out
    // Of the last plan with more items than CTAs: those in the order in which they were dealt, and to which CTAs.
    std::vector<AttentionItem> undealt;
    std::vector<int> ctas;
};

// What an item costs in comparison with others: half tiles, those at its beginning and end included, times what their
// columns make of them. Measured on an H200, q8_0: 3.3, 4.7 and 5.2 microseconds per tile with 1, 3 and 4 groups.
constexpr int attention_cost(const AttentionItem &item) {
    return (2 * ((item.end - item.begin + 127) / 128) + 1) * (4 + item.groups);
}

// Whatever out held is replaced. Its memory is used again: fresh memory for thousands of items takes longer than they
// do.
void plan_sequences(const pj_step_in &in, const DeviceShape &shape, const PlanLimits &limits, SequencePlans &out);

}  // namespace pj::cuda
