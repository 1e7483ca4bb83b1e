// Teams that run core/sample_row.h on the host: several threads with a barrier between them, as a CTA does.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "core/sample_row.h"

namespace pj {

class Barrier {
  public:
    explicit Barrier(int n) : n_(n) {}

    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        const int turn = turn_;
        if (++arrived_ == n_) {
            arrived_ = 0;
            ++turn_;
            turned_.notify_all();
        } else {
            turned_.wait(lock, [&] { return turn_ != turn; });
        }
    }

  private:
    const int n_;
    int arrived_ = 0, turn_ = 0;
    std::mutex mutex_;
    std::condition_variable turned_;
};

// One of n threads. Additions are made under a lock: sums must not need an order, but nobody's may get lost.
struct ThreadOfTeam {
    int thread, n;
    Barrier &barrier;
    std::mutex &lock;

    template <class Body>
    void for_each(int n_items, const Body &body) const {
        for (int i = thread; i < n_items; i += n) body(i);
    }

    template <class Body>
    void values(const float *logits, const uint32_t *mask, int n_items, const Body &body) const {
        for (int i = thread; i < n_items; i += n)
            body(i, i % kSampleGroups, sample::masked(sample::mask_word(mask, i), i, logits[i]));
    }

    template <class At, class Body>
    void picked(int n_items, const At &at, const float *logits, const Body &body) const {
        for_each(n_items, [&](int item) {
            if (const int i = at(item); i >= 0) body(i, logits[i]);
        });
    }

    float value(const float *logits, int i) const { return logits[i]; }

    template <class Body>
    void keys(const uint32_t *groups, const Body &body) const {
        for_each(kSampleGroups, [&](int i) { body(groups[i]); });
    }

    void copy(uint32_t *groups, const uint32_t *from) const {
        for_each(kSampleGroups, [&](int i) { groups[i] = from[i]; });
    }

    void raise(uint32_t &own, uint32_t key) const { own = key > own ? key : own; }

    template <class T>
    void sum(T &shared, T own) const {
        const std::lock_guard<std::mutex> guard(lock);
        shared += own;
    }

    template <class T>
    void largest(T &shared, T own) const {
        const std::lock_guard<std::mutex> guard(lock);
        shared = own > shared ? own : shared;
    }

    uint32_t next(uint32_t &shared) const {
        const std::lock_guard<std::mutex> guard(lock);
        return shared++;
    }

    void sync() const { barrier.wait(); }
};

// sample_row by n threads, a divisor of kTeamThreads. Every thread must get the same token: -2 if not.
template <class Ids = AllIds>
int sample_by_threads(int n, SampleScratch &scratch, float *logits, int n_vocab, const SampleRow &row,
                      const Ids &ids = {}, const RowMaxima &maxima = {}) {
    Barrier barrier(n);
    std::mutex lock;
    std::vector<int> tokens(n, -3);
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i)
        threads.emplace_back([&, i] {
            tokens[i] = sample_row(ThreadOfTeam{i, n, barrier, lock}, scratch, logits, n_vocab, row, ids, maxima);
        });
    for (std::thread &thread : threads) thread.join();
    for (int token : tokens)
        if (token != tokens[0]) return -2;
    return tokens[0];
}

}  // namespace pj
