// What the MTP block reads of a row: the embedding of the token after it, and the row itself after the final norm.
//
// Shared memory: blocks of an embedding row per warp, in the scratch of the ops.
#pragma once

#include "cuda/dequant.h"
#include "cuda/ops/rows.cuh"

namespace pj::cuda {

constexpr int kTableBytes = 1024;  // most bytes of 256 elements
static_assert(kConsumerWarps * kTableBytes <= kScratchBytes, "scratch");

// 256 columns of a row of the embedding table. It lies in host memory: whole words come over the bus, elements are
// taken from shared memory.
__device__ __noinline__ Lane8 embedding256(const StepArgs &s, int token, int group, int lane) {
    uint8_t *const own = reinterpret_cast<uint8_t *>(scratch_memory()) + (threadIdx.x >> 5) * kTableBytes;
    Lane8 x = {};
    with_any_type(s.draft.table_type, [&](auto type) {
        constexpr int32_t kType = decltype(type)::value;
        constexpr int kBytes = 256 / kRawElements<kType> * kRawBytes<kType>, kWords = kBytes / 2;
        static_assert(kBytes <= kTableBytes && kBytes % 2 == 0, "whole words of two bytes");
        const auto *from =
            reinterpret_cast<const unsigned short *>(s.draft.table + token * s.draft.table_row_bytes + group * kBytes);
        unsigned short word[(kWords + 31) / 32];
#pragma unroll
        for (int i = 0; i < (kWords + 31) / 32; ++i)
            if (32 * i + lane < kWords) word[i] = __ldg(from + 32 * i + lane);
        __syncwarp();  // what was read before
#pragma unroll
        for (int i = 0; i < (kWords + 31) / 32; ++i)
            if (32 * i + lane < kWords) reinterpret_cast<unsigned short *>(own)[32 * i + lane] = word[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int column = lane_column(lane) + (i < 4 ? i : 12 + i);
            x.v[i] =
                raw_value<kType>(own + column / kRawElements<kType> * kRawBytes<kType>, column % kRawElements<kType>);
        }
    });
    return x;
}

template <class Wait>
__device__ __noinline__ void op_embed(const StepArgs &s, Wait wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(s.n_rows * groups, [&](int item, int lane) {
        const RowGroup at(item, groups);
        const Lane8 x = s.embeds ? embedding256(s, __ldg(s.draft.row_token + at.row), at.group, lane)
                                 : load256(s.row_embedding + int64_t{item} * 256, lane);
        store256(s.buf.x + int64_t{item} * 256, lane, x);
    });
}

// One of the two inputs of a row, with the sum of its squares. half: 0 embedding, 1 hidden row.
__device__ __forceinline__ void store_input(const StepArgs &s, int half, int row, int group, const Lane8 &x, int lane) {
    const int groups = s.shape.n_embd / 256;
    float *const rows = half ? s.draft.hidden : s.draft.embedding;
    store256(rows + (int64_t{row} * groups + group) * 256, lane, x);
    const float squares = square_sum(x);
    if (lane == 0) s.draft.squares[(half * s.max_rows + row) * groups + group] = squares;
}

// The token chosen for a row.
__device__ __forceinline__ int chosen_token(const StepArgs &s, int row) {
    const int sample = __ldg(s.draft.row_sample + row);
    const int sampled = sample < 0 ? -1 : __ldcg(s.sampled + sample);
    if (sampled >= 0) return sampled;
    return token_of(__ldcg(s.buf.best + __ldg(s.draft.row_selected + row)));
}

__device__ __forceinline__ int next_token(const StepArgs &s, int row) {
    const int token = __ldg(s.draft.row_next + row);
    return token < 0 ? chosen_token(s, row) : token;
}

// A draft is right when it is the token chosen for the row before.
__device__ __forceinline__ DraftPlace accepted_row(const StepArgs &s, const DraftSeq &seq) {
    int n = 0;
    while (n < seq.n_verify && next_token(s, seq.row + n) == __ldg(s.draft.row_token + seq.row + n + 1)) ++n;
    return {seq.row + n, n};
}

template <class Wait>
__device__ __noinline__ void op_next_rows(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    if (threadIdx.x == 0)
        for (int i = blockIdx.x; i < s.draft.n; i += gridDim.x) s.draft.places[i] = accepted_row(s, s.draft.seqs[i]);
    for_each_warp(s.n_rows * groups, [&](int item, int lane) {
        const RowGroup at(item, groups);
        if (op.flags & kOpGiven) {
            store_input(s, 0, at.row, at.group, load256(s.row_embedding + int64_t{item} * 256, lane), lane);
            store_input(s, 1, at.row, at.group, load256(s.row_hidden + int64_t{item} * 256, lane), lane);
        } else {
            store_input(s, 0, at.row, at.group, embedding256(s, next_token(s, at.row), at.group, lane), lane);
            store_input(s, 1, at.row, at.group, normalized(s, op, at.row, at.group, lane), lane);
        }
    });
}

// act = quantised [norm(embedding) ; norm(hidden row)]
template <class Wait>
__device__ __noinline__ void op_mtp_input(const StepArgs &s, const Op &op, Wait wait) {
    wait();
    const int groups = s.shape.n_embd / 256;
    for_each_warp(s.n_rows * 2 * groups, [&](int item, int lane) {
        const RowGroup at(item, 2 * groups);
        const int half = at.group >= groups, group = at.group - half * groups;
        const float *const squares = s.draft.squares + (half * s.max_rows + at.row) * groups;
        float sum = 0;
        for (int i = lane; i < groups; i += 32) sum += __ldcg(squares + i);
        const float *const rows = half ? s.draft.hidden : s.draft.embedding;
        const Lane8 x = load256(rows + (int64_t{at.row} * groups + group) * 256, lane);
        const Lane8 norm = load256((half ? op.norm2 : op.norm) + group * 256, lane);
        quantize(s, op, at.row, at.group, multiply(scale(x, factor_of_squares(s, sum)), norm), lane);
    });
}

}  // namespace pj::cuda
