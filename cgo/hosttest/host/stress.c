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
};

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

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

static void *work(void *argument) {
    struct worker *worker = argument;
    CUdeviceptr live[LIVE_MAX] = {0};
    while (now_ms() < worker->deadline_ms) {
        for (int i = 0; i < 50; i++) {
            uint64_t slot = test_random(&worker->seed) % LIVE_MAX;
            test_driver_use_context(test_random(&worker->seed) % TEST_GPUS + 1);
            if (live[slot]) {
                worker->wrong += weir_cuMemFree_v2(live[slot]) != CUDA_SUCCESS;
                live[slot] = 0;
                continue;
            }
            CUresult result = allocate(&worker->seed, &live[slot]);
            if (result != CUDA_SUCCESS)
                live[slot] = 0;
            worker->wrong += result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    for (int i = 0; i < LIVE_MAX && worker->release; i++)
        if (live[i])
            worker->wrong += weir_cuMemFree_v2(live[i]) != CUDA_SUCCESS;
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
