#include "cuda/compiler.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>
#include <map>

#include "core/quants.h"
#include "core/status.h"
#include "cuda/pack_unit.h"
#include "cuda/split.h"

namespace pj::cuda {

namespace {

// Inputs per scale of the activations that go with a weight's tiles, as on the CPU (cpu/activations.h);
// 0: the generic path multiplies floats.
int act_span_of(const Matrix &m) {
    switch (tile_format(m.type, m.n_in)) {
        case kTileQ4K:
        case kTileQ5K:
        case kTileQ6K:
            return 256;
        case kTileQ8:
            return 32;
        default:
            return 0;
    }
}

int form_of(const Matrix &m) {
    const int span = act_span_of(m);
    return span == 0 ? kActFloat : span == 256 ? kActSpan256 : kActSpan32;
}

int forms_of(std::initializer_list<const Matrix *> readers) {
    int forms = 0;
    for (const Matrix *m : readers) forms |= form_of(*m);
    return forms;
}

// What a residual op leaves to the readers of the matrices behind it.
enum class Factor : int32_t { kApplied = 0, kDeferred = 1 };

// Stages that are complete before each task's op.
void number_stages(Program &p) {
    std::vector<uint32_t> before(p.ops.size(), 0);
    for (size_t i = 1; i < p.ops.size(); ++i) before[i] = before[i - 1] + (p.ops[i - 1].flags & kOpBarrier ? 1 : 0);
    for (LoadTask &task : p.tasks) task.stage = before[task.op];
}

// The generic product counts (output, 8 rows) in 32 bits.
void check_items(int n_out, int max_rows) {
    if (int64_t{n_out} * ((max_rows + 7) / 8) > INT32_MAX / 2)
        fail(PJ_ERR_MODEL, "a matrix of %d outputs is too large for steps of %d rows on the CUDA backend", n_out,
             max_rows);
}

class Compiler {
  public:
    Compiler(const Model &model, const Weights &weights, const ProgramLimits &limits, ProductMemory memory,
             Programs &out)
        : model_(model), shape_(model.shape), weights_(weights), limits_(limits), memory_(memory), out_(out) {}

    Program trunk() {
        add(OpKind::kEmbed);
        barrier();
        for (const Block &b : model_.blocks) block(b, b.is_attention ? out_.n_attention_layers++ : out_.n_gdn_layers++);
        end(model_.output_norm, model_.output);
        return take();
    }

    // The MTP block as a step of its own.
    Program mtp(const MtpWeights &m) {
        add(OpKind::kNextRows).flags |= kOpGiven;
        barrier();
        mtp_block(m);
        end(m.head_norm, m.head);
        return take();
    }

    // The trunk's ops up to `n`, which are those before its head and kSelect for hidden rows, then the MTP block's keys
    // and values.
    Program reading(const Program &trunk, int n, const MtpWeights &m) {
        follow(trunk, n);
        next_rows();
        mtp_block(m);
        ops_.resize(n_keys_);
        tasks_.erase(std::find_if(tasks_.begin(), tasks_.end(), [&](const LoadTask &t) { return t.op >= n_keys_; }),
                     tasks_.end());
        return take();
    }

    // The whole trunk, then passes of the MTP block and its draft head.
    Program drafting(const Program &trunk, const MtpWeights &m) {
        follow(trunk, static_cast<int>(trunk.ops.size()));
        barrier();
        next_rows();
        std::vector<int> ends;
        int n_keys = 0;
        for (int pass = 0; pass < limits_.max_draft; ++pass) {
            rows_ = pass ? kRowsDrafting : kRowsAll;
            mtp_block(m);
            if (pass == 0) n_keys = n_keys_;
            draft_head(m, pass);
            ends.push_back(static_cast<int>(ops_.size()));
        }
        rows_ = kRowsAll;
        Program p = take();
        p.n_body = trunk.n_body;
        p.n_keys = n_keys;
        p.pass_ends = ends;
        return p;
    }

  private:
    void follow(const Program &p, int n) {
        ops_.assign(p.ops.begin(), p.ops.begin() + n);
        tasks_.assign(p.tasks.begin(), p.tasks.begin() + p.tasks_before(n));
    }

    void next_rows() {
        add(OpKind::kNextRows).norm = weights_.vector(model_.output_norm);
        barrier();
    }

    void mtp_block(const MtpWeights &m) {
        Op &input = add(OpKind::kMtpInput);
        input.norm = weights_.vector(m.e_norm);
        input.norm2 = weights_.vector(m.h_norm);
        writes(input, 2 * shape_.n_embd, {&m.eh_proj});
        barrier();
        residual_ = gemm_residual(m.eh_proj);
        overwrite_ = true;
        if (mtp_layer_ < 0) mtp_layer_ = out_.n_attention_layers++;
        block(m.block, mtp_layer_);
        add_residual(m.head_norm);
        barrier();
    }

    void draft_head(const MtpWeights &m, int pass) {
        rows_ = kRowsDrafting;
        Op &rows = add(OpKind::kDraftRows);
        rows.layer = pass;
        rows.norm = weights_.vector(m.head_norm);
        writes(rows, shape_.n_embd, {&m.head});
        barrier();
        Op &op = add(OpKind::kGemm);
        int64_t offset = 0;
        Matrix some = m.head;  // as many blocks of it
        some.n_out = limits_.n_draft_blocks * kUnitOutputs;
        Shares at = shares({&some});
        const Product logits = add_gemm(op, some, at, memory_.between, &offset, kRowsDrafting, Factor::kApplied);
        op.gemm[0].mapped = 1;
        if (!tasks_.empty() && tasks_.back().op == static_cast<int>(ops_.size()) - 1) tasks_.back().mapped = 1;
        out_.between_floats = std::max(out_.between_floats, offset);
        barrier();
        Op &best = add(OpKind::kDraftLogits);
        best.layer = pass;
        reads(best, {logits});
        barrier();
        Op &draft = add(OpKind::kDraft);
        draft.layer = pass;
        barrier();
    }

    Op &add(OpKind kind) {
        ops_.push_back({});
        ops_.back().kind = kind;
        if (rows_ == kRowsDrafting) ops_.back().flags = kOpDrafting;
        return ops_.back();
    }

    void barrier() { ops_.back().flags |= kOpBarrier; }

    void reads(Op &op, std::initializer_list<Product> products) {
        for (const Product &p : products) op.input[op.n_inputs++] = p;
    }

    // The op quantises rows of this width for these matrices.
    void writes(Op &op, int width, std::initializer_list<const Matrix *> readers) {
        op.width = padded_columns(width);
        op.act_forms = forms_of(readers);
        out_.act_width = std::max(out_.act_width, op.width);
        if (op.act_forms & kActFloat) out_.act_f32_width = std::max(out_.act_f32_width, op.width);
    }

    // The table of a shape's pieces; matrices that are not split have one piece per block. Whoever reads whole groups
    // of 256 columns finds none behind the last block.
    const PieceSpan *pieces(const Gemm &g, bool split) {
        const std::array<int, 3> shape = {g.n_blocks, split ? g.k_units : 0, g.n_ctas};
        const auto [at, is_new] = tables_.try_emplace(shape, out_.pieces.size());
        for (int b = 0; is_new && b < g.n_blocks; ++b)
            out_.pieces.push_back(split ? pieces_of(slices_of(g.n_blocks, g.k_units), g.k_units, b, g.n_ctas)
                                        : PieceSpan{b, 1});
        for (int b = g.n_blocks; is_new && b % (kUnitInputs / kUnitOutputs); ++b) out_.pieces.push_back({0, 0});
        return memory_.pieces ? memory_.pieces + at->second : nullptr;
    }

    // Floats of a matrix' output in steps of few rows and in wide ones.
    int64_t output_floats(const Gemm &g, bool split) const {
        const int64_t slots = split ? piece_slots(slices_of(g.n_blocks, g.k_units), g.n_blocks, g.n_ctas) : g.n_blocks;
        const int64_t rows = g.rows == kRowsAll ? limits_.max_rows : limits_.max_selected;
        const int64_t narrow_rows = narrow_tiles(limits_.max_rows) * 8;
        return std::max(slots * narrow_rows, g.n_blocks * rows) * kUnitOutputs;
    }

    static int blocks_of(const Matrix &m) { return (m.n_out + kUnitOutputs - 1) / kUnitOutputs; }
    static int k_units_of(const Matrix &m) { return (m.n_in + kUnitInputs - 1) / kUnitInputs; }
    static int64_t slices_of_matrix(const Matrix &m) { return int64_t{quads_of(blocks_of(m))} * k_units_of(m); }

    // The CTAs of matrices that run side by side: as many as their share of the bytes of slices, at least one, which
    // matrices smaller than a share have together. A slice takes its time though its quad may have fewer blocks.
    class Shares {
      public:
        Shares(std::initializer_list<const Matrix *> matrices, int n_cta) : n_cta_(n_cta) {
            int64_t slices = 0;
            for (const Matrix *m : matrices) {
                bytes_ += bytes_of(*m);
                if (bytes_of(*m)) slices += slices_of_matrix(*m);
            }
            n_ = std::clamp(static_cast<int>(static_cast<float>(slices) / kLeastSlices), 1, n_cta);
        }

        int n_ctas() const { return n_; }
        void start_at(int cta) { first_cta_ = cta; }

        // The next matrix.
        void place(const Matrix &m, Gemm &g) {
            const int begin = rounded(before_);
            before_ += bytes_of(m);
            g.n_ctas = std::clamp(rounded(before_) - begin, 1, slices_of(g.n_blocks, g.k_units));
            g.first_cta = (first_cta_ + std::min(begin, n_ - 1)) % n_cta_;
        }

      private:
        static int64_t bytes_of(const Matrix &m) {
            return slices_of_matrix(m) * kGroups * unit_bytes(tile_format(m.type, m.n_in));
        }
        int rounded(int64_t bytes) const { return static_cast<int>((2 * bytes * n_ + bytes_) / (2 * bytes_)); }

        const int n_cta_;
        int n_, first_cta_ = 0;
        int64_t bytes_ = 0, before_ = 0;
    };

    Shares shares(std::initializer_list<const Matrix *> matrices) {
        Shares shares(matrices, limits_.n_cta);
        // Small ops go to different CTAs, one after the other.
        if (shares.n_ctas() < limits_.n_cta) {
            shares.start_at(next_cta_);
            next_cta_ = (next_cta_ + shares.n_ctas()) % limits_.n_cta;
        }
        return shares;
    }

    // One more matrix of a kGemm op, whose output begins at *offset of a region; moves the offset past it.
    Product add_gemm(Op &op, const Matrix &m, Shares &shares, float *region, int64_t *offset, GemmRows rows,
                     Factor factor) {
        Gemm &g = op.gemm[op.n_gemms++];
        g.format = tile_format(m.type, m.n_in);
        const bool split = unit_bytes(g.format) != 0;
        (split ? g.weight : g.raw) = weights_.matrix(m);
        g.type = m.type;
        g.n_in = m.n_in;
        g.n_out = m.n_out;
        g.n_blocks = blocks_of(m);
        g.k_units = k_units_of(m);
        check_units(g);
        if (split) shares.place(m, g);
        g.pieces = pieces(g, split);
        g.act_span = act_span_of(m);
        g.rows = rows;
        g.out = region ? region + *offset : nullptr;
        *offset += output_floats(g, split);
        if (split)
            add_task(g);
        else
            check_items(m.n_out, g.rows == kRowsAll ? limits_.max_rows : limits_.max_selected);
        return {g.out, g.pieces, g.n_blocks * kUnitOutputs, factor == Factor::kDeferred ? 1 : 0};
    }

    void check_units(const Gemm &g) const {
        if (int64_t{g.n_blocks} * g.k_units * limits_.n_cta > INT32_MAX)
            fail(PJ_ERR_MODEL, "a matrix of %d x %d units is too large for the CUDA backend", g.n_blocks, g.k_units);
    }

    void add_task(const Gemm &g) {
        LoadTask task = {};
        task.weight = g.weight;
        task.n_blocks = g.n_blocks;
        task.k_units = g.k_units;
        task.unit_bytes = unit_bytes(g.format);
        task.first_cta = g.first_cta;
        task.n_ctas = g.n_ctas;
        task.act_span = g.act_span;
        task.rows = g.rows;
        task.op = static_cast<int32_t>(ops_.size()) - 1;
        tasks_.push_back(task);
    }

    // Matrices that run side by side, all in the region between.
    std::vector<Product> gemms(std::initializer_list<const Matrix *> matrices, GemmRows rows, Factor factor) {
        Op &op = add(OpKind::kGemm);
        std::vector<Product> products;
        int64_t offset = 0;
        Shares at = shares(matrices);
        for (const Matrix *m : matrices)
            products.push_back(add_gemm(op, *m, at, memory_.between, &offset, rows, factor));
        out_.between_floats = std::max(out_.between_floats, offset);
        barrier();
        return products;
    }

    // Its output waits for the next kResidual, past any use of the region between.
    Product gemm_residual(const Matrix &m) {
        int64_t offset = 0;
        Shares at = shares({&m});
        const Product product = add_gemm(add(OpKind::kGemm), m, at, memory_.residual, &offset, rows_, Factor::kApplied);
        out_.residual_floats = std::max(out_.residual_floats, offset);
        barrier();
        return product;
    }

    Op &add_residual(const Vector &norm) {
        Op &op = add(OpKind::kResidual);
        if (residual_.row_stride) reads(op, {residual_});
        if (overwrite_) op.flags |= kOpOverwrite;
        overwrite_ = false;
        op.bias = residual_bias_;
        residual_ = {};
        residual_bias_ = nullptr;
        op.norm = weights_.vector(norm);
        return op;
    }

    // 1 / rms is known when a row is complete. Activations with one scale per 256 can be quantised before
    // and multiplied after the matrix; the other forms round their scale or need the value itself.
    Factor residual(const Vector &norm, std::initializer_list<const Matrix *> readers) {
        Op &op = add_residual(norm);
        if (forms_of(readers) == kActSpan256) {
            writes(op, shape_.n_embd, readers);
            barrier();
            return Factor::kDeferred;
        }
        barrier();
        Op &normalize = add(OpKind::kNormalize);
        normalize.norm = weights_.vector(norm);
        writes(normalize, shape_.n_embd, readers);
        barrier();
        return Factor::kApplied;
    }

    void block(const Block &b, int layer) {
        if (b.is_attention)
            attention(b, layer);
        else
            gdn(b, layer);
        const Factor factor = residual(b.post_norm, {&b.ffn_gate, &b.ffn_up});
        const std::vector<Product> up = gemms({&b.ffn_gate, &b.ffn_up}, rows_, factor);
        Op &swiglu = add(OpKind::kSwiglu);
        reads(swiglu, {up[0], up[1]});
        writes(swiglu, shape_.n_ff, {&b.ffn_down});
        barrier();
        residual_ = gemm_residual(b.ffn_down);
    }

    void attention(const Block &b, int layer) {
        const AttentionWeights &w = b.attention;
        const Factor factor = residual(b.norm, {&w.q, &w.k, &w.v});
        const std::vector<Product> qkv = gemms({&w.q, &w.k, &w.v}, rows_, factor);
        Op &rotate = add(OpKind::kRotate);
        rotate.layer = layer;
        reads(rotate, {qkv[0], qkv[1], qkv[2]});
        rotate.norm = weights_.vector(w.q_norm);
        rotate.norm2 = weights_.vector(w.k_norm);
        rotate.q_bias = weights_.vector(w.q_bias);
        rotate.k_bias = weights_.vector(w.k_bias);
        rotate.v_bias = weights_.vector(w.v_bias);
        barrier();
        n_keys_ = static_cast<int>(ops_.size());
        add(OpKind::kAttention).layer = layer;
        barrier();
        Op &merge = add(OpKind::kMergeHeads);
        merge.layer = layer;
        if (shape_.gated_attention) reads(merge, {qkv[0]});
        writes(merge, shape_.n_head * shape_.head_dim, {&w.output});
        barrier();
        residual_ = gemm_residual(w.output);
        residual_bias_ = weights_.vector(w.out_bias);
    }

    void gdn(const Block &b, int layer) {
        const GdnWeights &w = b.gdn;
        const Factor factor = residual(b.norm, {&w.qkv, &w.z, &w.beta, &w.alpha});
        const std::vector<Product> in = gemms({&w.qkv, &w.z, &w.beta, &w.alpha}, rows_, factor);
        Op &convolve = add(OpKind::kConvolve);
        convolve.layer = layer;
        reads(convolve, {in[0], in[2], in[3]});
        convolve.conv = weights_.vector(w.conv);
        convolve.dt_bias = weights_.vector(w.dt_bias);
        convolve.a = weights_.vector(w.a);
        barrier();
        add(OpKind::kGdn).layer = layer;
        barrier();
        Op &heads = add(OpKind::kQuantHeads);
        reads(heads, {in[1]});
        heads.norm = weights_.vector(w.norm);
        writes(heads, shape_.gdn_value_width(), {&w.output});
        barrier();
        residual_ = gemm_residual(w.output);
    }

    // The head of the trunk, or of the MTP block as a step of its own, whose last residual is added already.
    void end(const Vector &norm, const Matrix &head) {
        if (residual_.row_stride) {
            add_residual(norm);
            barrier();
        }
        n_body_ = static_cast<int>(ops_.size());
        Op &select = add(OpKind::kSelect);
        select.norm = weights_.vector(norm);
        writes(select, shape_.n_embd, {&head});
        barrier();
        const std::vector<Product> logits = gemms({&head}, kRowsSelected, Factor::kApplied);
        reads(add(OpKind::kLogits), {logits[0]});
        barrier();
        add(OpKind::kSample);
    }

    Program take() {
        Program p;
        p.n_body = n_body_;
        p.ops = std::move(ops_);
        p.tasks = std::move(tasks_);
        ops_.clear();
        tasks_.clear();
        number_stages(p);
        return p;
    }

    const Model &model_;
    const Shape &shape_;
    const Weights &weights_;
    const ProgramLimits limits_;
    const ProductMemory memory_;
    Programs &out_;
    std::vector<Op> ops_;
    std::vector<LoadTask> tasks_;
    std::map<std::array<int, 3>, size_t> tables_;  // by blocks, units of a block and CTAs
    int next_cta_ = 0;
    GemmRows rows_ = kRowsAll;     // of the block's matrices
    int n_body_ = 0, n_keys_ = 0;  // ops before the head, and up to the newest keys and values
    int mtp_layer_ = -1;
    Product residual_ = {};  // waits to be added to x; row_stride 0: nothing does
    const float *residual_bias_ = nullptr;
    bool overwrite_ = false;
};

// The end of a program for more selected rows: it reads what the first launch left.
Program rest_of(const Program &p) {
    Program rest;
    rest.ops.assign(p.ops.begin() + p.n_body, p.ops.end());
    rest.tasks.assign(p.tasks.begin() + p.tasks_before(p.n_body), p.tasks.end());
    for (LoadTask &task : rest.tasks) task.op -= p.n_body;
    number_stages(rest);
    return rest;
}

void append(std::string &text, const char *format, ...) __attribute__((format(printf, 2, 3)));

void append(std::string &text, const char *format, ...) {
    char line[160];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text += line;
}

void append_gemm(std::string &text, const Gemm &g) {
    static const char *const formats[] = {"q4k", "q5k", "q6k", "q8", "raw", "float"};
    const TypeTraits *traits = type_traits(g.type);
    append(text, " [%d x %d %s/%s, %d units, %d CTAs from %d%s]", g.n_out, g.n_in, traits ? traits->name : "?",
           formats[g.format], g.n_blocks * g.k_units, g.n_ctas, g.first_cta,
           g.rows == kRowsAll        ? ""
           : g.rows == kRowsSelected ? ", selected rows"
                                     : ", drafting rows");
}

}  // namespace

Programs compile_programs(const Model &model, const Weights &weights, const ProgramLimits &limits,
                          ProductMemory memory) {
    Programs out;
    Compiler compiler(model, weights, limits, memory, out);
    out.trunk = compiler.trunk();
    out.trunk_rest = rest_of(out.trunk);
    if (!model.mtp.empty()) {
        out.mtp = compiler.mtp(model.mtp[0]);
        out.mtp_rest = rest_of(out.mtp);
        if (limits.max_draft) {
            out.reading = compiler.reading(out.trunk, out.trunk.n_body + 1, model.mtp[0]);
            out.drafting = compiler.drafting(out.trunk, model.mtp[0]);
        }
    }
    return out;
}

std::string print_program(const Program &program) {
    std::string text;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op &op = program.ops[i];
        append(text, "%4zu %-11s", i, kOpNames[static_cast<int>(op.kind)]);
        for (int j = 0; j < op.n_gemms; ++j) append_gemm(text, op.gemm[j]);
        if (op.kind == OpKind::kConvolve || op.kind == OpKind::kGdn || op.kind == OpKind::kRotate ||
            op.kind == OpKind::kAttention)
            append(text, " layer %d", op.layer);
        for (int j = 0; j < op.n_inputs; ++j)
            append(text, "%s %p%s", j ? "," : " from", static_cast<const void *>(op.input[j].data),
                   op.input[j].row_factor ? " * factor" : "");
        if (op.width)
            append(text, ", %d wide%s%s%s", op.width, op.act_forms & kActSpan32 ? " /32" : "",
                   op.act_forms & kActSpan256 ? " /256" : "", op.act_forms & kActFloat ? " f32" : "");
        if (op.flags & kOpOverwrite) text += ", overwrites";
        if (op.flags & kOpBarrier) text += " |";
        text += '\n';
    }
    return text;
}

}  // namespace pj::cuda
