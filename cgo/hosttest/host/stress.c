// stress.c: threads that allocate and free at random while the agent comes and goes.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#include "../../hooks.h"
#include "driver.h"
#include "host.h"

#define THREADS_MAX 64
#define LIVE_MAX 64

struct worker {
    pthread_t thread;
    uint64_t seed;
    double deadline_ms;
    int release;
    int wrong;
    uint64_t contexts[TEST_GPUS];
    CUdeviceptr live[LIVE_MAX];
    int live_gpu[LIVE_MAX];
};

static CUresult allocate(uint64_t *seed, CUdeviceptr *pointer) {
    size_t pitch, bytes = test_random(seed) % 20 ? test_random(seed) % 65536 + 1
                                                 : test_random(seed) % (8u << 20) + 1;
    switch (test_random(seed) % 8) {
    case 0:
        return weir_cuMemAllocPitch_v2(pointer, &pitch, bytes % 5000 + 1, bytes % 70 + 1, 4);
    case 1:
        return weir_cuMemAllocManaged(pointer, bytes, 1);
    default:
        return weir_cuMemAlloc_v2(pointer, bytes);
    }
}

// Ends one of a worker's contexts. The memory in it is free a moment before the library hears of
// that, as with a real driver, so its addresses may be someone else's by then.
static void end_context(struct worker *worker, int gpu) {
    for (int i = 0; i < LIVE_MAX; i++) {
        if (!worker->live[i] || worker->live_gpu[i] != gpu)
            continue;
        worker->wrong += WEIR_REAL(cuMemFree_v2)(worker->live[i]) != CUDA_SUCCESS;
        worker->live[i] = 0;
    }
    CUcontext context = (CUcontext)(uintptr_t)worker->contexts[gpu];
    worker->wrong += weir_cuCtxDestroy_v2(context) != CUDA_SUCCESS;
    worker->contexts[gpu] = test_driver_new_context(gpu);
}

static void step(struct worker *worker) {
    uint64_t slot = test_random(&worker->seed) % LIVE_MAX;
    int gpu = (int)(test_random(&worker->seed) % TEST_GPUS);
    uint64_t what = test_random(&worker->seed) % 1000;
    test_driver_use_context(worker->contexts[gpu]);
    if (what < 2) {
        end_context(worker, gpu);
    } else if (what < 20) {
        size_t free_bytes, total_bytes;
        worker->wrong += weir_cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS;
    } else if (worker->live[slot]) {
        worker->wrong += weir_cuMemFree_v2(worker->live[slot]) != CUDA_SUCCESS;
        worker->live[slot] = 0;
    } else {
        CUresult result = allocate(&worker->seed, &worker->live[slot]);
        worker->live_gpu[slot] = gpu;
        if (result != CUDA_SUCCESS)
            worker->live[slot] = 0;
        worker->wrong += result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++)
        worker->contexts[gpu] = test_driver_new_context(gpu);
    while (now_ms() < worker->deadline_ms)
        for (int i = 0; i < 50; i++)
            step(worker);
    for (int i = 0; i < LIVE_MAX && worker->release; i++)
        if (worker->live[i])
            worker->wrong += weir_cuMemFree_v2(worker->live[i]) != CUDA_SUCCESS;
    return NULL;
}

int test_stress(int threads, int ms, uint64_t seed, int release) {
    static struct worker workers[THREADS_MAX];
    double deadline = now_ms() + ms;
    int wrong = 0;
    for (int i = 0; i < threads && i < THREADS_MAX; i++) {
        workers[i] = (struct worker){
            .seed = seed + (uint64_t)i * 7919 + 1, .deadline_ms = deadline, .release = release};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < threads && i < THREADS_MAX; i++) {
        pthread_join(workers[i].thread, NULL);
        wrong += workers[i].wrong;
    }
    return wrong;
}

static void *allocate_once(void *failed) {
    CUdeviceptr pointer;
    test_driver_use_context(1);
    return weir_cuMemAlloc_v2(&pointer, 512) == CUDA_SUCCESS ? NULL : failed;
}

int test_crowd(int threads) {
    pthread_t *all = calloc((size_t)threads, sizeof(*all));
    pthread_attr_t attributes;
    int failed = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], &attributes, allocate_once, all);
    for (int i = 0; i < threads; i++) {
        void *result;
        pthread_join(all[i], &result);
        failed += result != NULL;
    }
    free(all);
    return failed;
}

static volatile int waiting_over;

// Waits for all streams again and again, which is when a pool that was left behind is destroyed.
static void *wait_always(void *unused) {
    test_driver_use_context(1);
    while (!waiting_over)
        weir_cuCtxSynchronize();
    return unused;
}

int test_leave(int pools) {
    CUmemPoolProps props = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    pthread_t waiter;
    int wrong = 0;
    test_driver.streams_busy = 1;
    test_driver_use_context(1);
    pthread_create(&waiter, NULL, wait_always, NULL);
    for (int i = 0; i < pools; i++) {
        CUmemoryPool pool;
        CUdeviceptr pointer;
        if (weir_cuMemPoolCreate(&pool, &props) != CUDA_SUCCESS) {
            wrong++;
            continue;
        }
        wrong += weir_cuMemAllocFromPoolAsync(&pointer, 512, pool, NULL) != CUDA_SUCCESS ||
                 weir_cuMemFreeAsync(pointer, NULL) != CUDA_SUCCESS;
        wrong += weir_cuMemPoolDestroy(pool) != CUDA_SUCCESS;
    }
    waiting_over = 1;
    pthread_join(waiter, NULL);
    weir_cuCtxSynchronize();
    return wrong;
}

static volatile uint64_t signals, refused;
static volatile int wrong_in_handler;

static void on_signal(int number) {
    CUdeviceptr pointer;
    (void)number;
    signals++;
    if (weir_cuMemAlloc_v2(&pointer, 512) != CUDA_SUCCESS) {
        refused++;
        return;
    }
    wrong_in_handler += weir_cuMemFree_v2(pointer) != CUDA_SUCCESS;
}

int test_signals(int ms) {
    struct sigaction action = {.sa_handler = on_signal};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    double deadline = now_ms() + ms;
    int wrong = 0;
    test_driver_install_null();
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (uint64_t i = 0; i < 1000 || now_ms() < deadline; i++) {
        CUdeviceptr pointer;
        CUresult result = weir_cuMemAlloc_v2(&pointer, 4096);
        wrong += result != CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            wrong += weir_cuMemFree_v2(pointer) != CUDA_SUCCESS;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    // Some signals must have found the books in use, or this has tested nothing.
    return wrong + wrong_in_handler + (signals == 0) + (refused == 0);
}
