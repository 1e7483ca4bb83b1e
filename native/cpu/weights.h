// The model's weights as the CPU kernels read them.
#pragma once

#include <vector>

#include "core/model.h"
#include "cpu/packed_matrix.h"

namespace pj::cpu {

// Rows looked up one at a time, straight from the file's memory map.
struct Embedding {
    Matrix source;
    void row(int32_t token, float *out) const;
};

struct PackedBlock {
    bool is_attention = false;
    int layer = 0;  // index among the attention blocks, or among the GDN blocks
    Vector norm, post_norm;
    PackedMatrix q, k, v, attention_output;
    Vector q_norm, k_norm, q_bias, k_bias, v_bias, out_bias;  // empty: none
    PackedMatrix qkv, z, beta, alpha, gdn_output;
    Vector conv, dt_bias, a, gdn_norm;
    PackedMatrix ffn_gate, ffn_up, ffn_down;
};

struct PackedMtp {
    PackedBlock block;
    PackedMatrix eh_proj;
    Vector e_norm, h_norm, head_norm;
    Embedding embedding;
    PackedMatrix own_head;  // empty when the trunk's head serves
};

struct Weights {
    Embedding embedding;
    std::vector<PackedBlock> blocks;
    std::vector<PackedMtp> mtp;  // 0 or 1
    PackedMatrix output;
    Vector output_norm;
    int n_attention_layers = 0;  // the MTP block's included
    int n_gdn_layers = 0;
    uint64_t bytes = 0;
};

// Weights::bytes of the model, without packing it.
uint64_t packed_weight_bytes(const Model &model);

// Reports progress in bytes of the file; throws PJ_ERR_CANCELLED when the callback asks for it.
Weights pack_weights(ThreadPool &pool, const Model &model, const pj_config &config);

}  // namespace pj::cpu
