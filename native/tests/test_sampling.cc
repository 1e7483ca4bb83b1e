// Sampling: the formulas against double precision, the choice of a token against a sort of the whole vocabulary, by
// one thread and by several.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/sample_noise.h"
#include "cpu/sample.h"
#include "tests/check.h"
#include "tests/sample_by_sorting.h"
#include "tests/sample_cases.h"
#include "tests/sample_teams.h"

using namespace pj;

namespace {

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
    c.mask.clear();
    c.sample = {5, 1.0, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 40, 0, 0, 0, 0, 0, 0, 0};
    std::vector<float> logits = c.logits;
    CHECK(cpu::sample(logits.data(), c.n_vocab(), c.row()) == -1, "more equals than are collected");
    c.logits.resize(2000);
    bool is_drawn[2000] = {};
    for (c.sample.index = 0; c.sample.index < 1000; ++c.sample.index)
        is_drawn[cpu::sample(c.logits.data(), c.n_vocab(), c.row())] = true;
    CHECK(std::count(is_drawn, is_drawn + 40, true) == 40, "the 40 with the lowest ids");
    CHECK(std::count(is_drawn, is_drawn + 2000, true) == 40, "and no others");
    c.sample.temperature = 0;
    CHECK(cpu::sample(c.logits.data(), c.n_vocab(), c.row()) == 0, "the lowest id");
}

void check_impossible() {
    Case c = random_case(300, 0);
    c.counts.clear();
    c.biases.clear();
    c.mask.clear();
    c.sample = {5, 0.9, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 40, 0, 0, 0, 0, 0, 0, 0};
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

// A mask wins over whatever is added, and leaves a token that is alone.
void check_masks() {
    Case c = random_case(5000, 0);
    c.counts.clear();
    c.sample = {5, 0.9, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 40, 0, 0, 0, 0, 0, 0, 0};
    c.biases = {{17, 1000.0f}};
    c.sample.n_biases = 1;
    c.mask.assign(mask_words(5000), 0);
    std::vector<float> logits = c.logits;
    CHECK(cpu::sample(logits.data(), 5000, c.row()) == -1, "no token is allowed");
    c.mask[4999 / 32] |= 1u << 4999 % 32;
    CHECK(cpu::sample(logits.data(), 5000, c.row()) == 4999, "the only one that is allowed");
    c.sample.mask_begin = -1;
    CHECK(cpu::sample(logits.data(), 5000, c.row()) == 17, "without the mask");
}

// The candidates of a race are one token after the other: the earliest, however little earlier.
void check_borders() {
    Case c;
    c.logits = {2.0f, 1.0f, 0.0f};
    c.sample = {3, 1.0, 0.0, 1.0f, 1.0f, 0.0f, 0.0f, 3, 0, 0, 0, 0, 0, 0, 0};
    const auto drawn = [&](float second) {
        std::vector<float> logits = {2.0f, second, -kInf};
        return cpu::sample(logits.data(), 3, c.row());
    };
    // The logit at which both arrive together.
    const uint64_t state = noise_state(3, 0);
    const double handicap = std::log(exponential(noise_bits(state, 1)) / exponential(noise_bits(state, 0)));
    const float border = static_cast<float>(2.0 + handicap);
    CHECK(drawn(border - 1e-5f) == 0 && drawn(border + 1e-5f) == 1, "border %g", border);
}

}  // namespace

int main() {
    check_keys();
    check_weights();
    check_random();
    check_equals();
    check_impossible();
    check_borders();
    check_masks();
    return check_result();
}
