#include "cuda/rope_table.h"

#include <algorithm>
#include <thread>

#include "core/rope.h"

namespace pj::cuda {

RopeTable::RopeTable(const Shape &shape, const Vector &factors, int n)
    : half_(shape.rope_dim / 2), values_(int64_t{n} * 2 * half_) {
    const int n_threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
    const auto run = [&](int thread) {
        for (int64_t i = int64_t{n} * thread / n_threads; i < int64_t{n} * (thread + 1) / n_threads; ++i) {
            float *const at = values_.data() + i * 2 * half_;
            rope_angles(shape, factors, static_cast<int>(i), at, at + half_);
        }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < n_threads; ++i) threads.emplace_back(run, i);
    run(0);
    for (std::thread &thread : threads) thread.join();
}

}  // namespace pj::cuda
