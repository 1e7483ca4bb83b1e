// What changes from step to step, and where the buffers are. One struct, read by every op.
#pragma once

#include <cstdint>

#include <vector_types.h>
#include "core/draft_ids.h"
#include "core/sampling.h"

#include "cuda/program.h"
#include "cuda/tiles.h"
#include "pyjet.h"

namespace pj::cuda {

// Sizes of the model, for the device.
struct DeviceShape {
    int32_t n_embd;                       // columns of a row in memory: whole groups of 256, zero beyond norm_width
    int32_t norm_width;                   // columns that the model has
    int32_t n_head, n_head_kv, head_dim;  // of attention: WideHeads::n_query and n_kv, 256 (kv_layout.h)
    uint32_t head_group, head_group_reciprocal;  // n_head / n_head_kv; 2^24 / that, rounded up
    // Of the model: query heads, their width, those of a kv head; query_groups: of 256 columns of all queries of a row
    int32_t query_heads, query_dim, query_group, query_groups;
    int32_t rope_dim, rope_in_pairs;
    int32_t gated_attention;
    int32_t n_gdn_head_v, n_gdn_head_k, gdn_dim, conv_kernel, n_vocab;
    int32_t n_attention_layers, n_gdn_layers;  // the MTP block is the last attention layer
    float rms_eps;
};

struct Buffers {
    // [max_rows][width]
    float *x;            // residual stream
    float *heads;        // outputs of attention or GDN heads, before the output projection
    float *query;        // rotated queries, [row][head]: 256 floats or a QueryQ8 (ops/kv_blocks.cuh)
    float *square_sums;  // [max_rows][n_embd / 256, rounded up]: sum of squares of each 256 columns of x
    // Quantised activations, [k unit][row tile]: ActTile; one buffer per form and use.
    ActTile *act32, *act256;  // input of the next matrices (widest of n_embd * 2, n_ff, heads)
    float *act_f32;           // [row][width of the op that wrote it]; null when no matrix is in a generic format
    // Attention partials of sequences with SeqPlan::partial >= 0: [row of the sequence][head]
    // [SeqPlan::n_segments][kPartialHeader + head_dim]
    float *partial;
    float *logits;  // [max_selected][n_vocab]: selected rows
    float *hidden;  // [max_rows][n_embd]: rows flagged PJ_ROW_HIDDEN, in order
    // [max_selected], by selected row, zero before a launch: candidate_key of the best logit
    unsigned long long *best;
    uint32_t *maxima;  // [max_selected][kSampleGroups]: RowMaxima::keys of selected rows; null: not for this vocabulary
    // State: [slot][layer] window [taps - 1][channels], then matrices [value head] in blocks of 16 columns
    float *states;
    int64_t state_slot_floats, state_layer_floats, window_floats;
    // Pending speculative rows, [slot][layer][max_spec][pending_row_floats]: channels before the
    // convolution, then the projections of beta and of the decay (ops/gdn.cuh)
    float *pending;
    int64_t pending_row_floats;
    // [plan.cc, gdn_row_count][pending_row_floats]: the same rows and those of the step as the recurrence reads them
    // (ops/gdn_inputs.cuh, GdnRows)
    float *gdn_rows;
    // KV pages (kv_layout.h), [layer][page]; page_bytes: of one layer
    uint8_t *pool;
    int64_t page_bytes, kv_layer_bytes, k_head_bytes, v_head_bytes;
    // Grid barrier: kBarrierWords counters, zero when a launch begins
    uint32_t *barrier;
};

constexpr int kBarrierWords = 64;

// Columns of attention: query heads of one kv head, those of a row side by side, rows in order. An item
// is a tile of columns of one sequence and one of its segments, or all of them. Both ways add
// segments in the same order.
struct SeqPlan {
    int64_t partial;         // first float of its partials in Buffers::partial; -1: items walk all segments
    int32_t n_segments;      // segments up to its last row
    int32_t first_convolve;  // first item of kConvolve
    int32_t chunk_rows;      // of those items
    int32_t reserved;
};

// A tile of columns of one sequence and kv head over positions [begin, end): one segment, or all of them.
struct alignas(16) AttentionItem {
    int64_t partial;                                           // of the sequence's SeqPlan
    int32_t n_segments;                                        // likewise
    int32_t row_begin, n_columns, first_position, page_begin;  // of the sequence
    int32_t kv_head, first_column;  // column: row of the sequence * group + head of the group
    int32_t begin, end;             // end: no row of the tile sees it
    int32_t reserved;

    PJ_HOST_DEVICE bool exists() const { return begin < end; }
};
static_assert(sizeof(AttentionItem) == 48, "copied in 16-byte pieces");

// Where the list of items has a CTA's item of a turn. A list that is not dealt, the longest first, is dealt back and
// forth.
PJ_HOST_DEVICE int attention_index(int turn, int cta, int n_cta) {
    return turn * n_cta + (turn % 2 ? n_cta - 1 - cta : cta);
}

// Items of kConvolve: chunks of rows of every head of channels and of every 32 gates.
constexpr int kConvolveRows = 4;  // rows at a time; the last three before an output have a part in it

PJ_HOST_DEVICE int convolve_heads(const DeviceShape &shape) {
    return 2 * shape.n_gdn_head_k + shape.n_gdn_head_v + (shape.n_gdn_head_v + 31) / 32;
}

PJ_HOST_DEVICE int convolve_items(const DeviceShape &shape, int n_rows, int chunk_rows) {
    return (n_rows + chunk_rows - 1) / chunk_rows * convolve_heads(shape);
}

constexpr int kMostSelected = 32;  // rows of logits kept on the device at a time
static_assert(PJ_MAX_DRAFT_ROWS == kMostSelected, "steps that make drafts are one launch");

// What comes back of every launch.
struct LaunchOutput {
    unsigned long long best[kMostSelected];  // Buffers::best
    int32_t sampled[kMostSelected];
    int32_t tokens[kMostSelected * PJ_MAX_DRAFT];  // DraftArgs::tokens
    float probs[kMostSelected * PJ_MAX_DRAFT];
};

// A sequence that wants drafts.
struct DraftSeq {
    int32_t row;       // of the step: the last one that is no draft
    int32_t n_verify;  // rows behind it to verify
    int32_t n_draft;
    int32_t sample;          // in StepArgs::samples; -1: drafts are the best ids
    int32_t first_position;  // of the row, and of the rotations in cos_table
};

// What kNextRows finds: the row that was accepted last, and how many drafts before it.
struct DraftPlace {
    int32_t row, n_right;
};

// Positions that the rows of one sequence's drafts may have.
constexpr int kDraftSpan = PJ_MAX_SPEC + PJ_MAX_DRAFT + 1;

constexpr int kDraftChunkIds = 128;  // that a warp of kDraftLogits looks at

// Drafts of the MTP block. Its first pass has the rows of the step; in the others row i is that of sequence i here.
struct DraftArgs {
    int32_t n;         // sequences that want drafts
    int32_t n_passes;  // most drafts that one of them wants
    int32_t n_chunks;  // of kDraftLogits
    DraftIds ids;
    const int32_t *head_blocks;  // [blocks of the head's Gemm]
    // [n_rows]; row_next: -1: the token is chosen; row_selected: index in selected, row_sample: in samples; -1: none
    const int32_t *row_token, *row_next, *row_selected, *row_sample;
    const DraftSeq *seqs;                // [n]
    DraftPlace *places;                  // [n]
    int32_t *position;                   // [n] of the pass
    const float *cos_table, *sin_table;  // [n][kDraftSpan][rope_dim / 2]
    float *cos, *sin;                    // [n][rope_dim / 2] of the pass
    AttentionItem *items;                // of the pass
    int32_t n_items;
    // Rows for kMtpInput [max_rows][n_embd], and sums of squares of each 256 of their columns: of all embeddings, then
    // of all hidden rows
    float *embedding, *hidden, *squares;
    float *logits;             // [n][ids.n_logits()]
    float2 *chunks;            // [n][n_chunks] largest logit, sum of exponentials
    unsigned long long *best;  // [PJ_MAX_DRAFT][PJ_MAX_DRAFT_ROWS] as Buffers::best, zero before a launch
    int32_t *tokens;           // [n][PJ_MAX_DRAFT]
    float *probs;              // likewise
    // The embedding table as in the file, in pinned host memory
    const uint8_t *table;
    int64_t table_row_bytes;
    int32_t table_type;
};

// Masks that come while the step computes (late_masks.h).
struct LateMaskArgs {
    const uint32_t *ready;  // pinned host memory: number of the step whose masks are complete
    const uint32_t *host;   // likewise: the masks
    uint32_t *device;       // where they are brought to, in the same order
    uint32_t step;          // number of this step; 0: its masks are there
    int32_t n_words;        // from one mask to the next, a multiple of 4
};

struct StepArgs {
    const Op *ops;
    int32_t n_ops;
    int32_t n_rows, n_seqs, n_selected;  // selected: rows that want logits, argmax or a sample
    int32_t row_tiles;                   // row tiles of 8 in act32 and act256: stride of a k unit
    const LoadTask *tasks;               // of the tiled matrices of ops, in order
    int32_t n_tasks;
    int32_t wide;        // many rows: CTAs take whole blocks of outputs (ops/pieces.cuh)
    int32_t piece_rows;  // steps of few rows: rows of a piece (program.h, Gemm)
    int32_t max_rows, max_selected, max_spec, page_tokens, kv_type_k, kv_type_v, k_rotation, v_rotation;
    int32_t n_attention_items, n_convolve_items;
    int32_t column_groups;     // columns of an attention item are 8 times this
    uint32_t page_reciprocal;  // 2^32 / page_tokens, rounded up: a position's page without a division
    const int32_t *row_position, *row_seq;
    // A step with more than max_selected such rows runs kSelect, the head and kLogits again for the
    // others: x and the last down projection's parts are still there.
    const int32_t *selected;     // [n_selected] row numbers, those with PJ_ROW_LOGITS or PJ_ROW_SAMPLE first
    const int32_t *hidden_rows;  // [n_hidden]
    int32_t n_hidden;
    const pj_seq *seqs;
    const SeqPlan *plans;            // [n_seqs]
    const AttentionItem *attention;  // [n_attention_items], by attention_index()
    const int32_t *page_table;
    const float *row_embedding;  // [n_rows][n_embd] f32: embedding rows, dequantised by the host
    const float *cos, *sin;      // [n_rows][rope_dim / 2]: of position * inverse frequency, by the host
    const float *row_hidden;     // MTP steps: [n_rows][n_embd]
    int32_t n_logits;            // selected rows 0 .. n_logits - 1 want their logits in buf.logits
    // [n_ops + 3]: cycles of CTA 0 after each op, at the start, then nanoseconds at start and end; null: not wanted
    long long *op_clock;
    DeviceShape shape;
    Buffers buf;
    // Shared memory of this launch: bytes of the weight ring, slots of the activation ring (a power of
    // two); pass_tiles: row tiles that share one read of the weights.
    int32_t ring_bytes, act_slots, pass_tiles;
    int32_t n_samples;         // rows to sample among the selected rows with logits
    const SampleRow *samples;  // [n_samples]
    int32_t *sampled;          // [n_samples] their tokens; -1: not settled
    LateMaskArgs late_masks;   // of the samples
    int32_t embeds;            // 1: embedding rows are taken from DraftArgs::table, row_embedding is not there
    float score_factor;        // log2(e) / sqrt(head width): scores are in units of log2
    DraftArgs draft;
};

// Attention is cut at absolute positions: finely where few positions are all the work there is, more
// coarsely where partial results would be many.
constexpr int segment_of(int position) {
    if (position < 512) return position / 128;
    if (position < 2048) return 4 + (position - 512) / 256;
    if (position < 8192) return 10 + (position - 2048) / 512;
    return position < 32768 ? 22 + (position - 8192) / 1024 : 46 + (position - 32768) / 2048;
}

constexpr int segment_begin(int segment) {
    if (segment < 4) return segment * 128;
    if (segment < 10) return 512 + (segment - 4) * 256;
    if (segment < 22) return 2048 + (segment - 10) * 512;
    return segment < 46 ? 8192 + (segment - 22) * 1024 : 32768 + (segment - 46) * 2048;
}

constexpr bool segments_fit() {
    for (int i = 0; i < 200; ++i)
        if (segment_of(segment_begin(i)) != i || segment_of(segment_begin(i + 1) - 1) != i) return false;
    return true;
}
static_assert(segments_fit(), "every position has one segment");

constexpr int kPartialHeader = 8;  // floats before a partial's values: largest score, sum, padding

// Groups of 8 columns of an item, at most: queries of f16 keys take more shared memory.
constexpr int most_column_groups(int kv_type_k) { return kv_type_k == PJ_KV_F16 ? 2 : 4; }

}  // namespace pj::cuda
