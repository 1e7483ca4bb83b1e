// Activations of one step, [max_rows][width] each, and the int8 forms that matrices read.
#pragma once

#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "core/model.h"
#include "cpu/activations.h"

namespace pj::cpu {

constexpr int kArgmaxRows = 16;  // rows of logits kept at a time when only the argmax is wanted

struct Workspace {
    Workspace(const Shape &shape, int max_rows);

    AlignedVector<float> x;      // residual stream, n_embd
    AlignedVector<float> h;      // normed rows, n_embd (2 n_embd for the MTP block's input)
    AlignedVector<float> delta;  // what a mixer or feed-forward adds, n_embd
    AlignedVector<float> wide;   // attention: query (| gate) per head; GDN: q, k, v channels before the convolution
    AlignedVector<float> mixed;  // attention: rotated queries; GDN: channels after the convolution
    AlignedVector<float> k, v;   // attention keys and values
    AlignedVector<float> z;      // GDN output gate
    AlignedVector<float> beta, decay;  // GDN, n_gdn_head_v
    AlignedVector<float> heads;        // what the heads give, input of the output projection
    AlignedVector<float> gate, up;     // feed-forward
    AlignedVector<float> cos, sin;     // rope_dim / 2 per row
    AlignedVector<float> partial;      // attention of long contexts, split by segments
    AlignedVector<float> logits;       // rows that only want their argmax, and drafts
    AlignedVector<float> hidden;       // rows that the MTP block reads, n_embd
    Activations input;                 // n_embd or 2 n_embd wide
    Activations heads_input;
    Activations ffn_input;

    uint64_t bytes() const;
};

}  // namespace pj::cpu
