// A program's ops as they come, with the tiled matrices that they stream.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <vector>

#include "core/model.h"
#include "cuda/compiler.h"
#include "cuda/program.h"
#include "cuda/shares.h"
#include "cuda/weights.h"

namespace pj::cuda {

// Forms of activations (program.h) that matrices read.
int forms_of(std::initializer_list<const Matrix *> readers);

// What a residual op leaves to the readers of the matrices behind it.
enum class Factor : int32_t { kApplied = 0, kDeferred = 1 };

// Appends ops to a list and works out their matrices: place, pieces, CTAs. The widest of everything is noted in `out`.
class OpList {
  protected:
    OpList(const Weights &weights, const ProgramLimits &limits, ProductMemory memory, Programs &out)
        : weights_(weights), limits_(limits), memory_(memory), out_(out) {}

    Op &add(OpKind kind);
    void barrier() { ops_.back().flags |= kOpBarrier; }
    void reads(Op &op, std::initializer_list<Product> products);
    // The op quantises rows of this width for these matrices.
    void writes(Op &op, int width, std::initializer_list<const Matrix *> readers);
    Shares shares(std::initializer_list<const Matrix *> matrices);
    // One more matrix of a kGemm op, whose output begins at *offset of a region; moves the offset past it.
    Product add_gemm(Op &op, const Matrix &m, Shares &shares, float *region, int64_t *offset, GemmRows rows,
                     Factor factor);
    // Matrices that run side by side, all in the region between.
    std::vector<Product> gemms(std::initializer_list<const Matrix *> matrices, GemmRows rows, Factor factor);

    const Weights &weights_;
    const ProgramLimits limits_;
    const ProductMemory memory_;
    Programs &out_;
    std::vector<Op> ops_;
    std::vector<LoadTask> tasks_;
    GemmRows rows_ = kRowsAll;  // of the block's matrices

  private:
    const PieceSpan *pieces(const Gemm &g, bool split);
    int most_rows(int32_t rows) const;
    int64_t output_floats(const Gemm &g, bool split) const;
    void check_units(const Gemm &g) const;
    void add_task(const Gemm &g);

    std::map<std::array<int, 3>, size_t> tables_;  // by blocks, units of a block and CTAs
    int next_cta_ = 0;
};

}  // namespace pj::cuda
