// busy_null.c: what measuring busy time costs a launch, over the null driver: nanoseconds, and how
// many calls of our own there are to 64 launches.
#include "busy.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCHES = 41, BATCH = 20000, KERNELS = 4 };

static int kernels[KERNELS];
static int bare;

static CUresult one(CUstream stream, unsigned i) {
    void *function = &kernels[i % KERNELS];
    if (bare)
        return cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, NULL, NULL);
    struct weir_busy_kind kind =
        weir_busy_kind((uintptr_t)function, (uint64_t)4 << 32 | 1, (uint64_t)64 << 32 | 1, 0);
    struct weir_busy_launch l = weir_busy_begin(busy, context, 0, stream, kind);
    CUresult code = cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, NULL, NULL);
    weir_busy_end(busy, &l, code);
    return code;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The thread's time for one launch: the least but one of batches, since others use the machine.
static void *measure(void *result) {
    double each[BATCHES];
    CUstream stream;
    struct timespec from, to;
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
    for (int b = 0; b < BATCHES; b++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (unsigned i = 0; i < BATCH; i++)
            need(one(stream, i), "cuLaunchKernel");
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        each[b] =
            ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / BATCH;
    }
    qsort(each, BATCHES, sizeof(*each), by_value);
    *(double *)result = each[1];
    return NULL;
}

static double all_threads(unsigned threads) {
    pthread_t made[THREADS_MAX];
    double each[THREADS_MAX], least = 1e9;
    for (unsigned i = 0; i < threads; i++)
        need(pthread_create(&made[i], NULL, measure, &each[i]), "pthread_create");
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(made[i], NULL);
        least = each[i] < least ? each[i] : least;
    }
    return least;
}

int measure_cost(unsigned threads) {
    need(threads < 1 || threads > THREADS_MAX, "threads");
    busy = weir_busy_open();
    need(!busy, "weir_busy_open");
    need(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0), "a context");
    start_helper();
    for (int i = 0; i < 3; i++) {  // learns
        all_threads(threads);
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    }
    uint64_t calls = weir_busy_calls(busy);
    double with = all_threads(threads);
    double launches = (double)threads * BATCHES * BATCH;
    double per_64 = (double)(weir_busy_calls(busy) - calls) * 64 / launches;
    bare = 1;
    double without = all_threads(threads);
    printf("cost %.2f %.2f %.3f\n", without, with - without, per_64);
    return 0;
}
