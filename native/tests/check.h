// A test harness of three macros: a failed check prints its line and the program exits with 1.
#pragma once

#include <cstdio>

inline int &check_failures() {
    static int failures = 0;
    return failures;
}

#define CHECK(condition, ...)                                           \
    do {                                                                \
        if (!(condition)) {                                             \
            std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            std::printf(__VA_ARGS__);                                   \
            std::printf("\n");                                          \
            if (++check_failures() > 20) return;                        \
        }                                                               \
    } while (0)

inline int check_result() {
    if (check_failures() == 0) std::printf("ok\n");
    return check_failures() == 0 ? 0 : 1;
}
