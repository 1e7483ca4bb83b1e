// Compiles a model into the megakernel's op lists (program.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/model.h"
#include "cuda/program.h"
#include "cuda/weights.h"

namespace pj::cuda {

struct ProgramLimits {
    int n_cta;
    int max_rows;
    int narrow_rows;         // of a step at most before it is a wide one
    int max_selected;        // rows that pass the head in one launch
    int max_draft = 0;       // passes of the draft head
    int n_draft_blocks = 0;  // of 64 ids, that it scores
};

// Outputs of GEMMs whose lifetimes overlap lie side by side, the others share memory. Two regions: what
// is added to the residual stream, and everything between (projections, gate and up, head).
struct ProductMemory {
    float *residual, *between;
    const PieceSpan *pieces;  // Programs::pieces on the device
};

struct Program {
    std::vector<Op> ops;
    std::vector<LoadTask> tasks;  // of the tiled matrices, in order
    int n_body = 0;               // ops before kSelect
    // Programs::drafting: ops up to the MTP block's keys and values, and up to each draft.
    int n_keys = 0;
    std::vector<int> pass_ends;

    // Tasks of the first n_ops ops.
    int tasks_before(int n_ops) const {
        const auto later = [n_ops](const LoadTask &task) { return task.op >= n_ops; };
        return static_cast<int>(std::find_if(tasks.begin(), tasks.end(), later) - tasks.begin());
    }
};

struct Programs {
    Program trunk, mtp;                               // mtp is empty without an MTP block
    Program trunk_rest, mtp_rest;                     // kSelect and all after it for selected rows beyond max_selected
    Program reading;                                  // the trunk without a head, and the MTP block's keys and values
    Program drafting;                                 // the trunk, then the MTP block and drafts
    std::vector<PieceSpan> pieces;                    // of every shape of matrix
    int64_t residual_floats = 0, between_floats = 0;  // needed of ProductMemory
    int act_width = 0;                                // widest quantised input
    int act_f32_width = 0;                            // widest input of a generic format; 0: there is none
    int n_attention_layers = 0, n_gdn_layers = 0;

    size_t most_ops() const { return std::max({trunk.ops.size(), mtp.ops.size(), drafting.ops.size()}); }
};

// With empty memory (nullptr) and weights not yet uploaded the programs have null pointers and right
// sizes. The model's vectors and matrices are looked up in weights.
Programs compile_programs(const Model &model, const Weights &weights, const ProgramLimits &limits,
                          ProductMemory memory);

// One line per op, for people.
std::string print_program(const Program &program);

}  // namespace pj::cuda
