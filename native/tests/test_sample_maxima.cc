// A token chosen with the maxima of runs of ids: the one that is chosen without.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/sample_maxima.h"
#include "tests/check.h"
#include "tests/sample_by_sorting.h"
#include "tests/sample_cases.h"
#include "tests/sample_teams.h"

using namespace pj;

namespace {

const float kNan = std::nanf("");

// What an op leaves that has had the logits.
struct Maxima {
    std::vector<uint32_t> keys;
    Wide best = 0;

    explicit Maxima(const std::vector<float> &logits) : keys(kSampleGroups, 0) {
        const int n = static_cast<int>(logits.size()), run = run_of_maxima(n);
        for (int i = 0; i < n; ++i) {
            const uint32_t key = logit_key(logits[i]);
            best = std::max(best, candidate_key(key, i));
            if (run) keys[i / run] = std::max(keys[i / run], key);
        }
    }

    RowMaxima row() const { return {keys.data(), best}; }
};

int choose(const Case &c, std::vector<float> &logits, int n_threads, const RowMaxima &maxima) {
    static SampleScratch scratch;
    SampleRow row = c.row();
    std::vector<float> before(row.n_counts + row.n_biases);
    row.before = before.data();
    std::memset(&scratch, 0x5a, sizeof scratch);  // what another op left
    return sample_by_threads(n_threads, scratch, logits.data(), c.n_vocab(), row, AllIds(), maxima);
}

// Where the row is not settled without maxima because too many logits are nearly equal, it may be settled with them.
void check_case(const Case &c) {
    std::vector<float> logits = c.logits;
    const Maxima maxima(c.logits);
    const int without = choose(c, logits, 1, {});
    const int one = choose(c, logits, 1, maxima.row()), four = choose(c, logits, 4, maxima.row());
    CHECK(one == four, "one thread chooses %d, four %d", one, four);
    CHECK(without < 0 || one == without,
          "%d tokens: %d, without maxima %d; top_k %d top_p %g min_p %g temperature %g, %zu counts, %zu biases",
          c.n_vocab(), one, without, c.sample.top_k, c.sample.top_p, c.sample.min_p, c.sample.temperature,
          c.counts.size(), c.biases.size());
    if (without < 0 && one >= 0) {
        const Expected expected = by_sorting(c);
        CHECK(expected.is_settled && one == expected.token, "%d tokens: %d, expected %d (settled %d)", c.n_vocab(), one,
              expected.token, expected.is_settled);
    }
    CHECK(!std::memcmp(logits.data(), c.logits.data(), logits.size() * sizeof(float)), "the logits have changed");
}

void check_runs() {
    CHECK(run_of_maxima(1) == 0 && run_of_maxima(65535) == 0 && run_of_maxima(524289) == 0, "none");
    CHECK(run_of_maxima(65536) == 32 && run_of_maxima(65537) == 64 && run_of_maxima(131072) == 64, "short ones");
    CHECK(run_of_maxima(152064) == 128 && run_of_maxima(248320) == 128 && run_of_maxima(262144) == 128, "of models");
    CHECK(run_of_maxima(262145) == 256 && run_of_maxima(524288) == 256, "long ones");
}

int any_size() { return any_of({65535, 65536, 65537, 131072, 152064, 248320, 262145, 524288}); }

// Whole runs, or all but a few, are -inf.
void ban_some(Case &c) {
    std::bernoulli_distribution is_banned(any_real({0, 0, 0.5, 0.999, 0.99999}));
    const int length = any_of({1, 32, 1000});
    for (int begin = 0; begin < c.n_vocab(); begin += length)
        if (is_banned(random_bits()))
            std::fill(c.logits.begin() + begin, c.logits.begin() + std::min(c.n_vocab(), begin + length), -kInf);
}

std::vector<int> best_tokens(const Case &c, int n) {
    std::vector<int> order(c.logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + n, order.end(),
                      [&](int a, int b) { return c.logits[a] != c.logits[b] ? c.logits[a] > c.logits[b] : a < b; });
    order.resize(n);
    return order;
}

template <class Entry>
void name_tokens(std::vector<Entry> &entries, std::vector<int> tokens, int n_vocab) {
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    entries.clear();
    for (int token : tokens)
        if (token >= 0 && token < n_vocab) entries.push_back({token, {}});
}

// The best tokens are penalised, their neighbours and others raised or banned: maxima fall and rise, several of a run
// change, one token twice.
void change_the_best(Case &c) {
    const std::vector<int> best = best_tokens(c, any_of({1, 5, 64, 200, 300}));
    const size_t n = best.size();
    name_tokens(c.counts, {best.begin(), best.begin() + any_of({0, 1, static_cast<int>(n)})}, c.n_vocab());
    std::vector<int> raised;
    for (int i = 0; i < any_of({0, 3, 50}); ++i) {
        const int token = best[std::uniform_int_distribution<size_t>(0, n - 1)(random_bits())];
        raised.push_back(token + any_of({-33, -1, 0, 1, 2, 40}));
        raised.push_back(std::uniform_int_distribution<int>(0, c.n_vocab() - 1)(random_bits()));
    }
    name_tokens(c.biases, raised, c.n_vocab());
    for (auto &entry : c.counts) entry.count = any_of({1, 1, 2, 9});
    for (auto &entry : c.biases) entry.bias = any_of({0, 1}) ? -kInf : static_cast<float>(any_real({-2, 0.5, 3, 20}));
    c.sample.n_counts = static_cast<int>(c.counts.size());
    c.sample.n_biases = static_cast<int>(c.biases.size());
    c.sample.presence_penalty = static_cast<float>(any_real({-1, 0.1, 2, 30}));
}

void check_random() {
    for (int i = 0; i < 240; ++i) {
        Case c = random_case(any_size(), i % 3 ? 0 : any_of({4, 64}));
        c.sample.top_k = any_of({0, 1, 1, 2, 7, 40, 40, 200, 512, 600, 1000, 1024, 1025, 5000});
        if (i % 4) ban_some(c);
        if (i % 2) change_the_best(c);
        check_case(c);
    }
}

// Rows of which only the best token is asked.
void check_the_best() {
    for (int i = 0; i < 60; ++i) {
        Case c = random_case(any_of({1, 2, 320, 65536, 70000}), i % 2 ? 0 : 1);
        if (i % 3) ban_some(c);
        c.sample.temperature = static_cast<float>(any_of({0, 1}));
        c.sample.top_k = c.sample.temperature > 0 ? 1 : 40;
        c.sample.n_counts = c.sample.n_biases = 0;
        c.counts.clear();
        c.biases.clear();
        check_case(c);
    }
}

// What no token can be chosen of, and the zeros, which are equal.
void check_odd_logits() {
    for (int i = 0; i < 40; ++i) {
        Case c = random_case(any_of({300, 65536, 152064}), 0);
        c.mask.clear();
        std::uniform_int_distribution<int> any_token(0, c.n_vocab() - 1);
        if (i % 2) {
            const float odd = any_of({0, 1}) ? (any_of({0, 1}) ? kNan : -kNan) : kInf;
            const int at = any_token(random_bits());
            c.logits[at] = odd;
            check_case(c);
            std::vector<float> logits = c.logits;
            c.sample.n_biases = 0;
            if (odd != kInf || !c.sample.n_counts)
                CHECK(choose(c, logits, 1, Maxima(c.logits).row()) == -1, "%g at %d", odd, at);
        } else {
            std::fill(c.logits.begin(), c.logits.end(), i % 4 ? -kInf : -1.0f);
            check_case(c);
            c.logits[any_token(random_bits())] = -0.0f;
            c.logits[any_token(random_bits())] = 0.0f;
            check_case(c);
        }
    }
}

Case plain_case(int n_vocab) {
    Case c = random_case(n_vocab, 0);
    c.counts.clear();
    c.biases.clear();
    c.mask.clear();
    c.sample = {5, 0.9, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 40, 0, 0, 0, 0, 0, 0, 0};
    return c;
}

// All good tokens are neighbours: their runs have more than there is room for, other groups do not.
void check_neighbours() {
    for (int top_k : {1, 40, 100, 512, 1024}) {
        Case c = plain_case(152064);
        std::sort(c.logits.begin(), c.logits.end(), std::greater<float>());
        c.sample.top_k = top_k;
        std::vector<float> logits = c.logits;
        CHECK(choose(c, logits, 4, Maxima(c.logits).row()) == by_sorting(c).token, "the %d best side by side", top_k);
        check_case(c);
    }
}

// Maxima that are not those of the row show which rows go by them.
void check_use() {
    Case c = plain_case(65536);
    std::vector<float> logits = c.logits;
    const std::vector<uint32_t> zeros(kSampleGroups, 0);
    const int token = choose(c, logits, 4, {});
    CHECK(choose(c, logits, 4, {zeros.data(), 0}) == -1, "a row without a mask");
    c.counts = {{static_cast<int>(best_tokens(c, 1)[0]), 1}};
    c.sample.n_counts = 1;
    CHECK(choose(c, logits, 4, {zeros.data(), 0}) == c.counts[0].token, "the only run that was looked at");
    for (int i = static_cast<int>(c.counts.size()); i <= kMostRenewed; ++i) c.counts.push_back({65000 + i, 1});
    c.sample.n_counts = static_cast<int>(c.counts.size());
    CHECK(choose(c, logits, 4, {zeros.data(), 0}) == token, "many changed logits");
    c.sample.n_counts = 0;
    c.sample.top_k = kFewGroups + 1;
    CHECK(choose(c, logits, 4, {zeros.data(), 0}) == choose(c, logits, 4, {}), "many candidates");
    c.sample.top_k = 40;
    c.mask.assign(mask_words(65536), ~0u);
    CHECK(choose(c, logits, 4, {zeros.data(), 0}) == token, "a mask");
    c.sample.top_k = 1;
    const int best = best_tokens(c, 1)[0];
    CHECK(choose(c, logits, 4, {nullptr, candidate_key(logit_key(1), 7)}) == best, "a mask and the best token");
    c.mask.clear();
    CHECK(choose(c, logits, 4, {nullptr, candidate_key(logit_key(1), 7)}) == 7, "the best token");
    CHECK(choose(c, logits, 4, {nullptr, candidate_key(kLowestKey, 7)}) == -1, "the best of banned ones");
}

}  // namespace

int main() {
    check_runs();
    check_random();
    check_the_best();
    check_odd_logits();
    check_neighbours();
    check_use();
    return check_result();
}
