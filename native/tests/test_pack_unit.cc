// The packed units of the CUDA backend hold exactly the integers and scales of the file.
#include "tests/unit_check.h"

using namespace pj;
using namespace pj::cuda;

namespace {

std::vector<uint8_t> packed_on_the_host(int32_t type, const std::vector<uint8_t> &rows, int n_in, int n_out) {
    const int32_t format = tile_format(type, n_in);
    const int64_t stride = row_bytes(*type_traits(type), n_in);
    std::vector<uint8_t> units;
    for (int first = 0; first < n_out; first += kUnitOutputs)
        for (int k = 0; k < n_in / kUnitInputs; ++k)
            for (int w = 0; w < unit_bytes(format) / 4; ++w) {
                const RowBlock block = {rows.data() + first * stride, stride, n_out - first};
                const uint32_t word = unit_word(format, block, k, w);
                for (int i = 0; i < 4; ++i) units.push_back(static_cast<uint8_t>(word >> (8 * i)));
            }
    return units;
}

void check_type(int32_t type) {
    const int shapes[][2] = {{256, 64}, {512, 130}, {768, 5}};
    for (const auto &[n_in, n_out] : shapes) {
        const std::vector<uint8_t> rows = random_rows(type, n_in, n_out, 7 * type + n_out);
        std::vector<uint8_t> units = packed_on_the_host(type, rows, n_in, n_out);
        check_units(type, rows, n_in, n_out, units);
    }
}

}  // namespace

int main() {
    for (int32_t type : {GGML_Q4_K, GGML_Q5_K, GGML_Q6_K, GGML_Q8_0}) check_type(type);
    if (tile_format(GGML_Q8_0, 96) != kTileRaw || tile_format(GGML_F16, 256) != kTileFloat) return 1;
    return check_result();
}
