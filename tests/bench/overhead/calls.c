// calls.c: what single driver calls cost in this process, in nanoseconds.
//
// Linked with libcuda.so.1 directly; whatever is preloaded stands in front of it. It prints one
// line a figure, "key value", which overhead.c reads (measure.h). What few libraries have comes
// late.
#define _GNU_SOURCE
#include "measure.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
    THREADS = 8,
    THREAD_BATCHES = 5,
    THREAD_BATCH_NS = 4000000,
    ALLOCATION_BYTES = 512,
    PHYSICAL_BYTES = 2 << 20,
    LIVE = 100000,
    SETUP_US_MAX = 3000000,  // a rival may be slow at 100,000 live allocations
};

static void *function, *context, *stream, *pool;
static launch_fn *launch = cuLaunchKernel;
static uint64_t live[LIVE];
static uint32_t random_state = 1;

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

static void stream_allocations(long count) {
    for (long i = 0; i < count; i++) {
        uint64_t address;
        check("cuMemAllocAsync", cuMemAllocAsync(&address, ALLOCATION_BYTES, stream));
        check("cuMemFreeAsync", cuMemFreeAsync(address, stream));
    }
}

static void pool_allocations(long count) {
    for (long i = 0; i < count; i++) {
        uint64_t address;
        check("cuMemAllocFromPoolAsync",
              cuMemAllocFromPoolAsync(&address, ALLOCATION_BYTES, pool, stream));
        check("cuMemFreeAsync", cuMemFreeAsync(address, stream));
    }
}

static void arrays(long count) {
    const array_description description = {16, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    for (long i = 0; i < count; i++) {
        void *array;
        check("cuArrayCreate_v2", cuArrayCreate_v2(&array, &description));
        check("cuArrayDestroy", cuArrayDestroy(array));
    }
}

static void physical(long count) {
    const memory_properties properties = {CU_MEM_ALLOCATION_TYPE_PINNED, 0, ON_DEVICE_0, NULL, {0}};
    for (long i = 0; i < count; i++) {
        uint64_t handle;
        check("cuMemCreate", cuMemCreate(&handle, PHYSICAL_BYTES, &properties, 0));
        check("cuMemRelease", cuMemRelease(handle));
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
    report("launch_new", cost(launches));
    let_learn(launches);
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

// Has a pool keep what it has reserved, as programs do for which time matters. (Of one that gives
// it back at the next occasion, as pools do at first, the library looks at each free whether it
// has.)
static void keep_reserved(void *of_pool) {
    uint64_t all = UINT64_MAX;
    check("cuMemPoolSetAttribute",
          cuMemPoolSetAttribute(of_pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

// Calls that take memory, while hardly any is live.
static void measure_memory(void) {
    const pool_properties properties = {
        CU_MEM_ALLOCATION_TYPE_PINNED, 0, ON_DEVICE_0, NULL, 0, {0}};
    size_t free_bytes, total_bytes;
    void *default_pool;
    check("cuMemGetInfo_v2", cuMemGetInfo_v2(&free_bytes, &total_bytes));
    report("total_bytes", (double)total_bytes);
    report("info", cost(infos));
    report("alloc", cost(allocations));
    check("cuStreamCreate", cuStreamCreate(&stream, 0));
    check("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&default_pool, 0));
    keep_reserved(default_pool);
    report("async", cost(stream_allocations));
    check("cuMemPoolCreate", cuMemPoolCreate(&pool, &properties));
    keep_reserved(pool);
    report("pool", cost(pool_allocations));
    report("array", cost(arrays));
    report("physical", cost(physical));
}

// Makes LIVE allocations with each of two calls; false where that takes too long.
static int allocate_in_order(void) {
    uint64_t start = now_ns(), address;
    for (long i = 0; i < LIVE && (now_ns() - start) / 1000 <= SETUP_US_MAX; i++) {
        check("cuMemAllocAsync", cuMemAllocAsync(&address, ALLOCATION_BYTES, stream));
        check("cuMemAllocFromPoolAsync",
              cuMemAllocFromPoolAsync(&address, ALLOCATION_BYTES, pool, stream));
    }
    return (now_ns() - start) / 1000 <= SETUP_US_MAX;
}

static int allocate_plain(void) {
    uint64_t start = now_ns();
    for (long i = 0; i < LIVE && (now_ns() - start) / 1000 <= SETUP_US_MAX; i++)
        check("cuMemAlloc_v2", cuMemAlloc_v2(&live[i], ALLOCATION_BYTES));
    return (now_ns() - start) / 1000 <= SETUP_US_MAX;
}

// The same while LIVE allocations of their kind are live.
static void measure_many(void) {
    if (!allocate_in_order())
        return;
    report("async_live", cost(stream_allocations));
    report("pool_live", cost(pool_allocations));
    if (!allocate_plain())
        return;
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
    measure_variants(function);
    measure_memory();
    measure_many();
    puts("done 1");
    fflush(stdout);
    _exit(0);
}
