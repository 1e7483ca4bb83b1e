#include "core/model.h"

#include <cinttypes>
#include <unordered_map>

#include "core/quants.h"
#include "core/status.h"

namespace pj {

namespace {

void require(bool ok, const char *what, int64_t value) {
    if (!ok) fail(PJ_ERR_MODEL, "hyperparameter %s has the unusable value %" PRId64, what, value);
}

void check_sizes(const pj_model &m) {
    require(m.n_block >= 1 && m.n_block <= 1024, "n_block", m.n_block);
    require(m.n_embd >= 16 && m.n_embd <= 1 << 16 && m.n_embd % 16 == 0, "n_embd", m.n_embd);
    require(m.n_ff >= 16 && m.n_ff <= 1 << 20 && m.n_ff % 16 == 0, "n_ff", m.n_ff);
    require(m.n_head >= 1 && m.n_head <= 1024, "n_head", m.n_head);
    require(m.n_head_kv >= 1 && m.n_head % m.n_head_kv == 0, "n_head_kv", m.n_head_kv);
    require(m.head_dim >= 32 && m.head_dim <= 1024 && m.head_dim % 32 == 0, "head_dim", m.head_dim);
    require(m.rope_dim >= 2 && m.rope_dim <= m.head_dim && m.rope_dim % 2 == 0, "rope_dim", m.rope_dim);
    require(m.rope_type == PJ_ROPE_HALVES || m.rope_type == PJ_ROPE_PAIRS, "rope_type", m.rope_type);
    require(m.n_vocab >= 1 && m.n_vocab <= 1 << 24, "n_vocab", m.n_vocab);
    require(m.n_ctx_train >= 1, "n_ctx_train", m.n_ctx_train);
    if (!(m.rope_base > 0)) fail(PJ_ERR_MODEL, "hyperparameter rope_base must be positive");
    if (!(m.rms_eps >= 0)) fail(PJ_ERR_MODEL, "hyperparameter rms_eps must not be negative");
}

void check_hybrid(const pj_model &m) {
    require(m.n_nextn >= 0 && m.n_nextn <= 1, "n_nextn", m.n_nextn);
    require(m.rope_type == PJ_ROPE_HALVES, "rope_type", m.rope_type);
    require(m.n_gdn_head_v >= 1 && m.n_gdn_head_v <= 1024, "n_gdn_head_v", m.n_gdn_head_v);
    require(m.n_gdn_head_k >= 1 && m.n_gdn_head_v % m.n_gdn_head_k == 0, "n_gdn_head_k", m.n_gdn_head_k);
    require(m.gdn_dim >= 16 && m.gdn_dim <= 1024 && m.gdn_dim % 16 == 0, "gdn_dim", m.gdn_dim);
    require(m.conv_kernel >= 2 && m.conv_kernel <= 16, "conv_kernel", m.conv_kernel);
}

void check_dense(const pj_model &m) {
    require(m.n_nextn == 0, "n_nextn", m.n_nextn);
    require(m.n_gdn_head_v == 0, "n_gdn_head_v", m.n_gdn_head_v);
    require(m.n_gdn_head_k == 0, "n_gdn_head_k", m.n_gdn_head_k);
    require(m.gdn_dim == 0, "gdn_dim", m.gdn_dim);
    require(m.conv_kernel == 0, "conv_kernel", m.conv_kernel);
    for (int i = 0; i < m.n_block; ++i)
        if (!m.block_is_attention[i]) fail(PJ_ERR_MODEL, "block %d of a dense model is not attention", i);
}

Shape read_shape(const pj_model &m) {
    if (m.abi_version != PJ_ABI_VERSION)
        fail(PJ_ERR_ARGUMENT, "pj_model.abi_version is %d, this library speaks %d", m.abi_version, PJ_ABI_VERSION);
    const bool hybrid = m.arch == PJ_ARCH_QWEN35;
    if (!hybrid && m.arch != PJ_ARCH_DENSE)
        fail(PJ_ERR_MODEL, "architecture number %d is unknown; qwen35 is %d, dense models are %d", m.arch,
             PJ_ARCH_QWEN35, PJ_ARCH_DENSE);
    check_sizes(m);
    if (!m.block_is_attention) fail(PJ_ERR_ARGUMENT, "pj_model.block_is_attention is NULL");
    if (m.n_tensors < 0 || (m.n_tensors > 0 && !m.tensors)) fail(PJ_ERR_ARGUMENT, "pj_model.tensors is NULL");
    if (hybrid)
        check_hybrid(m);
    else
        check_dense(m);
    return {m.n_block,  m.n_nextn,     m.n_embd,       m.n_ff,         m.n_head,  m.n_head_kv,
            m.head_dim, m.rope_dim,    m.n_gdn_head_v, m.n_gdn_head_k, m.gdn_dim, m.conv_kernel,
            m.n_vocab,  m.n_ctx_train, m.rope_base,    m.rms_eps,      hybrid,    m.rope_type == PJ_ROPE_PAIRS};
}

// Finds tensors by name and checks each one against the shape that the architecture gives it.
class Reader {
  public:
    explicit Reader(const pj_model &m) {
        for (int i = 0; i < m.n_tensors; ++i) {
            if (!m.tensors[i].name) fail(PJ_ERR_ARGUMENT, "tensor %d has no name", i);
            by_name_[m.tensors[i].name] = &m.tensors[i];
        }
    }

    Matrix matrix(const std::string &name, int n_in, int n_out) const {
        const pj_tensor &t = checked(name, n_in, n_out);
        return {name, t.type, t.data, t.n_bytes, n_in, n_out};
    }

    Matrix matrix_or(const std::string &name, int n_in, int n_out, const Matrix &otherwise) const {
        return has(name) ? matrix(name, n_in, n_out) : otherwise;
    }

    Vector vector(const std::string &name, int n) const { return table(name, n, 1); }

    // Empty when the file has none.
    Vector optional_vector(const std::string &name, int n) const { return has(name) ? vector(name, n) : Vector(); }

    // n_out rows of n_in values as f32
    Vector table(const std::string &name, int n_in, int n_out) const {
        const pj_tensor &t = checked(name, n_in, n_out);
        const uint64_t stride = row_bytes(*type_traits(t.type), n_in);
        Vector out(static_cast<size_t>(n_in) * n_out);
        for (int i = 0; i < n_out; ++i)
            dequantize_row(t.type, static_cast<const uint8_t *>(t.data) + i * stride, n_in,
                           out.data() + int64_t{i} * n_in);
        return out;
    }

    bool has(const std::string &name) const { return by_name_.count(name) != 0; }

  private:
    const pj_tensor &checked(const std::string &name, int n_in, int n_out) const {
        const auto found = by_name_.find(name);
        if (found == by_name_.end()) fail(PJ_ERR_MODEL, "tensor %s is missing", name.c_str());
        const pj_tensor &t = *found->second;
        if (t.shape[0] != n_in || t.shape[1] != n_out || t.shape[2] != 1 || t.shape[3] != 1)
            fail(PJ_ERR_MODEL,
                 "tensor %s has the shape [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                 "], the model needs [%d, %d]",
                 name.c_str(), t.shape[0], t.shape[1], t.shape[2], t.shape[3], n_in, n_out);
        const TypeTraits *traits = type_traits(t.type);
        if (!traits)
            fail(PJ_ERR_MODEL, "tensor %s has ggml type %d; supported are %s", name.c_str(), t.type,
                 supported_types().c_str());
        if (n_in % traits->block_elements != 0)
            fail(PJ_ERR_MODEL, "tensor %s: rows of %d elements do not fit %s blocks of %d", name.c_str(), n_in,
                 traits->name, traits->block_elements);
        const uint64_t needed = row_bytes(*traits, n_in) * static_cast<uint64_t>(n_out);
        if (t.n_bytes != needed)
            fail(PJ_ERR_MODEL, "tensor %s has %" PRIu64 " bytes, its shape and type need %" PRIu64, name.c_str(),
                 t.n_bytes, needed);
        if (!t.data) fail(PJ_ERR_ARGUMENT, "tensor %s has no data", name.c_str());
        return t;
    }

    std::unordered_map<std::string, const pj_tensor *> by_name_;
};

AttentionWeights read_attention(const Reader &r, const Shape &s, const std::string &p) {
    const int query_width = s.n_head * s.head_dim, kv_width = s.n_head_kv * s.head_dim;
    AttentionWeights w;
    w.q = r.matrix(p + "attn_q.weight", s.n_embd, s.query_outputs());
    w.k = r.matrix(p + "attn_k.weight", s.n_embd, kv_width);
    w.v = r.matrix(p + "attn_v.weight", s.n_embd, kv_width);
    w.output = r.matrix(p + "attn_output.weight", query_width, s.n_embd);
    if (s.gated_attention) {
        w.q_norm = r.vector(p + "attn_q_norm.weight", s.head_dim);
        w.k_norm = r.vector(p + "attn_k_norm.weight", s.head_dim);
        return w;
    }
    w.q_norm = r.optional_vector(p + "attn_q_norm.weight", s.head_dim);
    w.k_norm = r.optional_vector(p + "attn_k_norm.weight", s.head_dim);
    w.q_bias = r.optional_vector(p + "attn_q.bias", query_width);
    w.k_bias = r.optional_vector(p + "attn_k.bias", kv_width);
    w.v_bias = r.optional_vector(p + "attn_v.bias", kv_width);
    w.out_bias = r.optional_vector(p + "attn_output.bias", s.n_embd);
    return w;
}

// [channels][taps] of the file -> [taps][channels] of the kernel
Vector transpose(const Vector &in, int rows, int columns) {
    Vector out(in.size());
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j)
            out[static_cast<size_t>(j) * rows + i] = in[static_cast<size_t>(i) * columns + j];
    return out;
}

GdnWeights read_gdn(const Reader &r, const Shape &s, const std::string &p) {
    GdnWeights w;
    w.qkv = r.matrix(p + "attn_qkv.weight", s.n_embd, s.conv_channels());
    w.z = r.matrix(p + "attn_gate.weight", s.n_embd, s.gdn_value_width());
    w.beta = r.matrix(p + "ssm_beta.weight", s.n_embd, s.n_gdn_head_v);
    w.alpha = r.matrix(p + "ssm_alpha.weight", s.n_embd, s.n_gdn_head_v);
    w.output = r.matrix(p + "ssm_out.weight", s.gdn_value_width(), s.n_embd);
    w.conv =
        transpose(r.table(p + "ssm_conv1d.weight", s.conv_kernel, s.conv_channels()), s.conv_channels(), s.conv_kernel);
    w.dt_bias = r.vector(p + "ssm_dt.bias", s.n_gdn_head_v);
    w.a = r.vector(p + "ssm_a", s.n_gdn_head_v);
    w.norm = r.vector(p + "ssm_norm.weight", s.gdn_dim);
    return w;
}

Block read_block(const Reader &r, const Shape &s, int index, bool is_attention) {
    const std::string p = "blk." + std::to_string(index) + ".";
    Block b;
    b.is_attention = is_attention;
    b.norm = r.vector(p + "attn_norm.weight", s.n_embd);
    b.post_norm = r.vector(p + (s.gated_attention ? "post_attention_norm.weight" : "ffn_norm.weight"), s.n_embd);
    if (is_attention) {
        b.attention = read_attention(r, s, p);
    } else {
        b.gdn = read_gdn(r, s, p);
    }
    b.ffn_gate = r.matrix(p + "ffn_gate.weight", s.n_embd, s.n_ff);
    b.ffn_up = r.matrix(p + "ffn_up.weight", s.n_embd, s.n_ff);
    b.ffn_down = r.matrix(p + "ffn_down.weight", s.n_ff, s.n_embd);
    return b;
}

MtpWeights read_mtp(const Reader &r, const Model &m, int index) {
    const Shape &s = m.shape;
    const std::string p = "blk." + std::to_string(index) + ".nextn.";
    MtpWeights w;
    w.block = read_block(r, s, index, true);
    w.eh_proj = r.matrix(p + "eh_proj.weight", 2 * s.n_embd, s.n_embd);
    w.e_norm = r.vector(p + "enorm.weight", s.n_embd);
    w.h_norm = r.vector(p + "hnorm.weight", s.n_embd);
    w.head_norm =
        r.has(p + "shared_head_norm.weight") ? r.vector(p + "shared_head_norm.weight", s.n_embd) : m.output_norm;
    w.embedding = r.matrix_or(p + "embed_tokens.weight", s.n_embd, s.n_vocab, m.token_embd);
    w.head = r.matrix_or(p + "shared_head_head.weight", s.n_embd, s.n_vocab, m.output);
    return w;
}

}  // namespace

Model read_model(const pj_model &source) {
    Model m;
    m.shape = read_shape(source);
    const Reader r(source);
    m.token_embd = r.matrix("token_embd.weight", m.shape.n_embd, m.shape.n_vocab);
    m.output_is_tied = !r.has("output.weight");
    m.output = r.matrix_or("output.weight", m.shape.n_embd, m.shape.n_vocab, m.token_embd);
    m.output_norm = r.vector("output_norm.weight", m.shape.n_embd);
    if (!m.shape.gated_attention) m.rope_factors = r.optional_vector("rope_freqs.weight", m.shape.rope_dim / 2);
    for (const float factor : m.rope_factors)
        if (!(factor > 0)) fail(PJ_ERR_MODEL, "tensor rope_freqs.weight divides by %g", static_cast<double>(factor));
    for (int i = 0; i < m.shape.n_block; ++i)
        m.blocks.push_back(read_block(r, m.shape, i, source.block_is_attention[i] != 0));
    if (m.shape.n_nextn) m.mtp.push_back(read_mtp(r, m, m.shape.n_block));
    return m;
}

}  // namespace pj
