// driver_calls.h: the driver calls that the benchmark programs make, and the clock they share.
#ifndef WEIR_BENCH_DRIVER_CALLS_H
#define WEIR_BENCH_DRIVER_CALLS_H

#include "../../e2e/clients/cuda.h"

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
