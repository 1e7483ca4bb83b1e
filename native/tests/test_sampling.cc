// Sampling: the formulas against double precision, the choice of a token against a sort of the whole vocabulary, by
// one thread and by several.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/sample_params.h"
#include "cpu/sample.h"
#include "tests/check.h"
#include "tests/sample_teams.h"

using namespace pj;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

void check_keys() {
    const float ascending[] = {-kInf, -1e38f, -2.5f, -1e-40f, 0.0f, 1e-40f, 1e-3f, 2.5f, 1e38f, kInf};
    for (size_t i = 0; i + 1 < sizeof ascending / sizeof *ascending; ++i)
        CHECK(logit_key(ascending[i]) < logit_key(ascending[i + 1]), "%g", ascending[i]);
    for (float x : ascending) CHECK(logit_of_key(logit_key(x)) == x, "%g", x);
    CHECK(logit_key(-0.0f) == logit_key(0.0f), "both zeros are the same");
    CHECK(logit_key(-kInf) == kLowestKey && logit_key(kInf) == kInfiniteKey, "borders");
    CHECK(logit_key(kNan) > kInfiniteKey && logit_key(-kNan) > kInfiniteKey, "NaN is seen");
    CHECK(candidate_key(logit_key(1), 7) > candidate_key(logit_key(1), 8), "the lowest id is the best");
    CHECK(token_of(candidate_key(logit_key(1), 248319)) == 248319, "token");
}

void check_weights() {
    const double one = std::pow(2.0, 42);
    Wide before = weight_of(0.0f);
    CHECK(before == static_cast<Wide>(one), "exp(0)");
    for (float x = 0; x > -31; x -= 1.37e-4f) {
        const Wide weight = weight_of(x);
        const double exact = std::exp(static_cast<double>(x)) * one;
        CHECK(std::abs(static_cast<double>(weight) - exact) <= 2e-7 * exact + 1, "exp(%g)", x);
        CHECK(weight <= before, "exp(%g) is larger than the one before", x);
        before = weight;
    }
    CHECK(weight_of(-kInf) == 0 && weight_of(kNan) == 0 && weight_of(-1e30f) == 0, "nothing");
}

struct Case {
    std::vector<float> logits;
    pj_sample sample;
    std::vector<pj_token_count> counts;
    std::vector<pj_token_bias> biases;

    int n_vocab() const { return static_cast<int>(logits.size()); }
    SampleRow row() const { return sample_params(sample, n_vocab(), counts.data(), biases.data()); }
};

// What the chain leaves of a sorted vocabulary, and whether that can be known from the best PJ_MAX_CANDIDATES.
struct Expected {
    int token;
    bool is_settled;
};

Expected by_sorting(const Case &c) {
    std::vector<float> logits = c.logits;
    const SampleRow row = c.row();
    for (const auto &b : c.biases) logits[b.token] += b.bias;
    for (const auto &p : c.counts) logits[p.token] = penalised(row, logits[p.token], p.count);
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
    Wide total = 0, sum = 0;
    for (size_t i = 0; i < n; ++i) total += weight_of(logits[order[i]] / t - best / t);
    size_t i = 0;
    while ((sum += weight_of(logits[order[i]] / t - best / t)) <= drawn_sum(c.sample.uniform, total)) ++i;
    const bool top_p_is_known = c.sample.top_p >= 1 || n_top_k <= PJ_MAX_CANDIDATES || n_top_k == order.size();
    const size_t n_finite = std::count_if(logits.begin(), logits.end(), [](float x) { return x > -kInf; });
    const bool is_certain = n < PJ_MAX_CANDIDATES || n_top_k <= PJ_MAX_CANDIDATES || n_finite < PJ_MAX_CANDIDATES;
    return {order[i], (top_p_is_known || n_finite < PJ_MAX_CANDIDATES) && is_certain};
}

std::mt19937 &random_bits() {
    static std::mt19937 generator(5);
    return generator;
}

int any_of(std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random_bits())];
}

double any_real(std::initializer_list<double> values) {
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

// steps > 0: logits are multiples of 1 / steps, so many are equal.
Case random_case(int n_vocab, int steps) {
    Case c;
    std::normal_distribution<float> normal(0, static_cast<float>(any_real({0.3, 2, 4})));
    for (int i = 0; i < n_vocab; ++i) {
        const float x = normal(random_bits());
        c.logits.push_back(steps ? std::round(x * static_cast<float>(steps)) / static_cast<float>(steps) : x);
    }
    c.sample = {};
    c.sample.uniform = std::uniform_real_distribution<double>(0, 1)(random_bits());
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
    return c;
}

int by_threads(const Case &c, std::vector<float> &logits, int n_threads) {
    static SampleScratch scratch;
    SampleRow row = c.row();
    std::vector<float> before(row.n_counts + row.n_biases);
    row.before = before.data();
    std::memset(&scratch, 0x5a, sizeof scratch);  // what another op left
    return sample_by_threads(n_threads, scratch, logits.data(), c.n_vocab(), row);
}

void check_case(const Case &c, bool with_threads) {
    const Expected expected = by_sorting(c);
    std::vector<float> logits = c.logits;
    const int token = cpu::sample(logits.data(), c.n_vocab(), c.row());
    CHECK(token == (expected.is_settled ? expected.token : -1),
          "%d of %d tokens: %d, expected %d (settled %d); top_k %d top_p %g min_p %g temperature %g min_keep %d", token,
          c.n_vocab(), token, expected.token, expected.is_settled, c.sample.top_k, c.sample.top_p, c.sample.min_p,
          c.sample.temperature, c.sample.min_keep);
    if (with_threads) {
        const int other = by_threads(c, logits, 4);
        CHECK(other == token, "one thread chooses %d, four %d", token, other);
    }
    CHECK(!std::memcmp(logits.data(), c.logits.data(), logits.size() * sizeof(float)), "the logits have changed");
}

void check_random() {
    for (int i = 0; i < 600; ++i)
        check_case(random_case(any_of({1, 2, 37, 320, 1024, 1025, 2047, 5000}), 0), i % 8 == 0);
    for (int i = 0; i < 12; ++i) check_case(random_case(248320, 0), i % 4 == 0);
    // Few equal ones at the border.
    for (int i = 0; i < 200; ++i) check_case(random_case(any_of({37, 320, 1500}), 64), i % 8 == 0);
}

// All values of a small set, so that half a vocabulary is as good as the best.
void check_equals() {
    Case c = random_case(248320, 0);
    std::fill(c.logits.begin(), c.logits.end(), 1.5f);
    c.counts.clear();
    c.biases.clear();
    c.sample = {0.5, 1.0, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 40, 0, 0, 0, 0, 0};
    std::vector<float> logits = c.logits;
    CHECK(cpu::sample(logits.data(), c.n_vocab(), c.row()) == -1, "more equals than are collected");
    c.logits.resize(2000);
    CHECK(cpu::sample(c.logits.data(), c.n_vocab(), c.row()) == 20, "half of the 40 with the lowest ids");
    c.sample.temperature = 0;
    CHECK(cpu::sample(c.logits.data(), c.n_vocab(), c.row()) == 0, "the lowest id");
}

void check_impossible() {
    Case c = random_case(300, 0);
    c.counts.clear();
    c.biases.clear();
    c.sample = {0.5, 0.9, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 40, 0, 0, 0, 0, 0};
    const auto with = [&](float value, int at) {
        std::vector<float> logits = c.logits;
        logits[at] = value;
        return cpu::sample(logits.data(), c.n_vocab(), c.row());
    };
    CHECK(with(kNan, 299) == -1 && with(kInf, 0) == -1, "NaN, infinity");
    CHECK(with(-kInf, 7) >= 0, "one banned token");
    std::fill(c.logits.begin(), c.logits.end(), -kInf);
    CHECK(with(-kInf, 0) == -1, "all banned");
    CHECK(with(-3.0f, 123) == 123, "all banned but one");
    c.sample.temperature = 1e-38f;
    c.logits.assign(300, 30.0f);
    CHECK(with(31.0f, 4) == -1, "quotients that overflow");
}

// The border of a draw: the same sums, one step of the random number to either side.
void check_borders() {
    Case c;
    c.logits = {2.0f, 1.0f, 0.0f};
    c.sample = {0, 1.0, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 3, 0, 0, 0, 0, 0};
    const double first = static_cast<double>(weight_of(0)), second = static_cast<double>(weight_of(-1));
    const double total = first + second + static_cast<double>(weight_of(-2));
    const auto drawn = [&](double uniform) {
        c.sample.uniform = uniform;
        std::vector<float> logits = c.logits;
        return cpu::sample(logits.data(), 3, c.row());
    };
    CHECK(drawn(0) == 0 && drawn((first - 2) / total) == 0 && drawn((first + 2) / total) == 1, "first border");
    CHECK(drawn((first + second - 2) / total) == 1 && drawn((first + second + 2) / total) == 2, "second border");
    CHECK(drawn(std::nextafter(1.0, 0.0)) == 2, "the last candidate");
}

}  // namespace

int main() {
    check_keys();
    check_weights();
    check_random();
    check_equals();
    check_impossible();
    check_borders();
    return check_result();
}
