// A fixed team of threads for the regions of a step. The caller is worker 0.
//
// Regions are short (tens of microseconds) and follow each other closely, so workers spin for a
// while before they sleep. A worker that wakes too late for a region stays out of it: the caller
// never waits for a thread that has not begun, which keeps a busy machine usable.
// All of them flush denormals to zero.
// Work is never split by timing: which worker computes a piece may vary, the piece itself and the
// order of its sums may not (batch invariance).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "cpu/float_mode.h"

namespace pj::cpu {

class ThreadPool {
  public:
    explicit ThreadPool(int n_threads);  // <= 0: all hardware threads
    ~ThreadPool();
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    int size() const { return n_threads_; }

    // Calls task(i) once for every i in [0, n), on all workers, and returns when all are done.
    // task must not throw.
    template <class Task>
    void for_each(int n, const Task &task) {
        if (n <= 0) return;
        const FlushDenormals mode;
        if (n_threads_ == 1 || n == 1) {
            for (int i = 0; i < n; ++i) task(i);
            return;
        }
        run(n, [](const void *context, int i) { (*static_cast<const Task *>(context))(i); }, &task);
    }

  private:
    using Call = void (*)(const void *context, int index);

    void run(int n, Call call, const void *context);
    void work();
    void worker_main();
    bool wait_for_region(uint64_t seen_epoch);
    void sleep(uint64_t seen_epoch);

    int n_threads_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};

    // The current region; written only while the gate is closed and nobody is inside.
    Call call_ = nullptr;
    const void *context_ = nullptr;
    int n_ = 0;
    std::atomic<int> next_{0};
    // epoch << 16 | open << 15 | workers inside
    std::atomic<uint64_t> gate_{0};
};

}  // namespace pj::cpu
