// The recurrence of eight value columns in one warp, whose state stays in registers.
//
// Lane 8 g + c has the keys g, g + 4, g + 8, ... of column c. A sum over keys is eight interleaved
// sums (key mod 8), each in key order, added as ((0 + 4) + (1 + 5)) + ((2 + 6) + (3 + 7)). The CPU has
// four (cpu/kernels/gdn.h): here two independent chains per lane halve the latency of a row.
#pragma once

#include "cuda/ops/gdn_batch.cuh"

namespace pj::cuda {

constexpr int kWarpColumns = kGdnColumns / kConsumerWarps;
static_assert(kWarpColumns * kKeyGroups == 32, "a lane for each column and group of keys");

struct GdnState {
    float v[kKeysPerGroup];

    // Memory has blocks of 16 columns, as on the CPU: states move between backends.
    static __device__ __forceinline__ float *of_lane(const GdnItem &item) {
        const GdnInput &in = item.in;
        const int column = item.half * kGdnColumns + (threadIdx.x >> 5) * kWarpColumns + threadIdx.x % kWarpColumns;
        const int group = (threadIdx.x & 31) / kWarpColumns;
        return gdn_state(in.s, in.slot, in.op.layer, item.head) + (column / 16 * kGdnDim + group) * 16 + column % 16;
    }
    __device__ __forceinline__ void load(const GdnItem &item) {
        const float *from = of_lane(item);
#pragma unroll
        for (int j = 0; j < kKeysPerGroup; ++j) v[j] = __ldcg(from + j * kKeyGroups * 16);
    }
    __device__ __forceinline__ void save(const GdnItem &item) const {
        float *to = of_lane(item);
#pragma unroll
        for (int j = 0; j < kKeysPerGroup; ++j) to[j * kKeyGroups * 16] = v[j];
    }
    static __device__ __forceinline__ void prefetch_all(const GdnItem &item) {
        const GdnInput &in = item.in;
        constexpr int kLine = 128 / sizeof(float);
        static_assert(kGdnColumns * kGdnDim == kConsumerWarps * 32 * kLine, "a line per thread");
        prefetch(gdn_state(in.s, in.slot, in.op.layer, item.head) + item.half * kGdnColumns * kGdnDim +
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
__device__ __forceinline__ void recur_batch(GdnState &state, const GdnItem &item, const GdnRow (&rows)[kGdnBatch],
                                            int first) {
    const GdnInput &in = item.in;
    const int lane = threadIdx.x & 31, width = in.s.shape.n_gdn_head_v * kGdnDim;
    const float scale = 1.0f / sqrtf(static_cast<float>(kGdnDim));
    float *out = in.s.buf.heads + item.head * kGdnDim + item.half * kGdnColumns + (threadIdx.x >> 5) * kWarpColumns +
                 lane % kWarpColumns;
    const int end = min(first + kGdnBatch, in.n_total);
    for (int i = first; i < end;) {
        const int stop = i < in.n_committed ? min(end, in.n_committed) : end;
#pragma unroll 1
        for (; i < stop; ++i) {
            const float o = recur(state, rows[i - first]) * scale;
            if (lane < kWarpColumns && i >= in.n_accept) out[static_cast<int64_t>(i + in.step_row) * width] = o;
        }
        if (i == in.n_committed) state.save(item);
    }
}

}  // namespace pj::cuda
