// What a backend implements. core/abi.cc checks arguments and catches exceptions; a backend sees
// only valid calls, from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/model.h"
#include "pyjet.h"

namespace pj {

class Engine {
  public:
    virtual ~Engine() = default;

    // The first part of a step, up to what a device does alone.
    virtual void start(const pj_step_in &in, pj_step_out &out) = 0;
    // Behind start() of a step with in.masks_late: the masks are complete. Not ok: there are none, but nothing shall
    // wait for them any longer; the step's result is thrown away.
    virtual void masks_ready(const pj_step_in &in, pj_step_out &out, bool is_ok) = 0;
    // The rest of it; the arguments are those of start(). Late masks are ready.
    virtual void finish(const pj_step_in &in, pj_step_out &out) = 0;

    // Slots and pages are in range, buffers have the right size. Of these calls only state_read and state_write come
    // between start() and finish(), for slots that the step does not have; the copy has ended when they return.
    virtual void state_commit(int slot, int n_accept) = 0;
    virtual void state_reset(int slot) = 0;
    virtual void state_copy(int from, int to) = 0;
    virtual void state_read(int slot, void *host) = 0;
    virtual void state_write(int slot, const void *host) = 0;
    virtual void pages_copy(const int32_t *from, const int32_t *to, int n) = 0;
    virtual void pages_read(const int32_t *pages, int n, void *host) = 0;
    virtual void pages_write(const int32_t *pages, int n, const void *host) = 0;

    virtual uint64_t state_bytes() const = 0;
    virtual uint64_t page_bytes() const = 0;
    virtual int pending(int slot) const = 0;  // speculative rows that wait for their verdict
    virtual void info(pj_info &out) const = 0;
    virtual std::vector<pj_op_time> op_times() const = 0;
};

// One config and shape for both backends, checked.
struct EngineLimits {
    Shape shape;
    pj_config config;
};

}  // namespace pj
