#include "cpu/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pj::cpu {

namespace {

// About 50 microseconds: longer than the gap between two regions of a step.
constexpr int kSpins = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

int resolve(int n_threads) {
    if (n_threads > 0) return n_threads;
    const unsigned n = std::thread::hardware_concurrency();
    return n ? static_cast<int>(n) : 1;
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(resolve(n_threads)) {
    for (int i = 1; i < n_threads_; ++i) threads_.emplace_back([this] { worker_main(); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
        epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread &thread : threads_) thread.join();
}

void ThreadPool::work() {
    for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) call_(context_, i);
}

void ThreadPool::run(int n, Call call, const void *context) {
    call_ = call;
    context_ = context;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(n_threads_ - 1, std::memory_order_relaxed);
    {
        // The lock orders the epoch with a worker that is about to sleep.
        std::lock_guard<std::mutex> lock(mutex_);
        epoch_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    work();
    for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
        if (spins < kSpins) {
            pause_cpu();
        } else {
            std::this_thread::yield();  // more workers than free cores
        }
    }
}

void ThreadPool::worker_main() {
    uint64_t seen = 0;
    for (;;) {
        for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen && spins < kSpins; ++spins) pause_cpu();
        if (epoch_.load(std::memory_order_acquire) == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return epoch_.load(std::memory_order_acquire) != seen; });
        }
        // The caller waits for every worker before it starts another region, so exactly one has begun.
        ++seen;
        if (stop_) return;
        work();
        busy_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace pj::cpu
