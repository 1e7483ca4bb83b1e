// Every function of the Kernels table, as compiled for this instruction set.
#pragma once

#include "cpu/kernels/table.h"

namespace pj::cpu::PJ_ISA {

void gemm(const GemmArgs &args);
void quantize_row(const float *x, int n, int span, int8_t *q, QuantGroup *groups);

void rms_norm(const float *x, const float *weight, int n, float eps, float *out);
void l2_norm(float *x, int n, float eps);
void add(float *x, const float *delta, int n);
void swiglu(float *gate, const float *up, int n);
void sigmoid_gate(float *x, const float *gate, int n);
void gated_norm(const float *x, const float *weight, const float *gate, int n, float eps, float *out);
int argmax(const float *x, int n);

void hadamard(float *x, int n, int block);
void rope(float *head, const float *cos, const float *sin, int rope_dim);
void rope_pairs(float *head, const float *cos, const float *sin, int rope_dim);
void store_kv(int kv_type, const float *x, int n, void *out);
void load_kv(int kv_type, const void *in, int n, float *x);
void attention(const AttentionArgs &args);
void attention_begin(float *total, int head_dim);
void attention_merge(float *total, const float *part, int head_dim);
void attention_finish(const float *total, float *out, int head_dim);

void conv(const ConvArgs &args);
void gdn(const GdnArgs &args);

extern const Kernels kTable;

}  // namespace pj::cpu::PJ_ISA
