// The choice of a token as its definition says it: the whole vocabulary sorted, one cut after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/sample_noise.h"
#include "tests/sample_cases.h"

namespace pj {

// What the chain leaves of a sorted vocabulary, and whether that can be known from the best PJ_MAX_CANDIDATES.
struct Expected {
    int token;
    bool is_settled;
};

inline Expected by_sorting(const Case &c) {
    std::vector<float> logits = c.logits;
    const SampleRow row = c.row();
    for (const auto &b : c.biases) logits[b.token] += b.bias;
    for (const auto &p : c.counts) logits[p.token] = penalised(row, logits[p.token], p.count);
    for (int token = 0; token < c.n_vocab(); ++token)
        if (!c.allows(token)) logits[token] = -kInf;
    std::vector<int> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    const float best = logits[order[0]];
    if (!std::isfinite(best)) return {-1, false};
    size_t n = c.sample.temperature <= 0 ? 1 : order.size();
    if (c.sample.top_k > 0) n = std::min<size_t>(n, c.sample.top_k);
    const size_t n_top_k = n, min_keep = std::max(c.sample.min_keep, 1);
    if (c.sample.top_p < 1) {
        Wide total = 0, sum = 0;
        for (size_t i = 0; i < n; ++i) total += weight_of(logits[order[i]] - best);
        size_t left = 0;
        while (left < n) {
            sum += weight_of(logits[order[left++]] - best);
            if (static_cast<double>(sum) >= c.sample.top_p * static_cast<double>(total)) break;
        }
        n = std::min(n, std::max(left, min_keep));
    }
    if (c.sample.min_p > 0) {
        const float least = best + static_cast<float>(std::log(c.sample.min_p));
        size_t left = 0;
        while (left < n && logits[order[left]] >= least) ++left;
        n = std::min(n, std::max(left, min_keep));
    }
    const float t = c.sample.temperature <= 0 ? 1 : c.sample.temperature;
    const auto time = [&](size_t i) {
        const uint64_t bits = noise_bits(noise_state(c.sample.seed, c.sample.index), order[i]);
        const double u = std::ldexp(static_cast<double>(bits >> 11 | 1), -53);
        return -std::log(u) / static_cast<double>(weight_of(logits[order[i]] / t - best / t));
    };
    size_t first = 0;
    for (size_t i = 1; i < n; ++i) first = time(i) < time(first) ? i : first;
    const bool top_p_is_known = c.sample.top_p >= 1 || n_top_k <= PJ_MAX_CANDIDATES || n_top_k == order.size();
    const size_t n_finite = std::count_if(logits.begin(), logits.end(), [](float x) { return x > -kInf; });
    const bool is_certain = n < PJ_MAX_CANDIDATES || n_top_k <= PJ_MAX_CANDIDATES || n_finite < PJ_MAX_CANDIDATES;
    return {order[first], (top_p_is_known || n_finite < PJ_MAX_CANDIDATES) && is_certain};
}

}  // namespace pj
