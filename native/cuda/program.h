// What one launch of the megakernel does: a list of ops over device buffers.
//
// The host compiles the model into this list once (program.cc); rows, sequences and positions of a
// step arrive in StepArgs. All CTAs walk the same list; ops that need what others wrote have
// kOpBarrier set on the op before them. Plain structs: the same bytes on host and device.
#pragma once

#include <cstdint>

#include "cuda/tiles.h"

namespace pj::cuda {

enum class OpKind : int32_t {
    kEmbed,       // x = embedding rows of the step's tokens
    kMtpInput,    // act = quantised [norm(embedding) ; norm(row_hidden)]
    kResidual,    // x += input parts (if any); act = quantised x * norm; square_sums
    kGemm,        // parts = weight * act (* row factor)
    kGdn,         // convolution and recurrence of every (sequence, value head) -> heads
    kQuantHeads,  // act = quantised gated norm of heads; GDN windows and pending rows advance
    kRotate,      // query/key norm, rope, KV store
    kAttention,   // partial results per (sequence, kv head, segment, rows)
    kMergeHeads,  // merge partials, gate, act = quantised heads
    kSwiglu,      // act = quantised silu(gate parts) * up parts
    kSelect,      // act = quantised x * norm of the rows that want logits; hidden rows
    kLogits,      // logits rows from parts; argmax
};

constexpr const char *kOpNames[] = {"embed",  "mtp_input", "residual",    "gemm",   "gdn",    "quant_heads",
                                    "rotate", "attention", "merge_heads", "swiglu", "select", "logits"};

enum : int32_t {
    kOpBarrier = 1,    // all CTAs finish this op before any starts the next
    kOpOverwrite = 2,  // kResidual: x = input parts instead of x += input parts
};

// Which forms of its activations an op writes (Op::act_forms).
enum : int32_t {
    kActSpan32 = 1,   // Buffers::act32
    kActSpan256 = 2,  // Buffers::act256
    kActFloat = 4,    // Buffers::act_f32, for float weights
};

// Split of a GEMM over the grid (split.h): its units are numbered block * k_units + k and dealt to the
// CTAs in ranges of equal size. A block that several CTAs share has one part from each, added in CTA
// order. The split depends on shape and grid only, never on the rows of a step. Float matrices
// (kTileFloat) are not split: they write one part and their readers see k_units = 1.
struct Gemm {
    const uint8_t *weight;  // packed units, tiles.h
    const uint8_t *raw;     // generic formats: rows as in the file
    float *parts;           // [n_parts][max_rows, or max_selected rows][n_blocks * 64]
    int64_t part_stride;    // floats from a part to the next; rows are n_blocks * 64 apart
    int32_t format;         // TileFormat
    int32_t type;           // ggml type, for generic formats
    int32_t n_in, n_out, n_blocks, k_units;
    int32_t n_parts;     // most parts of any block
    int32_t row_factor;  // 1: multiply rows by 1 / rms from square_sums
    int32_t act_span;    // 32 or 256: which activation form it reads; 0: act_f32, rows n_in apart
    int32_t all_rows;    // 1: every row of the step, 0: the selected rows
};

// Output of a Gemm as its reader sees it.
struct Parts {
    const float *data;  // Gemm::parts
    int64_t part_stride, row_stride;
    int32_t n_in, n_out, n_blocks, k_units;  // to find the parts of a column
};

struct Op {
    OpKind kind;
    int32_t flags;
    int32_t layer;  // index among the attention or GDN layers
    int32_t n_inputs;
    Gemm gemm;           // kGemm
    Parts input[4];      // parts this op reads
    const float *norm;   // norm weight
    const float *norm2;  // second one (k_norm, h_norm)
    const float *conv;   // [taps][channels]
    const float *dt_bias;
    const float *a;
    int32_t act_forms;  // kAct bits
    int32_t width;      // columns of what this op quantises
};

}  // namespace pj::cuda
