// cost.c: what driver calls cost in this process: one line a figure, name and nanoseconds, the
// median over batches. Whatever is preloaded stands in front of the driver that it is linked with.
//
// cost: allocations, launches and what is free. cost THREADS: launches by so many threads at once,
// each into a stream of its own; the figure is the mean of theirs.
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

int cuCtxGetCurrent(void **context);
int cuStreamSynchronize(void *stream);

enum { BATCHES = 31, BATCH_NS = 2000000, PIECE_BYTES = 1 << 20, THREADS_MOST = 64 };

static const char empty_kernel[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                   ".visible .entry nothing() { ret; }\n";
static __thread void *stream;
static void *kernel, *context;

static void must(const char *what, int code) {
    if (code) {
        fprintf(stderr, "%s: CUDA error %d\n", what, code);
        exit(1);
    }
}

static void allocation(void) {
    uint64_t address;
    must("cuMemAlloc", cuMemAlloc_v2(&address, PIECE_BYTES));
    must("cuMemFree", cuMemFree_v2(address));
}

static void stream_allocation(void) {
    uint64_t address;
    must("cuMemAllocAsync", cuMemAllocAsync(&address, PIECE_BYTES, stream));
    must("cuMemFreeAsync", cuMemFreeAsync(address, stream));
}

static void launch(void) {
    must("cuLaunchKernel", cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void info(void) {
    size_t free_bytes, total_bytes;
    must("cuMemGetInfo", cuMemGetInfo_v2(&free_bytes, &total_bytes));
}

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

// Each batch is as many calls as take about BATCH_NS; what it leaves to the GPU is waited for
// outside of the time.
static double cost_ns(void (*call)(void)) {
    double batches[BATCHES], start = now_ns();
    long count = 0;
    while (now_ns() - start < BATCH_NS) {
        call();
        count++;
    }
    for (int i = 0; i < BATCHES; i++) {
        must("cuStreamSynchronize", cuStreamSynchronize(stream));
        start = now_ns();
        for (long k = 0; k < count; k++)
            call();
        batches[i] = (now_ns() - start) / (double)count;
    }
    must("cuStreamSynchronize", cuStreamSynchronize(stream));
    qsort(batches, BATCHES, sizeof(batches[0]), by_value);
    return batches[BATCHES / 2];
}

static void *launching(void *ns) {
    must("cuCtxSetCurrent", cuCtxSetCurrent(context));
    must("cuStreamCreate", cuStreamCreate(&stream, 0));
    *(double *)ns = cost_ns(launch);
    return NULL;
}

static double launches_ns(unsigned threads) {
    pthread_t ids[THREADS_MOST];
    double ns[THREADS_MOST], sum = 0;
    for (unsigned i = 0; i < threads; i++)
        must("pthread_create", pthread_create(&ids[i], NULL, launching, &ns[i]));
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += ns[i];
    }
    return sum / threads;
}

int main(int count, char **arguments) {
    void *module;
    must("the first GPU", use_gpu(0));
    must("cuCtxGetCurrent", cuCtxGetCurrent(&context));
    must("cuStreamCreate", cuStreamCreate(&stream, 0));
    must("cuModuleLoadData", cuModuleLoadData(&module, empty_kernel));
    must("cuModuleGetFunction", cuModuleGetFunction(&kernel, module, "nothing"));
    if (count > 1) {
        unsigned threads = (unsigned)strtoul(arguments[1], NULL, 10);
        if (threads < 1 || threads > THREADS_MOST)
            return 2;
        printf("launch-by-%u %.0f\n", threads, launches_ns(threads));
        return 0;
    }
    printf("alloc+free %.0f\n", cost_ns(allocation));
    printf("async %.0f\n", cost_ns(stream_allocation));
    printf("launch %.0f\n", cost_ns(launch));
    printf("info %.0f\n", cost_ns(info));
    return 0;
}
