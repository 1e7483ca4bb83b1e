// How the matrices of one op share the CTAs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "cuda/pack_unit.h"
#include "cuda/program.h"
#include "cuda/split.h"
#include "cuda/tiles.h"

namespace pj::cuda {

inline int blocks_of(const Matrix &m) { return (m.n_out + kUnitOutputs - 1) / kUnitOutputs; }
inline int k_units_of(const Matrix &m) { return (m.n_in + kUnitInputs - 1) / kUnitInputs; }
inline int64_t slices_of_matrix(const Matrix &m) { return int64_t{quads_of(blocks_of(m))} * k_units_of(m); }

// The CTAs of matrices that run side by side: as many as their share of the bytes of slices, at least one, which
// matrices smaller than a share have together. A slice takes its time though its quad may have fewer blocks.
class Shares {
  public:
    Shares(std::initializer_list<const Matrix *> matrices, int n_cta) : n_cta_(n_cta) {
        int64_t slices = 0;
        for (const Matrix *m : matrices) {
            bytes_ += bytes_of(*m);
            if (bytes_of(*m)) slices += slices_of_matrix(*m);
        }
        n_ = std::clamp(static_cast<int>(static_cast<float>(slices) / kLeastSlices), 1, n_cta);
    }

    int n_ctas() const { return n_; }
    void start_at(int cta) { first_cta_ = cta; }

    // The next matrix.
    void place(const Matrix &m, Gemm &g) {
        const int begin = rounded(before_);
        before_ += bytes_of(m);
        g.n_ctas = std::clamp(rounded(before_) - begin, 1, slices_of(g.n_blocks, g.k_units));
        g.first_cta = (first_cta_ + std::min(begin, n_ - 1)) % n_cta_;
    }

  private:
    static int64_t bytes_of(const Matrix &m) {
        return slices_of_matrix(m) * kGroups * unit_bytes(tile_format(m.type, m.n_in));
    }
    int rounded(int64_t bytes) const { return static_cast<int>((2 * bytes * n_ + bytes_) / (2 * bytes_)); }

    const int n_cta_;
    int n_, first_cta_ = 0;
    int64_t bytes_ = 0, before_ = 0;
};

}  // namespace pj::cuda
