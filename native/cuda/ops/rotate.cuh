// Biases, query and key norms, rotary embedding, Hadamard rotation; keys and values go to their pages.
#pragma once

#include "cuda/ops/head_lanes.cuh"

namespace pj::cuda {

// Rotates the first 64 columns of a head of 256: pairs (i, i + 32) are lanes 4 apart.
__device__ __forceinline__ void rope(Lane8 &x, const Lane8 &cos, const Lane8 &sin, int lane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float other = __shfl_xor_sync(~0u, x.v[i], 4);
        if (lane >= 8) continue;
        x.v[i] = lane < 4 ? x.v[i] * cos.v[i] - other * sin.v[i] : other * sin.v[i] + x.v[i] * cos.v[i];
    }
}

// 256 columns of one row, and what is known of them before their projection is.
struct RotateItem {
    int row, group;  // of queries, then of keys, then of values
    Lane8 norm;
    Rotation rotation;
    KvPlace place;
    int position;
};

__device__ __forceinline__ Rotation load_gated_rotation(const StepArgs &s, int row, int lane) {
    const int column = (lane & 3) * 4;
    const float4 *cos = reinterpret_cast<const float4 *>(s.cos + row * 32 + column);
    const float4 *sin = reinterpret_cast<const float4 *>(s.sin + row * 32 + column);
    return {make_lane8(__ldcg(cos), __ldcg(cos + 4)), make_lane8(__ldcg(sin), __ldcg(sin + 4))};
}

template <int kDim, bool kGated>
__device__ __forceinline__ RotateItem rotate_item(const StepArgs &s, const Op &op, int index, int lane) {
    const int n_q = s.shape.query_groups, n_kv = s.shape.n_head_kv, per_row = n_q + 2 * n_kv;
    RotateItem item = {};
    const RowGroup at(index, per_row);
    item.row = at.row;
    item.group = at.group;
    const bool is_query = item.group < n_q;
    if (item.group < n_q + n_kv) {
        const float *const norm = is_query ? op.norm : op.norm2;
        if (kGated || norm) item.norm = load256(norm, lane);
        item.rotation = kGated ? load_gated_rotation(s, item.row, lane)
                               : load_rotation(s, item.row, HeadLane<kDim>(0, lane).block, lane);
    }
    if (!is_query) {
        item.position = __ldcg(s.row_position + item.row);
        item.place = kv_place(s, s.page_table + s.seqs[s.row_seq[item.row]].page_begin, item.position);
    }
    return item;
}

template <int kDim, bool kGated>
__device__ __forceinline__ void normalize_and_rotate(const StepArgs &s, const float *norm, Lane8 &x,
                                                     const RotateItem &item, int lane) {
    if (kGated || norm) {
        const float r = 1.0f / sqrtf(head_sum<kDim>(lane_squares(x)) / kDim + s.shape.rms_eps);
        x = multiply(scale(x, r), item.norm);
    }
    if constexpr (kGated)
        rope(x, item.rotation.cos, item.rotation.sin, lane);
    else
        rotate(s, x, item.rotation, HeadLane<kDim>(0, lane).block, lane);
    if (s.k_rotation) hadamard<kDim>(x, lane);
}

// 256 columns of a product, with their bias if there is one.
template <bool kGated>
__device__ __forceinline__ Lane8 biased256(const StepArgs &s, const Product &p, const float *bias, int row, int column,
                                           int lane) {
    const Lane8 x = product256(s, p, row, column, lane);
    return kGated || !bias ? x : add(x, load256(bias + column, lane));
}

template <int kDim>
__device__ __forceinline__ void store_queries(const StepArgs &s, const RotateItem &item, const Lane8 &q, int lane) {
    const HeadLane<kDim> at(item.group, lane);
    const bool exists = kDim == kHeadDim || at.head < s.shape.query_heads;
    store_query(s, exists ? item.row * s.shape.n_head + at.head : -1, q, at.wide_lane(s, lane));
}

template <int kDim, bool kGated>
__device__ __forceinline__ void rotate_group(const StepArgs &s, const Op &op, const RotateItem &item, int lane) {
    const int n_q = s.shape.query_groups, n_kv = s.shape.n_head_kv, offset = item.position % kBlockTokens;
    if (item.group < n_q) {
        const int column = item.group * (kGated ? 2 : 1) * kHeadDim;
        Lane8 q = biased256<kGated>(s, op.input[0], op.q_bias, item.row, column, lane);
        normalize_and_rotate<kDim, kGated>(s, op.norm, q, item, lane);
        store_queries<kDim>(s, item, q, lane);
    } else if (item.group < n_q + n_kv) {
        const int head = item.group - n_q, type = s.kv_type_k;
        Lane8 k = biased256<kGated>(s, op.input[1], op.k_bias, item.row, head * kHeadDim, lane);
        normalize_and_rotate<kDim, kGated>(s, op.norm2, k, item, lane);
        uint8_t *to = item.place.page + k_offset(s, op.layer, head) + item.place.block * block_bytes(type);
        store_key(to, type, offset, k, lane);
    } else {
        const int head = item.group - n_q - n_kv, type = s.kv_type_v;
        Lane8 v = biased256<kGated>(s, op.input[2], op.v_bias, item.row, head * kHeadDim, lane);
        if (s.v_rotation) hadamard<64>(v, lane);
        uint8_t *to = item.place.page + v_offset(s, op.layer, head) + item.place.block * block_bytes(type);
        store_value(to, type, offset, v, lane);
    }
}

template <int kDim, bool kGated, class Wait>
__device__ __forceinline__ void rotate_groups(const StepArgs &s, const Op &op, const Wait &wait) {
    for_each_warp_after(
        wait, s.n_rows * (s.shape.query_groups + 2 * s.shape.n_head_kv),
        [&](int index, int lane) { return rotate_item<kDim, kGated>(s, op, index, lane); },
        [&](const RotateItem &item, int lane) { rotate_group<kDim, kGated>(s, op, item, lane); });
}

// Heads without a gate: a function of its own, so that the other one's code stays together.
template <class Wait>
__device__ __noinline__ void rotate_plain(const StepArgs &s, const Op &op, Wait wait) {
    if (s.shape.query_dim == 64) return rotate_groups<64, false>(s, op, wait);
    if (s.shape.query_dim == 128) return rotate_groups<128, false>(s, op, wait);
    rotate_groups<256, false>(s, op, wait);
}

// Queries to the query buffer, keys and values to their pages; one warp per 256 columns of a row.
template <class Wait>
__device__ __noinline__ void op_rotate(const StepArgs &s, const Op &op, Wait wait) {
    if (op.input[0].row_factor) share_factors(s);
    if (!s.shape.gated_attention) return rotate_plain(s, op, wait);
    rotate_groups<256, true>(s, op, wait);
}

}  // namespace pj::cuda
