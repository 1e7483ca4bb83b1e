// Paged attention with heads of 256; smaller ones share one (kv_layout.h).
//
// Order of sums: positions are cut at absolute borders (segment_of), a segment in tiles of 128. Scores are weighed
// against a reference of their column: the largest score of the segment's first tile, or of a later one in which a
// score lies far above it. The weights' sums are taken per lane and added over lanes and warps at the segment's end,
// the values block after block. Segments are merged in order. A row's own last position cuts what it sees, whatever
// other rows of its item see: a weight of zero adds nothing, and a tile beyond the row leaves its softmax as it is.
#pragma once

#include "cuda/ops/attention_columns.cuh"
#include "cuda/ops/attention_loads.cuh"
#include "cuda/sync/grid.cuh"
#include "cuda/sync/ring.cuh"

namespace pj::cuda {

// The row of a sequence that a column belongs to: column / head_group (check_rows of plan.cc).
__device__ __forceinline__ unsigned row_of_column(const StepArgs &s, unsigned column) {
    return __umulhi(column << 8, s.shape.head_group_reciprocal);
}

// Index of a column's query: row * heads + head; -1 beyond the sequence's rows.
__device__ __forceinline__ int query_index(const StepArgs &s, const AttentionItem &item, int column) {
    const unsigned group = s.shape.head_group, at = item.first_column + column, row = row_of_column(s, at);
    if (static_cast<int>(at) >= item.n_columns) return -1;
    return (item.row_begin + row) * s.shape.n_head + item.kv_head * group + (at - row * group);
}

__device__ __forceinline__ uint2 query_bytes(const StepArgs &s, int index, int lane) {
    if (index < 0) return make_uint2(0, 0);
    return __ldcg(reinterpret_cast<const uint2 *>(reinterpret_cast<const QueryQ8 *>(s.buf.query)[index].words) + lane);
}

// The queries of an item, as A operands; with the factor scores come out in units of log2.
template <int kGroups>
__device__ __forceinline__ void stage_queries(const StepArgs &s, const AttentionItem &item,
                                              AttentionShared<PJ_KV_Q8_0, kGroups> &shared, int warp, int lane) {
    constexpr int kColumns = 8 * kGroups;
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int tile = 0; tile < column_tiles(kGroups); ++tile) {
        const uint2 low = query_bytes(s, query_index(s, item, 16 * tile + g), 4 * warp + t);
        uint2 high = make_uint2(0, 0);
        if (2 * tile + 1 < kGroups) high = query_bytes(s, query_index(s, item, 16 * tile + 8 + g), 4 * warp + t);
        shared.query[tile * 8 + warp][lane] = make_uint4(low.x, high.x, low.y, high.y);
    }
    if (lane >= kColumns) return;
    const int index = query_index(s, item, lane);
    const float *scale = reinterpret_cast<const QueryQ8 *>(s.buf.query)[max(index, 0)].scale;
    shared.query_scale[warp][lane] = index < 0 ? 0.0f : __ldcg(scale + warp) * s.score_factor;
}

__device__ __forceinline__ float4 query_floats(const StepArgs &s, int index, int at) {
    if (index < 0) return make_float4(0, 0, 0, 0);
    const float4 q =
        __ldcg(reinterpret_cast<const float4 *>(s.buf.query + static_cast<int64_t>(index) * kHeadDim + at));
    const float f = s.score_factor;
    return make_float4(q.x * f, q.y * f, q.z * f, q.w * f);
}

template <int kGroups>
__device__ __forceinline__ void stage_queries(const StepArgs &s, const AttentionItem &item,
                                              AttentionShared<PJ_KV_F16, kGroups> &shared, int warp, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = warp; j < 16; j += kConsumerWarps) {
        const float4 x = query_floats(s, query_index(s, item, g), 16 * j + 4 * t);
        float4 y = make_float4(0, 0, 0, 0);
        if (kGroups > 1) y = query_floats(s, query_index(s, item, 8 + g), 16 * j + 4 * t);
        uint4 high, low;
        split_halves(x.x, x.y, high.x, low.x);
        split_halves(y.x, y.y, high.y, low.y);
        split_halves(x.z, x.w, high.z, low.z);
        split_halves(y.z, y.w, high.w, low.w);
        shared.query[j][lane] = high;
        shared.query[16 + j][lane] = low;
    }
}

// Where the results of an item's column go: the first float of its partials (partials_of) or of its head (head_of), for
// which 32 bits are enough (check_rows of plan.cc); -1: no row has it.
__device__ __forceinline__ int column_place(const StepArgs &s, const AttentionItem &item, int column) {
    const int index = query_index(s, item, column);
    if (index < 0 || item.partial < 0) return index < 0 ? -1 : index * kHeadDim;
    const int of_sequence = index - item.row_begin * s.shape.n_head;
    return static_cast<int>(item.partial) + of_sequence * item.n_segments * kPartialFloats;
}

// What the warps share of the item of a turn. Other items are done with it: a barrier after their last scores. After
// the next barrier the item of the next turn is there too.
template <int kType, int kGroups>
__device__ __forceinline__ void stage_item(const StepArgs &s, const AttentionItem &item,
                                           AttentionShared<kType, kGroups> &shared, int turn, int warp, int lane) {
    stage_queries(s, item, shared, warp, lane);
    if (warp > 0 || lane >= 8 * kGroups) return;
    if (lane == 0) {
        wait_for_copies();
        start_item(shared.item[(turn + 2) % 4], item_of_turn(s, turn + 2));
    }
    const unsigned column = item.first_column + lane;
    shared.last[lane] = static_cast<int>(column) < item.n_columns
                            ? item.first_position + static_cast<int>(row_of_column(s, column))
                            : -1;
    shared.place[turn % 4][lane] = column_place(s, item, lane);
}

// A tile on its way through the loop of attend().
struct Tile {
    int turn;                 // of its item
    int position, segment;    // first position
    int end, first_position;  // of the item, and of the rows of its sequence

    __device__ __forceinline__ Tile(const AttentionItem &item, int turn)
        : turn(turn),
          position(item.begin),
          segment(segment_of(item.begin)),
          end(item.end),
          first_position(item.first_position) {}
    __device__ __forceinline__ void move_on() {
        position += kTileTokens;
        segment = segment_of(position);
    }
    __device__ __forceinline__ int n_positions() const { return end - position; }
    __device__ __forceinline__ bool ends_item() const { return n_positions() <= kTileTokens; }
    // All rows of the sequence see all of it.
    __device__ __forceinline__ bool is_seen() const { return position + kTileTokens - 1 <= first_position; }
};

// A segment of an item whose sums the warps have shared.
template <int kGroups>
struct FinishedSegment {
    int turn, segment;
    bool is_apart, is_last;  // its result is merged later; it is the item's last
    OfColumns<kGroups> references;
};

template <int kType, int kGroups>
__device__ __forceinline__ void finish_segment(const StepArgs &s, const FinishedSegment<kGroups> &finished,
                                               AttentionShared<kType, kGroups> &shared, const Columns<kGroups> &columns,
                                               int warp, int lane) {
    const int segment = finished.segment, t = lane & 3, dim = 32 * warp + 8 * t;
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        const int column = 8 * c + (lane >> 2), at = shared.place[finished.turn % 4][column];
        const OfWarps of = of_warps(shared.sum[column]);
        const float sum = ((((((of.a.x + of.a.y) + of.a.z) + of.a.w) + of.b.x) + of.b.y) + of.b.z) + of.b.w;
        const Softmax softmax = {finished.references.of[c], sum};
        const Outputs part = outputs_of(columns.values[c]);
        if (at < 0) continue;
        if (!finished.is_apart) {
            const Softmax before = segment ? shared.total[segment & 1][column] : Softmax{};
            const Softmax after = add_to_head(s.buf.heads + at + dim, before, softmax, part, finished.is_last);
            if (warp == 0 && t == 0) shared.total[(segment + 1) & 1][column] = after;
            continue;
        }
        float *out = s.buf.partial + at + segment * kPartialFloats;
        if (warp == 0 && t == 0) *reinterpret_cast<float2 *>(out) = make_float2(softmax.largest, softmax.sum);
        float4 *values = reinterpret_cast<float4 *>(out + kPartialHeader + dim);
        values[0] = part.low;
        values[1] = part.high;
    }
}

// Values of a tile and keys of the next one; `between` is called on the way.
template <int kKeyType, int kValueType, int kGroups, class Between>
__device__ __forceinline__ void multiply_tiles(AttentionShared<kKeyType, kGroups> &shared, int tile, int n_positions,
                                               const uint8_t *value_place, ValueBatch<kValueType> &values,
                                               Columns<kGroups> &columns, const TilePlaces &key_places,
                                               KeyBatch<kKeyType> &keys, float (&score)[kGroups][4], int warp, int lane,
                                               const Between &between) {
    if (n_positions < kTileTokens) clear_values(values, 0, n_positions, lane);
    if constexpr (kKeyType == PJ_KV_Q8_0 && kValueType == PJ_KV_Q8_0) {
        multiply_both(shared, keys, score, tile, values, columns.values, lane, between);
        return;
    }
#pragma unroll
    for (int batch = 0; batch < kBatches<kKeyType>; ++batch) {
        if (batch) load_keys(keys, key_places, batch, warp, lane);
        multiply_keys(shared, keys, batch, score, lane);
    }
    between();
#pragma unroll
    for (int batch = 0; batch < kBatches<kValueType>; ++batch) {
        if (batch) {
            load_values(values, value_place, batch, warp, lane);
            if (n_positions < kTileTokens) clear_values(values, batch, n_positions, lane);
        }
        multiply_values(shared, tile, values, batch, columns.values, lane);
    }
}

// The weights of the tile behind `tile`, relative to the references that its columns have, or to ones that rise.
template <int kValueType, int kType, int kGroups>
__device__ __forceinline__ void weigh_more(AttentionShared<kType, kGroups> &shared, int tile,
                                           const float (&score)[kGroups][4], Columns<kGroups> &columns, int warp,
                                           int lane) {
    int &rising = shared.rising[tile & 1];
    if (__any_sync(~0u, must_rise(score, columns)) && lane == 0) rising = tile;
    if constexpr (kWeightTiles<kValueType> == 1) consumers_sync();  // all have multiplied the values of `tile`
    OfColumns<kGroups> sums = weigh_scores<kValueType>(shared, tile + 1, score, columns, warp, lane);
    consumers_sync();
    if (rising == tile) {
        share_largest(shared, score, warp, lane);
        consumers_sync();
        scale_columns(columns, raise_references(shared, columns, lane));
        sums = weigh_scores<kValueType>(shared, tile + 1, score, columns, warp, lane);
        consumers_sync();
    }
#pragma unroll
    for (int c = 0; c < kGroups; ++c) columns.sum[c] = sums.of[c];
}

// The same where a segment begins, which has references of its own; the sums of the one before are shared.
template <int kValueType, int kType, int kGroups>
__device__ __forceinline__ OfColumns<kGroups> weigh_first(AttentionShared<kType, kGroups> &shared, int tile,
                                                          const float (&score)[kGroups][4], Columns<kGroups> &columns,
                                                          int warp, int lane) {
    OfColumns<kGroups> references;
    share_largest(shared, score, warp, lane);
    consumers_sync();
    share_sums(shared, columns, warp, lane);
#pragma unroll
    for (int c = 0; c < kGroups; ++c) {
        references.of[c] = columns.reference[c];
        columns.reference[c] = kNoScore;
        columns.sum[c] = 0;
    }
    raise_references(shared, columns, lane);
    const OfColumns<kGroups> sums = weigh_scores<kValueType>(shared, tile + 1, score, columns, warp, lane);
#pragma unroll
    for (int c = 0; c < kGroups; ++c) columns.sum[c] = sums.of[c];
    consumers_sync();
    return references;
}

// All items of the CTA, which has one at least. A turn of the loop multiplies the values of one tile (`now`) and the
// keys of the next (`ahead`, perhaps of the next item) and brings the values of that one and the keys of the one behind
// it (`after`). The first turn has values of nothing, with weights of zero.
template <int kKeyType, int kValueType, int kGroups>
__device__ __noinline__ void attend(const StepArgs &s, int layer, TilePlaces places) {
    using Shared = AttentionShared<kKeyType, kGroups>;
    Shared &shared = *reinterpret_cast<Shared *>(scratch_memory());
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    KeyBatch<kKeyType> keys;
    load_keys(keys, places, 0, warp, lane);
    if (threadIdx.x == 0) {
        copy_item(shared.item[0], item_of_turn(s, 0));
        copy_item(shared.item[1], item_of_turn(s, 1));
        shared.rising[0] = shared.rising[1] = -1;
    }
    const float none[4] = {};
#pragma unroll
    for (int c = 0; c < kGroups; ++c) share_weights<kValueType>(shared, 0, warp, c, none, lane);
    consumers_sync();
    stage_item(s, shared.item[0], shared, 0, warp, lane);
    consumers_sync();
    Tile ahead(shared.item[0], 0), now = ahead;
    ValueBatch<kValueType> values = {};
    Columns<kGroups> columns = no_positions<kGroups>();
    const uint8_t *value_place = places.v;
    bool has_now = false, is_apart = false;
    for (int tile = 0;; ++tile) {
        const bool item_ends = ahead.ends_item(), has_ahead = ahead.turn >= 0;
        const AttentionItem &of_after = shared.item[(ahead.turn + item_ends) % 4];
        const bool has_after = has_ahead && (!item_ends || of_after.exists());
        Tile after = ahead;
        BlockPlace block = {};
        if (!has_after)
            after.turn = -1;
        else if (item_ends)
            after = Tile(of_after, ahead.turn + 1);
        else
            after.move_on();
        if (has_after) block = find_block(s, of_after, after.position, lane);
        TilePlaces following = places;
        float score[kGroups][4] = {};
        multiply_tiles(shared, tile, now.n_positions(), value_place, values, columns, places, keys, score, warp, lane,
                       [&] {
                           if (!has_after) return;
                           following = find_places(s, layer, of_after.kv_head, block);
                           prefetch_blocks(following.k, s.kv_type_k, warp, lane);
                           prefetch_blocks(following.v, s.kv_type_v, warp, lane);
                       });
        value_place = places.v;
        places = following;
        if (has_ahead) load_values(values, value_place, 0, warp, lane);
        if (has_after) load_keys(keys, places, 0, warp, lane);
        if (!ahead.is_seen()) hide_scores(shared, ahead.position + warp * kBlockTokens + 2 * (lane & 3), score, lane);
        if (has_now && now.turn == ahead.turn && now.segment == ahead.segment) {
            weigh_more<kValueType>(shared, tile, score, columns, warp, lane);
        } else {
            const bool is_last = now.turn != ahead.turn;
            const OfColumns<kGroups> references = weigh_first<kValueType>(shared, tile, score, columns, warp, lane);
            if (has_now)
                finish_segment(s, FinishedSegment<kGroups>{now.turn, now.segment, is_apart, is_last, references},
                               shared, columns, warp, lane);
            forget_values(columns);
        }
        if (!has_ahead) return wait_for_copies();  // one that no turn has may be on its way to what the next op uses
        is_apart = shared.item[ahead.turn % 4].partial >= 0;
        if (has_after && item_ends) {
            stage_item(s, of_after, shared, after.turn, warp, lane);
            consumers_sync();
        }
        now = ahead;
        ahead = after;
        has_now = true;
    }
}

template <int kKeyType, int kGroups>
__device__ __forceinline__ void attend_any(const StepArgs &s, int layer, const TilePlaces &places) {
    if (s.kv_type_v == PJ_KV_F16) return attend<kKeyType, PJ_KV_F16, kGroups>(s, layer, places);
    attend<kKeyType, PJ_KV_Q8_0, kGroups>(s, layer, places);
}

// The CTA's first item is found, and its old positions come to the L2 cache, while others still rotate.
template <int kGroups, class Wait>
__device__ __forceinline__ void attend_groups(const StepArgs &s, int layer, const Wait &wait) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const AttentionItem *const first = item_of_turn(s, 0);
    if (!first) return wait();
    const AttentionItem item = *first;
    const TilePlaces places = find_places(s, layer, item.kv_head, find_block(s, item, item.begin, lane));
    prefetch_blocks(places.k, s.kv_type_k, warp, lane);
    prefetch_blocks(places.v, s.kv_type_v, warp, lane);
    wait();
    if constexpr (kGroups <= most_column_groups(PJ_KV_F16))
        if (s.kv_type_k == PJ_KV_F16) return attend_any<PJ_KV_F16, kGroups>(s, layer, places);
    attend_any<PJ_KV_Q8_0, kGroups>(s, layer, places);
}

template <class Wait>
__device__ __noinline__ void op_attention(const StepArgs &s, const Op &op, Wait wait) {
    if (s.column_groups == 1) return attend_groups<1>(s, op.layer, wait);
    if (s.column_groups == 2) return attend_groups<2>(s, op.layer, wait);
    if (s.column_groups == 3) return attend_groups<3>(s, op.layer, wait);
    attend_groups<4>(s, op.layer, wait);
}

}  // namespace pj::cuda
