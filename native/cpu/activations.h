// The input rows of one or more matrix products: f32 as they are and int8 with a scale per 32.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/gemm.h"
#include "cpu/kernels/table.h"
#include "cpu/thread_pool.h"

namespace pj::cpu {

// Owns the quantised rows; borrows the f32 rows. Either call set(), or bind() and then
// quantize_row() once for every row, e.g. at the end of the region that computes the rows.
class Activations {
  public:
    Activations() = default;
    Activations(int max_rows, int max_n_in) { reserve(max_rows, max_n_in); }

    void reserve(int max_rows, int max_n_in) {
        const size_t rows = max_rows, groups = (max_n_in + kGroup - 1) / kGroup;
        if (q_.size() < rows * groups * kGroup) q_.resize(rows * groups * kGroup);
        if (groups_.size() < rows * groups) groups_.resize(rows * groups);
    }

    // x: [n_rows][x_stride], valid and unchanged as long as products read it. n_in a multiple of 32
    // unless only float weights are multiplied.
    void bind(const float *x, int64_t x_stride, int n_in) {
        x_ = x;
        x_stride_ = x_stride;
        n_in_ = n_in;
    }

    // Any thread; rows are independent.
    void quantize_row(const Kernels &kernels, int row) {
        const int64_t n_groups = n_in_ / kGroup;
        kernels.quantize_row(x_ + row * x_stride_, (int)(n_groups * kGroup), q_.data() + row * n_groups * kGroup,
                             groups_.data() + row * n_groups);
    }

    void set(ThreadPool &pool, const Kernels &kernels, const float *x, int64_t x_stride, int n_rows, int n_in) {
        bind(x, x_stride, n_in);
        if (n_rows == 1) return quantize_row(kernels, 0);
        pool.for_each(n_rows, [&](int row) { quantize_row(kernels, row); });
    }

    // Input side of a product: fills x, q and groups of args.
    void describe(GemmArgs &args) const {
        args.x = x_;
        args.x_stride = x_stride_;
        args.q = q_.data();
        args.q_stride = n_in_ / kGroup * kGroup;
        args.groups = groups_.data();
        args.groups_stride = n_in_ / kGroup;
    }

    int n_in() const { return n_in_; }
    uint64_t bytes() const { return q_.size() + groups_.size() * sizeof(QuantGroup); }

  private:
    std::vector<int8_t> q_;
    std::vector<QuantGroup> groups_;
    const float *x_ = nullptr;
    int64_t x_stride_ = 0;
    int n_in_ = 0;
};

}  // namespace pj::cpu
