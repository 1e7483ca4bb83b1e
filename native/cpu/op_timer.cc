#include "cpu/op_timer.h"

#include <cstdio>

namespace pj::cpu {

std::vector<pj_op_time> OpTimer::times() const {
    static const char *const kNames[] = {"embed",     "norm",   "project", "conv",     "gdn",  "rope",
                                         "attention", "output", "ffn_up",  "ffn_down", "head", "sample"};
    static_assert(sizeof kNames / sizeof *kNames == static_cast<size_t>(Op::kCount), "one name per op");
    std::vector<pj_op_time> out(static_cast<size_t>(Op::kCount));
    for (size_t i = 0; i < out.size(); ++i) {
        std::snprintf(out[i].name, sizeof out[i].name, "%s", kNames[i]);
        out[i].total_us = total_us_[i];
        out[i].calls = calls_[i];
    }
    return out;
}

}  // namespace pj::cpu
