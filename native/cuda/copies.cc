// States and KV pages between steps: committed, reset, copied, read and written.
#include <algorithm>

#include "core/status.h"
#include "cuda/engine.h"
#include "cuda/megakernel.h"

namespace pj::cuda {

void CudaEngine::state_commit(int slot, int n_accept) {
    make_current();
    // Rows are pending only after a step, whose arguments are still there.
    if (n_accept > 0 && programs_.n_gdn_layers) {
        const char *const what = "committing speculative rows";
        check(launch_commit(device_args_, device_ops(programs_.trunk), slot, n_accept, base_.shape, stream_), what);
        synchronize(what);
    }
    pending_[slot] = 0;
}

void CudaEngine::state_reset(int slot) {
    make_current();
    if (slot_floats_) check(cudaMemsetAsync(state(slot), 0, state_bytes(), stream_), "resetting a state");
    pending_[slot] = 0;
}

// Later work of the stream sees the copy; nobody has to wait.
void CudaEngine::state_copy(int from, int to) {
    make_current();
    if (from != to && slot_floats_)
        check(cudaMemcpyAsync(state(to), state(from), state_bytes(), cudaMemcpyDeviceToDevice, stream_),
              "copying a state");
    pending_[to] = 0;
}

// Behind all that came before the step that computes, or before now; not behind the step, which has other slots. The
// host waits for the end, so later work of stream_ comes behind the copy.
void CudaEngine::copy_state(void *to, const void *from, cudaMemcpyKind kind, const char *what) const {
    make_current();
    if (!slot_floats_) return;
    if (!is_computing_) check(cudaEventRecord(before_step_, stream_), what);
    check(cudaStreamWaitEvent(copies_, before_step_, 0), what);
    check(cudaMemcpyAsync(to, from, state_bytes(), kind, copies_), what);
    copies_.synchronize(what);
}

void CudaEngine::state_read(int slot, void *host) {
    copy_state(host, state(slot), cudaMemcpyDeviceToHost, "reading a state");
}

void CudaEngine::state_write(int slot, const void *host) {
    copy_state(state(slot), host, cudaMemcpyHostToDevice, "writing a state");
    pending_[slot] = 0;
}

// All layers of a page. pitch: bytes from one to the next; the runtime's limit for one call is an int.
void CudaEngine::copy_page(void *to, size_t to_pitch, const void *from, size_t from_pitch, cudaMemcpyKind kind,
                           const char *what) const {
    const size_t width = kv_.layer_bytes, n = programs_.n_attention_layers;
    if (std::max(to_pitch, from_pitch) <= INT32_MAX)
        return check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, n, kind, stream_), what);
    for (size_t layer = 0; layer < n; ++layer)
        check(cudaMemcpyAsync(static_cast<char *>(to) + layer * to_pitch,
                              static_cast<const char *>(from) + layer * from_pitch, width, kind, stream_),
              what);
}

void CudaEngine::pages_copy(const int32_t *from, const int32_t *to, int n) {
    make_current();
    const size_t pitch = base_.buf.kv_layer_bytes;
    for (int i = 0; i < n; ++i)
        if (from[i] != to[i])
            copy_page(page(to[i]), pitch, page(from[i]), pitch, cudaMemcpyDeviceToDevice, "copying KV pages");
}

void CudaEngine::pages_read(const int32_t *pages, int n, void *host) {
    make_current();
    const char *const what = "reading KV pages";
    auto *to = static_cast<uint8_t *>(host);
    for (int i = 0; i < n; ++i)
        copy_page(to + i * page_bytes(), kv_.layer_bytes, page(pages[i]), base_.buf.kv_layer_bytes,
                  cudaMemcpyDeviceToHost, what);
    synchronize(what);
}

void CudaEngine::pages_write(const int32_t *pages, int n, const void *host) {
    make_current();
    const char *const what = "writing KV pages";
    const auto *from = static_cast<const uint8_t *>(host);
    for (int i = 0; i < n; ++i)
        copy_page(page(pages[i]), base_.buf.kv_layer_bytes, from + i * page_bytes(), kv_.layer_bytes,
                  cudaMemcpyHostToDevice, what);
    synchronize(what);
}

}  // namespace pj::cuda
