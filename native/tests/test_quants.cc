// Half precision: every value survives the round trip and values between two halves go to the
// nearer one, to the even one from the middle.
#include <cmath>
#include <cstring>

#include "check.h"
#include "core/quants.h"

using namespace pj;

namespace {

void check_round_trip() {
    for (int bits = 0; bits < 0x10000; ++bits) {
        const float value = half_to_float((uint16_t)bits);
        if (std::isnan(value)) {
            CHECK(std::isnan(half_to_float(float_to_half(value))), "NaN %04x", bits);
        } else {
            CHECK(float_to_half(value) == bits, "%04x became %04x", bits, float_to_half(value));
        }
    }
}

void check_rounding() {
    for (int bits = 0; bits < 0x7c00; ++bits) {
        const float low = half_to_float((uint16_t)bits);
        const float high = bits == 0x7bff ? 65536.0f : half_to_float((uint16_t)(bits + 1));
        const float middle = low + (high - low) / 2;
        const int even = bits % 2 == 0 ? bits : bits + 1;
        CHECK(float_to_half(middle) == even, "%g became %04x", middle, float_to_half(middle));
        CHECK(float_to_half(std::nextafter(middle, 0.0f)) == bits, "below %g", middle);
        CHECK(float_to_half(std::nextafter(middle, 1e9f)) == bits + 1, "above %g", middle);
        CHECK(float_to_half(-middle) == (even | 0x8000), "sign of %g", middle);
    }
    CHECK(float_to_half(1e30f) == 0x7c00 && float_to_half(-INFINITY) == 0xfc00, "infinities");
}

void check_traits() {
    CHECK(type_traits(9999) == nullptr, "unknown type");
    CHECK(row_bytes(*type_traits(GGML_Q4_K), 1024) == 576, "four blocks of 144 bytes");
    CHECK(supported_types().find("IQ4_XS") != std::string::npos, "%s", supported_types().c_str());
}

}  // namespace

int main() {
    check_round_trip();
    check_rounding();
    check_traits();
    return check_result();
}
