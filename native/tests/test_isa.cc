// The choice of an instruction set.
#include <cstring>

#include "check.h"
#include "core/status.h"
#include "cpu/isa.h"
#include "pyjet.h"

using namespace pj;
using namespace pj::cpu;

namespace {

void check_choice() {
    CHECK(kernels_for(PJ_ISA_PORTABLE) != nullptr, "portable kernels are always there");
    CHECK(kernels_for(PJ_ISA_AUTO) == nullptr, "auto is not a table");
    CHECK(kernels_for(99) == nullptr, "unknown isa");
    CHECK(kernels_for(best_isa()) != nullptr, "the best isa runs");
    CHECK(resolve_isa(PJ_ISA_AUTO) == best_isa(), "auto is the best");
    CHECK(resolve_isa(PJ_ISA_PORTABLE) == PJ_ISA_PORTABLE, "a named isa is taken");
}

void check_names() {
    CHECK(std::strcmp(isa_name(PJ_ISA_AVX512_VNNI), "avx512_vnni") == 0, "name");
    CHECK(std::strcmp(isa_name(42), "unknown") == 0, "name of an unknown isa");
    CHECK(compiled_isas().find("portable") != std::string::npos, "%s", compiled_isas().c_str());
}

void check_refusal() {
    for (int isa : {-1, 4}) {
        bool refused = false;
        try {
            resolve_isa(isa);
        } catch (const Error &error) {
            refused = error.code() == PJ_ERR_ARGUMENT;
        }
        CHECK(refused, "isa %d", isa);
    }
}

}  // namespace

int main() {
    check_choice();
    check_names();
    check_refusal();
    return check_result();
}
