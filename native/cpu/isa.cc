#include "cpu/isa.h"

#include "core/status.h"
#include "pyjet.h"

namespace pj::cpu {

namespace portable {
extern const Kernels kTable;
}
#ifdef PJ_HAVE_AVX2
namespace avx2 {
extern const Kernels kTable;
}
#endif
#ifdef PJ_HAVE_AVX512_VNNI
namespace avx512_vnni {
extern const Kernels kTable;
}
#endif

const Kernels *kernels_for(int isa) {
    switch (isa) {
        case PJ_ISA_PORTABLE:
            return &portable::kTable;
#ifdef PJ_HAVE_AVX2
        case PJ_ISA_AVX2:
            if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2::kTable;
            return nullptr;
#endif
#ifdef PJ_HAVE_AVX512_VNNI
        case PJ_ISA_AVX512_VNNI:
            if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vnni") && kernels_for(PJ_ISA_AVX2))
                return &avx512_vnni::kTable;
            return nullptr;
#endif
        default:
            return nullptr;
    }
}

int best_isa() {
    static const int best = [] {
        for (int isa : {PJ_ISA_AVX512_VNNI, PJ_ISA_AVX2})
            if (kernels_for(isa)) return isa;
        return (int)PJ_ISA_PORTABLE;
    }();
    return best;
}

int resolve_isa(int isa) {
    if (isa == PJ_ISA_AUTO) return best_isa();
    if (isa < PJ_ISA_AUTO || isa > PJ_ISA_AVX512_VNNI)
        fail(PJ_ERR_ARGUMENT, "isa %d is unknown; use 0 (auto), 1 (portable), 2 (avx2) or 3 (avx512_vnni)", isa);
    if (!kernels_for(isa))
        fail(PJ_ERR_DEVICE, "this build or processor has no %s; use auto, which picks %s here", isa_name(isa),
             isa_name(best_isa()));
    return isa;
}

const char *isa_name(int isa) {
    switch (isa) {
        case PJ_ISA_AUTO:
            return "auto";
        case PJ_ISA_PORTABLE:
            return "portable";
        case PJ_ISA_AVX2:
            return "avx2";
        case PJ_ISA_AVX512_VNNI:
            return "avx512_vnni";
        default:
            return "unknown";
    }
}

std::string compiled_isas() {
    std::string names = "portable";
#ifdef PJ_HAVE_AVX2
    names += " avx2";
#endif
#ifdef PJ_HAVE_AVX512_VNNI
    names += " avx512_vnni";
#endif
    return names;
}

}  // namespace pj::cpu
