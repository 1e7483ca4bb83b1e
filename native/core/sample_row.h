// Chooses the token of one row of logits, by one thread or by all of a CTA.
//
// Every thread of a team runs sample_row. A team has
//
//     for_each(n, body)          body(i) for its share of 0 .. n - 1
//     values(logits, mask, n, body)
//                                body(i, i % kSampleGroups, logits[i] as the mask leaves it) likewise; thread
//                                i % kTeamThreads has element i
//     picked(n, at, logits, body)
//                                body(at(item), logits[at(item)]) for its share of the items 0 .. n - 1 with at >= 0
//     value(logits, i)           logits[i], also where an earlier op of the same launch had other logits
//     keys(groups, body)         body(key) for its share of kSampleGroups keys
//     copy(groups, from)         its share of kSampleGroups keys that an earlier op of the same launch has left
//     raise(own, key)            own = the larger of both, where no other thread has it
//     sum(shared, own)           adds every thread's own number; the call of one thread does not wait for others
//     largest(shared, own)       likewise the maximum. Within for_each, 32 neighbouring items call it, with the same
//                                `shared`, or none of them
//     next(shared)               adds 1 and gives the number before
//     sync()                     waits for the others; what they wrote is there
//
// No vocabulary is sorted. It is dealt into at most 2,048 groups; the k-th largest of their maxima is no larger than
// the k-th best logit, so few more than k candidates lie from there on, in the groups whose maximum does. These are
// sorted, so that nothing depends on which thread came first.
//
// The groups are runs of neighbours where the maxima of these are known (core/sample_maxima.h), and interleaved
// otherwise. Neighbours may be good together: when runs bring more candidates than there is room for, the interleaved
// groups are tried, so a row that these settle is settled either way.
#pragma once

#include "core/draft_ids.h"
#include "core/sample_maxima.h"
#include "core/sample_noise.h"
#include "core/sampling.h"

#ifdef __CUDACC__
#define PJ_TEAM_FUNCTION __device__ __forceinline__
#else
#define PJ_TEAM_FUNCTION inline
#endif

namespace pj {

constexpr int kTeamThreads = 256;
constexpr int kMostFound = 2048;  // a power of two
constexpr int kFewGroups = 512;
constexpr int kMostRenewed = 256;  // changed logits whose runs are read again; with more, all logits are
constexpr int kKeyRounds = 16;     // of two bits
static_assert(kSampleGroups % kTeamThreads == 0, "a group belongs to one thread");
static_assert(kFewGroups <= kSampleGroups / 2, "there are more runs than that");
static_assert(PJ_MAX_CANDIDATES < kSampleGroups && PJ_MAX_CANDIDATES < kMostFound, "k-th largest of the groups");

// Shared by the team.
struct SampleScratch {
    Wide found[kMostFound];
    union {
        alignas(16) uint32_t groups[kSampleGroups];  // keys of their maxima
        Wide sums[PJ_MAX_CANDIDATES];                // running sums of the candidates' weights
        Wide arrivals[PJ_MAX_CANDIDATES];
    };
    Wide total;  // weight of all logits
    Wide first;  // to arrive
    uint32_t reached[kKeyRounds][3];
    uint16_t few[kFewGroups];  // groups that have candidates
    uint32_t best, kth, n_few, n_found, n_below, n_probable, winner;
};

// Which logits a group has.
struct SampleGroups {
    int n_each, between, step;

    // The i-th of a group; there may be none behind the last group's first ones.
    PJ_HOST_DEVICE int at(int group, int i) const { return group * between + i * step; }

    static PJ_HOST_DEVICE SampleGroups interleaved(int n_logits) {
        return {(n_logits + kSampleGroups - 1) / kSampleGroups, 1, kSampleGroups};
    }
    static PJ_HOST_DEVICE SampleGroups runs(int n) { return {n, n, 1}; }
};

namespace sample {

// The word of a mask that has token i; without a mask every token may be chosen.
PJ_TEAM_FUNCTION uint32_t mask_word(const uint32_t *mask, int i) { return mask ? mask[i >> 5] : ~0u; }

// A logit as its word of the mask leaves it: applied where it is read, so nothing has to be put back.
PJ_TEAM_FUNCTION float masked(uint32_t word, int i, float logit) {
    return word >> (i & 31) & 1 ? logit : logit_of_key(kLowestKey);
}

template <class Team>
PJ_TEAM_FUNCTION void clear(const Team &team, SampleScratch &s) {
    team.for_each(kSampleGroups, [&](int i) { s.groups[i] = 0; });
    team.for_each(kKeyRounds * 3, [&](int i) { s.reached[i / 3][i % 3] = 0; });
    team.for_each(1, [&](int) {
        s.total = s.first = 0;
        s.best = s.kth = s.n_few = s.n_found = s.n_below = s.n_probable = s.winner = 0;
    });
    team.sync();
}

// Biases and penalties, in place.
template <class Team, class Ids>
PJ_TEAM_FUNCTION void change(const Team &team, float *logits, const SampleRow &row, const Ids &ids) {
    team.for_each(row.n_biases, [&](int i) {
        const int at = ids.index_of(row.biases[i].token);
        if (at < 0) return;
        const float before = row.before[row.n_counts + i] = team.value(logits, at);
        logits[at] = before + row.biases[i].bias;
    });
    team.sync();
    team.for_each(row.n_counts, [&](int i) {
        const int at = ids.index_of(row.counts[i].token);
        if (at < 0) return;
        const float before = row.before[i] = team.value(logits, at);
        logits[at] = penalised(row, before, row.counts[i].count);
    });
    team.sync();
}

// Undoes change().
template <class Team, class Ids>
PJ_TEAM_FUNCTION void restore(const Team &team, float *logits, const SampleRow &row, const Ids &ids) {
    const auto put_back = [&](int token, float before) {
        const int at = ids.index_of(token);
        if (at >= 0) logits[at] = before;
    };
    team.sync();
    team.for_each(row.n_counts, [&](int i) { put_back(row.counts[i].token, row.before[i]); });
    team.sync();
    team.for_each(row.n_biases, [&](int i) { put_back(row.biases[i].token, row.before[row.n_counts + i]); });
    team.sync();
}

// Logits of ids that the vocabulary does not have: a whole one has none.
template <class Team>
PJ_TEAM_FUNCTION void ban_missing(const Team &, float *, int, const AllIds &) {}

template <class Team>
PJ_TEAM_FUNCTION void ban_missing(const Team &team, float *logits, int n_vocab, const DraftIds &ids) {
    team.for_each(ids.n_blocks * PJ_DRAFT_BLOCK, [&](int i) {
        const int at = ids.n_low + i;
        if (ids.id_of(at) >= n_vocab) logits[at] = logit_of_key(kLowestKey);
    });
    team.sync();
}

// The maxima of interleaved groups.
template <class Team>
PJ_TEAM_FUNCTION void find_maxima(const Team &team, SampleScratch &s, const float *logits, int n_logits,
                                  const SampleRow &row) {
    team.values(logits, row.mask, n_logits,
                [&](int, int group, float logit) { team.raise(s.groups[group], logit_key(logit)); });
    team.sync();
}

// The maxima of the runs with these tokens, from the logits as they are now. token(i) ascends.
template <class Team, class Token>
PJ_TEAM_FUNCTION void renew_maxima(const Team &team, SampleScratch &s, const float *logits, int n_logits, int run,
                                   int n_tokens, const Token &token) {
    if (!n_tokens) return;
    const auto is_first = [&](int i) { return i == 0 || token(i - 1) / run != token(i) / run; };
    team.for_each(n_tokens, [&](int i) {
        if (is_first(i)) s.groups[token(i) / run] = 0;
    });
    team.sync();
    team.for_each(n_tokens * 32, [&](int item) {
        if (!is_first(item / 32)) return;
        const int group = token(item / 32) / run, begin = group * run + item % 32;
        const int last = (group * run + run < n_logits ? group * run + run : n_logits) - 1;
        // Those behind the last are the last: no branches, so that all loads are on their way together.
        float logit[kLongestRun / 32];
        for (int i = 0; i < kLongestRun / 32; ++i)
            logit[i] = team.value(logits, begin + 32 * i < last ? begin + 32 * i : last);
        uint32_t largest = 0;
        for (const float x : logit) largest = logit_key(x) > largest ? logit_key(x) : largest;
        team.largest(s.groups[group], largest);
    });
    team.sync();
}

// The maxima of runs, from those before logits were changed.
template <class Team>
PJ_TEAM_FUNCTION void take_maxima(const Team &team, SampleScratch &s, const float *logits, int n_logits, int run,
                                  const SampleRow &row, const uint32_t *keys) {
    team.copy(s.groups, keys);
    team.sync();
    renew_maxima(team, s, logits, n_logits, run, row.n_counts, [&](int i) { return row.counts[i].token; });
    renew_maxima(team, s, logits, n_logits, run, row.n_biases, [&](int i) { return row.biases[i].token; });
}

template <class Team>
PJ_TEAM_FUNCTION void find_best(const Team &team, SampleScratch &s) {
    uint32_t best = 0;
    team.keys(s.groups, [&](uint32_t key) { best = key > best ? key : best; });
    team.largest(s.best, best);
    team.sync();
}

// The k-th largest of the groups' maxima, or a key below all candidates when fewer groups have one. Two bits a round
// bring the bound closer, until exactly k maxima reach it: the k-th is the smallest of these.
template <class Team>
PJ_TEAM_FUNCTION uint32_t kth_maximum(const Team &team, SampleScratch &s, uint32_t k) {
    uint32_t bound = 0, n_reached = kSampleGroups;
    for (int round = 0; round < kKeyRounds && n_reached != k; ++round) {
        const uint32_t step = 1u << (30 - 2 * round), from = bound;
        uint32_t n[3] = {};
        team.keys(s.groups, [&](uint32_t key) {
            for (uint32_t i = 0; i < 3; ++i) n[i] += key >= from + (i + 1) * step;
        });
        for (int i = 0; i < 3; ++i) team.sum(s.reached[round][i], n[i]);
        team.sync();
        for (uint32_t i = 0; i < 3; ++i) {
            if (s.reached[round][i] < k) continue;
            bound = from + (i + 1) * step;
            n_reached = s.reached[round][i];
        }
    }
    uint32_t smallest = ~0u;
    team.keys(s.groups, [&](uint32_t key) { smallest = key >= bound && key < smallest ? key : smallest; });
    team.largest(s.kth, ~smallest);
    team.sync();
    const uint32_t kth = ~s.kth;
    return kth > kLowestKey ? kth : kLowestKey + 1;
}

template <class Team>
PJ_TEAM_FUNCTION void take(const Team &team, SampleScratch &s, int token, uint32_t key, uint32_t bound) {
    if (key < bound) return;
    const uint32_t at = team.next(s.n_found);
    if (at < kMostFound) s.found[at] = candidate_key(key, token);
}

// All candidates from the bound on, in any order. Few groups have any when k is small.
template <class Team, class Ids>
PJ_TEAM_FUNCTION void collect(const Team &team, SampleScratch &s, const float *logits, int n_logits,
                              const SampleGroups &groups, uint32_t bound, const SampleRow &row, const Ids &ids) {
    const auto take_at = [&](int i, float logit) { take(team, s, ids.id_of(i), logit_key(logit), bound); };
    team.for_each(kSampleGroups, [&](int group) {
        if (s.groups[group] < bound) return;
        const uint32_t at = team.next(s.n_few);
        if (at < kFewGroups) s.few[at] = static_cast<uint16_t>(group);
    });
    team.sync();
    const int n_few = static_cast<int>(s.n_few);
    const auto index = [&](int item) {
        const int i = groups.at(s.few[item / groups.n_each], item % groups.n_each);
        return i < n_logits ? i : -1;
    };
    if (n_few <= kFewGroups)
        team.picked(n_few * groups.n_each, index, logits,
                    [&](int i, float logit) { take_at(i, masked(mask_word(row.mask, i), i, logit)); });
    else
        team.values(logits, row.mask, n_logits, [&](int i, int, float logit) { take_at(i, logit); });
    team.sync();
}

// The weight of all that there are.
template <class Team>
PJ_TEAM_FUNCTION void weigh_all(const Team &team, SampleScratch &s, const float *logits, int n_logits,
                                const SampleRow &row) {
    const float best = logit_of_key(s.best);
    Wide total = 0;
    team.values(logits, row.mask, n_logits, [&](int, int, float logit) { total += weight_of(logit - best); });
    team.sum(s.total, total);
    team.sync();
}

// Best first: a bitonic network over the next power of two.
template <class Team>
PJ_TEAM_FUNCTION void sort(const Team &team, SampleScratch &s) {
    const int n = static_cast<int>(s.n_found);
    int size = 2;
    while (size < n) size *= 2;
    team.for_each(size - n, [&](int i) { s.found[n + i] = 0; });
    team.sync();
    for (int width = 2; width <= size; width *= 2)
        for (int stride = width / 2; stride > 0; stride /= 2) {
            team.for_each(size / 2, [&](int pair) {
                const int i = (pair & ~(stride - 1)) * 2 + (pair & (stride - 1));
                const Wide a = s.found[i], b = s.found[i + stride];
                if ((a < b) == ((i & width) == 0)) {
                    s.found[i] = b;
                    s.found[i + stride] = a;
                }
            });
            team.sync();
        }
}

// sums[i] = weight(0) + ... + weight(i), after Sklansky: what a round reads it does not write.
template <class Team, class Weight>
PJ_TEAM_FUNCTION void add_up(const Team &team, SampleScratch &s, int n, const Weight &weight) {
    team.for_each(n, [&](int i) { s.sums[i] = weight(logit_of(s.found[i])); });
    team.sync();
    for (int width = 1; width < n; width *= 2) {
        team.for_each(n, [&](int i) {
            if (i & width) s.sums[i] += s.sums[(i & ~(width - 1)) - 1];
        });
        team.sync();
    }
}

// How many of the sorted candidates the cuts leave, -1: that is not certain. top_k_cuts: there are more than it leaves.
template <class Team>
PJ_TEAM_FUNCTION int cut(const Team &team, SampleScratch &s, const SampleRow &row, bool top_k_cuts) {
    const int n_found = static_cast<int>(s.n_found);
    const int n = n_found < row.n_keep ? n_found : row.n_keep;
    const bool is_complete = n < row.n_keep || n == row.n_possible;
    const float best = logit_of_key(s.best), least = best + row.log_min_p;
    if (row.top_p < 1) {
        // The probabilities that top_p adds up are those after top_k.
        if (!is_complete && top_k_cuts) return -1;
        add_up(team, s, n, [&](float logit) { return weight_of(logit - best); });
        const Wide total = is_complete ? s.sums[n - 1] : s.total;
        uint32_t n_below = 0;
        team.for_each(n, [&](int i) { n_below += below_top_p(row, s.sums[i], total); });
        team.sum(s.n_below, n_below);
    }
    uint32_t n_probable = 0;
    team.for_each(n, [&](int i) { n_probable += logit_of(s.found[i]) >= least; });
    team.sum(s.n_probable, n_probable);
    team.sync();
    return n_left(row, {n, is_complete, static_cast<int>(s.n_below), static_cast<int>(s.n_probable)});
}

// One of the n best: the first in the race (core/sample_noise.h), of equally early ones the best.
template <class Team>
PJ_TEAM_FUNCTION int draw(const Team &team, SampleScratch &s, const SampleRow &row, int n) {
    if (n == 1) return token_of(s.found[0]);
    const float best = logit_of_key(s.best) / row.temperature;
    const uint64_t state = noise_state(row.seed, row.index);
    Wide first = 0;
    team.for_each(n, [&](int i) {
        const Wide weight = weight_of(logit_of(s.found[i]) / row.temperature - best);
        s.arrivals[i] = arrival(exponential(noise_bits(state, token_of(s.found[i]))), weight);
        first = s.arrivals[i] > first ? s.arrivals[i] : first;
    });
    team.largest(s.first, first);
    team.sync();
    if (s.first == 0) return -1;  // such a low temperature that a quotient overflowed
    uint32_t winner = 0;          // counted from the last
    team.for_each(n, [&](int i) {
        const uint32_t place = static_cast<uint32_t>(n - i);
        if (s.arrivals[i] == s.first && place > winner) winner = place;
    });
    team.largest(s.winner, winner);
    team.sync();
    return token_of(s.found[n - static_cast<int>(s.winner)]);
}

// Whether this is the best logit of a row that a token can be chosen of.
PJ_HOST_DEVICE bool is_possible(uint32_t best) { return best > kLowestKey && best < kInfiniteKey; }

// Ids of a run, 0: their maxima are not known or would not save much. Beyond kFewGroups candidates all logits are
// looked through anyway.
PJ_HOST_DEVICE int useful_run(int n_logits, const SampleRow &row, const RowMaxima &maxima) {
    if (!maxima.keys || row.mask || row.n_keep > kFewGroups || row.n_counts + row.n_biases > kMostRenewed) return 0;
    return run_of_maxima(n_logits);
}

// All candidates that the cuts may leave, unless they are more than there is room for or not even one.
template <class Team, class Ids>
PJ_TEAM_FUNCTION void find(const Team &team, SampleScratch &s, const float *logits, int n_logits, const SampleRow &row,
                           const Ids &ids, const RowMaxima &maxima) {
    for (int run = useful_run(n_logits, row, maxima);; run = 0) {
        clear(team, s);
        if (run)
            take_maxima(team, s, logits, n_logits, run, row, maxima.keys);
        else
            find_maxima(team, s, logits, n_logits, row);
        find_best(team, s);
        if (!is_possible(s.best)) return;
        const uint32_t bound = kth_maximum(team, s, row.n_keep);
        collect(team, s, logits, n_logits, run ? SampleGroups::runs(run) : SampleGroups::interleaved(n_logits), bound,
                row, ids);
        if (!run || s.n_found <= kMostFound) return;
        team.sync();
    }
}

template <class Team, class Ids>
PJ_TEAM_FUNCTION int choose(const Team &team, SampleScratch &s, const float *logits, int n_vocab, const SampleRow &row,
                            const Ids &ids, const RowMaxima &maxima) {
    const int n_logits = ids.n_logits(n_vocab);
    const bool top_k_cuts = row.n_possible < n_logits && row.n_possible < n_vocab;
    find(team, s, logits, n_logits, row, ids, maxima);
    if (!is_possible(s.best) || s.n_found > kMostFound) return -1;
    if (row.top_p < 1 && row.n_keep < row.n_possible && !top_k_cuts) weigh_all(team, s, logits, n_logits, row);
    sort(team, s);
    const int n = cut(team, s, row, top_k_cuts);
    return n < 0 ? -1 : draw(team, s, row, n);
}

// Nothing but the best of the logits as they are.
PJ_HOST_DEVICE bool is_argmax(const SampleRow &row) {
    return row.n_possible == 1 && !row.mask && !row.n_counts && !row.n_biases;
}

}  // namespace sample

// Every thread of the team gets the token, -1 when the chain is not settled (pj_sample). logits: those of ids, all of
// the vocabulary by default; only these may have a mask and maxima that are known. They are changed meanwhile and are
// afterwards what they were, except that those of ids from n_vocab on are -inf. Counts and biases of tokens without a
// logit are passed over.
template <class Team, class Ids = AllIds>
PJ_TEAM_FUNCTION int sample_row(const Team &team, SampleScratch &scratch, float *logits, int n_vocab,
                                const SampleRow &row, const Ids &ids = {}, const RowMaxima &maxima = {}) {
    if (maxima.best && sample::is_argmax(row))
        return sample::is_possible(static_cast<uint32_t>(maxima.best >> 32)) ? token_of(maxima.best) : -1;
    sample::ban_missing(team, logits, n_vocab, ids);
    sample::change(team, logits, row, ids);
    const int token = sample::choose(team, scratch, logits, n_vocab, row, ids, maxima);
    sample::restore(team, logits, row, ids);
    return token;
}

}  // namespace pj
