// Paged attention of one key/value head.
//
// Order of every sum (batch invariance): positions are cut at absolute multiples of kSegment. Inside
// a segment, blocks of kBlock positions are taken in order: scores are 16-lane dot products over the
// head, then an online softmax, then values position by position. Segments are merged in order
// (attention_merge). None of it depends on how many rows run or on which pages hold the positions.
#pragma once

#include <cstdint>

namespace pj::cpu {

constexpr int kAttentionBlock = 16;     // positions; divides the page size
constexpr int kAttentionSegment = 512;  // positions

// A running softmax over a range of positions for one row and query head.
//   [0] largest score, [1] sum of exp(score - largest), then from kPartialHeader on (a cache line
//   further) head_dim weighted values
constexpr int kPartialHeader = 16;

struct AttentionArgs {
    const float *q;    // [n_rows][q_stride]: first query head of the group, rotated
    int64_t q_stride;  // floats between rows
    float *out;        // [n_rows][out_stride], nullptr: write partial results instead
    int64_t out_stride;
    float *partial;               // [n_rows][group][partial_stride / (n_rows * group)...], see engine
    int64_t partial_row_stride;   // floats between rows of partial
    int64_t partial_head_stride;  // floats between heads of partial
    const uint8_t *pool;          // first page
    const int32_t *page_table;    // of this sequence
    int64_t page_bytes;
    int64_t k_offset;  // bytes from a page's start to K of this layer and head
    int64_t v_offset;
    int32_t k_type, v_type;  // pj_kv_type
    int32_t page_tokens;
    int32_t first_position;  // position of row 0; row i is at first_position + i
    int32_t n_rows;
    int32_t group;  // query heads of this key/value head
    int32_t head_dim;
    int32_t segment_begin;  // segments [begin, end); out needs all of them
    int32_t segment_end;
    float scale;
    float *scratch;  // attention_scratch_floats(head_dim, n_rows, group)
};

// K and V of one block in f32, then one segment's and the total's running softmax per row and head.
constexpr int64_t attention_scratch_floats(int64_t head_dim, int64_t n_rows, int64_t group) {
    return 2 * kAttentionBlock * head_dim + 2 * n_rows * group * (kPartialHeader + head_dim);
}

}  // namespace pj::cpu
