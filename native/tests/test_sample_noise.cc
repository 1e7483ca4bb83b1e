// The random numbers of a draw: their bits, the logarithm against long double, and who wins a race.
#include <cmath>
#include <cstdint>

#include "core/sample_noise.h"
#include "tests/check.h"

using namespace pj;

namespace {

// tests/engine/test_noise.py has the same numbers: both must draw alike.
void check_bits() {
    const struct {
        uint64_t seed;
        int32_t index, token;
        uint64_t bits;
    } known[] = {
        {0x0u, 0, 0, 0x238275bc38fcbe91u},
        {0x1u, 0, 0, 0xb18a02f46d8d86c3u},
        {0x0u, 1, 0, 0x2f101fe21496ea20u},
        {0x0u, 0, 1, 0xf89a2566b5822c54u},
        {0x2au, 7, 248319, 0xb07b7df31ad417cu},
        {0xffffffffu, 1000000, 5, 0xb5a39dbc86f02f4fu},
        {0xffffffffffffffffu, 2147483647, 2147483647, 0x8431d96364b1001u},
    };
    for (const auto &k : known)
        CHECK(noise_bits(noise_state(k.seed, k.index), k.token) == k.bits, "seed %llu index %d token %d",
              static_cast<unsigned long long>(k.seed), k.index, k.token);
}

double error_of(uint64_t odd) {
    const long double exact = -std::log(std::ldexp(static_cast<long double>(odd), -53));
    return static_cast<double>(std::abs((static_cast<long double>(minus_log(odd)) - exact) / exact));
}

void check_logarithm() {
    constexpr uint64_t one = uint64_t{1} << 53;
    const uint64_t half_root = 6369051672525772u;  // sqrt(1/2) * 2^53: where the exponent changes
    double most = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
        const uint64_t near[] = {2 * i + 1, one - 1 - 2 * i, (one / 2 - 20000 + 2 * i) | 1,
                                 (half_root + 2 * i - 20000) | 1, noise_bits(i, 7) >> 11 | 1};
        for (uint64_t odd : near) most = std::fmax(most, error_of(odd));
        for (int shift = 0; shift < 53; ++shift)
            most = std::fmax(most, error_of((noise_bits(i, shift) >> 11 >> shift) | 1));
    }
    CHECK(most < 1e-15, "relative error %g", most);
    CHECK(minus_log(one - 1) == std::ldexp(1.0, -53), "next to 1 the logarithm is the distance");
    CHECK(exponential(0) < 36.74 && exponential(~uint64_t{0}) > 0, "both ends are finite and positive");
}

void check_race() {
    CHECK(arrival(0.5, 7) > arrival(0.5, 6), "more weight is earlier");
    CHECK(arrival(0.5, 7) > arrival(std::nextafter(0.5, 1.0), 7), "a little earlier");
    CHECK(arrival(36.7, 1) > 0 && arrival(exponential(~uint64_t{0}), 0) == 0, "weight 0 never arrives, 1 does");
    CHECK(arrival(36.7, uint64_t{1} << 42) > arrival(36.7, (uint64_t{1} << 42) - 1), "neighbouring weights differ");
}

}  // namespace

int main() {
    check_bits();
    check_logarithm();
    check_race();
    return check_result();
}
