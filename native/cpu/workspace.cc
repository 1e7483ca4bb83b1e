#include "cpu/workspace.h"

#include <algorithm>

namespace pj::cpu {

Workspace::Workspace(const Shape &s, int max_rows) {
    const size_t rows = max_rows;
    const int query_width = s.n_head * s.head_dim, kv_width = s.n_head_kv * s.head_dim;
    const int heads_width = std::max(query_width, s.gdn_value_width());
    x.resize(rows * s.n_embd);
    h.resize(rows * 2 * s.n_embd);
    delta.resize(rows * s.n_embd);
    wide.resize(rows * std::max(s.query_outputs(), s.conv_channels()));
    mixed.resize(rows * std::max(query_width, s.conv_channels()));
    k.resize(rows * kv_width);
    v.resize(rows * kv_width);
    z.resize(rows * s.gdn_value_width());
    beta.resize(rows * s.n_gdn_head_v);
    decay.resize(rows * s.n_gdn_head_v);
    heads.resize(rows * heads_width);
    gate.resize(rows * s.n_ff);
    up.resize(rows * s.n_ff);
    cos.resize(rows * (s.rope_dim / 2));
    sin.resize(rows * (s.rope_dim / 2));
    input.reserve(max_rows, 2 * s.n_embd);
    heads_input.reserve(max_rows, heads_width);
    ffn_input.reserve(max_rows, s.n_ff);
}

uint64_t Workspace::bytes() const {
    size_t floats = 0;
    for (const AlignedVector<float> *v : {&x, &h, &delta, &wide, &mixed, &k, &this->v, &z, &beta, &decay, &heads, &gate,
                                          &up, &cos, &sin, &partial, &logits, &hidden})
        floats += v->size();
    return floats * sizeof(float) + input.bytes() + heads_input.bytes() + ffn_input.bytes();
}

}  // namespace pj::cpu
