// host.h: the parts of the test program.
#ifndef WEIR_HOSTTEST_HOST_H
#define WEIR_HOSTTEST_HOST_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../cuda.h"

// Threads allocate and free at random for `ms`, on both GPUs; all of it is freed in the end if
// `release`. 0, or the number of what was found wrong.
int test_stress(int threads, int ms, uint64_t seed, int release);

// So many threads allocate once, all at the same time. How many did not get it.
int test_crowd(int threads);

// Destroys so many pools whose memory is in use until another thread has waited for it.
int test_leave(int pools);

// Signals interrupt a thread that allocates, and allocate too.
int test_signals(int ms);

// The table against a plain array, with random operations.
int test_table(uint64_t seed);

// Threads that count under the process's lock.
int test_lock(void);

// The same as test_stress with all kinds of memory and all that ends or moves it, in `rounds` of
// `ms` each, after which the library's books are to be the driver's.
int test_mix(int threads, int ms, int rounds, uint64_t seed);

// Runs a command about other kinds of memory, and answers it. Whether it was one; counts where
// errno was changed.
int test_kinds(char **words, uint64_t *errno_lost);

int test_bench(void);

// A series of messages of an agent, each with its length before it. 0, or 1 where they have spoilt
// the books.
int test_messages(const uint8_t *data, size_t bytes);
int test_messages_at_random(uint64_t seed, int rounds);

// Runs a command about created memory or memory between processes. Whether it is one.
int test_sharing(char **words);

// Runs a command about contexts and code that take memory (contexts.c). Whether it is one.
int test_contexts_command(char **words);

// Launches a kernel of so many microseconds in a stream (work.c).
CUresult test_launch(uint64_t us, uint64_t stream);

// Runs a command about launches of many threads (lanes.c). Whether it is one.
int test_lanes(char **words);

// Runs a command about managed and movable memory (managed.c). Whether it is one.
int test_managed(char **words);
int test_graphuse(char **words);

// Runs a command about launches (work.c). Whether it is one.
int test_work(char **words);

// A word of a command as a number; 0 where there is none.
static inline uint64_t number(const char *text) {
    return text ? strtoull(text, NULL, 0) : 0;
}

// Answers a command.
static inline void say(CUresult result, uint64_t value) {
    if (result == CUDA_SUCCESS)
        printf("ok %" PRIu64 "\n", value);
    else
        printf("err %d\n", result);
}

static inline double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static inline uint64_t test_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#endif
