// The functions that exist once per instruction set. native/cpu/kernels/*.cc are compiled for each
// one in a namespace of its own (PJ_ISA); native/cpu/isa.cc picks a table at run time.
//
// Rules for these files: raw pointers and the helpers of simd.h only. No STL, no inline functions
// from other headers: the linker might keep the AVX-512 copy of such a function for everybody.
#pragma once

#include <cstdint>

namespace pj::cpu {

struct GemmArgs;       // kernels/gemm.h
struct QuantGroup;     // kernels/gemm.h
struct AttentionArgs;  // kernels/attention.h
struct GdnArgs;        // kernels/gdn.h
struct ConvArgs;       // kernels/gdn.h

struct Kernels {
    // --- matrices (kernels/gemm.cc, kernels/quantize.cc)
    void (*gemm)(const GemmArgs &args);
    // One row of n f32 values (n a multiple of 32) to int8 groups of 32. span: how many values share
    // a scale, 32 or 256; see cpu/activations.h.
    void (*quantize_row)(const float *x, int n, int span, int8_t *q, QuantGroup *groups);

    // --- rows (kernels/elementwise.cc)
    // out = x / rms(x) * weight, with eps inside the root. Sum of squares in f64.
    void (*rms_norm)(const float *x, const float *weight, int n, float eps, float *out);
    // x = x / |x|, with eps added to the sum of squares
    void (*l2_norm)(float *x, int n, float eps);
    // x += delta
    void (*add)(float *x, const float *delta, int n);
    // gate = silu(gate) * up
    void (*swiglu)(float *gate, const float *up, int n);
    // x = x * sigmoid(gate)
    void (*sigmoid_gate)(float *x, const float *gate, int n);
    // out = rms_norm(x) * weight * silu(gate), one head
    void (*gated_norm)(const float *x, const float *weight, const float *gate, int n, float eps, float *out);
    // index of the largest value, the lowest index on ties
    int (*argmax)(const float *x, int n);

    // --- attention (kernels/attention.cc, kernels/elementwise.cc)
    // Orthonormal Walsh-Hadamard transform (Sylvester order) of each block of n values; its own inverse.
    void (*hadamard)(float *x, int n, int block);
    void (*rope)(float *head, const float *cos, const float *sin, int rope_dim);  // halves
    void (*rope_pairs)(float *head, const float *cos, const float *sin, int rope_dim);
    void (*store_kv)(int kv_type, const float *x, int n, void *out);
    void (*load_kv)(int kv_type, const void *in, int n, float *x);
    void (*attention)(const AttentionArgs &args);
    void (*attention_begin)(float *total, int head_dim);
    void (*attention_merge)(float *total, const float *part, int head_dim);
    void (*attention_finish)(const float *total, float *out, int head_dim);

    // --- gated delta net (kernels/gdn.cc)
    void (*conv)(const ConvArgs &args);
    void (*gdn)(const GdnArgs &args);
};

// Best table for an isa (pj_isa, not AUTO) that was compiled in and that this processor has.
const Kernels *kernels_for(int isa);

}  // namespace pj::cpu
