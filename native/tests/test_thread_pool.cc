// The thread team: every index exactly once, whatever the timing, and the end of a region is its end.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "check.h"
#include "cpu/thread_pool.h"

using namespace pj::cpu;

namespace {

constexpr int kSizes[] = {1, 2, 3, 8};

void check_every_index_once() {
    for (int threads : kSizes) {
        ThreadPool pool(threads);
        CHECK(pool.size() == threads, "%d threads", pool.size());
        for (int n : {0, 1, 2, 3, 7, 64, 1000}) {
            std::vector<std::atomic<int>> calls(n + 1);
            for (auto &c : calls) c = 0;
            pool.for_each(n, [&](int i) { calls[i]++; });
            for (int i = 0; i < n; ++i) CHECK(calls[i] == 1, "%d threads: %d calls of %d", threads, calls[i].load(), i);
            CHECK(calls[n] == 0, "%d threads: index %d is too many", threads, n);
        }
        pool.for_each(-5, [&](int) { CHECK(false, "a negative count has no work"); });
    }
}

// Plain memory: a region's writes are seen by the caller and by the next region's workers.
void check_regions_follow_each_other() {
    for (int threads : kSizes) {
        ThreadPool pool(threads);
        std::vector<long> a(257, 1), b(257);
        const int n = static_cast<int>(a.size());
        long expected = 1;
        for (int region = 0; region < 3000; ++region) {
            pool.for_each(n, [&](int i) { b[i] = a[(i + 1) % n] + 1; });
            pool.for_each(n, [&](int i) { a[i] = b[(i + 100) % n]; });
            ++expected;
        }
        const long sum = std::accumulate(a.begin(), a.end(), 0L);
        CHECK(sum == expected * n, "%d threads: sum %ld, expected %ld", threads, sum, expected * n);
    }
}

// Workers fall asleep between the regions, or wake too late for them.
void check_pauses() {
    ThreadPool pool(4);
    std::atomic<int> calls{0};
    for (int region = 0; region < 60; ++region) {
        std::this_thread::sleep_for(std::chrono::microseconds(region % 3 * 400));
        pool.for_each(region % 5 + 2, [&](int) { calls++; });
    }
    CHECK(calls == 60 * 4, "%d calls", calls.load());
}

void check_slow_and_fast_pieces() {
    ThreadPool pool(3);
    std::atomic<int> finished{0};
    for (int region = 0; region < 5; ++region) {
        finished = 0;
        pool.for_each(6, [&](int i) {
            if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            finished++;
        });
        CHECK(finished == 6, "%d pieces were finished when the region ended", finished.load());
    }
}

void check_many_teams() {
    for (int i = 0; i < 50; ++i) {
        ThreadPool pool(i % 4 + 1);
        if (i % 3 == 0) continue;  // a team that never worked ends as well
        std::atomic<int> sum{0};
        pool.for_each(100, [&](int k) { sum += k; });
        CHECK(sum == 4950, "sum %d", sum.load());
    }
    CHECK(ThreadPool(0).size() >= 1, "all hardware threads");
    CHECK(ThreadPool(-1).size() == ThreadPool(0).size(), "negative: all hardware threads");
}

// Two teams of two callers at the same time, as two engines in one process.
void check_teams_are_independent() {
    const auto work = [](long *result) {
        ThreadPool pool(2);
        std::vector<long> values(50, 0);
        for (int region = 0; region < 500; ++region) pool.for_each(50, [&](int i) { values[i] += i; });
        *result = std::accumulate(values.begin(), values.end(), 0L);
    };
    long results[2] = {};
    std::thread first(work, &results[0]), second(work, &results[1]);
    first.join();
    second.join();
    for (long result : results) CHECK(result == 500 * 1225, "sum %ld", result);
}

// Results must not depend on which thread computes, so all use one rule for denormal numbers.
void check_one_float_mode() {
    volatile float small = 1e-38f;
    const bool outside = small * 0.1f == 0.0f;
    std::vector<int> flushed[2];
    for (int threads : {1, 4}) {
        ThreadPool pool(threads);
        std::vector<int> &zero = flushed[threads > 1];
        zero.assign(64, -1);
        pool.for_each(64, [&](int i) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            zero[i] = small * 0.1f == 0.0f;
        });
        for (int i = 1; i < 64; ++i) CHECK(zero[i] == zero[0], "%d threads: piece %d has another mode", threads, i);
    }
    CHECK(flushed[0] == flushed[1], "one thread and four use another mode");
    CHECK((small * 0.1f == 0.0f) == outside, "the caller's mode is as it was");
}

}  // namespace

int main() {
    check_every_index_once();
    check_regions_follow_each_other();
    check_pauses();
    check_slow_and_fast_pieces();
    check_many_teams();
    check_teams_are_independent();
    check_one_float_mode();
    return check_result();
}
