// The C boundary: checks arguments, calls the backend, turns exceptions into codes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/engine.h"
#include "core/status.h"
#include "core/step_check.h"
#include "core/top_k.h"
#include "cpu/engine.h"
#include "cpu/isa.h"
#include "cpu/op_matmul.h"
#include "cpu/plan.h"
#include "cpu/sample.h"
#ifdef PJ_HAVE_CUDA
#include "cuda/engine.h"
#include "cuda/memory.h"
#endif

enum class Masks { kThere, kAwaited, kFailed };  // of a step

struct pj_engine {
    pj::EngineLimits limits;
    std::unique_ptr<pj::Engine> backend;
    // Of the step that was started and not waited for.
    const pj_step_in *in = nullptr;
    pj_step_out *out = nullptr;
    Masks masks = Masks::kThere;
};

namespace {

using pj::fail;

// Runs body and reports what it throws.
template <class Body>
int32_t guarded(const Body &body) noexcept {
    try {
        body();
        pj::set_last_error("");
        return PJ_OK;
    } catch (const pj::Error &e) {
        pj::set_last_error(e.what());
        return e.code();
    } catch (const std::bad_alloc &) {
        pj::set_last_error("out of host memory");
        return PJ_ERR_MEMORY;
    } catch (const std::exception &e) {
        pj::set_last_error(e.what());
        return PJ_ERR_INTERNAL;
    } catch (...) {
        pj::set_last_error("unknown exception");
        return PJ_ERR_INTERNAL;
    }
}

void not_null(const void *pointer, const char *name) {
    if (!pointer) fail(PJ_ERR_ARGUMENT, "%s is NULL", name);
}

pj::Engine &backend(const pj_engine *engine) {
    not_null(engine, "engine");
    if (engine->in) fail(PJ_ERR_ARGUMENT, "a step has been started; wait for it first");
    return *engine->backend;
}

int checked_slot(const pj_engine *engine, int32_t slot) {
    const int n = engine->limits.config.n_state_slots;
    if (slot < 0 || slot >= n) fail(PJ_ERR_ARGUMENT, "state slot %d is outside 0..%d", slot, n - 1);
    return slot;
}

// For copies of a slot, which may come while a step computes that does not have it.
pj::Engine &backend_beside_step(const pj_engine *engine, int32_t slot) {
    not_null(engine, "engine");
    checked_slot(engine, slot);
    for (int i = 0; engine->in && i < engine->in->n_seqs; ++i)
        if (engine->in->seqs[i].state_slot == slot)
            fail(PJ_ERR_ARGUMENT, "state slot %d belongs to sequence %d of the step that has been started", slot, i);
    return *engine->backend;
}

void start_step(pj_engine *engine, const pj_step_in *in, pj_step_out *out) {
    pj::Engine &b = backend(engine);
    not_null(in, "in");
    not_null(out, "out");
    pj::check_step(engine->limits, b, *in, *out);
    b.start(*in, *out);
}

// What waits for the masks of the step `in` goes on.
void give_masks(pj_engine *engine, const pj_step_in &in, bool is_ok) {
    engine->masks = is_ok ? Masks::kThere : Masks::kFailed;
    engine->backend->masks_ready(in, *engine->out, is_ok);
}

void check_pages(const pj_engine *engine, const int32_t *pages, int32_t n, const char *name) {
    if (n < 0) fail(PJ_ERR_ARGUMENT, "the number of pages is %d", n);
    if (n > 0) not_null(pages, name);
    for (int i = 0; i < n; ++i)
        if (pages[i] < 0 || pages[i] >= engine->limits.config.n_pages)
            fail(PJ_ERR_ARGUMENT, "%s[%d] is %d, the pool has %d pages", name, i, pages[i],
                 engine->limits.config.n_pages);
}

void check_size(uint64_t given, uint64_t needed) {
    if (given != needed)
        fail(PJ_ERR_ARGUMENT, "the buffer has %llu bytes, needed are %llu", static_cast<unsigned long long>(given),
             static_cast<unsigned long long>(needed));
}

#ifdef PJ_HAVE_CUDA
const char *cuda_archs() { return pj::cuda::compiled_archs(); }
#else
const char *cuda_archs() { return "none"; }
#endif

#ifndef PJ_HAVE_CUDA
[[noreturn]] void fail_without_cuda() {
    fail(PJ_ERR_DEVICE,
         "this library was built without the CUDA backend; build it with -DPJ_CUDA=ON or use the CPU device");
}
#endif

[[noreturn]] void fail_unknown_device(int32_t device) {
    fail(PJ_ERR_ARGUMENT, "pj_config.device is %d; 0 is the CPU, 1 is CUDA", device);
}

void check_head(const pj::Model &model, const pj_config &config) {
    if (config.max_draft && model.mtp.empty())
        fail(PJ_ERR_ARGUMENT, "pj_config.max_draft is %d, but this model has no MTP block that could draft",
             config.max_draft);
}

// The model, checked together with the config.
pj::Model read_checked(const pj_model *model, const pj_config *config) {
    not_null(model, "model");
    not_null(config, "config");
    pj::Model read = pj::read_model(*model);
    pj::check_config(*config);
    check_head(read, *config);
    return read;
}

std::unique_ptr<pj::Engine> make_backend(const pj::Model &model, const pj_config &config) {
    if (config.device == PJ_DEVICE_CPU) return std::make_unique<pj::cpu::CpuEngine>(model, config);
    if (config.device != PJ_DEVICE_CUDA) fail_unknown_device(config.device);
#ifdef PJ_HAVE_CUDA
    return std::make_unique<pj::cuda::CudaEngine>(model, config);
#else
    fail_without_cuda();
#endif
}

pj_memory_plan plan_memory(const pj::Model &model, const pj_config &config) {
    if (config.device == PJ_DEVICE_CPU) return pj::cpu::plan_memory(model, config);
    if (config.device != PJ_DEVICE_CUDA) fail_unknown_device(config.device);
#ifdef PJ_HAVE_CUDA
    return pj::cuda::CudaEngine::plan(model, config);
#else
    fail_without_cuda();
#endif
}

}  // namespace

int32_t pj_engine_create(const pj_model *model, const pj_config *config, pj_engine **engine) {
    return guarded([&] {
        not_null(engine, "engine");
        *engine = nullptr;
        const pj::Model read = read_checked(model, config);
        auto made = std::make_unique<pj_engine>();
        made->limits = {read.shape, *config};
        made->backend = make_backend(read, *config);
        *engine = made.release();
    });
}

void pj_engine_destroy(pj_engine *engine) {
    if (engine && engine->in && engine->masks == Masks::kAwaited)
        guarded([&] { give_masks(engine, *engine->in, false); });
    delete engine;
}

int32_t pj_engine_plan(const pj_model *model, const pj_config *config, pj_memory_plan *plan) {
    return guarded([&] {
        not_null(plan, "plan");
        *plan = {};
        const pj::Model read = read_checked(model, config);
        *plan = plan_memory(read, *config);
    });
}

int32_t pj_step(pj_engine *engine, const pj_step_in *in, pj_step_out *out) {
    return guarded([&] {
        if (in && in->masks_late) fail(PJ_ERR_ARGUMENT, "pj_step_in.masks_late is for pj_step_start, not for pj_step");
        start_step(engine, in, out);
        engine->backend->finish(*in, *out);
    });
}

int32_t pj_step_start(pj_engine *engine, const pj_step_in *in, pj_step_out *out) {
    return guarded([&] {
        start_step(engine, in, out);
        engine->in = in;
        engine->out = out;
        engine->masks = in->masks_late ? Masks::kAwaited : Masks::kThere;
    });
}

int32_t pj_masks_ready(pj_engine *engine, int32_t is_ok) {
    return guarded([&] {
        not_null(engine, "engine");
        if (!engine->in || engine->masks != Masks::kAwaited) fail(PJ_ERR_ARGUMENT, "no step waits for masks");
        give_masks(engine, *engine->in, is_ok != 0);
    });
}

int32_t pj_step_wait(pj_engine *engine) {
    return guarded([&] {
        not_null(engine, "engine");
        if (!engine->in) fail(PJ_ERR_ARGUMENT, "no step has been started");
        const pj_step_in &in = *std::exchange(engine->in, nullptr);  // whatever fails, the step has ended
        if (engine->masks == Masks::kAwaited) give_masks(engine, in, false);
        engine->backend->finish(in, *engine->out);
        if (engine->masks == Masks::kFailed) fail(PJ_ERR_CANCELLED, "the masks of the step could not be made");
    });
}

uint64_t pj_state_bytes(const pj_engine *engine) { return engine ? engine->backend->state_bytes() : 0; }

uint64_t pj_page_bytes(const pj_engine *engine) { return engine ? engine->backend->page_bytes() : 0; }

int32_t pj_state_commit(pj_engine *engine, int32_t slot, int32_t n_accept) {
    return guarded([&] {
        pj::Engine &b = backend(engine);
        checked_slot(engine, slot);
        if (n_accept < 0 || n_accept > b.pending(slot))
            fail(PJ_ERR_ARGUMENT, "n_accept is %d, slot %d has %d pending rows", n_accept, slot, b.pending(slot));
        b.state_commit(slot, n_accept);
    });
}

int32_t pj_state_reset(pj_engine *engine, int32_t slot) {
    return guarded([&] {
        pj::Engine &b = backend(engine);
        b.state_reset(checked_slot(engine, slot));
    });
}

int32_t pj_state_copy(pj_engine *engine, int32_t from_slot, int32_t to_slot) {
    return guarded([&] {
        pj::Engine &b = backend(engine);
        checked_slot(engine, from_slot);
        b.state_copy(from_slot, checked_slot(engine, to_slot));
    });
}

int32_t pj_state_read(pj_engine *engine, int32_t slot, void *host, uint64_t n_bytes) {
    return guarded([&] {
        pj::Engine &b = backend_beside_step(engine, slot);
        not_null(host, "host");
        check_size(n_bytes, b.state_bytes());
        b.state_read(slot, host);
    });
}

int32_t pj_state_write(pj_engine *engine, int32_t slot, const void *host, uint64_t n_bytes) {
    return guarded([&] {
        pj::Engine &b = backend_beside_step(engine, slot);
        not_null(host, "host");
        check_size(n_bytes, b.state_bytes());
        b.state_write(slot, host);
    });
}

int32_t pj_pages_copy(pj_engine *engine, const int32_t *from, const int32_t *to, int32_t n) {
    return guarded([&] {
        pj::Engine &b = backend(engine);
        check_pages(engine, from, n, "from");
        check_pages(engine, to, n, "to");
        b.pages_copy(from, to, n);
    });
}

int32_t pj_pages_read(pj_engine *engine, const int32_t *pages, int32_t n, void *host, uint64_t n_bytes) {
    return guarded([&] {
        pj::Engine &b = backend(engine);
        check_pages(engine, pages, n, "pages");
        check_size(n_bytes, n * b.page_bytes());
        if (n) not_null(host, "host");
        b.pages_read(pages, n, host);
    });
}

int32_t pj_pages_write(pj_engine *engine, const int32_t *pages, int32_t n, const void *host, uint64_t n_bytes) {
    return guarded([&] {
        pj::Engine &b = backend(engine);
        check_pages(engine, pages, n, "pages");
        check_size(n_bytes, n * b.page_bytes());
        if (n) not_null(host, "host");
        b.pages_write(pages, n, host);
    });
}

void *pj_host_alloc(int32_t device, uint64_t n_bytes) {
    void *memory = nullptr;
    guarded([&] {
        if (device == PJ_DEVICE_CUDA) {
#ifdef PJ_HAVE_CUDA
            memory = pj::cuda::allocate(pj::cuda::MemoryKind::kPinned, n_bytes, "results of a step");
#else
            fail_without_cuda();
#endif
        } else {
            memory = std::malloc(n_bytes);
            if (!memory) throw std::bad_alloc();
        }
    });
    return memory;
}

void pj_host_free(int32_t device, void *memory) {
#ifdef PJ_HAVE_CUDA
    if (device == PJ_DEVICE_CUDA) return pj::cuda::release(pj::cuda::MemoryKind::kPinned, memory);
#endif
    if (device != PJ_DEVICE_CUDA) std::free(memory);
}

int32_t pj_abi_version(void) { return PJ_ABI_VERSION; }

const char *pj_last_error(void) { return pj::last_error(); }

const char *pj_build_info(void) {
    static const std::string text =
        "pyjet " PJ_VERSION "; cpu: " + pj::cpu::compiled_isas() + "; cuda: " + cuda_archs();
    return text.c_str();
}

int32_t pj_cpu_isa(void) { return pj::cpu::best_isa(); }

int32_t pj_device_count(int32_t device) {
    int32_t n = 0;
    guarded([&] {
        if (device == PJ_DEVICE_CPU) {
            n = 1;
            return;
        }
        if (device != PJ_DEVICE_CUDA) fail(PJ_ERR_ARGUMENT, "device is %d; 0 is the CPU, 1 is CUDA", device);
#ifdef PJ_HAVE_CUDA
        n = pj::cuda::usable_devices();
#else
        fail_without_cuda();
#endif
    });
    return n;
}

int32_t pj_device_name(int32_t device, int32_t index, char *name, int32_t capacity) {
    return guarded([&] {
        not_null(name, "name");
        if (capacity < 1) fail(PJ_ERR_ARGUMENT, "capacity is %d", capacity);
        std::string text = "CPU";
        if (device == PJ_DEVICE_CUDA) {
#ifdef PJ_HAVE_CUDA
            text = pj::cuda::open_device(index).name;
#else
            fail_without_cuda();
#endif
        } else if (device != PJ_DEVICE_CPU || index != 0) {
            fail(PJ_ERR_ARGUMENT, "there is no device %d of kind %d", index, device);
        }
        std::snprintf(name, static_cast<size_t>(capacity), "%s", text.c_str());
    });
}

int32_t pj_engine_info(const pj_engine *engine, pj_info *info) {
    return guarded([&] {
        const pj::Engine &b = backend(engine);
        not_null(info, "info");
        b.info(*info);
    });
}

int32_t pj_engine_op_times(const pj_engine *engine, pj_op_time *times, int32_t capacity) {
    int32_t n = 0;
    guarded([&] {
        const std::vector<pj_op_time> all = backend(engine).op_times();
        n = static_cast<int32_t>(all.size());
        if (times) std::copy_n(all.begin(), std::min(n, std::max(capacity, 0)), times);
    });
    return n;
}

int32_t pj_op_matmul(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_out,
                     const float *x, int32_t n_rows, float *y, int32_t isa, int32_t n_threads, int32_t repeat,
                     double *us_per_call) {
    return guarded([&] {
        pj::cpu::op_matmul(ggml_type, weight, n_bytes, n_in, n_out, x, n_rows, y, isa, n_threads, repeat, us_per_call);
    });
}

int32_t pj_op_dequantize(int32_t ggml_type, const void *weight, uint64_t n_bytes, int32_t n_in, int32_t n_rows,
                         float *out) {
    return guarded([&] { pj::cpu::op_dequantize(ggml_type, weight, n_bytes, n_in, n_rows, out); });
}

int32_t pj_op_sample(const float *logits, int32_t n_vocab, const pj_sample *sample, const pj_token_count *counts,
                     int32_t n_counts, const pj_token_bias *biases, int32_t n_biases, const uint32_t *masks,
                     int32_t n_mask_words, int32_t *token) {
    return guarded([&] {
        not_null(logits, "logits");
        not_null(sample, "sample");
        not_null(token, "token");
        if (n_counts) not_null(counts, "counts");
        if (n_biases) not_null(biases, "biases");
        if (n_mask_words) not_null(masks, "masks");
        *token = pj::cpu::op_sample(logits, n_vocab, *sample, counts, n_counts, biases, n_biases, masks, n_mask_words);
    });
}

int32_t pj_top_indices(const float *values, int32_t n, int32_t k, int32_t *out) {
    return guarded([&] {
        if (n < 0 || k < 0 || k > n) fail(PJ_ERR_ARGUMENT, "the %d largest of %d values do not exist", k, n);
        if (k == 0) return;
        not_null(values, "values");
        not_null(out, "out");
        pj::top_indices(values, n, k, out);
    });
}
