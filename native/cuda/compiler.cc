#include "cuda/compiler.h"

#include <algorithm>
#include <initializer_list>

#include "cuda/op_list.h"

namespace pj::cuda {

namespace {

// Stages that are complete before each task's op.
void number_stages(Program &p) {
    std::vector<uint32_t> before(p.ops.size(), 0);
    for (size_t i = 1; i < p.ops.size(); ++i) before[i] = before[i - 1] + (p.ops[i - 1].flags & kOpBarrier ? 1 : 0);
    for (LoadTask &task : p.tasks) task.stage = before[task.op];
}

class Compiler : private OpList {
  public:
    Compiler(const Model &model, const Weights &weights, const ProgramLimits &limits, ProductMemory memory,
             Programs &out)
        : OpList(weights, limits, memory, out), model_(model), shape_(model.shape) {}

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

}  // namespace pj::cuda
