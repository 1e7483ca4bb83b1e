// The bytes of a KV page on the GPU: in another order than in cpu/kv_pool.h, so pages of a GPU engine cannot be written
// to a CPU engine.
//
// Attention knows heads of 256 only. Smaller ones share a wide head: two neighbouring kv heads of 128, or four of 64,
// lie side by side in a row of 256, and a query has zeros where it meets the others. So pages are read once for all
// queries of a wide head, as for those of one head of 256; twice or four times the products are the price. The last
// wide head may have room for heads that the model does not have: their keys, values and queries are zero.
//
// The pool holds all pages of a layer, then those of the next one: attention walks the pages of one layer. (It was
// measured as no faster than pages of all layers.) Copies of a page have its layers side by side.
//
// A page of a layer holds K of every head, then V of every head. A head is a run of blocks of 16 positions (pages
// hold a multiple of 16), each in the order in which the lanes of a warp want the operands of the tensor cores
// (ops/kv_blocks.cuh): every load is 16 bytes per lane, 512 in a row.
//   q8_0  4096 integers (V: plus 128), then the 128 f16 scales
//   f16   4096 numbers
#pragma once

#include <cstdint>

#include "core/model.h"
#include "pyjet.h"

namespace pj::cuda {

constexpr int kBlockTokens = 16;

constexpr int kWideDim = 256;

struct WideHeads {
    // head_dim divides kWideDim.
    explicit WideHeads(const Shape &s)
        : heads(kWideDim / s.head_dim),
          n_kv((s.n_head_kv + heads - 1) / heads),
          n_query(n_kv * heads * s.head_group()) {}

    int head_group() const { return n_query / n_kv; }  // query heads of a wide head

    int heads;    // kv heads of a wide head
    int n_kv;     // wide heads
    int n_query;  // query heads, with those of kv heads that the model does not have
};

struct KvLayout {
    KvLayout(const Shape &s, const pj_config &c, int n_layers) {
        k_head_bytes = row_bytes(c.kv_type_k, kWideDim) * c.page_tokens;
        v_head_bytes = row_bytes(c.kv_type_v, kWideDim) * c.page_tokens;
        layer_bytes = WideHeads(s).n_kv * (k_head_bytes + v_head_bytes);
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
