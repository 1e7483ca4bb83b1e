#include "cpu/weights.h"

#include "core/quants.h"
#include "core/status.h"

namespace pj::cpu {

namespace {

class Packer {
  public:
    Packer(ThreadPool &pool, const pj_config &config, uint64_t total) : pool_(pool), config_(config), total_(total) {}

    PackedMatrix pack(const Matrix &m) {
        PackedMatrix packed(pool_, m.type, m.data, m.n_in, m.n_out);
        bytes_ += packed.bytes();
        done_ += m.n_bytes;
        if (config_.progress && config_.progress(config_.progress_user, "packing weights", done_, total_))
            fail(PJ_ERR_CANCELLED, "loading was stopped by the caller");
        return packed;
    }

    PackedBlock pack(const Block &b) {
        PackedBlock p;
        p.is_attention = b.is_attention;
        p.norm = b.norm;
        p.post_norm = b.post_norm;
        if (b.is_attention) {
            p.q = pack(b.attention.q);
            p.k = pack(b.attention.k);
            p.v = pack(b.attention.v);
            p.attention_output = pack(b.attention.output);
            p.q_norm = b.attention.q_norm;
            p.k_norm = b.attention.k_norm;
            p.q_bias = b.attention.q_bias;
            p.k_bias = b.attention.k_bias;
            p.v_bias = b.attention.v_bias;
            p.out_bias = b.attention.out_bias;
        } else {
            p.qkv = pack(b.gdn.qkv);
            p.z = pack(b.gdn.z);
            p.beta = pack(b.gdn.beta);
            p.alpha = pack(b.gdn.alpha);
            p.gdn_output = pack(b.gdn.output);
            p.conv = b.gdn.conv;
            p.dt_bias = b.gdn.dt_bias;
            p.a = b.gdn.a;
            p.gdn_norm = b.gdn.norm;
        }
        p.ffn_gate = pack(b.ffn_gate);
        p.ffn_up = pack(b.ffn_up);
        p.ffn_down = pack(b.ffn_down);
        return p;
    }

    uint64_t bytes() const { return bytes_; }

  private:
    ThreadPool &pool_;
    const pj_config &config_;
    uint64_t total_, done_ = 0, bytes_ = 0;
};

bool has_own_head(const Model &model, const MtpWeights &mtp) { return mtp.head.data != model.output.data; }

template <class Use>
void for_each_matrix(const Block &b, const Use &use) {
    for (const Matrix *m : {&b.attention.q, &b.attention.k, &b.attention.v, &b.attention.output, &b.gdn.qkv, &b.gdn.z,
                            &b.gdn.beta, &b.gdn.alpha, &b.gdn.output, &b.ffn_gate, &b.ffn_up, &b.ffn_down})
        if (m->present()) use(*m);
}

// Every matrix that is packed.
template <class Use>
void for_each_matrix(const Model &model, const Use &use) {
    for (const Block &b : model.blocks) for_each_matrix(b, use);
    for (const MtpWeights &m : model.mtp) {
        for_each_matrix(m.block, use);
        use(m.eh_proj);
        if (has_own_head(model, m)) use(m.head);
    }
    use(model.output);
}

uint64_t total_bytes(const Model &model) {
    uint64_t n = 0;
    for_each_matrix(model, [&](const Matrix &m) { n += m.n_bytes; });
    return n;
}

}  // namespace

void Embedding::row(int32_t token, float *out) const {
    const uint64_t stride = row_bytes(*type_traits(source.type), source.n_in);
    dequantize_row(source.type, static_cast<const uint8_t *>(source.data) + stride * token, source.n_in, out);
}

uint64_t packed_weight_bytes(const Model &model) {
    uint64_t n = 0;
    for_each_matrix(model, [&](const Matrix &m) { n += PackedMatrix::bytes_of(m.type, m.n_in, m.n_out); });
    return n;
}

Weights pack_weights(ThreadPool &pool, const Model &model, const pj_config &config) {
    Packer packer(pool, config, total_bytes(model));
    Weights w;
    w.embedding.source = model.token_embd;
    for (const Block &block : model.blocks) {
        w.blocks.push_back(packer.pack(block));
        w.blocks.back().layer = block.is_attention ? w.n_attention_layers++ : w.n_gdn_layers++;
    }
    for (const MtpWeights &m : model.mtp) {
        PackedMtp p;
        p.block = packer.pack(m.block);
        p.block.layer = w.n_attention_layers++;
        p.eh_proj = packer.pack(m.eh_proj);
        p.e_norm = m.e_norm;
        p.h_norm = m.h_norm;
        p.head_norm = m.head_norm;
        p.embedding.source = m.embedding;
        if (has_own_head(model, m)) p.own_head = packer.pack(m.head);
        w.mtp.push_back(std::move(p));
    }
    w.output = packer.pack(model.output);
    w.output_norm = model.output_norm;
    w.bytes = packer.bytes();
    return w;
}

}  // namespace pj::cpu
