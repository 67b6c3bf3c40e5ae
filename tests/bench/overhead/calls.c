// calls.c: what single driver calls cost in this process, in nanoseconds.
//
// Linked with libcuda.so.1 directly; whatever is preloaded stands in front of it. It prints one
// line a figure, "key value", which overhead.c reads: the median over batches that are long enough
// for the clock. A call that fails ends the program with a line "failed NAME CODE".
#define _GNU_SOURCE
#include "driver_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BATCHES = 15,
    BATCH_NS = 300000,
    THREADS = 8,
    THREAD_BATCHES = 5,
    THREAD_BATCH_NS = 4000000,
    ALLOCATION_BYTES = 512,
    LIVE = 100000,
    SETUP_US_MAX = 3000000,  // a rival may be slow at 100,000 live allocations
};

static void *function, *context;
static launch_fn *launch = cuLaunchKernel;
static uint64_t live[LIVE];
static uint32_t random_state = 1;

static void check(const char *name, int code) {
    if (code == 0)
        return;
    printf("failed %s %d\n", name, code);
    fflush(stdout);
    _exit(1);
}

static void report(const char *key, double value) {
    printf("%s %.2f\n", key, value);
    fflush(stdout);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

// xorshift32: cheap beside what is measured.
static uint32_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

// The things measured. Each makes `count` calls.

static void launches(long count) {
    void *parameters[1] = {&random_state};
    for (long i = 0; i < count; i++)
        check("cuLaunchKernel", launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void allocations(long count) {
    for (long i = 0; i < count; i++) {
        uint64_t address;
        check("cuMemAlloc_v2", cuMemAlloc_v2(&address, ALLOCATION_BYTES));
        check("cuMemFree_v2", cuMemFree_v2(address));
    }
}

// Each pair frees one that was allocated long ago.
static void replacements(long count) {
    for (long i = 0; i < count; i++) {
        uint64_t *slot = &live[next_random() % LIVE];
        check("cuMemFree_v2", cuMemFree_v2(*slot));
        check("cuMemAlloc_v2", cuMemAlloc_v2(slot, ALLOCATION_BYTES));
    }
}

static void infos(long count) {
    for (long i = 0; i < count; i++) {
        size_t free_bytes, total_bytes;
        check("cuMemGetInfo_v2", cuMemGetInfo_v2(&free_bytes, &total_bytes));
    }
}

static void look_ups(long count) {
    for (long i = 0; i < count; i++) {
        void *found;
        check("cuGetProcAddress_v2", cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, NULL));
    }
}

static long calls_in(uint64_t ns, void (*calls)(long)) {
    uint64_t start = now_ns();
    calls(16);
    uint64_t took = now_ns() - start;
    long count = (long)(16 * ns / (took + 1));
    return count < 4 ? 4 : count;
}

static double cost(void (*calls)(long)) {
    double each[BATCHES];
    calls(16);
    long count = calls_in(BATCH_NS, calls);
    for (int i = 0; i < BATCHES; i++) {
        uint64_t start = now_ns();
        calls(count);
        each[i] = (double)(now_ns() - start) / (double)count;
    }
    return median(each, BATCHES);
}

// Launches from several threads.

static pthread_barrier_t start_line;

struct thread {
    pthread_t id;
    long count;
    uint64_t start[THREAD_BATCHES], end[THREAD_BATCHES];
};

static void *launch_thread(void *argument) {
    struct thread *thread = argument;
    check("cuCtxSetCurrent", cuCtxSetCurrent(context));
    launches(16);
    for (int i = 0; i < THREAD_BATCHES; i++) {
        pthread_barrier_wait(&start_line);
        thread->start[i] = now_ns();
        launches(thread->count);
        thread->end[i] = now_ns();
    }
    return NULL;
}

// Nanoseconds a launch while THREADS launch at once: wall time, of as many cores as can be busy.
static double cost_threads(void) {
    struct thread threads[THREADS];
    double each[THREAD_BATCHES];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long count = calls_in(THREAD_BATCH_NS, launches);
    if (cores > THREADS)
        cores = THREADS;
    pthread_barrier_init(&start_line, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i].count = count;
        check("pthread_create", pthread_create(&threads[i].id, NULL, launch_thread, &threads[i]));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    for (int batch = 0; batch < THREAD_BATCHES; batch++) {
        uint64_t first = UINT64_MAX, last = 0;
        for (int i = 0; i < THREADS; i++) {
            if (threads[i].start[batch] < first)
                first = threads[i].start[batch];
            if (threads[i].end[batch] > last)
                last = threads[i].end[batch];
        }
        each[batch] = (double)(last - first) * (double)cores / (double)(count * THREADS);
    }
    return median(each, THREAD_BATCHES);
}

static void measure_launches(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    launch_fn *by_name = handle ? (launch_fn *)dlsym(handle, "cuLaunchKernel") : NULL;
    void *by_version = NULL;
    report("launch", cost(launches));
    if (by_name) {
        launch = by_name;
        report("launch_dlsym", cost(launches));
    }
    check("cuGetProcAddress_v2",
          cuGetProcAddress_v2("cuLaunchKernel", &by_version, 12000, 0, NULL));
    if (by_version) {
        launch = (launch_fn *)by_version;
        report("launch_procaddress", cost(launches));
    }
    launch = cuLaunchKernel;
    report("launch_8", cost_threads());
}

static void measure_memory(void) {
    size_t free_bytes, total_bytes;
    check("cuMemGetInfo_v2", cuMemGetInfo_v2(&free_bytes, &total_bytes));
    report("total_bytes", (double)total_bytes);
    report("info", cost(infos));
    report("alloc", cost(allocations));
    uint64_t start = now_ns();
    for (long i = 0; i < LIVE; i++) {
        check("cuMemAlloc_v2", cuMemAlloc_v2(&live[i], ALLOCATION_BYTES));
        if ((now_ns() - start) / 1000 > SETUP_US_MAX)
            return;
    }
    report("alloc_live", cost(allocations));
    report("replace_live", cost(replacements));
}

int main(void) {
    int device;
    void *module;
    check("cuInit", cuInit(0));
    check("cuDeviceGet", cuDeviceGet(&device, 0));
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
    check("cuCtxSetCurrent", cuCtxSetCurrent(context));
    check("cuModuleLoadData", cuModuleLoadData(&module, ""));
    check("cuModuleGetFunction", cuModuleGetFunction(&function, module, "none"));
    report("look_up", cost(look_ups));
    measure_launches();
    measure_memory();
    puts("done 1");
    fflush(stdout);
    _exit(0);
}
