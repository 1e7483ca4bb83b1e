#include "cpu/kernels/functions.h"

namespace pj::cpu::PJ_ISA {

const Kernels kTable = {gemm,
                        quantize_row,
                        rms_norm,
                        l2_norm,
                        add,
                        swiglu,
                        sigmoid_gate,
                        gated_norm,
                        argmax,
                        hadamard,
                        rope,
                        rope_pairs,
                        store_kv,
                        load_kv,
                        attention,
                        attention_begin,
                        attention_merge,
                        attention_finish,
                        conv,
                        gdn};

}  // namespace pj::cpu::PJ_ISA
