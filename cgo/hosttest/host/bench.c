// bench.c: what allocate and free cost on top of the driver's calls, at one and at many live
// allocations. The bare driver's loop is timed in the same run, interleaved.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../hooks.h"
#include "driver.h"
#include "host.h"

#define ROUNDS 401
#define PAIRS 500

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double pairs(cuMemAlloc_v2_fn *allocate, cuMemFree_v2_fn *release) {
    CUdeviceptr pointer;
    double start = now_ns();
    for (int i = 0; i < PAIRS; i++)
        if (allocate(&pointer, 4096) != CUDA_SUCCESS || release(pointer) != CUDA_SUCCESS)
            return -1;
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

static double median(double *values) {
    qsort(values, ROUNDS, sizeof(*values), compare);
    return values[ROUNDS / 2];
}

static void measure(unsigned live) {
    double bare[ROUNDS], with[ROUNDS], bare_info[ROUNDS], with_info[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = pairs(WEIR_REAL(cuMemAlloc_v2), WEIR_REAL(cuMemFree_v2));
        with[i] = pairs(weir_cuMemAlloc_v2, weir_cuMemFree_v2);
        bare_info[i] = infos(WEIR_REAL(cuMemGetInfo_v2));
        with_info[i] = infos(weir_cuMemGetInfo_v2);
    }
    double added = median(with) - median(bare);
    printf("live %u: alloc+free adds %.1f ns (bare %.1f), cuMemGetInfo adds %.1f ns\n", live, added,
           median(bare), median(with_info) - median(bare_info));
    fflush(stdout);
}

int test_bench(void) {
    CUdeviceptr pointer;
    test_driver_install_null();
    const unsigned steps[] = {1, 1000, 100000};
    unsigned live = 0;
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (; live < steps[i]; live++)
            if (weir_cuMemAlloc_v2(&pointer, 4096) != CUDA_SUCCESS)
                return 1;
        measure(live);
    }
    return 0;
}
