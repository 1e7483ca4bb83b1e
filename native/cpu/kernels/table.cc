#include "cpu/kernels/functions.h"

namespace pj::cpu::PJ_ISA {

const Kernels kTable = {gemm,   quantize_row, rms_norm, add,       swiglu, sigmoid_gate, gated_norm,
                        argmax, rope,         store_kv, attention, conv,   gdn};

}  // namespace pj::cpu::PJ_ISA
