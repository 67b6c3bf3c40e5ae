// test.h: checks that say what failed and go on to exit(1), and a runner of named tests.
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(got, wanted)                                                                      \
    do {                                                                                           \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                          \
        if (got_ != wanted_) {                                                                     \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, #got, got_,  \
                    wanted_, #wanted);                                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct test {
    const char *name;
    void (*run)(void);
};

#define TEST(function)                                                                             \
    { #function, function }

// Runs all tests, or those named on the command line.
static inline int run_tests(const struct test *tests, size_t count, int argc, char **argv) {
    for (size_t i = 0; i < count; i++) {
        int wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= !strcmp(argv[a], tests[i].name);
        if (!wanted)
            continue;
        printf("%s\n", tests[i].name);
        fflush(stdout);
        tests[i].run();
    }
    return 0;
}

#define RUN(tests) run_tests(tests, sizeof tests / sizeof tests[0], argc, argv)

#endif
