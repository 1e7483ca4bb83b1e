// A step is checked whole before any backend sees it: a bad row must not leave half a step behind.
#pragma once

#include "core/engine.h"

namespace pj {

// Throws Error(PJ_ERR_ARGUMENT) that names the field, the row or the sequence.
void check_config(const pj_config &config);
void check_step(const EngineLimits &limits, const Engine &engine, const pj_step_in &in, const pj_step_out &out);

}  // namespace pj
