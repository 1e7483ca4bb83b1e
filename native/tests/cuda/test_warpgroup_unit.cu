// A unit times 64 quantised rows, by pairs of warps (multiply_unit.cuh) and by warpgroups (warpgroup_unit.cuh):
// the same bits, also at the largest sums. Exit code 77 without a GPU that has warpgroups.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/memory.h"
#include "cuda/ops/warpgroup_unit.cuh"
#include "tests/check.h"
#include "tests/cuda/gpu.h"

using namespace pj;
using namespace pj::cuda;

namespace {

constexpr int kRows = 64, kValues = kUnitOutputs * kRows, kPasses = 3;
constexpr uint32_t kActs = 17408 + 256;  // in shared memory, behind a unit
static_assert(kActs % 256 == 0 && kActs >= kQ8Unit, "where activations may lie");

__device__ void copy(void *to, const void *from, int bytes) {
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        static_cast<uint32_t *>(to)[i] = static_cast<const uint32_t *>(from)[i];
}

// out: [output][row]; the unit is added kPasses times. Warps 0 and 1, or a warpgroup.
template <int kFormat, bool kByWarpgroup>
__global__ void __launch_bounds__(128) multiply(const uint8_t *unit, const ActTile *acts, float *out) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    copy(shared_memory, unit, unit_bytes(kFormat));
    copy(shared_memory + kActs, acts, 8 * sizeof(ActTile));
    fence_for_copies();  // products of warpgroups read shared memory as bulk copies do
    __syncthreads();
    const auto store = [&](const float(&acc)[8][4], int tile) {
        for (int n = 0; n < 8; ++n)
            for (int i = 0; i < 4; ++i) out[(tile * 16 + g + i / 2 * 8) * kRows + n * 8 + 2 * t + i % 2] = acc[n][i];
    };
    if constexpr (kByWarpgroup) {
        float acc[8][4] = {};
#pragma unroll 1
        for (int pass = 0; pass < kPasses; ++pass)
            warpgroup_unit<kFormat>(shared_memory, shared_address(kActs), warp, lane, acc);
        store(acc, warp);
    } else if (warp < 2) {
        Accumulators<8> acc = {};
#pragma unroll 1
        for (int pass = 0; pass < kPasses; ++pass)
            multiply_unit<kFormat, 8>(shared_memory, shared_pointer<const ActTile>(shared_address(kActs)), warp * 2,
                                      lane, acc);
        for (int i = 0; i < kWarpTiles; ++i) store(acc[i], warp * 2 + i);
    }
}

template <int kFormat, bool kByWarpgroup>
std::vector<float> product(const DeviceBuffer<uint8_t> &unit, const DeviceBuffer<ActTile> &acts) {
    constexpr int kShared = kActs + 8 * sizeof(ActTile);
    const auto kernel = multiply<kFormat, kByWarpgroup>;
    DeviceBuffer<float> out(kValues, "products");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared memory");
    kernel<<<1, 128, kShared>>>(unit.data(), acts.data(), out.data());
    std::vector<float> host(kValues);
    check(cudaMemcpy(host.data(), out.data(), kValues * sizeof(float), cudaMemcpyDeviceToHost), "reading back");
    return host;
}

uint16_t half_bits(float x) {
    const __half h = __float2half_rn(x);
    uint16_t bits;
    std::memcpy(&bits, &h, sizeof(bits));
    return bits;
}

// Random integers, or the largest; scales of ordinary size.
std::vector<uint8_t> make_unit(int32_t format, bool largest, std::mt19937 &random) {
    std::vector<uint8_t> unit(unit_bytes(format));
    for (uint8_t &byte : unit) byte = largest ? 255 : static_cast<uint8_t>(random());
    const bool has_mins = format == kTileQ4K || format == kTileQ5K;
    if (has_mins)
        for (int i = 0; i < kCodes16Bytes; ++i) unit[kQ4KCodes + i] &= 63;
    if (format == kTileQ6K && largest) std::memset(unit.data() + kQ6KCodes, 0x80, kCodes16Bytes);
    const int first = has_mins ? kQ4KScales : format == kTileQ6K ? kQ6KScales : kQ8Scales;
    const int end = has_mins ? kQ4KUnit : unit_bytes(format);
    for (int at = first; at < end; at += 2) {
        const uint16_t bits = half_bits(0.001f * static_cast<float>(1 + random() % 100));
        std::memcpy(unit.data() + at, &bits, sizeof(bits));
    }
    return unit;
}

// Eight rows of 256, written as ActTile (tiles.h) describes it.
ActTile make_acts(bool largest, std::mt19937 &random) {
    ActTile tile;
    for (int n = 0; n < 8; ++n)
        for (int s = 0; s < 16; ++s) {
            int sum = 0;
            for (int i = 0; i < 16; ++i) {
                const int q = largest ? (n % 2 ? -127 : 127) : static_cast<int>(random() % 255) - 127;
                tile.q[s / 2][ActTile::place(4 * n + i / 4)][s % 2 * 4 + i % 4] = static_cast<int8_t>(q);
                sum += q;
            }
            tile.sums[ActTile::place(4 * n + ActTile::sum_lane(s))][ActTile::sum_half(s)] =
                half_bits(static_cast<float>(sum));
        }
    for (int n = 0; n < 8; ++n) {
        const float scale = 0.001f * static_cast<float>(1 + random() % 100);
        for (auto &of_block : tile.scale) of_block[n] = scale;
    }
    return tile;
}

template <class T>
DeviceBuffer<T> on_device(const std::vector<T> &host) {
    DeviceBuffer<T> memory(host.size(), "input");
    check(cudaMemcpy(memory.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "writing");
    return memory;
}

template <int kFormat>
void check_format(const char *name) {
    std::mt19937 random(kFormat + 1);
    for (bool largest : {false, true}) {
        const auto unit = on_device(make_unit(kFormat, largest, random));
        std::vector<ActTile> tiles;
        for (int i = 0; i < 8; ++i) tiles.push_back(make_acts(largest, random));
        const auto acts = on_device(tiles);
        const std::vector<float> expected = product<kFormat, false>(unit, acts),
                                 got = product<kFormat, true>(unit, acts);
        float most = 0;
        for (float x : expected) most = std::fmax(most, std::fabs(x));
        CHECK(most > 0, "%s: nothing was multiplied", name);
        CHECK(std::memcmp(expected.data(), got.data(), kValues * sizeof(float)) == 0, "%s: other bits%s", name,
              largest ? " of the largest sums" : "");
    }
}

}  // namespace

int main() {
    if (!has_gpu()) return kSkipped;
    if (open_device(0).capability != 90) {
        std::printf("skipped: no products of warpgroups\n");
        return kSkipped;
    }
    check_format<kTileQ4K>("Q4_K");
    check_format<kTileQ5K>("Q5_K");
    check_format<kTileQ6K>("Q6_K");
    check_format<kTileQ8>("Q8_0");
    return check_result();
}
