#include "cpu/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pj::cpu {

namespace {

constexpr uint64_t kOpen = 1u << 15;
constexpr uint64_t kInside = kOpen - 1;
constexpr int kEpochShift = 16;
// Some 50 microseconds: longer than the gap between two regions of a step.
constexpr int kSpins = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

int resolve(int n_threads) {
    if (n_threads > 0) return n_threads < 256 ? n_threads : 256;
    const unsigned n = std::thread::hardware_concurrency();
    return n ? static_cast<int>(n) : 1;
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) : n_threads_(resolve(n_threads)) {
    for (int i = 1; i < n_threads_; ++i) threads_.emplace_back([this] { worker_main(); });
}

ThreadPool::~ThreadPool() {
    stop_.store(true);
    { std::lock_guard<std::mutex> lock(mutex_); }
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
    const uint64_t epoch = (gate_.load() >> kEpochShift) + 1;
    gate_.store(epoch << kEpochShift | kOpen);
    if (sleepers_.load() > 0) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
        }
        wake_.notify_all();
    }
    work();
    uint64_t gate = gate_.fetch_and(~kOpen) & ~kOpen;
    for (int spins = 0; (gate & kInside) != 0; gate = gate_.load(std::memory_order_acquire)) {
        if (++spins < kSpins) {
            pause_cpu();
        } else {
            std::this_thread::yield();
        }
    }
}

void ThreadPool::sleep(uint64_t seen_epoch) {
    sleepers_.fetch_add(1);
    {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return stop_.load() || gate_.load() >> kEpochShift != seen_epoch; });
    }
    sleepers_.fetch_sub(1);
}

bool ThreadPool::wait_for_region(uint64_t seen_epoch) {
    for (int spins = 0;; ++spins) {
        if (stop_.load(std::memory_order_relaxed)) return false;
        if (gate_.load(std::memory_order_acquire) >> kEpochShift != seen_epoch) return true;
        if (spins < kSpins) {
            pause_cpu();
        } else {
            sleep(seen_epoch);
        }
    }
}

void ThreadPool::worker_main() {
    const FlushDenormals mode;
    uint64_t seen_epoch = 0;
    while (wait_for_region(seen_epoch)) {
        uint64_t gate = gate_.load(std::memory_order_acquire);
        while ((gate & kOpen) && !gate_.compare_exchange_weak(gate, gate + 1)) {
        }
        seen_epoch = gate >> kEpochShift;
        if (!(gate & kOpen)) continue;  // too late for this region
        work();
        gate_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace pj::cpu
