// The least of a test framework: a failed check prints where and what, and the test goes on.
#pragma once

#include <stdio.h>

extern int check_failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            check_failures++;                                                                      \
        }                                                                                          \
    } while (0)

// Compares two whole numbers and prints both where they differ.
#define CHECK_EQUAL(got, want)                                                                     \
    do {                                                                                           \
        long long got_ = (long long)(got);                                                         \
        long long want_ = (long long)(want);                                                       \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_,       \
                    want_);                                                                        \
            check_failures++;                                                                      \
        }                                                                                          \
    } while (0)
