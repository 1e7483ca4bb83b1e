// Activations of one step, [max_rows][width] each, and the int8 forms that matrices read.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model.h"
#include "cpu/activations.h"

namespace pj::cpu {

struct Workspace {
    Workspace(const Shape &shape, int max_rows);

    std::vector<float> x;            // residual stream, n_embd
    std::vector<float> h;            // normed rows, n_embd (2 n_embd for the MTP block's input)
    std::vector<float> delta;        // what a mixer or feed-forward adds, n_embd
    std::vector<float> wide;         // attention: query | gate per head; GDN: q, k, v channels before the convolution
    std::vector<float> mixed;        // attention: rotated queries; GDN: channels after the convolution
    std::vector<float> k, v;         // attention keys and values
    std::vector<float> z;            // GDN output gate
    std::vector<float> beta, decay;  // GDN, n_gdn_head_v
    std::vector<float> heads;        // what the heads give, input of the output projection
    std::vector<float> gate, up;     // feed-forward
    std::vector<float> cos, sin;     // rope_dim / 2 per row
    std::vector<float> partial;      // attention of long contexts, split by segments
    std::vector<float> logits;       // rows that only want their argmax
    Activations input;               // n_embd or 2 n_embd wide
    Activations heads_input;
    Activations ffn_input;

    uint64_t bytes() const;
};

}  // namespace pj::cpu
