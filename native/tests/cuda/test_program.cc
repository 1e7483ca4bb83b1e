// The op lists without a GPU: every stage has its barrier, parts that live at the same time do not
// overlap, and every part of a block has exactly one CTA that writes it.
#include <algorithm>
#include <set>

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

Block block(const Shape &s, bool is_attention, int32_t type) {
    Block b;
    b.is_attention = is_attention;
    b.norm = b.post_norm = Vector(s.n_embd);
    if (is_attention) {
        const int heads = s.n_head * s.head_dim, kv = s.n_head_kv * s.head_dim;
        b.attention.q = matrix(type, s.n_embd, 2 * heads);
        b.attention.k = matrix(type, s.n_embd, kv);
        b.attention.v = matrix(GGML_Q6_K, s.n_embd, kv);
        b.attention.output = matrix(type, heads, s.n_embd);
        b.attention.q_norm = b.attention.k_norm = Vector(s.head_dim);
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
    m.shape = {4, 1, 5120, 17408, 24, 4, 256, 64, 48, 16, 128, 4, 248320, 262144, 1e7f, 1e-6f};
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

struct Range {
    const float *begin, *end;
    bool overlaps(const Range &other) const { return begin < other.end && other.begin < end; }
};

Range written(const Gemm &g) { return {g.parts, g.parts + g.part_stride * g.n_parts}; }

// Parts stay untouched from the GEMM that writes them to their last reader.
void check_lifetimes(const Program &p) {
    const int n = static_cast<int>(p.ops.size());
    for (int i = 0; i < n; ++i) {
        if (p.ops[i].kind != OpKind::kGemm) continue;
        const Gemm &g = p.ops[i].gemm;
        int last = -1;
        for (int j = i + 1; j < n; ++j) {
            const Op &op = p.ops[j];
            for (int k = 0; k < op.n_inputs; ++k)
                if (op.input[k].data == g.parts && op.input[k].n_out == g.n_out) last = j;
            if (op.kind == OpKind::kGemm && op.gemm.parts == g.parts) break;
        }
        CHECK(last > i, "nobody reads the parts of op %d", i);
        for (int j = i + 1; j <= last; ++j)
            if (p.ops[j].kind == OpKind::kGemm)
                CHECK(!written(p.ops[j].gemm).overlaps(written(g)), "op %d overwrites the parts of op %d", j, i);
    }
}

// An op that reads what another wrote has a barrier in between; only GEMMs run side by side.
void check_barriers(const Program &p) {
    for (size_t i = 0; i + 1 < p.ops.size(); ++i) {
        const bool pair = p.ops[i].kind == OpKind::kGemm && p.ops[i + 1].kind == OpKind::kGemm;
        CHECK(pair != ((p.ops[i].flags & kOpBarrier) != 0), "op %zu", i);
    }
}

// What the next GEMMs read has been written in the form that they read.
void check_forms(const Program &p) {
    int forms = 0, width = 0;
    for (const Op &op : p.ops) {
        if (op.width) {
            forms = op.act_forms;
            width = op.width;
        }
        if (op.kind != OpKind::kGemm) continue;
        const int form = op.gemm.act_span == 0 ? kActFloat : op.gemm.act_span == 256 ? kActSpan256 : kActSpan32;
        CHECK(forms & form, "a GEMM reads form %d, written are %d", form, forms);
        CHECK(width == op.gemm.n_in, "a GEMM reads %d columns of %d", op.gemm.n_in, width);
    }
}

// By the rule of program.h: the CTAs that have units of a block are as many as it has parts.
void check_split(int n_blocks, int k_units, int n_cta) {
    const int64_t n = int64_t{n_blocks} * k_units, g = split_ctas(static_cast<int>(n), n_cta);
    size_t most = 0;
    for (int b = 0; b < n_blocks; ++b) {
        std::set<int64_t> owners;
        for (int64_t c = 0; c < g; ++c) {
            const int64_t begin = std::max(n * c / g, int64_t{b} * k_units);
            const int64_t end = std::min(n * (c + 1) / g, int64_t{b + 1} * k_units);
            if (begin < end) owners.insert(c);
        }
        CHECK(*owners.rbegin() - *owners.begin() + 1 == static_cast<int64_t>(owners.size()), "a gap in block %d", b);
        most = std::max(most, owners.size());
    }
    CHECK(static_cast<int>(most) == most_parts(n_blocks, k_units, n_cta), "%d x %d on %d", n_blocks, k_units, n_cta);
}

void check_model(int n_cta, bool print) {
    const Model model = model_27b_width();
    const Weights weights(model);
    const ProgramLimits limits = {n_cta, 512, 32};
    const Programs sized = compile_programs(model, weights, limits, {nullptr, nullptr});
    // Addresses only; nothing is read or written.
    float *const residual = reinterpret_cast<float *>(uintptr_t{1} << 40);
    const PartsMemory memory = {residual, residual + sized.residual_floats};
    const Programs p = compile_programs(model, weights, limits, memory);
    CHECK(p.n_attention_layers == 2 && p.n_gdn_layers == 3, "%d %d", p.n_attention_layers, p.n_gdn_layers);
    CHECK(p.act_width == 17408 && p.act_f32_width == 17408, "%d %d", p.act_width, p.act_f32_width);
    const float *const end = memory.wide + p.wide_floats;
    for (const Program *program : {&p.trunk, &p.mtp}) {
        check_lifetimes(*program);
        check_barriers(*program);
        check_forms(*program);
        for (const Op &op : program->ops)
            if (op.kind == OpKind::kGemm) CHECK(written(op.gemm).end <= end, "parts beyond their memory");
        CHECK(program->ops[program->n_body].kind == OpKind::kSelect, "body");
    }
    CHECK(p.trunk_rest.ops.size() == 3, "rest");
    if (print)
        std::printf("%s\n%sparts: %lld MiB\n", print_program(p.trunk).c_str(), print_program(p.mtp).c_str(),
                    static_cast<long long>((p.residual_floats + p.wide_floats) * 4 >> 20));
}

}  // namespace

int main(int argc, char **) {
    for (int n_cta : {1, 5, 82, 132})
        for (const auto &[n_blocks, k_units] : {std::pair{1, 20}, {80, 68}, {272, 20}, {16, 20}, {8, 2}, {3, 1}})
            check_split(n_blocks, k_units, n_cta);
    for (int n_cta : {82, 132}) check_model(n_cta, argc > 1 && n_cta == 132);
    return check_result();
}
