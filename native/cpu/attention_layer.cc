// Full attention of one block: projections, norms, rotation, KV pages, attention, gate, output.
#include <algorithm>
#include <cmath>

#include "core/rope.h"
#include "cpu/engine.h"
#include "cpu/kernels/attention.h"

namespace pj::cpu {

namespace {

constexpr int kRowTile = 16;                    // rows that share one pass over the pages
constexpr int64_t kMaxPartialFloats = 1 << 24;  // 64 MB for split attention

float *thread_scratch(int64_t floats) {
    thread_local AlignedVector<float> scratch;
    if (static_cast<int64_t>(scratch.size()) < floats) scratch.resize(floats);
    return scratch.data();
}

// rows [row][bias.size()] += bias, if there is one.
void add_bias(const Kernels &kernels, float *rows, int row, const Vector &bias) {
    const int n = static_cast<int>(bias.size());
    if (n) kernels.add(rows + int64_t{row} * n, bias.data(), n);
}

}  // namespace

void CpuEngine::rope_tables(const pj_step_in &in) {
    const int half = shape_.rope_dim / 2;
    pool_.for_each(in.n_rows, [&](int row) {
        rope_angles(shape_, rope_factors_, in.row_position[row], ws_.cos.data() + row * half,
                    ws_.sin.data() + row * half);
    });
}

// One pass over the pages per 16 rows and head. With few rows and a long context that leaves threads
// idle, so the context's segments are computed apart and merged: the same sums in the same order.
void CpuEngine::plan_attention(const pj_step_in &in) {
    attention_tasks_.clear();
    split_rows_.clear();
    int64_t tasks = 0;
    for (int i = 0; i < in.n_seqs; ++i) tasks += (in.seqs[i].n_rows + kRowTile - 1) / kRowTile * shape_.n_head_kv;
    const bool idle_threads = tasks < 2 * pool_.size() && pool_.size() > 1;
    for (int i = 0; i < in.n_seqs; ++i) {
        const pj_seq &seq = in.seqs[i];
        const int last = in.row_position[seq.row_begin + seq.n_rows - 1];
        const int n_segments = last / kAttentionSegment + 1;
        if (idle_threads && seq.n_rows <= kRowTile && n_segments > 1) {
            plan_split(in, i, n_segments);
            continue;
        }
        for (int first = 0; first < seq.n_rows; first += kRowTile) {
            const int n = std::min(kRowTile, seq.n_rows - first);
            const int row = seq.row_begin + first;
            const int end = in.row_position[row + n - 1] / kAttentionSegment + 1;
            for (int head = 0; head < shape_.n_head_kv; ++head)
                attention_tasks_.push_back({i, head, row, n, 0, end, false});
        }
    }
}

void CpuEngine::plan_split(const pj_step_in &in, int index, int n_segments) {
    const pj_seq &seq = in.seqs[index];
    const int64_t row_floats = int64_t{shape_.n_head} * n_segments * (kPartialHeader + shape_.head_dim);
    const int64_t begin = split_rows_.empty()
                              ? 0
                              : split_rows_.back().partial + int64_t{shape_.n_head} * split_rows_.back().n_segments *
                                                                 (kPartialHeader + shape_.head_dim);
    const bool fits = begin + row_floats * seq.n_rows <= kMaxPartialFloats;
    if (fits) {
        for (int i = 0; i < seq.n_rows; ++i)
            split_rows_.push_back({seq.row_begin + i, index, n_segments, begin + i * row_floats});
        if (static_cast<int64_t>(ws_.partial.size()) < begin + row_floats * seq.n_rows)
            ws_.partial.resize(begin + row_floats * seq.n_rows);
    }
    const int step = fits ? 1 : n_segments;
    for (int segment = 0; segment < n_segments; segment += step)
        for (int head = 0; head < shape_.n_head_kv; ++head)
            attention_tasks_.push_back({index, head, seq.row_begin, seq.n_rows, segment, segment + step, fits});
}

// Projections; keys and values go to their pages.
void CpuEngine::project(const PackedBlock &b, const pj_step_in &in) {
    const int kv_width = shape_.n_head_kv * shape_.head_dim;
    timer_.run(Op::kProject, [&] {
        matmul_many(pool_, kernels_,
                    {{&b.q, ws_.wide.data(), shape_.query_outputs()},
                     {&b.k, ws_.k.data(), kv_width},
                     {&b.v, ws_.v.data(), kv_width}},
                    ws_.input, in.n_rows);
    });
    timer_.run(Op::kRope, [&] { pool_.for_each(in.n_rows, [&](int row) { rotate_and_store(b, in, row); }); });
}

// The block's keys and values, and nothing else of it.
void CpuEngine::store_keys(const PackedBlock &b, const pj_step_in &in) {
    norm_input(b, in.n_rows);
    project(b, in);
}

void CpuEngine::attention_layer(const PackedBlock &b, const pj_step_in &in) {
    const int query_width = shape_.n_head * shape_.head_dim;
    project(b, in);
    timer_.run(Op::kAttention, [&] {
        pool_.for_each(static_cast<int>(attention_tasks_.size()),
                       [&](int i) { attend(b.layer, in, attention_tasks_[i]); });
        pool_.for_each(static_cast<int>(split_rows_.size()), [&](int i) { merge_split_row(split_rows_[i]); });
    });
    ws_.heads_input.bind(ws_.heads.data(), query_width, query_width, b.attention_output.form());
    timer_.run(Op::kOutput, [&] {
        pool_.for_each(in.n_rows, [&](int row) { finish_heads(row); });
        matmul(pool_, kernels_, b.attention_output, ws_.heads_input, in.n_rows, ws_.delta.data(), shape_.n_embd);
        for (int row = 0; row < in.n_rows; ++row) add_bias(kernels_, ws_.delta.data(), row, b.out_bias);
    });
}

// One head of a query or key.
void CpuEngine::normalize_and_rotate(const Vector &norm, int row, float *head) {
    const int half = shape_.rope_dim / 2;
    const float *cos = ws_.cos.data() + row * half, *sin = ws_.sin.data() + row * half;
    if (!norm.empty()) kernels_.rms_norm(head, norm.data(), shape_.head_dim, shape_.rms_eps, head);
    (shape_.rope_in_pairs ? kernels_.rope_pairs : kernels_.rope)(head, cos, sin, shape_.rope_dim);
    if (k_rotation_) kernels_.hadamard(head, shape_.head_dim, k_rotation_);
}

void CpuEngine::rotate_and_store(const PackedBlock &b, const pj_step_in &in, int row) {
    const int dim = shape_.head_dim, raw_stride = shape_.query_outputs() / shape_.n_head;
    add_bias(kernels_, ws_.wide.data(), row, b.q_bias);
    add_bias(kernels_, ws_.k.data(), row, b.k_bias);
    add_bias(kernels_, ws_.v.data(), row, b.v_bias);
    for (int head = 0; head < shape_.n_head; ++head) {
        const int64_t index = int64_t{row} * shape_.n_head + head;
        float *q = ws_.mixed.data() + index * dim;
        std::copy_n(ws_.wide.data() + index * raw_stride, dim, q);
        normalize_and_rotate(b.q_norm, row, q);
        if (config_.kv_type_k == PJ_KV_Q8_0) round_like_keys(q);
    }
    const pj_seq &seq = in.seqs[in.row_seq[row]];
    const int position = in.row_position[row];
    const int page = in.page_table[seq.page_begin + position / config_.page_tokens];
    const int offset = position % config_.page_tokens;
    for (int head = 0; head < shape_.n_head_kv; ++head) {
        float *k = ws_.k.data() + (int64_t{row} * shape_.n_head_kv + head) * dim;
        float *v = ws_.v.data() + (int64_t{row} * shape_.n_head_kv + head) * dim;
        normalize_and_rotate(b.k_norm, row, k);
        if (v_rotation_) kernels_.hadamard(v, dim, v_rotation_);
        kernels_.store_kv(config_.kv_type_k, k, dim, kv_.k_row(page, b.layer, head, offset));
        kernels_.store_kv(config_.kv_type_v, v, dim, kv_.v_row(page, b.layer, head, offset));
    }
}

// Queries meet quantised keys as int8 blocks too, so that a backend may multiply integers.
void CpuEngine::round_like_keys(float *q) {
    auto *rounded = reinterpret_cast<uint8_t *>(thread_scratch(shape_.head_dim));
    kernels_.store_kv(config_.kv_type_k, q, shape_.head_dim, rounded);
    kernels_.load_kv(config_.kv_type_k, rounded, shape_.head_dim, q);
}

void CpuEngine::attend(int layer, const pj_step_in &in, const AttentionTask &task) {
    const int dim = shape_.head_dim, group = shape_.head_group(), query_width = shape_.n_head * dim;
    const int64_t first = int64_t{task.row} * query_width + task.kv_head * group * dim;
    AttentionArgs a = {};
    a.q = ws_.mixed.data() + first;
    a.q_stride = query_width;
    a.out = ws_.heads.data() + first;
    a.out_stride = query_width;
    if (task.split) {
        const int width = kPartialHeader + dim;
        const auto row =
            std::find_if(split_rows_.begin(), split_rows_.end(), [&](const SplitRow &r) { return r.row == task.row; });
        a.out = nullptr;
        a.partial_head_stride = int64_t{row->n_segments} * width;
        a.partial_row_stride = a.partial_head_stride * shape_.n_head;
        a.partial = ws_.partial.data() + row->partial + task.kv_head * group * a.partial_head_stride +
                    int64_t{task.segment_begin} * width;
    }
    a.pool = kv_.data();
    a.page_table = in.page_table + in.seqs[task.seq].page_begin;
    a.page_bytes = static_cast<int64_t>(kv_.page_bytes());
    a.k_offset = kv_.k_offset(layer, task.kv_head);
    a.v_offset = kv_.v_offset(layer, task.kv_head);
    a.k_type = config_.kv_type_k;
    a.v_type = config_.kv_type_v;
    a.page_tokens = config_.page_tokens;
    a.first_position = in.row_position[task.row];
    a.n_rows = task.n_rows;
    a.group = group;
    a.head_dim = dim;
    a.segment_begin = task.segment_begin;
    a.segment_end = task.segment_end;
    a.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    a.scratch = thread_scratch(attention_scratch_floats(dim, task.n_rows, group));
    kernels_.attention(a);
}

void CpuEngine::merge_split_row(const SplitRow &row) {
    const int dim = shape_.head_dim, width = kPartialHeader + dim;
    float *total = thread_scratch(width);
    for (int head = 0; head < shape_.n_head; ++head) {
        const float *part = ws_.partial.data() + row.partial + int64_t{head} * row.n_segments * width;
        kernels_.attention_begin(total, dim);
        for (int i = 0; i < row.n_segments; ++i) kernels_.attention_merge(total, part + int64_t{i} * width, dim);
        kernels_.attention_finish(total, ws_.heads.data() + (int64_t{row.row} * shape_.n_head + head) * dim, dim);
    }
}

void CpuEngine::finish_heads(int row) {
    const int dim = shape_.head_dim;
    for (int head = 0; head < shape_.n_head; ++head) {
        const int64_t index = int64_t{row} * shape_.n_head + head;
        if (v_rotation_) kernels_.hadamard(ws_.heads.data() + index * dim, dim, v_rotation_);
        if (shape_.gated_attention)
            kernels_.sigmoid_gate(ws_.heads.data() + index * dim, ws_.wide.data() + index * 2 * dim + dim, dim);
    }
    ws_.heads_input.quantize_row(kernels_, row);
}

}  // namespace pj::cpu
