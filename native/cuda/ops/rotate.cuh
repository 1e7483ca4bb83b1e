// Query and key norms, rotary embedding, Hadamard rotation; keys and values go to their pages.
#pragma once

#include "cuda/ops/kv_blocks.cuh"

namespace pj::cuda {

// Rotates the first 64 columns: pairs (i, i + 32) are lanes 4 apart.
__device__ __forceinline__ void rope(Lane8 &x, const Lane8 &cos, const Lane8 &sin, int lane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float other = __shfl_xor_sync(~0u, x.v[i], 4);
        if (lane >= 8) continue;
        x.v[i] = lane < 4 ? x.v[i] * cos.v[i] - other * sin.v[i] : other * sin.v[i] + x.v[i] * cos.v[i];
    }
}

// One head of one row, and what is known of it before its projection is.
struct RotateItem {
    int row, head;  // heads of queries, then of keys, then of values
    Lane8 norm, cos, sin;
    KvPlace place;
    int position;
};

__device__ __forceinline__ RotateItem rotate_item(const StepArgs &s, const Op &op, int index, int lane) {
    const int n_q = s.shape.n_head, n_kv = s.shape.n_head_kv, per_row = n_q + 2 * n_kv;
    RotateItem item = {};
    const RowGroup at(index, per_row);
    item.row = at.row;
    item.head = at.group;
    if (item.head < n_q + n_kv) {
        item.norm = load256(item.head < n_q ? op.norm : op.norm2, lane);
        const int column = (lane & 3) * 4;
        const float4 *cos = reinterpret_cast<const float4 *>(s.cos + item.row * 32 + column);
        const float4 *sin = reinterpret_cast<const float4 *>(s.sin + item.row * 32 + column);
        item.cos = make_lane8(__ldcg(cos), __ldcg(cos + 4));
        item.sin = make_lane8(__ldcg(sin), __ldcg(sin + 4));
    }
    if (item.head >= n_q) {
        item.position = __ldcg(s.row_position + item.row);
        item.place = kv_place(s, s.page_table + s.seqs[s.row_seq[item.row]].page_begin, item.position);
    }
    return item;
}

__device__ __forceinline__ void normalize_and_rotate(const StepArgs &s, Lane8 &x, const RotateItem &item, int lane) {
    const float r = 1.0f / sqrtf(square_sum(x) / kHeadDim + s.shape.rms_eps);
    x = multiply(scale(x, r), item.norm);
    rope(x, item.cos, item.sin, lane);
    if (s.k_rotation) hadamard<256>(x, lane);
}

__device__ __forceinline__ void rotate_head(const StepArgs &s, const Op &op, const RotateItem &item, int lane) {
    const int n_q = s.shape.n_head, n_kv = s.shape.n_head_kv, offset = item.position % kBlockTokens;
    if (item.head < n_q) {
        Lane8 q = product256(s, op.input[0], item.row, item.head * 2 * kHeadDim, lane);
        normalize_and_rotate(s, q, item, lane);
        store_query(s, item.row * n_q + item.head, q, lane);
    } else if (item.head < n_q + n_kv) {
        const int head = item.head - n_q, type = s.kv_type_k;
        Lane8 k = product256(s, op.input[1], item.row, head * kHeadDim, lane);
        normalize_and_rotate(s, k, item, lane);
        uint8_t *to = item.place.page + k_offset(s, op.layer, head) + item.place.block * block_bytes(type);
        store_key(to, type, offset, k, lane);
    } else {
        const int head = item.head - n_q - n_kv, type = s.kv_type_v;
        Lane8 v = product256(s, op.input[2], item.row, head * kHeadDim, lane);
        if (s.v_rotation) hadamard<64>(v, lane);
        uint8_t *to = item.place.page + v_offset(s, op.layer, head) + item.place.block * block_bytes(type);
        store_value(to, type, offset, v, lane);
    }
}

// Queries to the query buffer, keys and values to their pages; one warp per head of a row.
template <class Wait>
__device__ __noinline__ void op_rotate(const StepArgs &s, const Op &op, const Wait &wait) {
    if (op.input[0].row_factor) share_factors(s);
    for_each_warp_after(
        wait, s.n_rows * (s.shape.n_head + 2 * s.shape.n_head_kv),
        [&](int index, int lane) { return rotate_item(s, op, index, lane); },
        [&](const RotateItem &item, int lane) { rotate_head(s, op, item, lane); });
}

}  // namespace pj::cuda
