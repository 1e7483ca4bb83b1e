#include "core/status.h"

#include <cstdarg>
#include <cstdio>

namespace pj {

namespace {
thread_local std::string g_last_error;
}

void fail(pj_status code, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    throw Error(code, text);
}

void set_last_error(const std::string &message) noexcept {
    try {
        g_last_error = message;
    } catch (...) {
        g_last_error.clear();
    }
}

const char *last_error() noexcept { return g_last_error.c_str(); }

}  // namespace pj
