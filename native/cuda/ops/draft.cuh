// The draft head: logits of some ids, a draft of each sequence, and what the MTP block's next pass needs.
//
// Rows here are one for each sequence that wants drafts. After the first pass its row of the step is the one that was
// accepted last; the others have rows of their own.
#pragma once

#include "cuda/ops/next_rows.cuh"
#include "cuda/ops/sample.cuh"

namespace pj::cuda {

template <class Wait>
__device__ __noinline__ void op_draft_rows(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(s.draft.n * groups, [&](int item, int lane) {
        const RowGroup at(item, groups);
        const int row = op.layer ? at.row : __ldcg(&s.draft.places[at.row].row);
        const Lane8 x = normalized(s, op, row, at.group, lane);
        quantize(s, op, at.row, at.group, x, lane);
        store_input(s, 1, at.row, at.group, x, lane);
    });
}

// Largest logit and the sum of exp(logit - largest).
struct SoftmaxPart {
    float largest = -INFINITY, sum = 0;

    __device__ __forceinline__ void add(const SoftmaxPart &other) {
        const float m = fmaxf(largest, other.largest);
        if (m == -INFINITY) return;
        sum = sum * expf(largest - m) + other.sum * expf(other.largest - m);
        largest = m;
    }
};

__device__ __forceinline__ SoftmaxPart of_warp(SoftmaxPart part) {
    for (int step = 16; step > 0; step /= 2) {
        const SoftmaxPart other = {__shfl_xor_sync(~0u, part.largest, step), __shfl_xor_sync(~0u, part.sum, step)};
        part.add(other);
    }
    return part;
}

template <class Wait>
__device__ __noinline__ void op_draft_logits(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const DraftArgs &d = s.draft;
    const int n_ids = d.ids.n_logits(s.shape.n_vocab);
    for_each_warp(d.n * d.n_chunks, [&](int item, int lane) {
        const RowGroup at(item, d.n_chunks);  // a chunk of a row
        const int first = at.group * kDraftChunkIds, last = min(first + kDraftChunkIds, n_ids);
        Wide best = 0;
        SoftmaxPart part;
        int column[kDraftChunkIds / 32];
        float value[kDraftChunkIds / 32];
        const auto index = [&](int j) { return first + 32 * j + lane; };
#pragma unroll
        for (int j = 0; j < kDraftChunkIds / 32; ++j) {
            const bool exists = index(j) < last && d.ids.id_of(index(j)) < s.shape.n_vocab;
            column[j] = exists ? index(j) : -1;
        }
        product_values(s, op.input[0], at.row, column, value);
#pragma unroll
        for (int j = 0; j < kDraftChunkIds / 32; ++j) {
            if (index(j) >= last) continue;
            if (column[j] < 0) value[j] = -INFINITY;
            d.logits[int64_t{at.row} * n_ids + index(j)] = value[j];
            part.add({value[j], 1.0f});
            const Wide key = candidate_key(logit_key(value[j]), d.ids.id_of(index(j)));
            best = key > best ? key : best;
        }
        part = of_warp(part);
        best = warp_largest(best);
        if (lane) return;
        d.chunks[item] = make_float2(part.largest, part.sum);
        atomicMax(d.best + op.layer * PJ_MAX_DRAFT_ROWS + at.row, best);
    });
}

// By all consumers; the same for all of them.
__device__ __forceinline__ int draft_token(const StepArgs &s, const DraftSeq &seq, int i, int pass) {
    const DraftArgs &d = s.draft;
    if (seq.sample >= 0) {
        SampleRow row = s.samples[seq.sample];
        row.index += __ldcg(&d.places[i].n_right) + pass + 1;
        row.mask = nullptr;  // it belongs to the token of that row
        SampleScratch &scratch = *reinterpret_cast<SampleScratch *>(scratch_memory());
        float *const logits = d.logits + int64_t{i} * d.ids.n_logits(s.shape.n_vocab);
        const int token = sample_row(ConsumerTeam(), scratch, logits, s.shape.n_vocab, row, d.ids);
        if (token >= 0) return token;
    }
    return token_of(__ldcg(d.best + pass * PJ_MAX_DRAFT_ROWS + i));
}

// By one warp: what the MTP block thinks of the token.
__device__ __forceinline__ float draft_probability(const StepArgs &s, int i, int token, int lane) {
    const DraftArgs &d = s.draft;
    SoftmaxPart all;
    for (int chunk = lane; chunk < d.n_chunks; chunk += 32) {
        const float2 part = __ldcg(d.chunks + i * d.n_chunks + chunk);
        all.add({part.x, part.y});
    }
    all = of_warp(all);
    return expf(__ldcg(d.logits + int64_t{i} * d.ids.n_logits(s.shape.n_vocab) + d.ids.index_of(token)) - all.largest) /
           all.sum;
}

// Where the next pass's row is, by all consumers. Pages reach as far as drafts are wanted.
__device__ __forceinline__ void move_on(const StepArgs &s, const DraftSeq &seq, int i, int pass) {
    const DraftArgs &d = s.draft;
    const int before = pass ? __ldcg(d.position + i) : seq.first_position + __ldcg(&d.places[i].n_right);
    const int position = before + (pass < seq.n_draft), half = s.shape.rope_dim / 2;
    const int from = (i * kDraftSpan + position - seq.first_position) * half;
    for (int t = threadIdx.x; t < half; t += kTeamThreads) {
        d.cos[i * half + t] = d.cos_table[from + t];
        d.sin[i * half + t] = d.sin_table[from + t];
    }
    for (int k = threadIdx.x; k < d.n_items; k += kTeamThreads) {
        AttentionItem &item = d.items[k];
        if (item.row_begin != i) continue;
        const int begin = item.begin, end = item.partial < 0 ? INT32_MAX : segment_begin(segment_of(begin) + 1);
        item.first_position = position;
        // A segment that the row does not reach yet has a position that nobody sees.
        item.end = max(begin + 1, min(end, position + 1));
    }
    consumers_sync();
    if (threadIdx.x == 0) d.position[i] = position;
}

// Number op.layer of every sequence's drafts.
template <class Wait>
__device__ __noinline__ void op_draft(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const DraftArgs &d = s.draft;
    const int pass = op.layer, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, groups = s.shape.n_embd / 256;
#pragma unroll 1
    for (int i = blockIdx.x; i < d.n; i += gridDim.x) {
        const DraftSeq seq = d.seqs[i];
        const int token = draft_token(s, seq, i, pass);
        consumers_sync();
        if (warp == 0) {
            const float probability = draft_probability(s, i, token, lane);
            if (lane == 0) {
                d.tokens[i * PJ_MAX_DRAFT + pass] = token;
                d.probs[i * PJ_MAX_DRAFT + pass] = probability;
            }
        }
        if (pass + 1 == d.n_passes) continue;
        move_on(s, seq, i, pass);
        for (int group = warp; group < groups; group += kConsumerWarps)
            store_input(s, 0, i, group, embedding256(s, token, group, lane), lane);
        consumers_sync();
    }
}

}  // namespace pj::cuda
