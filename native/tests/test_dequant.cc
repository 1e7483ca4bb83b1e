// Elements of raw blocks as the generic matrix product of the CUDA backend reads them: the bits of
// dequantize_row, for every type that has no tensor-core tiles.
#include <cstring>
#include <random>
#include <vector>

#include "core/quants.h"
#include "cuda/dequant.h"
#include "cuda/pack_unit.h"
#include "tests/check.h"

using namespace pj;
using namespace pj::cuda;

namespace {

constexpr int32_t kTypes[] = {GGML_F32,  GGML_F16,  GGML_BF16,   GGML_Q4_0,   GGML_Q4_1,
                              GGML_Q5_0, GGML_Q5_1, GGML_Q8_0,   GGML_Q2_K,   GGML_Q3_K,
                              GGML_Q4_K, GGML_Q5_K, GGML_IQ4_NL, GGML_IQ4_XS, GGML_Q6_K};
constexpr int kElements = 64 * 256;

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

bool same(float a, float b) { return a != a ? b != b : bits_of(a) == bits_of(b); }

template <int32_t kType>
void check_type() {
    const TypeTraits &traits = *type_traits(kType);
    CHECK(kRawElements<kType> == traits.block_elements, "%s", traits.name);
    CHECK(kRawBytes<kType> == traits.block_bytes, "%s", traits.name);
    std::mt19937 random(kType + 1);
    std::vector<uint8_t> row(row_bytes(traits, kElements));
    for (uint8_t &byte : row) byte = static_cast<uint8_t>(random());
    std::vector<float> expected(kElements);
    dequantize_row(kType, row.data(), kElements, expected.data());
    for (int i = 0; i < kElements; ++i) {
        const uint8_t *block = row.data() + i / kRawElements<kType> * kRawBytes<kType>;
        const float value = raw_value<kType>(block, i % kRawElements<kType>);
        CHECK(same(value, expected[i]), "%s element %d: %g, expected %g", traits.name, i, value, expected[i]);
    }
}

// Every type has tiles or an element reader.
void check_dispatch() {
    for (int32_t type : kTypes)
        for (int n_in : {96, 256}) {
            const bool tiled = unit_bytes(tile_format(type, n_in)) > 0;
            CHECK(tiled || with_raw_type(type, [](auto) {}), "%s", type_traits(type)->name);
        }
    CHECK(!with_raw_type(9999, [](auto) {}), "an unknown type");
}

}  // namespace

int main() {
    check_dispatch();
    for (int32_t type : kTypes) with_raw_type(type, [](auto tag) { check_type<decltype(tag)::value>(); });
    return check_result();
}
