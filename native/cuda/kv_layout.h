// The bytes of a KV page, the same as in cpu/kv_pool.h: pages can move between backends.
#pragma once

#include <cstdint>

#include "core/model.h"
#include "pyjet.h"

namespace pj::cuda {

struct KvLayout {
    KvLayout(const Shape &s, const pj_config &c, int n_layers) {
        k_head_bytes = row_bytes(c.kv_type_k, s.head_dim) * c.page_tokens;
        v_head_bytes = row_bytes(c.kv_type_v, s.head_dim) * c.page_tokens;
        layer_bytes = s.n_head_kv * (k_head_bytes + v_head_bytes);
        page_bytes = layer_bytes * n_layers;
        const bool rotates = s.head_dim % 64 == 0;
        if (rotates && c.kv_type_k == PJ_KV_Q8_0)
            for (k_rotation = 64; s.head_dim % (2 * k_rotation) == 0;) k_rotation *= 2;
        if (rotates && c.kv_type_v == PJ_KV_Q8_0) v_rotation = 64;
    }

    static int64_t row_bytes(int kv_type, int n) {
        return kv_type == PJ_KV_F16 ? 2 * int64_t{n} : int64_t{n} / 32 * 34;
    }

    int64_t k_head_bytes, v_head_bytes, layer_bytes, page_bytes;
    int k_rotation = 0, v_rotation = 0;  // block of the Hadamard transform of stored rows, 0: none
};

}  // namespace pj::cuda
