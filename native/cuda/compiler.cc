#include "cuda/compiler.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>

#include "core/quants.h"
#include "core/status.h"
#include "cuda/pack_unit.h"
#include "cuda/split.h"

namespace pj::cuda {

namespace {

// The activation form that goes with a weight type, as on the CPU (cpu/activations.h).
int act_span_of(int32_t type) {
    switch (type) {
        case GGML_F32:
        case GGML_F16:
        case GGML_BF16:
            return 0;
        case GGML_Q2_K:
        case GGML_Q3_K:
        case GGML_Q4_K:
        case GGML_Q5_K:
        case GGML_Q6_K:
        case GGML_IQ4_XS:
            return 256;
        default:
            return 32;
    }
}

int form_of(const Matrix &m) {
    const int span = act_span_of(m.type);
    return span == 0 ? kActFloat : span == 256 ? kActSpan256 : kActSpan32;
}

int forms_of(std::initializer_list<const Matrix *> readers) {
    int forms = 0;
    for (const Matrix *m : readers) forms |= form_of(*m);
    return forms;
}

enum GemmFlags : int { kPlain = 0, kRowFactor = 1, kSelectedRows = 2 };

class Compiler {
  public:
    Compiler(const Model &model, const Weights &weights, const ProgramLimits &limits, PartsMemory memory, Programs &out)
        : model_(model), shape_(model.shape), weights_(weights), limits_(limits), memory_(memory), out_(out) {}

    Program trunk() {
        add(OpKind::kEmbed);
        barrier();
        for (const Block &b : model_.blocks) block(b);
        return end(model_.output_norm, model_.output);
    }

    Program mtp(const MtpWeights &m) {
        Op &input = add(OpKind::kMtpInput);
        input.norm = weights_.vector(m.e_norm);
        input.norm2 = weights_.vector(m.h_norm);
        writes(input, 2 * shape_.n_embd, {&m.eh_proj});
        barrier();
        residual_ = gemm_residual(m.eh_proj);
        overwrite_ = true;
        block(m.block);
        return end(m.head_norm, m.head);
    }

  private:
    Op &add(OpKind kind) {
        ops_.push_back({});
        ops_.back().kind = kind;
        return ops_.back();
    }

    void barrier() { ops_.back().flags |= kOpBarrier; }

    void reads(Op &op, std::initializer_list<Parts> parts) {
        for (const Parts &p : parts) op.input[op.n_inputs++] = p;
    }

    // The op quantises rows of this width for these matrices.
    void writes(Op &op, int width, std::initializer_list<const Matrix *> readers) {
        op.width = width;
        op.act_forms = forms_of(readers);
        out_.act_width = std::max(out_.act_width, width);
        if (op.act_forms & kActFloat) out_.act_f32_width = std::max(out_.act_f32_width, width);
    }

    // A GEMM whose parts begin at *offset of a region; moves the offset past them.
    Parts gemm(const Matrix &m, float *region, int64_t *offset, int flags) {
        Gemm g = {};
        g.format = tile_format(m.type, m.n_in);
        const bool generic = unit_bytes(g.format) == 0;
        (generic ? g.raw : g.weight) = weights_.matrix(m);
        g.type = m.type;
        g.n_in = m.n_in;
        g.n_out = m.n_out;
        g.n_blocks = (m.n_out + kUnitOutputs - 1) / kUnitOutputs;
        g.k_units = (m.n_in + kUnitInputs - 1) / kUnitInputs;
        g.n_parts = generic ? 1 : most_parts(g.n_blocks, g.k_units, limits_.n_cta);
        g.row_factor = flags & kRowFactor ? 1 : 0;
        g.act_span = act_span_of(m.type);
        g.all_rows = flags & kSelectedRows ? 0 : 1;
        const int64_t row_stride = int64_t{g.n_blocks} * kUnitOutputs;
        g.part_stride = row_stride * (g.all_rows ? limits_.max_rows : limits_.max_selected);
        g.parts = region ? region + *offset : nullptr;
        *offset += g.part_stride * g.n_parts;
        add(OpKind::kGemm).gemm = g;
        return {g.parts, g.part_stride, row_stride, g.n_in, g.n_out, g.n_blocks, generic ? 1 : g.k_units};
    }

    // GEMMs that run side by side between two barriers, all in the wide region.
    std::vector<Parts> gemms(std::initializer_list<const Matrix *> matrices, int flags) {
        std::vector<Parts> parts;
        int64_t offset = 0;
        for (const Matrix *m : matrices) parts.push_back(gemm(*m, memory_.wide, &offset, flags));
        out_.wide_floats = std::max(out_.wide_floats, offset);
        barrier();
        return parts;
    }

    // Its parts wait for the next kResidual or kSelect, past any use of the wide region.
    Parts gemm_residual(const Matrix &m) {
        int64_t offset = 0;
        const Parts parts = gemm(m, memory_.residual, &offset, kPlain);
        out_.residual_floats = std::max(out_.residual_floats, offset);
        barrier();
        return parts;
    }

    void residual(const Vector &norm, std::initializer_list<const Matrix *> readers) {
        Op &op = add(OpKind::kResidual);
        if (residual_.row_stride) reads(op, {residual_});
        if (overwrite_) op.flags |= kOpOverwrite;
        overwrite_ = false;
        op.norm = weights_.vector(norm);
        writes(op, shape_.n_embd, readers);
        barrier();
    }

    void block(const Block &b) {
        if (b.is_attention)
            attention(b);
        else
            gdn(b);
        residual(b.post_norm, {&b.ffn_gate, &b.ffn_up});
        const std::vector<Parts> up = gemms({&b.ffn_gate, &b.ffn_up}, kRowFactor);
        Op &swiglu = add(OpKind::kSwiglu);
        reads(swiglu, {up[0], up[1]});
        writes(swiglu, shape_.n_ff, {&b.ffn_down});
        barrier();
        residual_ = gemm_residual(b.ffn_down);
    }

    void attention(const Block &b) {
        const AttentionWeights &w = b.attention;
        const int layer = out_.n_attention_layers++;
        residual(b.norm, {&w.q, &w.k, &w.v});
        const std::vector<Parts> qkv = gemms({&w.q, &w.k, &w.v}, kRowFactor);
        Op &rotate = add(OpKind::kRotate);
        rotate.layer = layer;
        reads(rotate, {qkv[0], qkv[1], qkv[2]});
        rotate.norm = weights_.vector(w.q_norm);
        rotate.norm2 = weights_.vector(w.k_norm);
        barrier();
        add(OpKind::kAttention).layer = layer;
        barrier();
        Op &merge = add(OpKind::kMergeHeads);
        merge.layer = layer;
        reads(merge, {qkv[0]});
        writes(merge, shape_.n_head * shape_.head_dim, {&w.output});
        barrier();
        residual_ = gemm_residual(w.output);
    }

    void gdn(const Block &b) {
        const GdnWeights &w = b.gdn;
        const int layer = out_.n_gdn_layers++;
        residual(b.norm, {&w.qkv, &w.z, &w.beta, &w.alpha});
        const std::vector<Parts> in = gemms({&w.qkv, &w.z, &w.beta, &w.alpha}, kRowFactor);
        Op &op = add(OpKind::kGdn);
        op.layer = layer;
        reads(op, {in[0], in[1], in[2], in[3]});
        op.conv = weights_.vector(w.conv);
        op.dt_bias = weights_.vector(w.dt_bias);
        op.a = weights_.vector(w.a);
        barrier();
        Op &heads = add(OpKind::kQuantHeads);
        heads.layer = layer;
        reads(heads, {in[0], in[1], in[2], in[3]});
        heads.norm = weights_.vector(w.norm);
        writes(heads, shape_.gdn_value_width(), {&w.output});
        barrier();
        residual_ = gemm_residual(w.output);
    }

    Program end(const Vector &norm, const Matrix &head) {
        Program p;
        p.n_body = static_cast<int>(ops_.size());
        Op &select = add(OpKind::kSelect);
        reads(select, {residual_});
        select.norm = weights_.vector(norm);
        writes(select, shape_.n_embd, {&head});
        barrier();
        const std::vector<Parts> logits = gemms({&head}, kSelectedRows);
        reads(add(OpKind::kLogits), {logits[0]});
        p.ops = std::move(ops_);
        ops_.clear();
        residual_ = {};
        return p;
    }

    const Model &model_;
    const Shape &shape_;
    const Weights &weights_;
    const ProgramLimits limits_;
    const PartsMemory memory_;
    Programs &out_;
    std::vector<Op> ops_;
    Parts residual_ = {};  // waits to be added to x; row_stride 0: nothing does
    bool overwrite_ = false;
};

// The end of a program for more selected rows: it reads what the first launch left.
Program rest_of(const Program &p) {
    Program rest;
    rest.ops.assign(p.ops.begin() + p.n_body, p.ops.end());
    return rest;
}

const char *kind_name(OpKind kind) {
    static const char *const names[] = {"embed",  "mtp input", "residual",    "gemm",   "gdn",    "quant heads",
                                        "rotate", "attention", "merge heads", "swiglu", "select", "logits"};
    return names[static_cast<int>(kind)];
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
    append(text, " %d x %d %s/%s, %d units, %d parts", g.n_out, g.n_in, traits ? traits->name : "?", formats[g.format],
           g.n_blocks * g.k_units, g.n_parts);
    if (g.row_factor) text += ", row factor";
    if (!g.all_rows) text += ", selected rows";
}

}  // namespace

int most_parts(int n_blocks, int k_units, int n_cta) {
    if (int64_t{n_blocks} * k_units * n_cta > INT32_MAX)
        fail(PJ_ERR_MODEL, "a matrix of %d x %d units is too large for the CUDA backend", n_blocks, k_units);
    int most = 1;
    for (int block = 0; block < n_blocks; ++block) most = std::max(most, split_parts(n_blocks, k_units, block, n_cta));
    return most;
}

Programs compile_programs(const Model &model, const Weights &weights, const ProgramLimits &limits, PartsMemory memory) {
    Programs out;
    Compiler compiler(model, weights, limits, memory, out);
    out.trunk = compiler.trunk();
    out.trunk_rest = rest_of(out.trunk);
    if (!model.mtp.empty()) {
        out.mtp = compiler.mtp(model.mtp[0]);
        out.mtp_rest = rest_of(out.mtp);
    }
    return out;
}

std::string print_program(const Program &program) {
    std::string text;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op &op = program.ops[i];
        append(text, "%4zu %-11s", i, kind_name(op.kind));
        if (op.kind == OpKind::kGemm) append_gemm(text, op.gemm);
        if (op.kind == OpKind::kGdn || op.kind == OpKind::kRotate || op.kind == OpKind::kAttention)
            append(text, " layer %d", op.layer);
        for (int j = 0; j < op.n_inputs; ++j)
            append(text, "%s %p [%d]", j ? "," : " from", static_cast<const void *>(op.input[j].data),
                   op.input[j].n_out);
        if (op.kind == OpKind::kGemm) append(text, " -> %p", static_cast<void *>(op.gemm.parts));
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
