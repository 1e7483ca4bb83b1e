// Which units of a GEMM a CTA computes (program.h, Gemm). Plain functions for host and device.
#pragma once

#include <cstdint>

#include "cuda/host_device.h"

namespace pj::cuda {

// A CTA gets at least this many units: small matrices make few parts rather than many.
constexpr int kLeastUnits = 4;

// n_units * n_cta must stay below 2^31 (compiler.cc checks): 32-bit divisions are several times faster.
PJ_HOST_DEVICE int split_ctas(int n_units, int n_cta) {
    const int most = n_units / kLeastUnits > 0 ? n_units / kLeastUnits : 1;
    return most < n_cta ? most : n_cta;
}

// First unit of a CTA; n_units for all CTAs beyond the last that takes part.
PJ_HOST_DEVICE int split_begin(int n_units, int cta, int n_cta) {
    const unsigned n = split_ctas(n_units, n_cta);
    return static_cast<unsigned>(cta) < n ? static_cast<int>(static_cast<unsigned>(n_units) * cta / n) : n_units;
}

// The CTA whose range holds a unit: the largest c with n_units * c / n <= unit.
PJ_HOST_DEVICE int split_owner(int n_units, int unit, int n_cta) {
    const unsigned n = split_ctas(n_units, n_cta);
    return static_cast<int>(((static_cast<unsigned>(unit) + 1) * n - 1) / n_units);
}

// CTAs that share a block.
PJ_HOST_DEVICE int split_parts(int n_blocks, int k_units, int block, int n_cta) {
    const int n = n_blocks * k_units, first = block * k_units;
    return split_owner(n, first + k_units - 1, n_cta) - split_owner(n, first, n_cta) + 1;
}

}  // namespace pj::cuda
