// host.h: the parts of the test program.
#ifndef WEIR_HOSTTEST_HOST_H
#define WEIR_HOSTTEST_HOST_H

#include <stdint.h>

// Threads allocate and free at random for `ms`, on both GPUs; all of it is freed in the end if
// `release`. 0, or the number of what was found wrong.
int test_stress(int threads, int ms, uint64_t seed, int release);

// So many threads allocate once, all at the same time. How many did not get it.
int test_crowd(int threads);

// Signals interrupt a thread that allocates, and allocate too.
int test_signals(int ms);

// The table against a plain array, with random operations.
int test_table(uint64_t seed);

// Threads that count under the process's lock.
int test_lock(void);

int test_bench(void);

static inline uint64_t test_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#endif
