// Who computes which units of a GEMM (program.h, Gemm). Plain functions for host and device.
//
// A quad is kGroups neighbouring blocks of outputs, one for each group of consumer warps of a CTA, so that the groups
// share activations. A slice is a quad's units with the same inputs; slices are numbered quad * k_units + k. A matrix
// has some CTAs to itself, by its share of its op, and these have consecutive ranges of slices: a block is cut into
// pieces by the borders of CTAs. The cut depends on shapes and grid only: it fixes the order of sums for every number
// of rows.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace pj::cuda {

constexpr int kGroups = 4;  // of two consumer warps, per CTA

// Slices that a CTA has at least, on average: small ops go to few CTAs, so that their readers have few pieces to add.
constexpr float kLeastSlices = 1.5f;

PJ_HOST_DEVICE int quads_of(int n_blocks) {
    return static_cast<int>(static_cast<unsigned>(n_blocks + kGroups - 1) / kGroups);
}

PJ_HOST_DEVICE int slices_of(int n_blocks, int k_units) { return quads_of(n_blocks) * k_units; }

struct SliceRange {
    int begin, end;
    PJ_HOST_DEVICE int size() const { return end - begin; }
};

// Slices of a CTA of a matrix, counted from its first one; empty beyond the last. n_slices * n_cta must stay
// below 2^31 (op_list.cc checks): 32-bit divisions are several times faster.
PJ_HOST_DEVICE SliceRange cta_range(int n_slices, int cta, int n_cta) {
    const unsigned n = n_cta, slices = n_slices, c = cta;
    if (c >= n) return {n_slices, n_slices};
    return {static_cast<int>(slices * c / n), static_cast<int>(slices * (c + 1) / n)};
}

// The CTA whose range holds a slice: the largest c with n_slices * c / n_cta <= slice. A matrix has no more CTAs than
// slices.
PJ_HOST_DEVICE int cta_of(int n_slices, int slice, int n_cta) {
    return static_cast<int>(((static_cast<unsigned>(slice) + 1) * n_cta - 1) / n_slices);
}

// Pieces of a block lie in slots kGroups apart: (quad + CTA) * kGroups + group. Quad and CTA grow along the slices, so
// no two pieces share a slot.
struct PieceSpan {
    int32_t slot, n;
};

PJ_HOST_DEVICE int piece_slot(int block, int cta) { return block + cta * kGroups; }

PJ_HOST_DEVICE PieceSpan pieces_of(int n_slices, int k_units, int block, int n_cta) {
    const int slice = static_cast<int>(static_cast<unsigned>(block) / kGroups) * k_units;
    const int first = cta_of(n_slices, slice, n_cta), last = cta_of(n_slices, slice + k_units - 1, n_cta);
    return {piece_slot(block, first), last - first + 1};
}

PJ_HOST_DEVICE int piece_slots(int n_slices, int n_blocks, int n_cta) {
    return n_slices > 0 ? piece_slot(quads_of(n_blocks) * kGroups, cta_of(n_slices, n_slices - 1, n_cta)) : 0;
}

}  // namespace pj::cuda
