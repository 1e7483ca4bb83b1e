// The tensors of a model, checked and sorted by their place in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pyjet.h"

namespace pj {

// A weight matrix as it lies in the file: n_out rows of n_in quantised elements.
struct Matrix {
    std::string name;
    int32_t type = 0;  // ggml type
    const void *data = nullptr;
    uint64_t n_bytes = 0;
    int32_t n_in = 0, n_out = 0;

    bool present() const { return data != nullptr; }
};

using Vector = std::vector<float>;

struct AttentionWeights {
    Matrix q;  // per head: head_dim query rows, then, with a gate (Shape::gated_attention), head_dim gate rows
    Matrix k, v, output;
    Vector q_norm, k_norm;                    // [head_dim]; empty: not normalised
    Vector q_bias, k_bias, v_bias, out_bias;  // one per output of the matrix; empty: none
};

struct GdnWeights {
    Matrix qkv;          // q, k, v channels: 2 * n_head_k * dim + n_head_v * dim
    Matrix z;            // output gate, n_head_v * dim
    Matrix beta, alpha;  // n_head_v
    Matrix output;
    Vector conv;     // [taps][channels]
    Vector dt_bias;  // [n_head_v]
    Vector a;        // [n_head_v], negative
    Vector norm;     // [dim]
};

struct Block {
    bool is_attention = false;
    Vector norm, post_norm;  // before the mixer, before the feed-forward
    AttentionWeights attention;
    GdnWeights gdn;
    Matrix ffn_gate, ffn_up, ffn_down;
};

struct MtpWeights {
    Block block;     // full attention
    Matrix eh_proj;  // [embedding ; hidden] -> hidden
    Vector e_norm, h_norm;
    Vector head_norm;  // own or output_norm
    Matrix embedding;  // own or token_embd
    Matrix head;       // own or output
};

struct Shape {
    int n_block, n_nextn, n_embd, n_ff, n_head, n_head_kv, head_dim, rope_dim;
    int n_gdn_head_v, n_gdn_head_k, gdn_dim, conv_kernel, n_vocab, n_ctx_train;
    float rope_base, rms_eps;
    bool gated_attention, rope_in_pairs;

    int query_outputs() const { return (gated_attention ? 2 : 1) * n_head * head_dim; }
    int gdn_value_width() const { return n_gdn_head_v * gdn_dim; }
    int gdn_key_width() const { return n_gdn_head_k * gdn_dim; }
    int conv_channels() const { return 2 * gdn_key_width() + gdn_value_width(); }
    int head_group() const { return n_head / n_head_kv; }
};

struct Model {
    Shape shape;
    Matrix token_embd;
    Matrix output;  // token_embd when the file ties them
    bool output_is_tied = false;
    Vector output_norm;
    Vector rope_factors;  // [rope_dim / 2] divisors of the angles; empty: none
    std::vector<Block> blocks;
    std::vector<MtpWeights> mtp;  // 0 or 1
};

// Throws Error(PJ_ERR_MODEL) that names the tensor or hyperparameter.
Model read_model(const pj_model &source);

}  // namespace pj
