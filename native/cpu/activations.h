// The input rows of one or more matrix products: f32 as they are, and int8.
//
// The int8 form pairs with the weight type, as in llama.cpp: K-quants and IQ4_XS take one scale per
// 256 inputs, types with blocks of 32 one per 32. A row is quantised in the forms that the products
// ahead will read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cpu/kernels/gemm.h"
#include "cpu/kernels/table.h"
#include "cpu/thread_pool.h"

namespace pj::cpu {

// Bits: which int8 forms a product reads. Float weights read none.
enum ActivationForm : uint32_t { kFormNone = 0, kFormSpan32 = 1, kFormSpan256 = 2 };

inline uint32_t form_of(const PackedView &weight) {
    if (weight.format < WeightFormat::kNibble) return kFormNone;
    return weight.scale_span == 256 ? kFormSpan256 : kFormSpan32;
}

// Owns the quantised rows; borrows the f32 rows. bind() once, then quantize_row() once for every
// row, e.g. at the end of the region that computes the rows.
class Activations {
  public:
    Activations() = default;
    Activations(int max_rows, int max_n_in) { reserve(max_rows, max_n_in); }

    void reserve(int max_rows, int max_n_in) {
        const size_t groups = size_t(max_rows) * ((max_n_in + kGroup - 1) / kGroup);
        for (Form *form : {&span32_, &span256_}) {
            form->q.resize(groups * kGroup);
            form->groups.resize(groups);
        }
    }

    // x: [n_rows][x_stride], valid and unchanged as long as products read it. n_in a multiple of 32
    // unless only float weights are multiplied. forms: ActivationForm bits of the products ahead.
    void bind(const float *x, int64_t x_stride, int n_in, uint32_t forms) {
        x_ = x;
        x_stride_ = x_stride;
        n_in_ = n_in;
        forms_ = forms;
    }

    // Any thread; rows are independent.
    void quantize_row(const Kernels &kernels, int row) {
        if (forms_ & kFormSpan32) quantize_row(kernels, row, 32, span32_);
        if (forms_ & kFormSpan256) quantize_row(kernels, row, 256, span256_);
    }

    // bind() and quantize_row() for all rows.
    void set(ThreadPool &pool, const Kernels &kernels, const float *x, int64_t x_stride, int n_rows, int n_in,
             uint32_t forms) {
        bind(x, x_stride, n_in, forms);
        pool.for_each(n_rows, [&](int row) { quantize_row(kernels, row); });
    }

    // The input side of a product with this weight: fills x, q and groups of args.
    void describe(const PackedView &weight, GemmArgs &args) const {
        const Form &form = form_of(weight) == kFormSpan256 ? span256_ : span32_;
        args.x = x_;
        args.x_stride = x_stride_;
        args.q = form.q.data();
        args.q_stride = n_in_ / kGroup * kGroup;
        args.groups = form.groups.data();
        args.groups_stride = n_in_ / kGroup;
    }

    int n_in() const { return n_in_; }
    uint32_t forms() const { return forms_; }
    uint64_t bytes() const { return 2 * (span32_.q.size() + span32_.groups.size() * sizeof(QuantGroup)); }

  private:
    struct Form {
        std::vector<int8_t> q;
        std::vector<QuantGroup> groups;
    };

    void quantize_row(const Kernels &kernels, int row, int span, Form &form) {
        const int64_t n_groups = n_in_ / kGroup;
        kernels.quantize_row(x_ + row * x_stride_, (int)(n_groups * kGroup), span,
                             form.q.data() + row * n_groups * kGroup, form.groups.data() + row * n_groups);
    }

    Form span32_, span256_;
    const float *x_ = nullptr;
    int64_t x_stride_ = 0;
    int n_in_ = 0;
    uint32_t forms_ = kFormNone;
};

}  // namespace pj::cpu
