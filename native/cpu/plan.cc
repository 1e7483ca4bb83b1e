#include "cpu/plan.h"

#include <algorithm>
#include <cstdio>

#include "core/host_memory.h"
#include "cpu/isa.h"
#include "cpu/kv_pool.h"
#include "cpu/states.h"
#include "cpu/weights.h"
#include "cpu/workspace.h"

namespace pj::cpu {

namespace {

int attention_blocks(const Model &model) {
    return static_cast<int>(
        std::count_if(model.blocks.begin(), model.blocks.end(), [](const Block &b) { return b.is_attention; }));
}

int attention_layers(const Model &model) { return attention_blocks(model) + static_cast<int>(model.mtp.size()); }

int gdn_layers(const Model &model) { return static_cast<int>(model.blocks.size()) - attention_blocks(model); }

// Its arrays grow in proportion to the rows; the rows of logits are those of CpuEngine::emit.
uint64_t workspace_bytes(const Shape &s, const pj_config &config) {
    const uint64_t logits = uint64_t{kArgmaxRows} * s.n_vocab * sizeof(float);
    return Workspace(s, 1).bytes() * config.max_rows + logits;
}

}  // namespace

pj_memory_plan plan_memory(const Model &model, const pj_config &config) {
    const int isa = resolve_isa(config.isa);
    pj_config empty = config;  // without pages and slots: for the size of one
    empty.n_pages = empty.n_state_slots = 0;
    pj_memory_plan plan = {};
    plan.weight_bytes = packed_weight_bytes(model);
    plan.page_bytes = KvPool(model.shape, empty, attention_layers(model)).page_bytes();
    plan.kv_bytes = plan.page_bytes * config.n_pages;
    plan.state_bytes = States(model.shape, empty, gdn_layers(model)).bytes_per_slot() * config.n_state_slots;
    plan.workspace_bytes = workspace_bytes(model.shape, config);
    const HostMemory host = host_memory();
    plan.free_bytes = host.free_bytes;
    plan.total_bytes = host.total_bytes;
    std::snprintf(plan.device_name, sizeof plan.device_name, "CPU (%s)", isa_name(isa));
    return plan;
}

}  // namespace pj::cpu
