// What one launch of the megakernel does: a list of ops over device buffers.
//
// The host compiles the model into this list once (compiler.cc); rows, sequences and positions of a
// step arrive in StepArgs. All CTAs walk the same list; ops that need what others wrote have
// kOpBarrier set on the op before them. Plain structs: the same bytes on host and device.
#pragma once

#include <cstdint>

#include "cuda/split.h"
#include "cuda/tiles.h"

namespace pj::cuda {

enum class OpKind : int32_t {
    kEmbed,        // x = embedding rows of the step's tokens
    kNextRows,     // embedding of the token after each row and the row after the final norm, for the MTP block
    kMtpInput,     // act = quantised [norm(embedding) ; norm(hidden row)]
    kResidual,     // x += products (if any) + bias; square_sums; act = quantised x * norm (if act_forms)
    kNormalize,    // act = quantised x / rms * norm
    kGemm,         // products = weights * act, matrices side by side
    kConvolve,     // GDN channels, beta and decay of every row; windows and pending rows advance
    kGdn,          // recurrence of every (sequence, value head) -> heads
    kQuantHeads,   // act = quantised gated norm of heads
    kRotate,       // bias, query/key norm, rope, KV store
    kAttention,    // partial results per (sequence, kv head, segment, rows)
    kMergeHeads,   // merge partials, gate (if any), act = quantised heads
    kSwiglu,       // act = quantised silu(gate) * up
    kSelect,       // act = quantised x / rms * norm of the rows that want logits; hidden rows
    kLogits,       // logits rows from products; argmax
    kSample,       // tokens of the rows to sample, from their logits
    kDraftRows,    // act and hidden rows of the draft head, as kSelect
    kDraftLogits,  // logits of the draft head; the best ids and sums of exponentials
    kDraft,        // a draft of each sequence; what the MTP block's next pass needs
};

constexpr const char *kOpNames[] = {"embed",     "next_rows",   "mtp_input",    "residual",    "normalize",
                                    "gemm",      "convolve",    "gdn",          "quant_heads", "rotate",
                                    "attention", "merge_heads", "swiglu",       "select",      "logits",
                                    "sample",    "draft_rows",  "draft_logits", "draft"};

enum : int32_t {
    kOpBarrier = 1,    // all CTAs finish this op before any starts the next
    kOpOverwrite = 2,  // kResidual: x = products instead of x += products
    kOpDrafting = 4,   // its rows are one for each sequence that wants drafts (StepArgs of the drafts)
    kOpGiven = 8,      // kNextRows: the host sent both
};

// Which forms of its activations an op writes (Op::act_forms).
enum : int32_t {
    kActSpan32 = 1,   // Buffers::act32
    kActSpan256 = 2,  // Buffers::act256
    kActFloat = 4,    // Buffers::act_f32, for generic formats
};

// Rows that a matrix multiplies.
enum GemmRows : int32_t {
    kRowsSelected,  // those that want logits, argmax or a sample
    kRowsAll,       // of the step
    kRowsDrafting,  // one for each sequence that wants drafts
};

// One matrix. Steps of few rows: every CTA (split.h) stores the pieces of its blocks, readers add
// them; [slot][row of the step][64], or of few rows [Gemm::piece_rows]. Wide steps (StepArgs::wide): [row][n_blocks *
// 64], the pieces already added, in the same order. Generic formats (kTileRaw, kTileFloat) are not split: a piece per
// block.
struct Gemm {
    const uint8_t *weight;    // packed units, tiles.h
    const uint8_t *raw;       // matrices without tiles: rows as in the file
    float *out;               // pieces or sums
    const PieceSpan *pieces;  // [n_blocks]
    int32_t format;           // TileFormat
    int32_t type;             // ggml type, for matrices without tiles
    int32_t n_in, n_out, n_blocks, k_units;
    int32_t first_cta, n_ctas;  // which CTAs multiply it in steps of few rows
    int32_t act_span;           // 32 or 256: which activation form it reads; 0: act_f32, rows k_units * 256 apart
    int32_t rows;               // GemmRows
    int32_t mapped;             // 1: block b is DraftArgs::head_blocks[b] of the matrix
    int32_t piece_rows;         // rows that its pieces have room for at most
};

// Output of a Gemm as its reader sees it. Columns beyond the last block, up to whole groups of 256, are zero.
struct Product {
    const float *data;        // Gemm::out
    const PieceSpan *pieces;  // Gemm::pieces, and empty ones of blocks that fill up a group
    int32_t row_stride;       // of wide steps: n_blocks * 64
    int32_t row_factor;       // 1: the reader multiplies by 1 / rms from square_sums
    int32_t piece_rows;       // Gemm::piece_rows
    int32_t reserved;
};

// What the loader warps need of a tiled Gemm.
struct alignas(64) LoadTask {
    const uint8_t *weight;
    int32_t n_blocks, k_units, unit_bytes, first_cta, act_span, rows;
    uint32_t stage;  // grid stages that must be complete before its activations are there
    int32_t op;      // index in the op list
    int32_t n_ctas;
    int32_t mapped;  // as Gemm::mapped
    int32_t reserved[4];
};
static_assert(sizeof(LoadTask) == 64, "one word per lane of half a warp");

constexpr int kMostGemms = 4;
constexpr int kPassTiles = 8;  // row tiles of 8 that share one read of the weights at most

// Row tiles that pieces have room for in a step of so many rows that is no wide one: kernels exist for 1, 2, 3, 4 and
// kPassTiles, and more rows are several groups of as many.
constexpr int narrow_tiles(int n_rows) {
    const int tiles = (n_rows + 7) / 8;
    return tiles <= 4 ? tiles : (tiles + kPassTiles - 1) / kPassTiles * kPassTiles;
}

struct Op {
    OpKind kind;
    int32_t flags;
    int32_t layer;  // index among the attention or GDN layers; of drafts: which one, from 0
    int32_t n_inputs, n_gemms;
    int32_t act_forms;  // kAct bits
    int32_t width;      // columns of what this op quantises
    int32_t reserved;
    Gemm gemm[kMostGemms];  // kGemm
    Product input[4];       // what this op reads
    const float *norm;      // norm weight; kRotate: of 256 / head width queries, null: they are not normalised
    const float *norm2;     // second one (k_norm, h_norm)
    union {
        const float *conv;    // kConvolve: [taps][channels]
        const float *q_bias;  // kRotate: of all queries, whole groups of 256 columns; null: none
        const float *bias;    // kResidual: of the product; null: none
    };
    union {
        const float *dt_bias;
        const float *k_bias;  // likewise
    };
    union {
        const float *a;
        const float *v_bias;  // likewise
    };
};

}  // namespace pj::cuda
