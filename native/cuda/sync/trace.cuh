// Clocks of every CTA in every op, for bench/op_trace.py: built with -DPJ_TRACE=ON; nothing is left of it otherwise.
//
// Thread 0 of a CTA writes. Clocks of two multiprocessors differ, and not by a constant: whoever reads them aligns the
// CTAs by the stages that all of them enter.
#pragma once

#include <cstdint>

namespace pj::cuda {

enum TraceEvent : int {
    kTraceBegin,       // the op before is complete in this CTA
    kTraceInput,       // what the op waits for is there; of products: the first unit's weights and activations
    kTraceDone,        // this thread's part is done
    kTraceEnd,         // all warps' parts are
    kTraceUnits,       // of the first group of warps
    kTraceWeightWait,  // cycles that it waited for weights
    kTraceActWait,     // and then for activations
};

constexpr int kTraceCtas = 160, kTraceOps = 1024, kTraceEvents = 8;

#ifdef PJ_TRACE

static __device__ unsigned long long trace_values[kTraceCtas][kTraceOps][kTraceEvents];

struct TraceOp {
    int op;
    bool has_input;
};

__device__ __forceinline__ TraceOp &trace_op() {
    __shared__ TraceOp op;
    return op;
}

__device__ __forceinline__ bool is_traced() {
    return threadIdx.x == 0 && blockIdx.x < kTraceCtas && trace_op().op < kTraceOps;
}

// Without waiting for memory.
__device__ __forceinline__ void trace_add(TraceEvent event, unsigned long long value) {
    atomicAdd(&trace_values[blockIdx.x][trace_op().op][event], value);
}

__device__ __forceinline__ void trace(TraceEvent event) {
    if (!is_traced()) return;
    if (event == kTraceInput) {
        if (trace_op().has_input) return;
        trace_op().has_input = true;
    }
    trace_add(event, clock64());
}

// Before the first op, by all consumer threads.
__device__ __forceinline__ void trace_clear(int n_threads) {
    if (blockIdx.x >= kTraceCtas) return;
    for (int i = threadIdx.x; i < kTraceOps * kTraceEvents; i += n_threads)
        trace_values[blockIdx.x][i / kTraceEvents][i % kTraceEvents] = 0;
}

__device__ __forceinline__ void trace_begin(int op) {
    if (threadIdx.x == 0) trace_op() = {op, false};
    trace(kTraceBegin);
}

// Cycles between two points of a loop.
class TraceLap {
  public:
    __device__ __forceinline__ void add(TraceEvent event) {
        const unsigned now = clock();
        if (is_traced()) trace_add(event, now - since_);
        since_ = now;
    }
    __device__ __forceinline__ void count() {
        trace(kTraceInput);
        if (is_traced()) trace_add(kTraceUnits, 1);
    }

  private:
    unsigned since_ = clock();
};

#else

__device__ __forceinline__ void trace(TraceEvent) {}
__device__ __forceinline__ void trace_clear(int) {}
__device__ __forceinline__ void trace_begin(int) {}

struct TraceLap {
    __device__ __forceinline__ void add(TraceEvent) {}
    __device__ __forceinline__ void count() {}
};

#endif

}  // namespace pj::cuda
