// Which instruction sets were compiled in and which this processor has.
#pragma once

#include <string>

#include "cpu/kernels/table.h"

namespace pj::cpu {

// Best pj_isa of this processor among those compiled in; never PJ_ISA_AUTO.
int best_isa();

// pj_isa or PJ_ISA_AUTO to the pj_isa to use. Throws PJ_ERR_ARGUMENT when it is unknown, and
// PJ_ERR_DEVICE when this build or processor does not have it.
int resolve_isa(int isa);

// "portable", "avx2", "avx512_vnni"; "unknown" for other numbers.
const char *isa_name(int isa);

// The names of all compiled instruction sets, separated by blanks.
std::string compiled_isas();

}  // namespace pj::cpu
