// The recurrence of eight value columns in one warp, whose state stays in registers.
//
// Lane 8 g + c has the keys g, g + 4, g + 8, ... of column c. A sum over keys is eight interleaved
// sums (key mod 8), each in key order, added as ((0 + 4) + (1 + 5)) + ((2 + 6) + (3 + 7)). The CPU has
// four (cpu/kernels/gdn.h): here two independent chains per lane halve the latency of a row.
#pragma once

#include "cuda/ops/gdn_inputs.cuh"

namespace pj::cuda {

constexpr int kGdnBatch = 8;              // rows in shared memory at a time
constexpr int kGdnColumns = kGdnDim / 2;  // value columns of an item
constexpr int kWarpColumns = kGdnColumns / kConsumerWarps;
static_assert(kGdnBatch == kConsumerWarps, "a warp brings a row");

// Keys of a lane: every fourth one. They lie side by side, and the four groups on different banks.
constexpr int kKeyGroups = 4;
constexpr int kKeysPerGroup = kGdnDim / kKeyGroups;
constexpr int kKeyPitch = kKeysPerGroup + 4;
static_assert(kWarpColumns * kKeyGroups == 32, "a lane for each column and group of keys");

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
    // Channel 4 lane + e belongs to group e.
    __device__ __forceinline__ void put(GdnRow &row, int lane) const {
        const float queries[4] = {q.x, q.y, q.z, q.w}, keys[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            row.q[e * kKeyPitch + lane] = queries[e];
            row.k[e * kKeyPitch + lane] = keys[e];
        }
        *reinterpret_cast<float2 *>(row.v + 2 * lane) = v;
        if (lane == 0) row.beta = gate;
        if (lane == 1) row.decay = gate;
    }
};

struct GdnState {
    float v[kKeysPerGroup];

    // Memory has blocks of 16 columns, as on the CPU: states move between backends.
    static __device__ __forceinline__ float *of_lane(const StepArgs &s, const GdnItem &item) {
        const int column = item.half * kGdnColumns + (threadIdx.x >> 5) * kWarpColumns + threadIdx.x % kWarpColumns;
        const int group = (threadIdx.x & 31) / kWarpColumns;
        return gdn_state(s, item.rows.slot, item.layer, item.head) + (column / 16 * kGdnDim + group) * 16 + column % 16;
    }
    __device__ __forceinline__ void load(const StepArgs &s, const GdnItem &item) {
        const float *from = of_lane(s, item);
#pragma unroll
        for (int j = 0; j < kKeysPerGroup; ++j) v[j] = __ldcg(from + j * kKeyGroups * 16);
    }
    __device__ __forceinline__ void save(const StepArgs &s, const GdnItem &item) const {
        float *to = of_lane(s, item);
#pragma unroll
        for (int j = 0; j < kKeysPerGroup; ++j) to[j * kKeyGroups * 16] = v[j];
    }
    static __device__ __forceinline__ void prefetch_all(const StepArgs &s, const GdnItem &item) {
        constexpr int kLine = 128 / sizeof(float);
        static_assert(kGdnColumns * kGdnDim == kConsumerWarps * 32 * kLine, "a line per thread");
        prefetch(gdn_state(s, item.rows.slot, item.layer, item.head) + item.half * kGdnColumns * kGdnDim +
                 threadIdx.x * kLine);
    }
};

__device__ __forceinline__ float sum_groups(float x) {
    x += __shfl_xor_sync(~0u, x, kWarpColumns);
    return x + __shfl_xor_sync(~0u, x, 2 * kWarpColumns);
}

// One row: updates the state and returns sum_i q_i S_i of the lane's column.
__device__ __forceinline__ float recur(GdnState &state, const GdnRow &row) {
    const int lane = threadIdx.x & 31, group = lane / kWarpColumns;
    const int column = (threadIdx.x >> 5) * kWarpColumns + lane % kWarpColumns;
    const float4 *k = reinterpret_cast<const float4 *>(row.k + group * kKeyPitch);
    const float4 *q = reinterpret_cast<const float4 *>(row.q + group * kKeyPitch);
    const float decay = row.decay;
    float even = 0, odd = 0;
    __syncwarp();  // the compiler sees converged lanes, or else makes a second copy of what follows
#pragma unroll
    for (int j = 0; j < kKeysPerGroup / 4; ++j) {
        const float4 key = k[j];
        even = fmaf(key.x, state.v[4 * j], even);
        odd = fmaf(key.y, state.v[4 * j + 1], odd);
        even = fmaf(key.z, state.v[4 * j + 2], even);
        odd = fmaf(key.w, state.v[4 * j + 3], odd);
    }
    const float delta = row.beta * (row.v[column] - decay * sum_groups(even + odd));
    even = odd = 0;
#pragma unroll
    for (int j = 0; j < kKeysPerGroup / 4; ++j) {
        const float4 key = k[j], query = q[j];
        float *v = state.v + 4 * j;
        v[0] = fmaf(key.x, delta, decay * v[0]);
        v[1] = fmaf(key.y, delta, decay * v[1]);
        v[2] = fmaf(key.z, delta, decay * v[2]);
        v[3] = fmaf(key.w, delta, decay * v[3]);
        even = fmaf(query.x, v[0], even);
        odd = fmaf(query.y, v[1], odd);
        even = fmaf(query.z, v[2], even);
        odd = fmaf(query.w, v[3], odd);
    }
    return sum_groups(even + odd);
}

// The rows of a batch that begins at row first. The state is saved after the last committed row.
__device__ __forceinline__ void recur_batch(const StepArgs &s, GdnState &state, const GdnItem &item,
                                            const GdnRow (&batch)[kGdnBatch], int first) {
    const GdnRows &rows = item.rows;
    const int lane = threadIdx.x & 31, width = s.shape.n_gdn_head_v * kGdnDim;
    const float scale = 1.0f / sqrtf(static_cast<float>(kGdnDim));
    float *out = s.buf.heads + item.head * kGdnDim + item.half * kGdnColumns + (threadIdx.x >> 5) * kWarpColumns +
                 lane % kWarpColumns;
    const int end = min(first + kGdnBatch, rows.n_total);
    for (int i = first; i < end;) {
        const int stop = i < rows.n_committed ? min(end, rows.n_committed) : end;
#pragma unroll 1
        for (; i < stop; ++i) {
            const float o = recur(state, batch[i - first]) * scale;
            if (lane < kWarpColumns && i >= rows.n_accept) out[static_cast<int64_t>(i + rows.step_row) * width] = o;
        }
        if (i == rows.n_committed) state.save(s, item);
    }
}

}  // namespace pj::cuda
