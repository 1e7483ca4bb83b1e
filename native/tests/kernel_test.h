// Random input, comparison with double precision and the loop over instruction sets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "check.h"
#include "cpu/isa.h"
#include "cpu/kernels/table.h"
#include "pyjet.h"

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline std::mt19937 &random_engine() {
    static std::mt19937 engine(1);
    return engine;
}

inline float random_float(float limit) { return std::uniform_real_distribution<float>(-limit, limit)(random_engine()); }

inline Floats random_floats(size_t n, float limit = 1) {
    Floats out(n);
    for (float &x : out) x = random_float(limit);
    return out;
}

// Largest difference as a fraction of the largest expected value; NaN if any value is.
inline double error(const Floats &actual, const Doubles &expected) {
    double difference = 0, largest = 1e-30;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double d = std::fabs(actual[i] - expected[i]);
        if (std::isnan(d)) return d;
        difference = std::max(difference, d);
        largest = std::max(largest, std::fabs(expected[i]));
    }
    return difference / largest;
}

inline bool same_bits(const Floats &a, const Floats &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Runs the checks on every instruction set of this machine, each with the same random numbers.
inline void on_every_isa(std::initializer_list<void (*)(const pj::cpu::Kernels &, const char *)> checks) {
    for (int isa : {PJ_ISA_PORTABLE, PJ_ISA_AVX2, PJ_ISA_AVX512_VNNI}) {
        const pj::cpu::Kernels *kernels = pj::cpu::kernels_for(isa);
        if (!kernels) std::printf("%s does not run here\n", pj::cpu::isa_name(isa));
        random_engine().seed(1);
        for (auto *check : checks)
            if (kernels) check(*kernels, pj::cpu::isa_name(isa));
    }
}
