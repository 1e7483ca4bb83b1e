// Units that the repacking kernel wrote on the GPU, streamed in pieces from "the file": exactly the
// integers and scales of decode_block. Exit code 77 without a GPU.
#include "core/status.h"
#include "cuda/repack.h"
#include "tests/cuda/gpu.h"
#include "tests/unit_check.h"

using namespace pj;
using namespace pj::cuda;

namespace {

// Progress only grows, up to the total.
int32_t follow(void *user, const char *, uint64_t done, uint64_t total) {
    uint64_t *last = static_cast<uint64_t *>(user);
    if (done < *last || done > total) ++check_failures();
    *last = done;
    return 0;
}

std::vector<uint8_t> read_back(const DeviceBuffer<uint8_t> &memory) {
    std::vector<uint8_t> host(memory.bytes());
    check(cudaMemcpy(host.data(), memory.data(), host.size(), cudaMemcpyDeviceToHost), "reading back");
    return host;
}

void check_matrix(int32_t type, int n_in, int n_out) {
    const std::vector<uint8_t> rows = random_rows(type, n_in, n_out, 3 * type + n_in);
    const Matrix m = {"test", type, rows.data(), rows.size(), n_in, n_out};
    uint64_t last = 0;
    pj_config config = {};
    config.progress = follow;
    config.progress_user = &last;
    Uploader uploader(config, rows.size());
    DeviceBuffer<uint8_t> units(packed_bytes(m), "units");
    const bool generic = unit_bytes(tile_format(type, n_in)) == 0;
    if (generic)
        uploader.upload_rows(m, units.data());
    else
        uploader.upload_packed(m, units.data());
    uploader.finish();
    CHECK(last == rows.size(), "progress ends at %llu of %zu", static_cast<unsigned long long>(last), rows.size());
    const std::vector<uint8_t> back = read_back(units);
    if (generic)
        CHECK(back == rows, "rows of type %d changed", type);
    else
        check_units(type, rows, n_in, n_out, back);
}

}  // namespace

int main() {
    if (!has_gpu()) return kSkipped;
    for (int32_t type : {GGML_Q4_K, GGML_Q5_K, GGML_Q6_K, GGML_Q8_0}) {
        check_matrix(type, 256, 64);
        check_matrix(type, 5120, 130);
        check_matrix(type, 4096, 16000);  // more than one piece
    }
    check_matrix(GGML_Q8_0, 96, 70);
    check_matrix(GGML_IQ4_XS, 512, 70);
    check_matrix(GGML_F16, 100, 7);
    return check_result();
}
