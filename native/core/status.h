// Errors inside the library are exceptions of one type; the C boundary turns them into a code and a
// thread-local sentence (core/abi.cc).
#pragma once

#include <stdexcept>
#include <string>

#include "pyjet.h"

namespace pj {

class Error : public std::runtime_error {
  public:
    Error(pj_status code, const std::string &message) : std::runtime_error(message), code_(code) {}
    pj_status code() const { return code_; }

  private:
    pj_status code_;
};

// Throws an Error with a printf-style message.
[[noreturn]] void fail(pj_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The sentence behind pj_last_error() of this thread.
void set_last_error(const std::string &message) noexcept;
const char *last_error() noexcept;

}  // namespace pj
