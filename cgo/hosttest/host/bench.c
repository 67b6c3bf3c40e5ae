// bench.c: what allocate and free cost on top of the driver's calls, at one and at many live
// allocations. The bare driver's loop is timed in the same run, interleaved.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../hooks.h"
#include "driver.h"
#include "host.h"

#define ROUNDS 401
#define PAIRS 500
#define LIVE_MAX 100000
#define BYTES 512

static CUdeviceptr pointers[LIVE_MAX];

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double pairs(cuMemAlloc_v2_fn *allocate, cuMemFree_v2_fn *release) {
    CUdeviceptr pointer;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++)
        if (allocate(&pointer, BYTES) != CUDA_SUCCESS || release(pointer) != CUDA_SUCCESS)
            return -1;
    return (now_ns() - start) / PAIRS;
}

// Each pair frees one of the live allocations, any, and makes a new one in its place.
static double replacements(cuMemAlloc_v2_fn *allocate, cuMemFree_v2_fn *release, unsigned live) {
    static uint64_t seed = 88172645463325252ull;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++) {
        CUdeviceptr *slot = &pointers[test_random(&seed) % live];
        if (release(*slot) != CUDA_SUCCESS || allocate(slot, BYTES) != CUDA_SUCCESS)
            return -1;
    }
    return (now_ns() - start) / PAIRS;
}

static double infos(cuMemGetInfo_v2_fn *info) {
    size_t free_bytes, total_bytes;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++)
        if (info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
            return -1;
    return (now_ns() - start) / PAIRS;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The median of what one way costs more than the other.
static double added(double *bare, double *with) {
    qsort(bare, ROUNDS, sizeof(*bare), compare);
    qsort(with, ROUNDS, sizeof(*with), compare);
    return with[ROUNDS / 2] - bare[ROUNDS / 2];
}

static void measure(unsigned live) {
    static double pair[2][ROUNDS], replace[2][ROUNDS], info[2][ROUNDS];
    cuMemAlloc_v2_fn *alloc = WEIR_REAL(cuMemAlloc_v2);
    cuMemFree_v2_fn *release = WEIR_REAL(cuMemFree_v2);
    for (int i = 0; i < ROUNDS; i++) {
        pair[0][i] = pairs(alloc, release);
        pair[1][i] = pairs(weir_cuMemAlloc_v2, weir_cuMemFree_v2);
        info[0][i] = infos(WEIR_REAL(cuMemGetInfo_v2));
        info[1][i] = infos(weir_cuMemGetInfo_v2);
    }
    for (int i = 0; i < ROUNDS; i++)
        replace[1][i] = replacements(weir_cuMemAlloc_v2, weir_cuMemFree_v2, live);
    static CUdeviceptr copy[LIVE_MAX];
    memcpy(copy, pointers, sizeof(copy));
    for (int i = 0; i < ROUNDS; i++)
        replace[0][i] = replacements(alloc, release, live);
    memcpy(pointers, copy, sizeof(copy));
    printf("live %u: pair %.1f replace %.1f info %.1f\n", live, added(pair[0], pair[1]),
           added(replace[0], replace[1]), added(info[0], info[1]));
    fflush(stdout);
}

int test_bench(void) {
    const unsigned steps[] = {1, 1000, LIVE_MAX};
    unsigned live = 0;
    test_driver_install_null();
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (; live < steps[i]; live++)
            if (weir_cuMemAlloc_v2(&pointers[live], BYTES) != CUDA_SUCCESS)
                return 1;
        measure(live);
    }
    return 0;
}
