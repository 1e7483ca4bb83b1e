// Random rows of logits with parameters of every kind.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/sample_params.h"

namespace pj {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
    std::vector<float> logits;
    pj_sample sample;
    std::vector<pj_token_count> counts;
    std::vector<pj_token_bias> biases;
    std::vector<uint32_t> mask;  // empty: none

    int n_vocab() const { return static_cast<int>(logits.size()); }
    SampleRow row() const {
        return sample_params(sample, n_vocab(), counts.data(), biases.data(), mask.empty() ? nullptr : mask.data());
    }
    bool allows(int token) const { return mask.empty() || mask[token / 32] >> token % 32 & 1; }
};

inline std::mt19937 &random_bits() {
    static std::mt19937 generator(5);
    return generator;
}

inline int any_of(std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random_bits())];
}

inline double any_real(std::initializer_list<double> values) {
    return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random_bits())];
}

template <class Entry>
void add_tokens(std::vector<Entry> &entries, int n_vocab, int n) {
    std::vector<int> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(std::uniform_int_distribution<int>(0, n_vocab - 1)(random_bits()));
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (int token : tokens) entries.push_back({token, {}});
}

// Each token is in the mask with probability `share`, one of them for certain; 1: no mask.
inline void add_mask(Case &c, double share) {
    if (share >= 1) return;
    c.mask.assign(mask_words(c.n_vocab()), 0);
    std::bernoulli_distribution is_allowed(share);
    const int one = std::uniform_int_distribution<int>(0, c.n_vocab() - 1)(random_bits());
    for (int token = 0; token < c.n_vocab(); ++token)
        if (token == one || is_allowed(random_bits())) c.mask[token / 32] |= 1u << token % 32;
}

// steps > 0: logits are multiples of 1 / steps, so many are equal.
inline Case random_case(int n_vocab, int steps) {
    Case c;
    std::normal_distribution<float> normal(0, static_cast<float>(any_real({0.3, 2, 4})));
    for (int i = 0; i < n_vocab; ++i) {
        const float x = normal(random_bits());
        c.logits.push_back(steps ? std::round(x * static_cast<float>(steps)) / static_cast<float>(steps) : x);
    }
    c.sample = {};
    c.sample.seed = std::uniform_int_distribution<uint64_t>()(random_bits());
    c.sample.index = any_of({0, 1, 2, 1000, std::numeric_limits<int32_t>::max()});
    c.sample.top_p = any_real({0, 0.5, 0.9, 0.95, 0.999, 1});
    c.sample.min_p = any_real({0, 0.01, 0.05, 0.5, 1});
    c.sample.temperature = static_cast<float>(any_real({0, 0.3, 0.8, 1, 2}));
    c.sample.top_k = any_of({0, 1, 2, 40, 64, 1000, 1024, 1025, 5000, 1 << 30});
    c.sample.min_keep = any_of({0, 0, 1, 5, 100});
    c.sample.repeat_penalty = static_cast<float>(any_real({1, 1.3}));
    c.sample.frequency_penalty = static_cast<float>(any_real({0, 0.2}));
    c.sample.presence_penalty = static_cast<float>(any_real({0, 0.5, -1}));
    add_tokens(c.counts, n_vocab, any_of({0, 0, 3, 64}));
    add_tokens(c.biases, n_vocab, any_of({0, 0, 3, 64}));
    for (auto &entry : c.counts) entry.count = any_of({1, 1, 2, 9});
    for (auto &entry : c.biases) entry.bias = any_of({0, 1}) ? -kInf : static_cast<float>(any_real({-2, 3, 20}));
    c.sample.n_counts = static_cast<int>(c.counts.size());
    c.sample.n_biases = static_cast<int>(c.biases.size());
    add_mask(c, any_real({1, 1, 0.9, 0.1, 0.001}));
    return c;
}

}  // namespace pj
