/* pyjet.h - the whole C ABI of libpyjet.
 *
 * The engine computes rows. It never decides which rows run, which pages a sequence owns or what
 * is reused: that is policy and lives in Python (pyjet/engine). Everything a step needs arrives in
 * one pj_step_in; nothing about requests, agents or text crosses this boundary.
 *
 *     pj_engine *engine = NULL;
 *     if (pj_engine_create(&model, &config, &engine) != PJ_OK) puts(pj_last_error());
 *     pj_step(engine, &in, &out);
 *     pj_engine_destroy(engine);
 *
 * Rules of this file
 *   - Plain C, append only: new fields go to the end of a struct together with a higher
 *     PJ_ABI_VERSION. tests/native/test_abi.py compares every size and offset with the binding.
 *   - No call throws. Every call that can fail returns a pj_status; pj_last_error() is the sentence
 *     for the user and belongs to the calling thread.
 *   - Ownership: the caller owns every pointer it passes in. Tensor data and the name strings must
 *     stay valid and unchanged until pj_engine_destroy; all other inputs only during the call.
 *   - Threads: one engine may be used by one thread at a time. Engines are independent.
 */
#ifndef PYJET_H
#define PYJET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define PJ_API
#else
#define PJ_API __attribute__((visibility("default")))
#endif

#define PJ_ABI_VERSION 6
#define PJ_MAX_SPEC 15
#define PJ_MAX_DRAFT 7            /* most drafts of a sequence and step                         */
#define PJ_MAX_DRAFT_ROWS 32      /* a step that makes drafts has at most so many rows that want tokens */
#define PJ_DRAFT_BLOCK 64         /* token ids of a block of the draft head                     */
#define PJ_MAX_DRAFT_BLOCKS 64    /* blocks that a step may name besides the lowest ids         */
#define PJ_MAX_CANDIDATES 1024    /* best tokens among which pj_step chooses; see PJ_ROW_SAMPLE */
#define PJ_MAX_SAMPLE_TOKENS 1024 /* penalised tokens of a row, and biased ones                */

typedef enum pj_status {
    PJ_OK = 0,
    PJ_ERR_ARGUMENT = 1,  /* a field of the call is out of range; the message names it          */
    PJ_ERR_MODEL = 2,     /* a tensor is missing, has the wrong shape, type or size             */
    PJ_ERR_MEMORY = 3,    /* host or device memory is not enough; the message says how much     */
    PJ_ERR_DEVICE = 4,    /* no such device, driver too old, or a device call failed            */
    PJ_ERR_CANCELLED = 5, /* the progress callback asked to stop; a step got no masks           */
    PJ_ERR_INTERNAL = 6   /* a bug: an exception was caught at the boundary                     */
} pj_status;

typedef enum pj_device { PJ_DEVICE_CPU = 0, PJ_DEVICE_CUDA = 1 } pj_device;

/* Instruction sets of the CPU backend. AUTO takes the best that this processor has. */
typedef enum pj_isa { PJ_ISA_AUTO = 0, PJ_ISA_PORTABLE = 1, PJ_ISA_AVX2 = 2, PJ_ISA_AVX512_VNNI = 3 } pj_isa;

typedef enum pj_kv_type { PJ_KV_F16 = 0, PJ_KV_Q8_0 = 1 } pj_kv_type;

/* QWEN35: gated attention blocks and gated delta nets (GDN). DENSE: plain attention in every block, without an MTP
 * block; biases and norms of queries and keys are used where their tensors are there. */
typedef enum pj_arch { PJ_ARCH_QWEN35 = 0, PJ_ARCH_DENSE = 1 } pj_arch;

/* Which dimensions of a head rope rotates together: HALVES (i, i + rope_dim / 2), PAIRS (2 i, 2 i + 1). */
typedef enum pj_rope_type { PJ_ROPE_HALVES = 0, PJ_ROPE_PAIRS = 1 } pj_rope_type;

/* ---------------------------------------------------------------------------------- model -- */

/* One tensor of the GGUF file. shape is in ggml order: shape[0] is the contiguous dimension (the
 * input width of a matrix), shape[1] the number of rows. Unused dimensions are 1. */
typedef struct pj_tensor {
    const char *name; /* GGUF name, zero terminated, e.g. "blk.0.ffn_up.weight"    */
    const void *data; /* quantised blocks as in the file, row after row            */
    uint64_t n_bytes; /* bytes at data; checked against type and shape             */
    int64_t shape[4]; /* elements                                                  */
    int32_t type;     /* ggml type number (0 F32, 1 F16, 8 Q8_0, 12 Q4_K, ...)     */
    int32_t n_dims;   /* 1..4                                                      */
} pj_tensor;

typedef struct pj_model {
    int32_t abi_version;  /* PJ_ABI_VERSION                                           */
    int32_t arch;         /* pj_arch                                                  */
    int32_t n_block;      /* trunk blocks, MTP blocks not counted                     */
    int32_t n_nextn;      /* MTP blocks stored after the trunk: 0 or 1                */
    int32_t n_embd;       /* hidden width                                             */
    int32_t n_ff;         /* SwiGLU width                                             */
    int32_t n_head;       /* query heads                                              */
    int32_t n_head_kv;    /* key/value heads; divides n_head                          */
    int32_t head_dim;     /* attention head width                                     */
    int32_t rope_dim;     /* rotated dimensions of a head, even, <= head_dim          */
    int32_t n_gdn_head_v; /* GDN value heads; this and the next three are 0 for DENSE */
    int32_t n_gdn_head_k; /* GDN key heads; divides n_gdn_head_v                     */
    int32_t gdn_dim;      /* GDN head width = state is gdn_dim x gdn_dim              */
    int32_t conv_kernel;  /* taps of the causal convolution                           */
    int32_t n_vocab;
    int32_t n_ctx_train; /* longest position + 1 that a step may name                */
    float rope_base;
    float rms_eps;
    const uint8_t *block_is_attention; /* [n_block], 1 = full attention, 0 = GDN     */
    const pj_tensor *tensors;          /* [n_tensors]                                */
    int32_t n_tensors;
    int32_t rope_type; /* pj_rope_type; QWEN35: HALVES                             */
} pj_model;

/* Called during creation. stage is a short English phrase ("packing weights"), done and total are
 * bytes. Return 0 to go on, anything else to stop with PJ_ERR_CANCELLED. */
typedef int32_t (*pj_progress)(void *user, const char *stage, uint64_t done, uint64_t total);

typedef struct pj_config {
    int32_t abi_version;   /* PJ_ABI_VERSION                                               */
    int32_t device;        /* pj_device                                                    */
    int32_t device_index;  /* which GPU; 0 for the CPU                                     */
    int32_t isa;           /* pj_isa, CPU only                                             */
    int32_t n_threads;     /* CPU workers including the caller; <= 0: all hardware threads */
    int32_t page_tokens;   /* tokens of one KV page: a multiple of 16, 16..1024            */
    int32_t n_pages;       /* KV pages in the pool, >= 1                                   */
    int32_t n_state_slots; /* recurrent-state slots, >= 1                                  */
    int32_t max_rows;      /* most rows of one step, >= 1                                  */
    int32_t max_seqs;      /* most sequences of one step, >= 1                             */
    int32_t max_spec;      /* most speculative rows of a sequence and step, 0..PJ_MAX_SPEC */
    int32_t kv_type_k;     /* pj_kv_type                                                   */
    int32_t kv_type_v;     /* pj_kv_type                                                   */
    int32_t profile;       /* 1: collect pj_engine_op_time                                 */
    pj_progress progress;  /* may be NULL                                                  */
    void *progress_user;
    int32_t max_draft;   /* most drafts of a sequence and step, 0..PJ_MAX_DRAFT; above 0 the model has an MTP block */
    int32_t draft_vocab; /* drafts are chosen among the ids below it, a multiple of PJ_DRAFT_BLOCK, and those of the
                          * blocks that a step names; <= 0: among all                       */
} pj_config;

typedef struct pj_engine pj_engine;

/* Checks every tensor's presence, type, shape and size against the hyperparameters before it reads
 * data, then packs the weights. On failure *engine is NULL. */
PJ_API int32_t pj_engine_create(const pj_model *model, const pj_config *config, pj_engine **engine);
PJ_API void pj_engine_destroy(pj_engine *engine); /* NULL is allowed */

/* The memory that an engine would take. Bytes of the device: GPU memory, or host memory for the CPU. */
typedef struct pj_memory_plan {
    uint64_t weight_bytes;    /* packed weights                                                   */
    uint64_t page_bytes;      /* one KV page                                                      */
    uint64_t kv_bytes;        /* the page pool: n_pages of them                                   */
    uint64_t state_bytes;     /* all state slots and their pending speculative rows               */
    uint64_t workspace_bytes; /* activations and scratch; never less with more pages              */
    uint64_t reserve_bytes;   /* kept for the driver: local memory of kernels, granularity        */
    uint64_t free_bytes;      /* free on the device now; 0: unknown                               */
    uint64_t total_bytes;     /* of the device; 0: unknown                                        */
    char device_name[128];    /* zero terminated                                                  */
} pj_memory_plan;

/* Checks model, config and device as pj_engine_create does and says what it would allocate, without
 * reading matrices or allocating any of it. Too little memory is not an error here: the caller compares.
 * For CUDA it opens the GPU, so the process holds a context there from then on. */
PJ_API int32_t pj_engine_plan(const pj_model *model, const pj_config *config, pj_memory_plan *plan);

/* ----------------------------------------------------------------------------------- step -- */

enum {
    PJ_ROW_LOGITS = 1, /* copy this row's logits to pj_step_out.logits              */
    PJ_ROW_ARGMAX = 2, /* write the best token (lowest id on ties) to out.argmax    */
    PJ_ROW_HIDDEN = 4, /* copy the row after the final norm to pj_step_out.hidden   */
    PJ_ROW_SAMPLE = 8  /* choose a token by the row's pj_sample: to out.sampled     */
};

enum {
    PJ_SEQ_RESET = 1 /* the state slot starts from zero before this step's rows (position 0) */
};

enum {
    PJ_STEP_TRUNK = 0, /* the model: blocks 0..n_block-1                                        */
    PJ_STEP_MTP = 1    /* the MTP block: row i predicts the token after row_token[i], given
                        * row_hidden[i] = the hidden row (PJ_ROW_HIDDEN) of the position before.
                        * Its positions count from 0: the row at position i takes the sequence's
                        * token i + 1 together with the trunk's hidden row of position i.
                        * Has its own KV in the same pages; touches no recurrent state.         */
};

/* One sequence's part of a step. Its rows are row_begin .. row_begin + n_rows - 1, at consecutive
 * positions. Speculative rows are computed like all others but leave the recurrent state where it
 * is; the next step of the sequence says how many of them were right (n_accept) and only these are
 * applied. KV of rejected rows is overwritten by the rows that take their positions. */
typedef struct pj_seq {
    int32_t state_slot; /* 0..n_state_slots-1; at most one sequence of a step per slot          */
    int32_t row_begin;
    int32_t n_rows;     /* >= 1                                                                 */
    int32_t n_spec;     /* the last n_spec rows are speculative; 0..max_spec, < n_rows or equal */
    int32_t n_accept;   /* pending speculative rows of the slot to apply first; others dropped  */
    int32_t page_begin; /* first entry in page_table                                            */
    int32_t n_pages;    /* entries; n_pages * page_tokens must cover the last position          */
    uint32_t flags;     /* PJ_SEQ_*                                                             */
    /* Only with pj_step_in.row_next: */
    int32_t n_verify;     /* the last n_verify rows are drafts: such a row is right when the token chosen for
                           * the row before it is its own and all drafts before it are right;
                           * 0..n_spec, < n_rows                                                */
    int32_t n_draft;      /* drafts wanted after the rows that are right, 0..max_draft; the pages must cover
                           * n_draft positions after the last row, and the row before the drafts to verify,
                           * or the last one, wants a token                                     */
    int32_t draft_sample; /* -1: a draft is the best token; else it is drawn by samples[draft_sample], the sample of
                           * the sequence's first row to verify, with its index moved on       */
    int32_t reserved;     /* 0                                                                  */
} pj_seq;

typedef struct pj_token_count {
    int32_t token; /* 0..n_vocab-1                                                              */
    int32_t count; /* how often it occurs in the penalties' window, >= 1                        */
} pj_token_count;

typedef struct pj_token_bias {
    int32_t token; /* 0..n_vocab-1                                                              */
    float bias;    /* added to its logit; -inf bans it, NaN is refused                          */
} pj_token_bias;

/* How the token of a row with PJ_ROW_SAMPLE is chosen. In this order: biases; penalties; tokens that its
 * mask does not have are -inf, whatever was added to them; the top_k best; of these, by their softmax, the
 * fewest best ones that reach top_p; of these the ones min_p times as probable as the best; weights: the
 * softmax of these, logits divided by temperature; the token with the smallest -ln(u) / weight wins, u a hash
 * of seed, index and its id (0 < u < 1): one drawn by the weights. The lowest id is the best of equals. The
 * result depends on the row's logits, its mask and this struct only and is the same on all devices for the
 * same logits. Draws from two similar distributions with the same seed and index mostly agree.
 *
 * The chain is settled when its cuts lie among the PJ_MAX_CANDIDATES best. It is not when top_k, top_p
 * and min_p leave more or when top_k above that number decides about top_p; nor when too many logits
 * are equal, one is NaN or infinite, or all are -inf. */
typedef struct pj_sample {
    uint64_t seed;           /* of the answer                                                    */
    double top_p;            /* >= 1: off                                                        */
    double min_p;            /* <= 0: off                                                        */
    float temperature;       /* <= 0: the best                                                   */
    float repeat_penalty;    /* logits of penalised tokens are divided (> 0) or multiplied by it */
    float frequency_penalty; /* times the count, subtracted                                      */
    float presence_penalty;  /* subtracted                                                       */
    int32_t top_k;           /* <= 0: off                                                        */
    int32_t min_keep;        /* top_p and min_p leave at least so many, >= 0                     */
    int32_t count_begin;     /* its penalised tokens are counts[count_begin ..]                  */
    int32_t n_counts;        /* 0..PJ_MAX_SAMPLE_TOKENS, token ids ascending                     */
    int32_t bias_begin;      /* likewise in biases                                               */
    int32_t n_biases;        /* likewise */
    int32_t index;           /* which token of the answer is chosen, >= 0: each has its own noise */
    int32_t mask_begin;      /* its mask is masks[mask_begin ..], -1: every token may be chosen; not read
                              * in steps without masks                                           */
} pj_sample;

typedef struct pj_step_in {
    int32_t kind;   /* PJ_STEP_*                                                  */
    int32_t n_rows; /* 1..max_rows                                                */
    int32_t n_seqs; /* 1..max_seqs                                                */
    int32_t n_page_entries;
    const int32_t *row_token;     /* [n_rows] 0..n_vocab-1                                      */
    const int32_t *row_position;  /* [n_rows] absolute                                         */
    const int32_t *row_seq;       /* [n_rows] index into seqs; rows of one sequence adjoin      */
    const uint32_t *row_flags;    /* [n_rows] PJ_ROW_*                                          */
    const float *row_hidden;      /* [n_rows][n_embd], PJ_STEP_MTP only, else NULL              */
    const pj_seq *seqs;           /* [n_seqs]                                                   */
    const int32_t *page_table;    /* [n_page_entries] page ids; a page that a step writes must
                                   * belong to one sequence of the step only                    */
    const pj_sample *samples;     /* [n_samples] of the rows with PJ_ROW_SAMPLE, in row order  */
    const pj_token_count *counts; /* [n_counts] shared by the samples                          */
    const pj_token_bias *biases;  /* [n_biases] likewise; arrays of length 0 may be NULL       */
    int32_t n_samples;            /* 0..max_seqs * (max_spec + 1)                              */
    int32_t n_counts;
    int32_t n_biases;
    int32_t n_draft_blocks;      /* 0..PJ_MAX_DRAFT_BLOCKS                                            */
    const int32_t *row_next;     /* [n_rows], PJ_STEP_TRUNK only: the token after each row, -1: the one chosen for it
                                  * (PJ_ROW_SAMPLE; where that is not settled or not flagged, the best one).
                                  * The MTP block then computes KV for all rows, and drafts. NULL: neither */
    const int32_t *draft_blocks; /* [n_draft_blocks] block b: ids b * PJ_DRAFT_BLOCK and up, at least draft_vocab */
    const uint32_t *masks;       /* [n_mask_words] masks of (n_vocab + 31) / 32 words: bit t % 32 of word t / 32
                                  * is 1 when token t may be chosen. Several samples may share one. Drafts
                                  * that the step makes do not look at them                          */
    int32_t n_mask_words;
    int32_t masks_late; /* 1: their words may change until pj_masks_ready; for pj_step_start only; else 0 */
} pj_step_in;

typedef struct pj_step_out {
    float *logits;       /* [logits_rows][n_vocab]: rows with PJ_ROW_LOGITS or PJ_ROW_SAMPLE,
                          * in row order; without PJ_ROW_LOGITS written only where sampled is -1,
                          * otherwise undefined                                              */
    float *hidden;       /* [hidden_rows][n_embd]: flagged rows in row order                 */
    int32_t *argmax;     /* [n_rows], -1 where not flagged; may be NULL if no row is flagged */
    int32_t logits_rows; /* capacity; must hold these rows                                   */
    int32_t hidden_rows; /* capacity                                                         */
    double step_us;      /* written: time inside the call                                    */
    int32_t *sampled;    /* [n_rows], -1 where not flagged or not settled (pj_sample); may be
                          * NULL if no row is flagged                                        */
    int32_t *drafts;     /* [n_seqs][PJ_MAX_DRAFT] guesses at the tokens after the newest one, -1 where
                          * there is none; may be NULL if no sequence wants any                */
    float *draft_probs;  /* likewise: what the MTP block thinks of each, by its own softmax     */
} pj_step_out;

PJ_API int32_t pj_step(pj_engine *engine, const pj_step_in *in, pj_step_out *out);

/* The same in two parts, so that the caller has time for other work while a device computes. Both structures and all
 * that they point to, but for late masks, stay as they are until pj_step_wait or pj_engine_destroy; only
 * pj_masks_ready, pj_state_read and pj_state_write are allowed in between. When pj_step_start fails there is nothing to
 * wait for. The CPU computes in pj_step_wait. */
PJ_API int32_t pj_step_start(pj_engine *engine, const pj_step_in *in, pj_step_out *out);
PJ_API int32_t pj_step_wait(pj_engine *engine);

/* Between pj_step_start and pj_step_wait of a step with masks_late: its masks are complete from now on. They depend on
 * the tokens of the step before, but nothing needs them before tokens are chosen, behind all blocks of the model: so
 * they can be made while the device computes. is_ok 0: they could not be made. Then, and when this is not called before
 * pj_step_wait or pj_engine_destroy, nothing waits for them any longer; the step computes everything but the tokens of
 * rows with masks, and pj_step_wait returns PJ_ERR_CANCELLED. It fails, and changes nothing, when no step waits. */
PJ_API int32_t pj_masks_ready(pj_engine *engine, int32_t is_ok);

/* --------------------------------------------------------------------------------- copies -- */

/* The recurrent state of a slot is its convolution windows and GDN states after the last committed
 * row. Pending speculative rows are not part of it: commit or drop them first.
 *
 * pj_state_read and pj_state_write return when the copy has ended. Between pj_step_start and pj_step_wait they are
 * allowed for slots that no sequence of the step has: a device copies these while it computes. */
PJ_API uint64_t pj_state_bytes(const pj_engine *engine);
PJ_API int32_t pj_state_commit(pj_engine *engine, int32_t slot, int32_t n_accept);
PJ_API int32_t pj_state_reset(pj_engine *engine, int32_t slot);
PJ_API int32_t pj_state_copy(pj_engine *engine, int32_t from_slot, int32_t to_slot);
PJ_API int32_t pj_state_read(pj_engine *engine, int32_t slot, void *host, uint64_t n_bytes);
PJ_API int32_t pj_state_write(pj_engine *engine, int32_t slot, const void *host, uint64_t n_bytes);

/* A page holds page_tokens positions of K and V of every attention block, the MTP block's too. */
PJ_API uint64_t pj_page_bytes(const pj_engine *engine);
PJ_API int32_t pj_pages_copy(pj_engine *engine, const int32_t *from, const int32_t *to, int32_t n);
PJ_API int32_t pj_pages_read(pj_engine *engine, const int32_t *pages, int32_t n, void *host, uint64_t n_bytes);
PJ_API int32_t pj_pages_write(pj_engine *engine, const int32_t *pages, int32_t n, const void *host, uint64_t n_bytes);

/* Host memory that results of pj_step are copied to fastest: pinned for CUDA, ordinary for the CPU.
 * NULL, with the reason in pj_last_error(), when there is none. It may outlive every engine. */
PJ_API void *pj_host_alloc(int32_t device, uint64_t n_bytes);
PJ_API void pj_host_free(int32_t device, void *memory); /* NULL is allowed */

/* ----------------------------------------------------------------------------------- info -- */

typedef struct pj_info {
    uint64_t weight_bytes;    /* packed weights                    */
    uint64_t kv_bytes;        /* the page pool                     */
    uint64_t state_bytes;     /* all state slots                   */
    uint64_t workspace_bytes; /* activations and scratch           */
    int32_t device;           /* pj_device                         */
    int32_t isa;              /* pj_isa in use (CPU), never AUTO   */
    int32_t n_threads;        /* CPU workers in use                */
    int32_t reserved;
    char device_name[128];
} pj_info;

typedef struct pj_op_time {
    char name[32];
    double total_us;
    uint64_t calls;
} pj_op_time;

PJ_API int32_t pj_abi_version(void);
PJ_API const char *pj_last_error(void); /* of this thread; "" after a success                     */
PJ_API const char *pj_build_info(void); /* "pyjet 0.1.0; cpu: portable avx2 avx512_vnni; cuda: none" */
PJ_API int32_t pj_cpu_isa(void);        /* best pj_isa of this processor                          */
/* Devices of a kind that an engine could be created on: 1 for the CPU; for CUDA the GPUs that this
 * process sees, or 0 with the reason in pj_last_error() (not built in, no driver, driver too old). */
PJ_API int32_t pj_device_count(int32_t device);
/* Product name of one of them, zero terminated; PJ_ERR_DEVICE when this library cannot use it. */
PJ_API int32_t pj_device_name(int32_t device, int32_t index, char *name, int32_t capacity);
PJ_API int32_t pj_engine_info(const pj_engine *engine, pj_info *info);
/* Fills at most capacity entries and returns how many op kinds there are; times since creation. */
PJ_API int32_t pj_engine_op_times(const pj_engine *engine, pj_op_time *times, int32_t capacity);

/* ------------------------------------------------- single ops (tests, micro-benchmarks) -- */

/* y[i][j] = sum_k x[i][k] * W[j][k] through the same packing and kernels as a step.
 * weight: n_out rows of n_in elements of a ggml type. x: [n_rows][n_in], y: [n_rows][n_out].
 * repeat > 1 runs the product that often and *us_per_call gets the mean time without packing. */
PJ_API int32_t pj_op_matmul(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_out,
                            const float *x, int32_t n_rows, float *y, int32_t isa, int32_t n_threads, int32_t repeat,
                            double *us_per_call);

/* Rows of a weight tensor as f32, exactly as the embedding lookup reads them. */
PJ_API int32_t pj_op_dequantize(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_rows,
                                float *out);

/* The token that a step chooses from a row of n_vocab logits; -1 when the chain is not settled. Ranges of
 * the sample are in counts and biases, which hold n_counts and n_biases entries, its mask in masks. */
PJ_API int32_t pj_op_sample(const float *logits, int32_t n_vocab, const pj_sample *sample, const pj_token_count *counts,
                            int32_t n_counts, const pj_token_bias *biases, int32_t n_biases, const uint32_t *masks,
                            int32_t n_mask_words, int32_t *token);

/* Indices of the k largest of n values, best first, the lowest index first among equals, NaN after everything else;
 * 0 <= k <= n. */
PJ_API int32_t pj_top_indices(const float *values, int32_t n, int32_t k, int32_t *out);

#ifdef __cplusplus
}
#endif
#endif /* PYJET_H */
