// A weight matrix in the layout of the kernels (kernels/gemm.h), packed once at load.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "core/draft_ids.h"
#include "cpu/activations.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/table.h"
#include "cpu/thread_pool.h"

namespace pj::cpu {

class PackedMatrix {
  public:
    PackedMatrix() = default;

    // data: n_out rows of n_in elements of a ggml type, as in the file. n_in must be a multiple of
    // the type's block size. Throws PJ_ERR_ARGUMENT (type, shape) or PJ_ERR_MEMORY.
    PackedMatrix(ThreadPool &pool, int32_t ggml_type, const void *data, int n_in, int n_out);

    // bytes() of such a matrix, without making it.
    static uint64_t bytes_of(int32_t ggml_type, int n_in, int n_out);

    int n_in() const { return view_.n_in; }
    int n_out() const { return view_.n_out; }
    int n_tiles() const { return view_.n_tiles; }
    uint64_t bytes() const { return bytes_; }  // memory held
    bool is_int8() const { return view_.format >= WeightFormat::kNibble; }
    bool empty() const { return view_.n_out == 0; }
    uint32_t form() const { return form_of(view_); }  // ActivationForm that products read
    const PackedView &view() const { return view_; }

  private:
    struct Free {
        void operator()(void *p) const { std::free(p); }
    };

    PackedView view_ = {};
    uint64_t bytes_ = 0;
    std::unique_ptr<uint8_t[], Free> memory_;
};

// The forms that an input of several matrices needs; empty ones count for nothing.
inline uint32_t forms_of(std::initializer_list<const PackedMatrix *> matrices) {
    uint32_t forms = kFormNone;
    for (const PackedMatrix *m : matrices)
        if (!m->empty()) forms |= m->form();
    return forms;
}

// One product of matmul_many.
struct MatmulTarget {
    const PackedMatrix *matrix;
    float *y;          // [n_rows][y_stride], the first n_out of each row are written
    int64_t y_stride;  // >= n_out
};

// y[r][j] = sum_k x[r][k] * W[j][k] for all rows of x. The same bits for a row whatever n_rows, the
// pool and the other targets are.
void matmul(ThreadPool &pool, const Kernels &kernels, const PackedMatrix &matrix, const Activations &x, int n_rows,
            float *y, int64_t y_stride);

// The same for the outputs that are among the ids; y has room for all of them, in their places.
void matmul_ids(ThreadPool &pool, const Kernels &kernels, const PackedMatrix &matrix, const DraftIds &ids,
                const Activations &x, int n_rows, float *y, int64_t y_stride);

// Several matrices with the same input in one parallel region.
void matmul_many(ThreadPool &pool, const Kernels &kernels, std::initializer_list<MatmulTarget> targets,
                 const Activations &x, int n_rows);

}  // namespace pj::cpu
