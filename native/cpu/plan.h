// What a CPU engine would allocate (pyjet.h, pj_engine_plan).
#pragma once

#include "core/model.h"
#include "pyjet.h"

namespace pj::cpu {

pj_memory_plan plan_memory(const Model &model, const pj_config &config);

}  // namespace pj::cpu
