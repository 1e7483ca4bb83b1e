#include "cpu/sample.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/sample_params.h"
#include "core/sample_row.h"
#include "core/status.h"

namespace pj::cpu {

namespace {

// A team of one.
struct Alone {
    template <class Body>
    void for_each(int n, const Body &body) const {
        for (int i = 0; i < n; ++i) body(i);
    }

    template <class Body>
    void values(const float *logits, const uint32_t *mask, int n, const Body &body) const {
        for (int begin = 0; begin < n; begin += kSampleGroups) {
            const int n_here = std::min(kSampleGroups, n - begin);
            for (int i = 0; i < n_here; ++i)
                body(begin + i, i, sample::masked(sample::mask_word(mask, begin + i), i, logits[begin + i]));
        }
    }

    template <class At, class Body>
    void picked(int n, const At &at, const float *logits, const Body &body) const {
        for (int item = 0; item < n; ++item)
            if (const int i = at(item); i >= 0) body(i, logits[i]);
    }

    float value(const float *logits, int i) const { return logits[i]; }

    template <class Body>
    void keys(const uint32_t *groups, const Body &body) const {
        for (int i = 0; i < kSampleGroups; ++i) body(groups[i]);
    }

    void copy(uint32_t *groups, const uint32_t *from) const { std::copy_n(from, kSampleGroups, groups); }
    void raise(uint32_t &own, uint32_t key) const { own = key > own ? key : own; }

    template <class T>
    void sum(T &shared, T own) const {
        shared += own;
    }

    template <class T>
    void largest(T &shared, T own) const {
        shared = own > shared ? own : shared;
    }

    uint32_t next(uint32_t &shared) const { return shared++; }
    void sync() const {}
};

template <class Ids>
int sample_alone(float *logits, int n_vocab, SampleRow row, const Ids &ids) {
    std::vector<float> before(row.n_counts + row.n_biases);
    row.before = before.data();
    const auto scratch = std::make_unique<SampleScratch>();
    return sample_row(Alone(), *scratch, logits, n_vocab, row, ids);
}

}  // namespace

int sample(float *logits, int n_vocab, SampleRow row) { return sample_alone(logits, n_vocab, row, AllIds()); }

int sample(float *logits, int n_vocab, SampleRow row, const DraftIds &ids) {
    return sample_alone(logits, n_vocab, row, ids);
}

int op_sample(const float *logits, int n_vocab, const pj_sample &sample, const pj_token_count *counts, int n_counts,
              const pj_token_bias *biases, int n_biases, const uint32_t *masks, int n_mask_words) {
    if (n_vocab < 1) fail(PJ_ERR_ARGUMENT, "n_vocab is %d", n_vocab);
    if (n_mask_words < 0) fail(PJ_ERR_ARGUMENT, "n_mask_words is %d", n_mask_words);
    check_sample(sample, 0, n_vocab, counts, n_counts, biases, n_biases, n_mask_words);
    std::vector<float> copy(logits, logits + n_vocab);
    if (!n_mask_words) masks = nullptr;
    return cpu::sample(copy.data(), n_vocab, sample_params(sample, n_vocab, counts, biases, masks));
}

}  // namespace pj::cpu
