// The op lists without a GPU: every stage has its barrier, products that live at the same time do not
// overlap, and every piece of a block has exactly one CTA that writes it.
#include <algorithm>
#include <set>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/pack_unit.h"
#include "cuda/split.h"
#include "tests/check.h"

using namespace pj;
using namespace pj::cuda;

namespace {

// Distinct addresses without memory behind them: compiling reads no data.
Matrix matrix(int32_t type, int n_in, int n_out) {
    static uintptr_t next = 4096;
    next += 4096;
    return {"m", type, reinterpret_cast<const void *>(next), 1, n_in, n_out};
}

AttentionWeights attention(const Shape &s, int32_t type, int32_t v_type) {
    const int heads = s.n_head * s.head_dim, kv = s.n_head_kv * s.head_dim;
    AttentionWeights w;
    w.q = matrix(type, s.n_embd, s.query_outputs());
    w.k = matrix(type, s.n_embd, kv);
    w.v = matrix(v_type, s.n_embd, kv);
    w.output = matrix(type, heads, s.n_embd);
    w.q_norm = w.k_norm = Vector(s.head_dim);
    return w;
}

Block block(const Shape &s, bool is_attention, int32_t type) {
    Block b;
    b.is_attention = is_attention;
    b.norm = b.post_norm = Vector(s.n_embd);
    if (is_attention) {
        b.attention = attention(s, type, GGML_Q6_K);
    } else {
        b.gdn.qkv = matrix(type, s.n_embd, s.conv_channels());
        b.gdn.z = matrix(type, s.n_embd, s.gdn_value_width());
        b.gdn.beta = matrix(GGML_F32, s.n_embd, s.n_gdn_head_v);
        b.gdn.alpha = matrix(GGML_Q8_0, s.n_embd, s.n_gdn_head_v);
        b.gdn.output = matrix(type, s.gdn_value_width(), s.n_embd);
        b.gdn.conv = Vector(s.conv_kernel * s.conv_channels());
        b.gdn.dt_bias = b.gdn.a = Vector(s.n_gdn_head_v);
        b.gdn.norm = Vector(s.gdn_dim);
    }
    b.ffn_gate = matrix(type, s.n_embd, s.n_ff);
    b.ffn_up = matrix(type, s.n_embd, s.n_ff);
    b.ffn_down = matrix(is_attention ? GGML_IQ4_XS : type, s.n_ff, s.n_embd);  // one without tiles
    return b;
}

Model model_27b_width() {
    Model m;
    m.shape = {4, 1, 5120, 17408, 24, 4, 256, 64, 48, 16, 128, 4, 248320, 262144, 1e7f, 1e-6f, true, false};
    const Shape &s = m.shape;
    m.token_embd = matrix(GGML_Q4_K, s.n_embd, s.n_vocab);
    m.output = matrix(GGML_Q6_K, s.n_embd, s.n_vocab);
    m.output_norm = Vector(s.n_embd);
    for (int i = 0; i < s.n_block; ++i) m.blocks.push_back(block(s, i == 3, GGML_Q4_K));
    m.mtp.resize(1);
    MtpWeights &mtp = m.mtp[0];
    mtp.block = block(s, true, GGML_Q4_K);
    mtp.eh_proj = matrix(GGML_Q4_K, 2 * s.n_embd, s.n_embd);
    mtp.e_norm = mtp.h_norm = mtp.head_norm = Vector(s.n_embd);
    mtp.embedding = m.token_embd;
    mtp.head = m.output;
    return m;
}

// A dense model whose rows are no multiple of 256 (SmolLM2-135M's), with biases.
Model model_dense() {
    Model m;
    m.shape = {2, 0, 576, 1472, 9, 3, 64, 64, 0, 0, 0, 0, 49152, 8192, 1e5f, 1e-5f, false, true};
    const Shape &s = m.shape;
    m.token_embd = m.output = matrix(GGML_Q8_0, s.n_embd, s.n_vocab);
    m.output_norm = Vector(s.n_embd);
    for (int i = 0; i < s.n_block; ++i) {
        Block b;
        b.is_attention = true;
        b.norm = b.post_norm = Vector(s.n_embd);
        b.attention = attention(s, GGML_Q4_1, GGML_Q8_0);
        b.attention.q_norm = b.attention.k_norm = {};
        b.attention.q_bias = Vector(s.n_head * s.head_dim);
        b.attention.k_bias = b.attention.v_bias = Vector(s.n_head_kv * s.head_dim);
        b.attention.out_bias = Vector(s.n_embd);
        b.ffn_gate = matrix(GGML_Q4_1, s.n_embd, s.n_ff);
        b.ffn_up = matrix(GGML_Q4_1, s.n_embd, s.n_ff);
        b.ffn_down = matrix(GGML_Q4_1, s.n_ff, s.n_embd);
        m.blocks.push_back(b);
    }
    return m;
}

struct Range {
    const float *begin, *end;
    bool overlaps(const Range &other) const { return begin < other.end && other.begin < end; }
};

Range written(const Gemm &g, const ProgramLimits &limits) {
    const bool split = unit_bytes(g.format) != 0;
    const int64_t slots = split ? piece_slots(slices_of(g.n_blocks, g.k_units), g.n_blocks, g.n_ctas) : g.n_blocks;
    const int64_t rows = g.rows == kRowsAll ? limits.max_rows : limits.max_selected;
    return {g.out, g.out + std::max(slots * g.piece_rows, g.n_blocks * rows) * kUnitOutputs};
}

// Products stay untouched from the GEMM that writes them to their last reader.
void check_lifetime(const Program &p, int at, int which, const ProgramLimits &limits) {
    const int n = static_cast<int>(p.ops.size());
    const Range mine = written(p.ops[at].gemm[which], limits);
    int last = -1;
    for (int j = at + 1; j < n; ++j) {
        const Op &op = p.ops[j];
        for (int k = 0; k < op.n_inputs; ++k)
            if (op.input[k].data == mine.begin) last = j;
        if (op.n_gemms && op.gemm[0].out == p.ops[at].gemm[0].out) break;
    }
    CHECK(last > at, "nobody reads product %d of op %d", which, at);
    for (int j = at; j <= last; ++j)
        for (int k = 0; k < p.ops[j].n_gemms; ++k)
            CHECK((j == at && k == which) || !written(p.ops[j].gemm[k], limits).overlaps(mine),
                  "op %d overwrites a product of op %d", j, at);
}

void check_lifetimes(const Program &p, const ProgramLimits &limits) {
    for (int i = 0; i < static_cast<int>(p.ops.size()); ++i)
        for (int k = 0; k < p.ops[i].n_gemms; ++k) check_lifetime(p, i, k, limits);
}

// Every op reads what the one before wrote, so there is a barrier between any two.
void check_barriers(const Program &p) {
    for (size_t i = 0; i + 1 < p.ops.size(); ++i) CHECK(p.ops[i].flags & kOpBarrier, "op %zu", i);
}

// The loaders' list has every tiled matrix, in order, with the stages before it.
void check_tasks(const Program &p) {
    size_t next = 0;
    uint32_t stage = 0;
    for (size_t i = 0; i < p.ops.size(); ++i) {
        for (int k = 0; k < p.ops[i].n_gemms; ++k) {
            const Gemm &g = p.ops[i].gemm[k];
            if (!unit_bytes(g.format)) continue;
            const LoadTask &task = p.tasks.at(next++);
            CHECK(task.op == static_cast<int>(i) && task.stage == stage, "op %zu: task of %d, stage %u", i, task.op,
                  task.stage);
            CHECK(task.n_blocks == g.n_blocks && task.k_units == g.k_units, "op %zu", i);
            CHECK(task.first_cta == g.first_cta && task.n_ctas == g.n_ctas, "op %zu", i);
        }
        if (p.ops[i].flags & kOpBarrier) ++stage;
    }
    CHECK(next == p.tasks.size(), "%zu tasks more", p.tasks.size() - next);
}

// What the next GEMMs read has been written in the form that they read.
void check_forms(const Program &p) {
    int forms = 0, width = 0;
    for (const Op &op : p.ops) {
        if (op.width) {
            forms = op.act_forms;
            width = op.width;
        }
        for (int k = 0; k < op.n_gemms; ++k) {
            const Gemm &g = op.gemm[k];
            const int form = g.act_span == 0 ? kActFloat : g.act_span == 256 ? kActSpan256 : kActSpan32;
            CHECK(forms & form, "a GEMM reads form %d, written are %d", form, forms);
            CHECK(width == g.k_units * kUnitInputs, "a GEMM reads %d columns of %d", g.n_in, width);
        }
    }
}

// Every slice has one CTA, and a piece a slot of its own; a block's lie kGroups apart.
void check_split(int n_blocks, int k_units, int n_cta) {
    const int n = slices_of(n_blocks, k_units);
    CHECK(n_cta <= n, "%d CTAs for %d slices", n_cta, n);
    int slice = 0;
    std::set<int> slots;
    for (int cta = 0; cta < n_cta; ++cta) {
        const SliceRange range = cta_range(n, cta, n_cta);
        CHECK(range.begin == slice && range.size() > 0, "CTA %d of %d x %d begins at %d", cta, n_blocks, k_units,
              range.begin);
        std::set<int> mine;
        for (; slice < range.end; ++slice) {
            CHECK(cta_of(n, slice, n_cta) == cta, "slice %d: %d", slice, cta_of(n, slice, n_cta));
            for (int group = 0; group < kGroups; ++group) {
                const int block = slice / k_units * kGroups + group;
                if (block < n_blocks) mine.insert(piece_slot(block, cta));
            }
        }
        for (int slot : mine) CHECK(slots.insert(slot).second, "slot %d has two pieces", slot);
    }
    CHECK(slice == n, "%d of %d slices", slice, n);
    int n_pieces = 0;
    for (int b = 0; b < n_blocks; ++b) {
        const PieceSpan span = pieces_of(n, k_units, b, n_cta);
        n_pieces += span.n;
        for (int i = 0; i < span.n; ++i) CHECK(slots.count(span.slot + i * kGroups), "block %d has no piece %d", b, i);
    }
    CHECK(n_pieces == static_cast<int>(slots.size()), "%d pieces, %zu slots", n_pieces, slots.size());
    CHECK(*slots.rbegin() < piece_slots(n, n_blocks, n_cta), "slot %d", *slots.rbegin());
}

// Matrices side by side keep every CTA busy, none much longer than its share of the op's bytes.
void check_shares(const Op &op, int n_cta) {
    std::vector<int64_t> bytes(n_cta, 0);
    int64_t total = 0, slice = 0;
    for (int k = 0; k < op.n_gemms; ++k) {
        const Gemm &g = op.gemm[k];
        const int n = slices_of(g.n_blocks, g.k_units), per_slice = kGroups * unit_bytes(g.format);
        if (!per_slice) continue;
        check_split(g.n_blocks, g.k_units, g.n_ctas);
        for (int cta = 0; cta < g.n_ctas; ++cta)
            bytes.at((g.first_cta + cta) % n_cta) += int64_t{cta_range(n, cta, g.n_ctas).size()} * per_slice;
        total += int64_t{n} * per_slice;
        slice = std::max<int64_t>(slice, per_slice);
    }
    const int64_t most = *std::max_element(bytes.begin(), bytes.end());
    CHECK(most <= total / n_cta + kLeastSlices * slice, "a CTA has %lld of %lld bytes", static_cast<long long>(most),
          static_cast<long long>(total));
}

// The pieces of a step of any number of rows lie within the memory of its largest step.
void check_launches(const Gemm &g, const ProgramLimits &limits) {
    const Range mine = written(g, limits);
    if (!unit_bytes(g.format)) return;
    const int64_t slots = piece_slots(slices_of(g.n_blocks, g.k_units), g.n_blocks, g.n_ctas);
    for (int n_rows = 1; n_rows <= std::min(limits.max_rows, limits.narrow_rows); ++n_rows) {
        const int of_matrix = g.rows == kRowsAll ? n_rows : std::min(n_rows, limits.max_selected);
        const int piece_rows = std::min(narrow_tiles(n_rows) * 8, g.piece_rows);
        CHECK(of_matrix <= piece_rows, "%d rows of %d", of_matrix, limits.max_rows);
        CHECK(slots * piece_rows * kUnitOutputs <= mine.end - mine.begin, "%d rows of %d", n_rows, limits.max_rows);
    }
}

// Where steps with drafts may end, and which rows their passes have.
void check_drafts(const Program &p, int n_passes) {
    CHECK(p.ops[p.n_keys - 1].kind == OpKind::kRotate, "keys");
    CHECK(static_cast<int>(p.pass_ends.size()) == n_passes, "%zu passes", p.pass_ends.size());
    int begin = 0;
    for (int pass = 0; pass < n_passes; ++pass) {
        const int end = p.pass_ends[pass];
        CHECK(p.ops[end - 1].kind == OpKind::kDraft && p.ops[end - 1].layer == pass, "end of pass %d", pass);
        for (int i = begin; i < end; ++i) {
            const Op &op = p.ops[i];
            const bool is_head = i >= end - 4;
            CHECK(!(op.flags & kOpDrafting) == (pass == 0 && !is_head), "rows of op %d", i);
            for (int k = 0; k < op.n_gemms; ++k)
                CHECK((op.gemm[k].rows == kRowsDrafting) == (pass > 0 || is_head), "rows of the matrices of op %d", i);
        }
        const Gemm &head = p.ops[end - 3].gemm[0];
        CHECK(head.mapped && head.n_out == 6400, "the head of pass %d has %d outputs", pass, head.n_out);
        begin = end;
    }
}

void check_model(int n_cta, int max_rows, int narrow_rows, bool print) {
    const Model model = model_27b_width();
    const Weights weights(model);
    const ProgramLimits limits = {n_cta, max_rows, narrow_rows, std::min(max_rows, 32), 3, 100};
    const Programs sized = compile_programs(model, weights, limits, {});
    // Addresses only; nothing is read or written.
    float *const residual = reinterpret_cast<float *>(uintptr_t{1} << 40);
    const ProductMemory memory = {residual, residual + sized.residual_floats, nullptr};
    const Programs p = compile_programs(model, weights, limits, memory);
    CHECK(p.n_attention_layers == 2 && p.n_gdn_layers == 3, "%d %d", p.n_attention_layers, p.n_gdn_layers);
    CHECK(p.act_width == 17408 && p.act_f32_width == 17408, "%d %d", p.act_width, p.act_f32_width);
    const float *const end = memory.between + p.between_floats;
    for (const Program *program : {&p.trunk, &p.mtp, &p.reading, &p.drafting}) {
        check_lifetimes(*program, limits);
        check_barriers(*program);
        check_tasks(*program);
        check_forms(*program);
        for (const Op &op : program->ops)
            for (int k = 0; k < op.n_gemms; ++k)
                CHECK(written(op.gemm[k], limits).end <= end, "products beyond their memory");
        if (program != &p.reading) CHECK(program->ops[program->n_body].kind == OpKind::kSelect, "body");
        for (const Op &op : program->ops) {
            check_shares(op, n_cta);
            for (int k = 0; k < op.n_gemms; ++k) check_launches(op.gemm[k], limits);
        }
    }
    CHECK(p.reading.ops.back().kind == OpKind::kRotate, "a prompt ends with keys and values");
    check_drafts(p.drafting, limits.max_draft);
    CHECK(p.trunk_rest.ops.size() == 4, "rest");
    CHECK(p.trunk.ops.back().kind == OpKind::kSample, "steps without samples leave out the last op");
    check_tasks(p.trunk_rest);
    if (print)
        std::printf("%s\n%sproducts: %lld MiB\n", print_program(p.trunk).c_str(), print_program(p.mtp).c_str(),
                    static_cast<long long>((p.residual_floats + p.between_floats) * 4 >> 20));
}

// Whoever reads 256 columns at a time finds the pieces of each, or none behind the last block.
void check_pieces(const Programs &p, const PieceSpan *table, const Op &op) {
    for (int k = 0; k < op.n_gemms; ++k) {
        const Gemm &g = op.gemm[k];
        const auto first = static_cast<size_t>(g.pieces - table);
        for (int b = 0; b < (g.n_blocks + 3) / 4 * 4; ++b)
            CHECK((p.pieces.at(first + b).n > 0) == (b < g.n_blocks), "block %d of %d", b, g.n_blocks);
    }
}

void check_dense(int n_cta, int max_rows) {
    const Model model = model_dense();
    const Weights weights(model);
    const ProgramLimits limits = {n_cta, max_rows, 256, std::min(max_rows, 32)};
    const Programs sized = compile_programs(model, weights, limits, {});
    float *const residual = reinterpret_cast<float *>(uintptr_t{1} << 40);
    const auto *const table = reinterpret_cast<const PieceSpan *>(uintptr_t{1} << 30);
    const ProductMemory memory = {residual, residual + sized.residual_floats, table};
    const Programs p = compile_programs(model, weights, limits, memory);
    CHECK(p.n_attention_layers == 2 && p.n_gdn_layers == 0, "%d %d", p.n_attention_layers, p.n_gdn_layers);
    CHECK(p.act_width == 1536 && p.act_f32_width == 1536, "%d %d", p.act_width, p.act_f32_width);
    CHECK(p.mtp.ops.empty() && p.drafting.ops.empty(), "there is no MTP block");
    check_lifetimes(p.trunk, limits);
    check_barriers(p.trunk);
    check_tasks(p.trunk);
    check_forms(p.trunk);
    for (const Op &op : p.trunk.ops) {
        check_pieces(p, table, op);
        CHECK(op.kind != OpKind::kMergeHeads || op.n_inputs == 0, "heads without a gate read no product");
    }
}

}  // namespace

int main(int argc, char **) {
    for (int n_cta : {1, 5, 82, 132})
        for (const auto &[n_blocks, k_units] : {std::pair{1, 20}, {80, 68}, {272, 20}, {16, 20}, {8, 2}, {3, 1}})
            check_split(n_blocks, k_units, std::min(n_cta, slices_of(n_blocks, k_units)));
    for (int n_cta : {82, 132})
        for (int max_rows : {8, 24, 40, 64, 100, 512})
            for (int narrow_rows : {64, 256})
                check_model(n_cta, max_rows, narrow_rows,
                            argc > 1 && n_cta == 132 && max_rows == 512 && narrow_rows == 256);
    for (int max_rows : {1, 24, 512}) check_dense(132, max_rows);
    return check_result();
}
