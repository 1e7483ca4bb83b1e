// Norms, gates, rotations and argmax against double precision.
#include <limits>

#include "kernel_test.h"

using namespace pj;
using namespace pj::cpu;

namespace {

double inverse_rms(const float *x, int n, double eps) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += double(x[i]) * x[i];
    return 1 / std::sqrt(sum / n + eps);
}

void check_norms(const Kernels &k, const char *isa) {
    for (int n : {16, 64, 128, 250, 5120}) {
        for (float size : {1e-4f, 1.0f, 3e3f}) {
            const Floats x = random_floats(n, size), weight = random_floats(n);
            Floats out(n);
            Doubles expected(n);
            k.rms_norm(x.data(), weight.data(), n, 1e-6f, out.data());
            const double r = inverse_rms(x.data(), n, 1e-6);
            for (int i = 0; i < n; ++i) expected[i] = x[i] * r * weight[i];
            CHECK(error(out, expected) < 1e-6, "%s rms_norm %d: %g", isa, n, error(out, expected));

            Floats unit = x;
            k.l2_norm(unit.data(), n, 1e-6f);
            const double length = std::sqrt(n / (r * r) - n * 1e-6 + 1e-6);
            for (int i = 0; i < n; ++i) expected[i] = x[i] / length;
            CHECK(error(unit, expected) < 1e-6, "%s l2_norm %d: %g", isa, n, error(unit, expected));
        }
    }
}

void check_gates(const Kernels &k, const char *isa) {
    for (int n : {16, 128, 250, 1024}) {
        for (float size : {1.0f, 30.0f, 200.0f}) {
            const Floats x = random_floats(n, size), up = random_floats(n);
            Doubles expected(n);
            Floats out = x;
            k.swiglu(out.data(), up.data(), n);
            for (int i = 0; i < n; ++i) expected[i] = x[i] * sigmoid(x[i]) * up[i];
            CHECK(error(out, expected) < 1e-6, "%s swiglu %d: %g", isa, n, error(out, expected));
            out = up;
            k.add(out.data(), x.data(), n);
            for (int i = 0; i < n; ++i) CHECK(out[i] == up[i] + x[i], "%s add", isa);
            if (n % 16) continue;
            out = up;
            k.sigmoid_gate(out.data(), x.data(), n);
            for (int i = 0; i < n; ++i) expected[i] = up[i] * sigmoid(x[i]);
            CHECK(error(out, expected) < 1e-6, "%s sigmoid_gate %d: %g", isa, n, error(out, expected));
            const Floats weight = random_floats(n);
            k.gated_norm(up.data(), weight.data(), x.data(), n, 1e-6f, out.data());
            const double r = inverse_rms(up.data(), n, 1e-6);
            for (int i = 0; i < n; ++i) expected[i] = up[i] * r * weight[i] * x[i] * sigmoid(x[i]);
            CHECK(error(out, expected) < 1e-6, "%s gated_norm %d: %g", isa, n, error(out, expected));
        }
    }
}

// Far from zero a gate is open or shut, never NaN.
void check_extreme_gates(const Kernels &k, const char *isa) {
    Floats x(16, 0.0f), one(16, 1.0f);
    const float extremes[] = {-1e6f, -1e4f, -100.0f, -89.0f, 89.0f, 100.0f, 1e4f, 3e38f};
    std::copy(std::begin(extremes), std::end(extremes), x.begin());
    Floats out = x;
    k.swiglu(out.data(), one.data(), 16);
    for (int i = 0; i < 4; ++i) CHECK(std::fabs(out[i]) < 1e-30f, "%s silu(%g) = %g", isa, x[i], out[i]);
    for (int i = 4; i < 8; ++i) CHECK(out[i] == x[i], "%s silu(%g) = %g", isa, x[i], out[i]);
    out = one;
    k.sigmoid_gate(out.data(), x.data(), 16);
    for (int i = 0; i < 8; ++i) CHECK(out[i] >= 0 && out[i] <= 1, "%s sigmoid(%g) = %g", isa, x[i], out[i]);
    CHECK(out[8] == 0.5f, "%s sigmoid(0) = %g", isa, out[8]);
}

void check_argmax(const Kernels &k, const char *isa) {
    for (int n : {1, 2, 15, 16, 17, 33, 100}) {
        for (int best = 0; best < n; ++best) {
            Floats x = random_floats(n);
            x[best] = 5;
            CHECK(k.argmax(x.data(), n) == best, "%s argmax of %d at %d", isa, n, best);
            for (int tie = best; tie < n; tie += 7) x[tie] = 5;
            CHECK(k.argmax(x.data(), n) == best, "%s lowest index of %d at %d", isa, n, best);
        }
    }
    const float infinity = std::numeric_limits<float>::infinity();
    Floats x(40, -infinity);
    CHECK(k.argmax(x.data(), 40) == 0, "%s all -inf", isa);
    x[23] = -3e38f;
    CHECK(k.argmax(x.data(), 40) == 23, "%s one finite value", isa);
    x[39] = infinity;
    CHECK(k.argmax(x.data(), 40) == 39, "%s infinity", isa);
}

// H[i][j] = (-1)^popcount(i & j) / sqrt(block)
void check_hadamard(const Kernels &k, const char *isa) {
    for (int block : {64, 128, 256}) {
        const int n = 256;
        const Floats x = random_floats(n);
        Floats out = x;
        k.hadamard(out.data(), n, block);
        Doubles expected(n);
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < block; ++j) {
                const double value = x[i / block * block + j] / std::sqrt(double(block));
                expected[i] += __builtin_parity(i % block & j) ? -value : value;
            }
        CHECK(error(out, expected) < 1e-6, "%s hadamard %d: %g", isa, block, error(out, expected));
        k.hadamard(out.data(), n, block);
        CHECK(error(out, Doubles(x.begin(), x.end())) < 1e-6, "%s hadamard %d twice", isa, block);
    }
}

void check_rope(const Kernels &k, const char *isa) {
    for (int rope_dim : {2, 16, 64, 256}) {
        const int half = rope_dim / 2;
        const Floats x = random_floats(256);
        Floats cos(half), sin(half), out = x;
        Doubles expected(x.begin(), x.end());
        for (int i = 0; i < half; ++i) {
            const double angle = random_float(1000);
            cos[i] = float(std::cos(angle)), sin[i] = float(std::sin(angle));
            expected[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
            expected[i + half] = x[i] * std::sin(angle) + x[i + half] * std::cos(angle);
        }
        k.rope(out.data(), cos.data(), sin.data(), rope_dim);
        CHECK(error(out, expected) < 1e-6, "%s rope %d: %g", isa, rope_dim, error(out, expected));
    }
}

// The same rotation of neighbours, so of halves after a change of order.
void check_rope_pairs(const Kernels &k, const char *isa) {
    for (int rope_dim : {2, 64, 128}) {
        const int half = rope_dim / 2;
        Floats x = random_floats(256), cos = random_floats(half), sin = random_floats(half), halves = x;
        for (int i = 0; i < rope_dim; ++i) halves[i] = x[i < half ? 2 * i : 2 * (i - half) + 1];
        k.rope(halves.data(), cos.data(), sin.data(), rope_dim);
        k.rope_pairs(x.data(), cos.data(), sin.data(), rope_dim);
        for (int i = 0; i < 256; ++i) {
            const int from = i >= rope_dim ? i : i % 2 ? half + i / 2 : i / 2;
            CHECK(x[i] == halves[from], "%s rope in pairs of %d dims: dim %d", isa, rope_dim, i);
        }
    }
}

}  // namespace

int main() {
    on_every_isa(
        {check_norms, check_gates, check_extreme_gates, check_argmax, check_hadamard, check_rope, check_rope_pairs});
    return check_result();
}
