#include "cpu/kernels/gemm.h"

#include "cpu/kernels/functions.h"
#include "cpu/kernels/gemm_float.h"
#include "cpu/kernels/gemm_int8.h"

namespace pj::cpu::PJ_ISA {

namespace {

constexpr WeightFormat kNibble = WeightFormat::kNibble, kTableFormat = WeightFormat::kTable,
                       kByte = WeightFormat::kByte;

void gemm_nibble(const GemmArgs &args) {
    const PackedView &w = args.weight;
    if (w.sub_blocks == 2)
        return w.has_min ? multiply<Layout<kNibble, Range::k4Bits, 2, true, true, 0>>(args)    // Q2_K
                         : multiply<Layout<kNibble, Range::k4Bits, 2, true, false, 4>>(args);  // Q3_K
    if (w.has_codes) return multiply<Layout<kNibble, Range::k4Bits, 1, true, true, 0>>(args);  // Q4_K
    return w.has_min ? multiply<Layout<kNibble, Range::k4Bits, 1, false, true, 0>>(args)       // Q4_1
                     : multiply<Layout<kNibble, Range::k4Bits, 1, false, false, 8>>(args);     // Q4_0
}

void gemm_table(const GemmArgs &args) {
    return args.weight.has_codes ? multiply<Layout<kTableFormat, Range::k8Bits, 1, true, false, 128>>(args)    // IQ4_XS
                                 : multiply<Layout<kTableFormat, Range::k8Bits, 1, false, false, 128>>(args);  // IQ4_NL
}

void gemm_byte(const GemmArgs &args) {
    const PackedView &w = args.weight;
    if (w.sub_blocks == 2) return multiply<Layout<kByte, Range::k6Bits, 2, true, false, 32>>(args);  // Q6_K
    if (w.has_codes) return multiply<Layout<kByte, Range::k5Bits, 1, true, true, 0>>(args);          // Q5_K
    if (w.has_min) return multiply<Layout<kByte, Range::k5Bits, 1, false, true, 0>>(args);           // Q5_1
    return w.offset == 16 ? multiply<Layout<kByte, Range::k5Bits, 1, false, false, 16>>(args)        // Q5_0
                          : multiply<Layout<kByte, Range::k8Bits, 1, false, false, 128>>(args);      // Q8_0
}

}  // namespace

void gemm(const GemmArgs &args) {
    switch (args.weight.format) {
        case WeightFormat::kF32:
            return multiply_float<WeightFormat::kF32>(args);
        case WeightFormat::kF16:
            return multiply_float<WeightFormat::kF16>(args);
        case WeightFormat::kBF16:
            return multiply_float<WeightFormat::kBF16>(args);
        case WeightFormat::kNibble:
            return gemm_nibble(args);
        case WeightFormat::kTable:
            return gemm_table(args);
        case WeightFormat::kByte:
            return gemm_byte(args);
    }
}

}  // namespace pj::cpu::PJ_ISA
