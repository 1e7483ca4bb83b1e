// Who computes which units of a GEMM (program.h, Gemm). Plain functions for host and device.
//
// Units are numbered block * k_units + k. A matrix has some CTAs to itself, by its share of its op's bytes. A
// worker is one group of consumer warps of one CTA; workers have consecutive ranges of units, so a block is
// cut into pieces by the borders of workers. The cut depends on shapes and grid only: it fixes the order of
// sums for every number of rows.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace pj::cuda {

constexpr int kGroups = 4;  // of two consumer warps, per CTA

// A CTA gets at least a unit per group and some have two: small ops go to few CTAs, so that their readers
// have few pieces to add.
constexpr int kLeastUnits = kGroups + kGroups / 2;

// CTAs that a matrix can have: a group without units would leave a hole between two pieces.
PJ_HOST_DEVICE int most_ctas(int n_units) { return n_units / kGroups > 0 ? n_units / kGroups : 1; }

struct UnitRange {
    int begin, end;
    PJ_HOST_DEVICE int size() const { return end - begin; }
};

// Units of a CTA of a matrix, counted from its first one; empty beyond the last. n_units * n_cta must stay
// below 2^31 (compiler.cc checks): 32-bit divisions are several times faster.
PJ_HOST_DEVICE UnitRange cta_range(int n_units, int cta, int n_cta) {
    const unsigned n = n_cta, units = n_units, c = cta;
    if (c >= n) return {n_units, n_units};
    return {static_cast<int>(units * c / n), static_cast<int>(units * (c + 1) / n)};
}

// Of the n units of a CTA, those of one group: the first n % kGroups groups have one more.
PJ_HOST_DEVICE UnitRange group_range(int n, int group) {
    const int q = static_cast<int>(static_cast<unsigned>(n) / kGroups), more = n - q * kGroups;
    const int begin = group * q + (group < more ? group : more);
    return {begin, begin + q + (group < more ? 1 : 0)};
}

PJ_HOST_DEVICE UnitRange worker_range(int n_units, int worker, int n_cta) {
    const UnitRange cta = cta_range(n_units, worker / kGroups, n_cta),
                    group = group_range(cta.size(), worker % kGroups);
    return {cta.begin + group.begin, cta.begin + group.end};
}

// The worker whose range holds a unit.
PJ_HOST_DEVICE int worker_of(int n_units, int unit, int n_cta) {
    const unsigned n = n_cta;
    // The largest c with n_units * c / n <= unit.
    const int cta = static_cast<int>(((static_cast<unsigned>(unit) + 1) * n - 1) / n_units);
    const UnitRange range = cta_range(n_units, cta, n_cta);
    const int q = range.size() / kGroups, more = range.size() - q * kGroups, i = unit - range.begin;
    const int group = i < more * (q + 1) ? i / (q + 1) : (i - more) / q;
    return cta * kGroups + group;
}

// Pieces of a block lie side by side in slots block + worker: both grow along the units, so no two
// pieces share a slot.
struct PieceSpan {
    int32_t slot, n;
};

PJ_HOST_DEVICE PieceSpan pieces_of(int n_units, int k_units, int block, int n_cta) {
    const int first = worker_of(n_units, block * k_units, n_cta);
    const int last = worker_of(n_units, block * k_units + k_units - 1, n_cta);
    return {block + first, last - first + 1};
}

PJ_HOST_DEVICE int piece_slots(int n_units, int n_blocks, int n_cta) {
    return n_units > 0 ? n_blocks + worker_of(n_units, n_units - 1, n_cta) : 0;
}

}  // namespace pj::cuda
