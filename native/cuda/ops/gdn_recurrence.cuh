// The recurrence of eight value columns in one warp, whose state stays in registers.
//
// Lane 4 g + c has the keys g, g + 8, g + 16, ... of columns 2 c and 2 c + 1: two columns share what a lane reads of
// keys and queries. A sum over keys is eight interleaved sums (key mod 8), each in key order, added as
// ((0 + 4) + (1 + 5)) + ((2 + 6) + (3 + 7)). The CPU has four (cpu/kernels/gdn.h).
#pragma once

#include "cuda/ops/gdn_inputs.cuh"

namespace pj::cuda {

constexpr int kGdnBatch = 8;              // rows in shared memory at a time
constexpr int kGdnColumns = kGdnDim / 2;  // value columns of an item
constexpr int kWarpColumns = kGdnColumns / kConsumerWarps;
static_assert(kGdnBatch == kConsumerWarps, "a warp brings a row");

// Keys of a lane: every eighth one. They lie side by side, and the eight groups on different banks.
constexpr int kKeyGroups = 8;
constexpr int kKeysPerGroup = kGdnDim / kKeyGroups;
constexpr int kKeyPitch = kKeysPerGroup + 4;
constexpr int kColumnPairs = kWarpColumns / 2;
static_assert(kColumnPairs * kKeyGroups == 32, "a lane for each pair of columns and group of keys");

struct alignas(16) GdnRow {
    float q[kKeyGroups * kKeyPitch], k[kKeyGroups * kKeyPitch];
    float v[kGdnColumns];
    float beta, decay;
};

// Half a value head of a sequence.
struct GdnItem {
    GdnRows rows;
    int layer, head, half;
};

// One row of an item on its way to shared memory: four query and four key channels and two values of a lane;
// beta in even, decay in odd ones.
struct GdnRowLoad {
    float4 q, k;
    float2 v;
    float gate;

    __device__ __forceinline__ void load(const StepArgs &s, const GdnItem &item, int i, int lane) {
        const DeviceShape &shape = s.shape;
        const int n_k = shape.n_gdn_head_k, n_v = shape.n_gdn_head_v, key_head = item.head % n_k;
        if (i >= item.rows.n_total) return;
        const float *row = prepared_row(s, item.rows, i);
        q = __ldcg(reinterpret_cast<const float4 *>(row + key_head * kGdnDim) + lane);
        k = __ldcg(reinterpret_cast<const float4 *>(row + (n_k + key_head) * kGdnDim) + lane);
        v = __ldcg(reinterpret_cast<const float2 *>(row + (2 * n_k + item.head) * kGdnDim + item.half * kGdnColumns) +
                   lane);
        gate = __ldcg(row + gdn_channels(shape) + lane % 2 * n_v + item.head);
    }
    // Channel 4 lane + e belongs to group (4 lane + e) mod 8.
    __device__ __forceinline__ void put(GdnRow &row, int lane) const {
        const float queries[4] = {q.x, q.y, q.z, q.w}, keys[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int at = (lane % 2 * 4 + e) * kKeyPitch + lane / 2;
            row.q[at] = queries[e];
            row.k[at] = keys[e];
        }
        *reinterpret_cast<float2 *>(row.v + 2 * lane) = v;
        if (lane == 0) row.beta = gate;
        if (lane == 1) row.decay = gate;
    }
};

struct GdnState {
    float2 v[kKeysPerGroup];

    // Memory has blocks of 16 columns, as on the CPU: states move between backends.
    static __device__ __forceinline__ float *of_lane(const StepArgs &s, const GdnItem &item) {
        const int lane = threadIdx.x & 31, group = lane / kColumnPairs;
        const int column = item.half * kGdnColumns + (threadIdx.x >> 5) * kWarpColumns + lane % kColumnPairs * 2;
        return gdn_state(s, item.rows.slot, item.layer, item.head) + (column / 16 * kGdnDim + group) * 16 + column % 16;
    }
    __device__ __forceinline__ void load(const StepArgs &s, const GdnItem &item) {
        const float *from = of_lane(s, item);
#pragma unroll
        for (int j = 0; j < kKeysPerGroup; ++j)
            v[j] = __ldcg(reinterpret_cast<const float2 *>(from + j * kKeyGroups * 16));
    }
    __device__ __forceinline__ void save(const StepArgs &s, const GdnItem &item) const {
        float *to = of_lane(s, item);
#pragma unroll
        for (int j = 0; j < kKeysPerGroup; ++j) *reinterpret_cast<float2 *>(to + j * kKeyGroups * 16) = v[j];
    }
    static __device__ __forceinline__ void prefetch_all(const StepArgs &s, const GdnItem &item) {
        constexpr int kLine = 128 / sizeof(float);
        static_assert(kGdnColumns * kGdnDim == kConsumerWarps * 32 * kLine, "a line per thread");
        prefetch(gdn_state(s, item.rows.slot, item.layer, item.head) + item.half * kGdnColumns * kGdnDim +
                 threadIdx.x * kLine);
    }
};

// Of the eight groups, in the order above.
__device__ __forceinline__ float sum_groups(float x) {
    x += __shfl_xor_sync(~0u, x, 4 * kColumnPairs);
    x += __shfl_xor_sync(~0u, x, kColumnPairs);
    return x + __shfl_xor_sync(~0u, x, 2 * kColumnPairs);
}

// One row: updates the state and returns sum_i q_i S_i of the lane's columns.
__device__ __forceinline__ float2 recur(GdnState &state, const GdnRow &row) {
    const int lane = threadIdx.x & 31, group = lane / kColumnPairs;
    const int column = (threadIdx.x >> 5) * kWarpColumns + lane % kColumnPairs * 2;
    const float4 *k = reinterpret_cast<const float4 *>(row.k + group * kKeyPitch);
    const float4 *q = reinterpret_cast<const float4 *>(row.q + group * kKeyPitch);
    const float decay = row.decay;
    float2 sum = {0, 0};
    __syncwarp();  // the compiler sees converged lanes, or else makes a second copy of what follows
    const auto add = [](float2 &sum, float factor, const float2 &x) {
        sum.x = fmaf(factor, x.x, sum.x);
        sum.y = fmaf(factor, x.y, sum.y);
    };
#pragma unroll
    for (int j = 0; j < kKeysPerGroup / 4; ++j) {
        const float4 key = k[j];
        add(sum, key.x, state.v[4 * j]);
        add(sum, key.y, state.v[4 * j + 1]);
        add(sum, key.z, state.v[4 * j + 2]);
        add(sum, key.w, state.v[4 * j + 3]);
    }
    const float2 value = *reinterpret_cast<const float2 *>(row.v + column);
    const float2 delta = {row.beta * (value.x - decay * sum_groups(sum.x)),
                          row.beta * (value.y - decay * sum_groups(sum.y))};
    sum = {0, 0};
    const auto update = [&](float2 &v, float key, float query) {
        v.x = fmaf(key, delta.x, decay * v.x);
        v.y = fmaf(key, delta.y, decay * v.y);
        add(sum, query, v);
    };
#pragma unroll
    for (int j = 0; j < kKeysPerGroup / 4; ++j) {
        const float4 key = k[j], query = q[j];
        update(state.v[4 * j], key.x, query.x);
        update(state.v[4 * j + 1], key.y, query.y);
        update(state.v[4 * j + 2], key.z, query.z);
        update(state.v[4 * j + 3], key.w, query.w);
    }
    return {sum_groups(sum.x), sum_groups(sum.y)};
}

// The rows of a batch that begins at row first. The state is saved after the last committed row.
__device__ __forceinline__ void recur_batch(const StepArgs &s, GdnState &state, const GdnItem &item,
                                            const GdnRow (&batch)[kGdnBatch], int first) {
    const GdnRows &rows = item.rows;
    const int lane = threadIdx.x & 31, width = s.shape.n_gdn_head_v * kGdnDim;
    const float scale = 1.0f / sqrtf(static_cast<float>(kGdnDim));
    float *out = s.buf.heads + item.head * kGdnDim + item.half * kGdnColumns + (threadIdx.x >> 5) * kWarpColumns +
                 lane % kColumnPairs * 2;
    const int end = min(first + kGdnBatch, rows.n_total);
    for (int i = first; i < end;) {
        const int stop = i < rows.n_committed ? min(end, rows.n_committed) : end;
#pragma unroll 1
        for (; i < stop; ++i) {
            const float2 o = recur(state, batch[i - first]);
            if (lane < kColumnPairs && i >= rows.n_accept)
                *reinterpret_cast<float2 *>(out + static_cast<int64_t>(i + rows.step_row) * width) =
                    make_float2(o.x * scale, o.y * scale);
        }
        if (i == rows.n_committed) state.save(s, item);
    }
}

}  // namespace pj::cuda
