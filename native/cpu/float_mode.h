// Denormal numbers as zero while the backend computes.
//
// Decaying GDN states pass through the denormal range, where x86 processors take a hundred times as
// long for an addition. Every thread that computes uses the same mode: results must not depend on
// which thread ran a piece.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace pj::cpu {

class FlushDenormals {
  public:
    FlushDenormals() : saved_(read()) { write(saved_ | kFlush); }
    ~FlushDenormals() { write(saved_); }
    FlushDenormals(const FlushDenormals &) = delete;
    FlushDenormals &operator=(const FlushDenormals &) = delete;

  private:
#if defined(__x86_64__)
    static constexpr uint64_t kFlush = 0x8040;  // MXCSR: flush to zero, denormals are zero
    static uint64_t read() { return _mm_getcsr(); }
    static void write(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
    static constexpr uint64_t kFlush = 1u << 24;  // FPCR.FZ
    static uint64_t read() {
        uint64_t mode;
        asm volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static void write(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
    static constexpr uint64_t kFlush = 0;
    static uint64_t read() { return 0; }
    static void write(uint64_t) {}
#endif

    uint64_t saved_;
};

}  // namespace pj::cpu
