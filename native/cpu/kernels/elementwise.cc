#include "cpu/kernels/functions.h"
#include "cpu/kernels/simd.h"

namespace pj::cpu::PJ_ISA {

namespace {

// Sum of squares (rounded to f32 one by one) in f64: lane i % 8 collects element i, then 8 -> 4 -> 2 -> 1.
// Its order hardly matters to the f32 that it ends in, so engines that do the same agree.
double square_sum(const float *x, int n) {
    constexpr int kSums = 8;
    double sum[kSums] = {};
    int i = 0;
    for (; i + kSums <= n; i += kSums)
        for (int j = 0; j < kSums; ++j) sum[j] += (double)(x[i + j] * x[i + j]);
    for (; i < n; ++i) sum[i % kSums] += (double)(x[i] * x[i]);
    for (int width = kSums / 2; width > 0; width /= 2)
        for (int j = 0; j < width; ++j) sum[j] += sum[j + width];
    return sum[0];
}

// 1 / sqrt(mean(x^2) + eps)
float inverse_rms(const float *x, int n, float eps) {
    return 1.0f / __builtin_sqrtf((float)(square_sum(x, n) / n) + eps);
}

}  // namespace

void rms_norm(const float *x, const float *weight, int n, float eps, float *out) {
    const float r = inverse_rms(x, n, eps);
    for (int i = 0; i < n; ++i) out[i] = x[i] * r * weight[i];
}

void l2_norm(float *x, int n, float eps) {
    const float r = 1.0f / __builtin_sqrtf((float)square_sum(x, n) + eps);
    for (int i = 0; i < n; ++i) x[i] *= r;
}

void add(float *x, const float *delta, int n) {
    for (int i = 0; i < n; ++i) x[i] += delta[i];
}

void swiglu(float *gate, const float *up, int n) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        const F16 g = load(gate + i);
        store(gate + i, g * sigmoid16(g) * load(up + i));
    }
    if (i < n) {
        float g[kLanes] = {}, u[kLanes] = {};
        for (int j = 0; i + j < n; ++j) g[j] = gate[i + j], u[j] = up[i + j];
        const F16 v = load(g);
        store(g, v * sigmoid16(v) * load(u));
        for (int j = 0; i + j < n; ++j) gate[i + j] = g[j];
    }
}

void sigmoid_gate(float *x, const float *gate, int n) {
    for (int i = 0; i < n; i += kLanes) store(x + i, load(x + i) * sigmoid16(load(gate + i)));
}

void gated_norm(const float *x, const float *weight, const float *gate, int n, float eps, float *out) {
    const F16 r = broadcast(inverse_rms(x, n, eps));
    for (int i = 0; i < n; i += kLanes) {
        const F16 g = load(gate + i);
        store(out + i, load(x + i) * r * load(weight + i) * (g * sigmoid16(g)));
    }
}

int argmax(const float *x, int n) {
    int best = 0;
    float largest = x[0];
    int i = 0;
    // Whole groups without a larger value are skipped; the first index of the largest value wins.
    for (; i + kLanes <= n; i += kLanes) {
        const float m = max_lanes(load(x + i));
        if (!(m > largest)) continue;
        largest = m;
        for (best = i; x[best] != m; ++best) {
        }
    }
    for (; i < n; ++i)
        if (x[i] > largest) largest = x[i], best = i;
    return best;
}

void hadamard(float *x, int n, int block) {
    const float scale = 1.0f / __builtin_sqrtf((float)block);
    for (int begin = 0; begin < n; begin += block) {
        float *v = x + begin;
        for (int half = 1; half < block; half *= 2) {
            for (int i = 0; i < block; i += 2 * half) {
                for (int j = i; j < i + half; ++j) {
                    const float a = v[j], b = v[j + half];
                    v[j] = a + b;
                    v[j + half] = a - b;
                }
            }
        }
        for (int i = 0; i < block; ++i) v[i] *= scale;
    }
}

void rope(float *head, const float *cos, const float *sin, int rope_dim) {
    const int half = rope_dim / 2;
    for (int i = 0; i < half; ++i) {
        const float a = head[i], b = head[i + half];
        head[i] = a * cos[i] - b * sin[i];
        head[i + half] = a * sin[i] + b * cos[i];
    }
}

void rope_pairs(float *head, const float *cos, const float *sin, int rope_dim) {
    for (int i = 0; i < rope_dim / 2; ++i) {
        const float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos[i] - b * sin[i];
        head[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

}  // namespace pj::cpu::PJ_ISA
