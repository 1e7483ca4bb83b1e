#include "core/sample_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/status.h"

namespace pj {

namespace {

void must(bool ok, int index, const char *field, double value, const char *allowed) {
    if (!ok) fail(PJ_ERR_ARGUMENT, "pj_sample.%s of sample %d is %g, allowed are %s", field, index, value, allowed);
}

void check_range(int index, const char *what, int64_t begin, int64_t n, int64_t n_entries) {
    if (n < 0 || n > PJ_MAX_SAMPLE_TOKENS)
        fail(PJ_ERR_ARGUMENT, "sample %d has %lld %s, allowed are 0..%d", index, static_cast<long long>(n), what,
             PJ_MAX_SAMPLE_TOKENS);
    if (begin < 0 || begin + n > n_entries)
        fail(PJ_ERR_ARGUMENT, "sample %d takes %s %lld..%lld, the step has %lld", index, what,
             static_cast<long long>(begin), static_cast<long long>(begin + n - 1), static_cast<long long>(n_entries));
}

// Entries are changed side by side, so no token may be there twice.
template <class Entry>
void check_tokens(int index, const char *what, const Entry *entries, int n, int n_vocab) {
    for (int i = 0; i < n; ++i) {
        const int token = entries[i].token;
        if (token < 0 || token >= n_vocab)
            fail(PJ_ERR_ARGUMENT, "%s of sample %d name token %d, allowed are 0..%d", what, index, token, n_vocab - 1);
        if (i && entries[i - 1].token >= token)
            fail(PJ_ERR_ARGUMENT, "%s of sample %d name token %d after %d, not in ascending order", what, index, token,
                 entries[i - 1].token);
    }
}

void check_mask(const pj_sample &sample, int index, int n_words, int n_mask_words) {
    if (sample.mask_begin == -1) return;
    if (sample.mask_begin < 0 || sample.mask_begin > n_mask_words - n_words)
        fail(PJ_ERR_ARGUMENT, "the mask of sample %d has %d words from word %d on, the step has %d", index, n_words,
             sample.mask_begin, n_mask_words);
}

void check_parameters(const pj_sample &s, int index) {
    must(!std::isnan(s.top_p), index, "top_p", s.top_p, "numbers");
    must(!std::isnan(s.min_p), index, "min_p", s.min_p, "numbers");
    const struct {
        const char *field;
        float value;
    } finite[] = {{"temperature", s.temperature},
                  {"repeat_penalty", s.repeat_penalty},
                  {"frequency_penalty", s.frequency_penalty},
                  {"presence_penalty", s.presence_penalty}};
    for (const auto &f : finite) must(std::isfinite(f.value), index, f.field, f.value, "finite numbers");
    must(s.min_keep >= 0, index, "min_keep", s.min_keep, "0 and above");
    must(s.index >= 0, index, "index", s.index, "0 and above");
}

}  // namespace

void check_sample(const pj_sample &sample, int index, int n_vocab, const pj_token_count *counts, int n_counts,
                  const pj_token_bias *biases, int n_biases, int n_mask_words) {
    check_parameters(sample, index);
    check_range(index, "counts", sample.count_begin, sample.n_counts, n_counts);
    check_range(index, "biases", sample.bias_begin, sample.n_biases, n_biases);
    if (n_mask_words) check_mask(sample, index, mask_words(n_vocab), n_mask_words);
    if (sample.n_counts) counts += sample.count_begin;
    if (sample.n_biases) biases += sample.bias_begin;
    check_tokens(index, "counts", counts, sample.n_counts, n_vocab);
    check_tokens(index, "biases", biases, sample.n_biases, n_vocab);
    for (int i = 0; i < sample.n_counts; ++i)
        if (counts[i].count < 1)
            fail(PJ_ERR_ARGUMENT, "the count of token %d of sample %d is %d, not 1 or more", counts[i].token, index,
                 counts[i].count);
    for (int i = 0; i < sample.n_biases; ++i)
        if (std::isnan(biases[i].bias))
            fail(PJ_ERR_ARGUMENT, "the bias of token %d of sample %d is not a number", biases[i].token, index);
}

void check_samples(const pj_step_in &in, const pj_step_out &out, int n_flagged, int most, int n_vocab) {
    if (in.n_samples != n_flagged)
        fail(PJ_ERR_ARGUMENT, "%d rows want a token sampled, pj_step_in.n_samples is %d", n_flagged, in.n_samples);
    if (n_flagged > most)
        fail(PJ_ERR_ARGUMENT, "%d rows want a token sampled, allowed are max_seqs * (max_spec + 1) = %d", n_flagged,
             most);
    if (!n_flagged) return;
    if (!in.samples) fail(PJ_ERR_ARGUMENT, "pj_step_in.samples is NULL");
    if (!out.sampled) fail(PJ_ERR_ARGUMENT, "%d rows want a token sampled, pj_step_out.sampled is NULL", n_flagged);
    if (in.n_counts < 0 || (in.n_counts && !in.counts))
        fail(PJ_ERR_ARGUMENT, "pj_step_in.counts is %s, n_counts is %d", in.counts ? "set" : "NULL", in.n_counts);
    if (in.n_biases < 0 || (in.n_biases && !in.biases))
        fail(PJ_ERR_ARGUMENT, "pj_step_in.biases is %s, n_biases is %d", in.biases ? "set" : "NULL", in.n_biases);
    if (in.n_mask_words < 0 || (in.n_mask_words && !in.masks))
        fail(PJ_ERR_ARGUMENT, "pj_step_in.masks is %s, n_mask_words is %d", in.masks ? "set" : "NULL", in.n_mask_words);
    for (int i = 0; i < in.n_samples; ++i)
        check_sample(in.samples[i], i, n_vocab, in.counts, in.n_counts, in.biases, in.n_biases, in.n_mask_words);
}

SampleRow sample_params(const pj_sample &sample, int n_vocab, const pj_token_count *counts, const pj_token_bias *biases,
                        const uint32_t *masks) {
    const bool is_greedy = sample.temperature <= 0;
    SampleRow row = {};
    row.seed = sample.seed;
    row.index = sample.index;
    row.top_p = is_greedy ? 1.0 : sample.top_p;
    row.counts = sample.n_counts ? counts + sample.count_begin : nullptr;
    row.biases = sample.n_biases ? biases + sample.bias_begin : nullptr;
    row.mask = masks && sample.mask_begin >= 0 ? masks + sample.mask_begin : nullptr;
    row.temperature = is_greedy ? 1.0f : sample.temperature;
    row.repeat = sample.repeat_penalty;
    row.frequency = sample.frequency_penalty;
    row.presence = sample.presence_penalty;
    row.log_min_p =
        sample.min_p > 0 ? static_cast<float>(std::log(sample.min_p)) : -std::numeric_limits<float>::infinity();
    row.n_possible = is_greedy ? 1 : sample.top_k > 0 ? std::min(sample.top_k, n_vocab) : n_vocab;
    row.n_keep = std::min(row.n_possible, PJ_MAX_CANDIDATES);
    row.min_keep = std::max(sample.min_keep, 1);
    row.n_counts = sample.n_counts;
    row.n_biases = sample.n_biases;
    return row;
}

}  // namespace pj
