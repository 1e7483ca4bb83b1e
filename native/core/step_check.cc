#include "core/step_check.h"

#include <algorithm>
#include <vector>

#include "core/sample_params.h"
#include "core/status.h"

namespace pj {

namespace {

void in_range(const char *field, int64_t value, int64_t lowest, int64_t highest) {
    if (value < lowest || value > highest)
        fail(PJ_ERR_ARGUMENT, "%s is %lld, allowed are %lld..%lld", field, static_cast<long long>(value),
             static_cast<long long>(lowest), static_cast<long long>(highest));
}

constexpr uint32_t kRowFlags = PJ_ROW_LOGITS | PJ_ROW_ARGMAX | PJ_ROW_HIDDEN | PJ_ROW_SAMPLE;

void check_arrays(const pj_step_in &in) {
    const struct {
        const void *pointer;
        const char *name;
    } arrays[] = {{in.row_token, "row_token"}, {in.row_position, "row_position"},
                  {in.row_seq, "row_seq"},     {in.row_flags, "row_flags"},
                  {in.seqs, "seqs"},           {in.page_table, "page_table"}};
    for (const auto &array : arrays)
        if (!array.pointer) fail(PJ_ERR_ARGUMENT, "pj_step_in.%s is NULL", array.name);
}

// Rows from which a token is chosen.
constexpr uint32_t kChosen = PJ_ROW_LOGITS | PJ_ROW_ARGMAX | PJ_ROW_SAMPLE;

void check_drafts(const EngineLimits &limits, const pj_step_in &in, const pj_seq &s) {
    const int most_verify = in.row_next ? std::min(s.n_spec, s.n_rows - 1) : 0;
    in_range("pj_seq.n_verify", s.n_verify, 0, most_verify);
    in_range("pj_seq.n_draft", s.n_draft, 0, in.row_next ? limits.config.max_draft : 0);
    in_range("pj_seq.draft_sample", s.draft_sample, -1, in.n_samples - 1);
    if (!s.n_verify && !s.n_draft) return;
    for (int row = s.row_begin + s.n_rows - 1 - s.n_verify; row < s.row_begin + s.n_rows; ++row)
        if (!(in.row_flags[row] & kChosen))
            fail(PJ_ERR_ARGUMENT, "row %d is to be verified or stands before drafts, but wants no token", row);
}

void check_next(const EngineLimits &limits, const pj_step_in &in, const pj_step_out &out) {
    in_range("pj_step_in.n_draft_blocks", in.n_draft_blocks, 0, PJ_MAX_DRAFT_BLOCKS);
    if (in.n_draft_blocks && !in.draft_blocks) fail(PJ_ERR_ARGUMENT, "pj_step_in.draft_blocks is NULL");
    const Shape &shape = limits.shape;
    const int last_block = (shape.n_vocab - 1) / PJ_DRAFT_BLOCK;
    for (int i = 0; i < in.n_draft_blocks; ++i)
        in_range("draft_blocks", in.draft_blocks[i], std::max(limits.config.draft_vocab, 0) / PJ_DRAFT_BLOCK,
                 last_block);
    if (!in.row_next) return;
    if (in.kind != PJ_STEP_TRUNK || !limits.config.max_draft)
        fail(PJ_ERR_ARGUMENT, "row_next belongs to trunk steps of engines with max_draft > 0");
    int n_chosen = 0;
    for (int row = 0; row < in.n_rows; ++row) {
        in_range("row_next", in.row_next[row], -1, shape.n_vocab - 1);
        const bool is_chosen = in.row_flags[row] & kChosen;
        n_chosen += is_chosen;
        if (in.row_next[row] < 0 && !is_chosen)
            fail(PJ_ERR_ARGUMENT, "the token after row %d is to be chosen, but the row wants no token", row);
    }
    if (n_chosen > PJ_MAX_DRAFT_ROWS)
        fail(PJ_ERR_ARGUMENT, "%d rows of a step that makes drafts want tokens, allowed are %d", n_chosen,
             PJ_MAX_DRAFT_ROWS);
    for (int i = 0; i < in.n_seqs; ++i)
        if (in.seqs[i].n_draft && (!out.drafts || !out.draft_probs))
            fail(PJ_ERR_ARGUMENT, "sequence %d wants drafts, pj_step_out.%s is NULL", i,
                 out.drafts ? "draft_probs" : "drafts");
}

void check_seq(const EngineLimits &limits, const Engine &engine, const pj_step_in &in, int index) {
    const pj_seq &s = in.seqs[index];
    in_range("pj_seq.state_slot", s.state_slot, 0, limits.config.n_state_slots - 1);
    in_range("pj_seq.n_rows", s.n_rows, 1, in.n_rows);
    in_range("pj_seq.row_begin", s.row_begin, 0, in.n_rows - s.n_rows);
    in_range("pj_seq.n_spec", s.n_spec, 0, s.n_rows < limits.config.max_spec ? s.n_rows : limits.config.max_spec);
    in_range("pj_seq.n_pages", s.n_pages, 1, in.n_page_entries);
    in_range("pj_seq.page_begin", s.page_begin, 0, in.n_page_entries - s.n_pages);
    if (s.flags & ~static_cast<uint32_t>(PJ_SEQ_RESET)) fail(PJ_ERR_ARGUMENT, "pj_seq.flags has unknown bits");
    const bool reset = s.flags & PJ_SEQ_RESET;
    in_range("pj_seq.n_accept", s.n_accept, 0, reset ? 0 : engine.pending(s.state_slot));
    check_drafts(limits, in, s);
    if (in.kind == PJ_STEP_MTP && (s.n_spec || s.n_accept || reset))
        fail(PJ_ERR_ARGUMENT, "an MTP step has no speculative rows, no accepted rows and no reset");
    const int first = in.row_position[s.row_begin];
    if (reset && first != 0) fail(PJ_ERR_ARGUMENT, "sequence %d resets its state at position %d, not 0", index, first);
    for (int i = 0; i < s.n_rows; ++i) {
        const int row = s.row_begin + i;
        if (in.row_seq[row] != index) fail(PJ_ERR_ARGUMENT, "row %d does not belong to sequence %d", row, index);
        if (in.row_position[row] != first + i)
            fail(PJ_ERR_ARGUMENT, "row %d is at position %d, its sequence continues at %d", row, in.row_position[row],
                 first + i);
    }
    const int64_t covered = static_cast<int64_t>(s.n_pages) * limits.config.page_tokens;
    const int last_draft = first + s.n_rows - 1 + s.n_draft;
    if (s.n_draft && (last_draft >= limits.shape.n_ctx_train || last_draft >= covered))
        fail(PJ_ERR_ARGUMENT, "%d drafts of sequence %d reach position %d, its %d pages hold %lld tokens", s.n_draft,
             index, last_draft, s.n_pages, static_cast<long long>(covered));
    if (first + static_cast<int64_t>(s.n_rows) > covered)
        fail(PJ_ERR_ARGUMENT, "sequence %d reaches position %d, its %d pages hold %lld tokens", index,
             first + s.n_rows - 1, s.n_pages, static_cast<long long>(covered));
}

struct WrittenPage {
    int32_t page, sequence;
};

// A page written by one sequence must not be in the table of another one of the step. Few pages are written and many
// are read: a bit tells of most of these that nobody writes them.
void check_pages(const EngineLimits &limits, const pj_step_in &in) {
    const int page_tokens = limits.config.page_tokens;
    std::vector<bool> is_written(limits.config.n_pages);
    std::vector<WrittenPage> written;
    for (int i = 0; i < in.n_seqs; ++i) {
        const pj_seq &s = in.seqs[i];
        const int first = in.row_position[s.row_begin];
        for (int p = first / page_tokens; p <= (first + s.n_rows - 1) / page_tokens; ++p) {
            const int32_t page = in.page_table[s.page_begin + p];
            if (is_written[page]) fail(PJ_ERR_ARGUMENT, "page %d is written twice in one step", page);
            is_written[page] = true;
            written.push_back({page, i});
        }
    }
    const auto writer_of = [&](int32_t page) {
        return std::find_if(written.begin(), written.end(), [&](const WrittenPage &w) { return w.page == page; });
    };
    for (int i = 0; i < in.n_seqs; ++i) {
        const pj_seq &s = in.seqs[i];
        for (int p = 0; p < s.n_pages; ++p) {
            const int32_t page = in.page_table[s.page_begin + p];
            if (!is_written[page]) continue;
            if (const int writer = writer_of(page)->sequence; writer != i)
                fail(PJ_ERR_ARGUMENT, "page %d is written by sequence %d and read by sequence %d", page, writer, i);
        }
    }
}

}  // namespace

void check_config(const pj_config &c) {
    if (c.abi_version != PJ_ABI_VERSION)
        fail(PJ_ERR_ARGUMENT, "pj_config.abi_version is %d, this library speaks %d", c.abi_version, PJ_ABI_VERSION);
    in_range("pj_config.page_tokens", c.page_tokens, 16, 1024);
    if (c.page_tokens % 16) fail(PJ_ERR_ARGUMENT, "pj_config.page_tokens is %d, not a multiple of 16", c.page_tokens);
    in_range("pj_config.n_pages", c.n_pages, 1, 1 << 24);
    in_range("pj_config.n_state_slots", c.n_state_slots, 1, 1 << 16);
    in_range("pj_config.max_rows", c.max_rows, 1, 1 << 16);
    in_range("pj_config.max_seqs", c.max_seqs, 1, 1 << 12);
    in_range("pj_config.max_spec", c.max_spec, 0, PJ_MAX_SPEC);
    in_range("pj_config.kv_type_k", c.kv_type_k, PJ_KV_F16, PJ_KV_Q8_0);
    in_range("pj_config.kv_type_v", c.kv_type_v, PJ_KV_F16, PJ_KV_Q8_0);
    in_range("pj_config.max_draft", c.max_draft, 0, PJ_MAX_DRAFT);
    if (c.draft_vocab > 0 && c.draft_vocab % PJ_DRAFT_BLOCK)
        fail(PJ_ERR_ARGUMENT, "pj_config.draft_vocab is %d, not a multiple of %d", c.draft_vocab, PJ_DRAFT_BLOCK);
}

void check_step(const EngineLimits &limits, const Engine &engine, const pj_step_in &in, const pj_step_out &out) {
    const Shape &shape = limits.shape;
    in_range("pj_step_in.kind", in.kind, PJ_STEP_TRUNK, PJ_STEP_MTP);
    if (in.kind == PJ_STEP_MTP && !shape.n_nextn) fail(PJ_ERR_ARGUMENT, "this model has no MTP block");
    in_range("pj_step_in.n_rows", in.n_rows, 1, limits.config.max_rows);
    in_range("pj_step_in.n_seqs", in.n_seqs, 1, limits.config.max_seqs);
    in_range("pj_step_in.n_page_entries", in.n_page_entries, 1, 1 << 28);
    check_arrays(in);
    if ((in.kind == PJ_STEP_MTP) != (in.row_hidden != nullptr))
        fail(PJ_ERR_ARGUMENT, "row_hidden belongs to MTP steps and to them only");
    int n_logits = 0, n_hidden = 0, n_argmax = 0, n_sampled = 0;
    for (int row = 0; row < in.n_rows; ++row) {
        in_range("row_token", in.row_token[row], 0, shape.n_vocab - 1);
        in_range("row_position", in.row_position[row], 0, shape.n_ctx_train - 1);
        in_range("row_seq", in.row_seq[row], 0, in.n_seqs - 1);
        if (in.row_flags[row] & ~kRowFlags)
            fail(PJ_ERR_ARGUMENT, "row_flags of row %d is 0x%x and has unknown bits", row, in.row_flags[row]);
        n_logits += (in.row_flags[row] & (PJ_ROW_LOGITS | PJ_ROW_SAMPLE)) != 0;
        n_hidden += (in.row_flags[row] & PJ_ROW_HIDDEN) != 0;
        n_argmax += (in.row_flags[row] & PJ_ROW_ARGMAX) != 0;
        n_sampled += (in.row_flags[row] & PJ_ROW_SAMPLE) != 0;
    }
    if (n_logits && (!out.logits || out.logits_rows < n_logits))
        fail(PJ_ERR_ARGUMENT, "%d rows want logits, pj_step_out holds %d", n_logits, out.logits ? out.logits_rows : 0);
    if (n_hidden && (!out.hidden || out.hidden_rows < n_hidden))
        fail(PJ_ERR_ARGUMENT, "%d rows want hidden rows, pj_step_out holds %d", n_hidden,
             out.hidden ? out.hidden_rows : 0);
    if (n_argmax && !out.argmax) fail(PJ_ERR_ARGUMENT, "%d rows want argmax, pj_step_out.argmax is NULL", n_argmax);
    in_range("pj_step_in.masks_late", in.masks_late, 0, 1);
    check_samples(in, out, n_sampled, limits.config.max_seqs * (limits.config.max_spec + 1), shape.n_vocab);
    check_next(limits, in, out);
    for (int i = 0; i < in.n_page_entries; ++i) in_range("page_table", in.page_table[i], 0, limits.config.n_pages - 1);
    int rows = 0;
    std::vector<uint8_t> used(limits.config.n_state_slots, 0);
    for (int i = 0; i < in.n_seqs; ++i) {
        check_seq(limits, engine, in, i);
        rows += in.seqs[i].n_rows;
        if (used[in.seqs[i].state_slot]++)
            fail(PJ_ERR_ARGUMENT, "state slot %d is used by two sequences of one step", in.seqs[i].state_slot);
    }
    if (rows != in.n_rows) fail(PJ_ERR_ARGUMENT, "the sequences have %d rows, the step has %d", rows, in.n_rows);
    check_pages(limits, in);
}

}  // namespace pj
