// The element readers of the generic matrix product on the device: the bits of dequantize_row.
#include <cstring>
#include <vector>

#include "core/quants.h"
#include "core/status.h"
#include "cuda/dequant.h"
#include "cuda/memory.h"
#include "tests/cuda/gpu.h"
#include "tests/unit_check.h"

using namespace pj;
using namespace pj::cuda;

namespace {

constexpr int kElements = 64 * 256;

template <int32_t kType>
__global__ void read_elements(const uint8_t *row, float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = raw_value<kType>(row + i / kRawElements<kType> * kRawBytes<kType>, i % kRawElements<kType>);
}

bool same(float a, float b) { return a != a ? b != b : !std::memcmp(&a, &b, sizeof a); }

template <int32_t kType>
void check_type() {
    const std::vector<uint8_t> row = random_rows(kType, kElements, 1, kType + 1);
    std::vector<float> expected(kElements), values(kElements);
    dequantize_row(kType, row.data(), kElements, expected.data());
    const DeviceBuffer<uint8_t> source(row.size(), "a row");
    const DeviceBuffer<float> target(kElements, "elements");
    check(cudaMemcpy(source.data(), row.data(), row.size(), cudaMemcpyHostToDevice), "copying a row");
    read_elements<kType><<<kElements / 256, 256>>>(source.data(), target.data());
    check(cudaMemcpy(values.data(), target.data(), target.bytes(), cudaMemcpyDeviceToHost), "reading elements");
    for (int i = 0; i < kElements; ++i)
        CHECK(same(values[i], expected[i]), "%s element %d: %g, expected %g", type_traits(kType)->name, i, values[i],
              expected[i]);
}

}  // namespace

int main() {
    if (!has_gpu()) return kSkipped;
    check_type<GGML_F32>();
    check_type<GGML_F16>();
    check_type<GGML_BF16>();
    check_type<GGML_Q4_0>();
    check_type<GGML_Q4_1>();
    check_type<GGML_Q5_0>();
    check_type<GGML_Q5_1>();
    check_type<GGML_Q8_0>();
    check_type<GGML_Q2_K>();
    check_type<GGML_Q3_K>();
    check_type<GGML_IQ4_NL>();
    check_type<GGML_IQ4_XS>();
    return check_result();
}
