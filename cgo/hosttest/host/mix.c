// mix.c: threads that take, give back and end memory of all kinds at random, while streams have
// work to do or none. A call that was refused is looked into where one thread is alone: what it
// asked for must not have fitted.
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../hooks.h"
#include "../../reserve.h"
#include "../../state.h"
#include "driver.h"
#include "host.h"

#define THREADS_MAX 16
#define SLOTS 32
#define POOLS 3
#define EXECS 3
#define BYTES_MAX (1u << 20)

enum what { NOTHING, POINTER, ARRAY, MIPMAP, POOLED };
static const char *const names[] = {"", "plain", "array", "mipmapped array", "pooled"};

struct slot {
    enum what what;
    int gpu;
    uint64_t handle;
};

struct worker {
    pthread_t thread;
    uint64_t seed;
    double deadline_ms;
    int alone;
    int wrong;
    uint64_t contexts[TEST_GPUS];
    struct slot slots[SLOTS];
    CUmemoryPool pools[POOLS];
    int pool_gpu[POOLS];
    CUgraphExec execs[EXECS];
    uint64_t exec_bytes[EXECS];
    int exec_gpu[EXECS];
};

static uint64_t draw(struct worker *worker, uint64_t below) {
    return test_random(&worker->seed) % below;
}

static void complain(struct worker *worker, const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "%s: %" PRIu64 " %" PRIu64 "\n", what, a, b);
    worker->wrong++;
}

// After a call that takes nothing.
static void expect(struct worker *worker, const char *call, CUresult result) {
    test_driver_call_over();
    if (result != CUDA_SUCCESS)
        complain(worker, call, (uint64_t)result, 0);
}

// After a call that takes `bytes`, rounded up by the driver to `unit`. Whether it succeeded.
static int succeeded(struct worker *worker, CUresult result, int gpu, uint64_t bytes,
                     uint64_t unit) {
    test_driver_call_over();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        complain(worker, "result, bytes", (uint64_t)result, bytes);
    if (worker->alone && result == CUDA_ERROR_OUT_OF_MEMORY && test_driver.limit_bytes[gpu] &&
        test_driver.used_bytes[gpu] + test_driver_round(bytes, unit) <=
            test_driver.limit_bytes[gpu])
        complain(worker, "refused what fits: used, asked", test_driver.used_bytes[gpu], bytes);
    return result == CUDA_SUCCESS;
}

static CUstream any_stream(struct worker *worker, int gpu) {
    uint64_t one = draw(worker, 3);
    return (CUstream)(uintptr_t)(one ? worker->contexts[gpu] * 256 + 16 + one : 0);
}

static CUresult make_array(struct worker *worker, uint64_t bytes, uint64_t *handle) {
    CUDA_ARRAY_DESCRIPTOR flat = {bytes / 64, 16, CU_AD_FORMAT_UNSIGNED_INT8, 4};
    (void)worker;
    return weir_cuArrayCreate_v2((CUarray *)handle, &flat);
}

static CUresult make_mipmap(struct worker *worker, uint64_t *bytes, uint64_t *handle) {
    CUDA_ARRAY3D_DESCRIPTOR made = {
        .Width = *bytes / 256 + 1, .Height = 32, .Format = 0x20, .NumChannels = 1};
    *bytes = 0;
    for (unsigned i = 0; i < 4; i++)
        *bytes += (made.Width >> i ? made.Width >> i : 1) * (32 >> i) * 4;
    (void)worker;
    return weir_cuMipmappedArrayCreate((CUmipmappedArray *)handle, &made, 4);
}

// Allocates in stream order; out of one of the worker's pools, or of the current one.
static CUresult allocate_pooled(struct worker *worker, int *gpu, uint64_t bytes, uint64_t *handle) {
    int one = (int)draw(worker, POOLS + 1);
    CUstream stream = any_stream(worker, *gpu);
    if (one == POOLS || !worker->pools[one])
        return weir_cuMemAllocAsync(handle, bytes, stream);
    *gpu = worker->pool_gpu[one];
    return weir_cuMemAllocFromPoolAsync(handle, bytes, worker->pools[one], stream);
}

static void allocate(struct worker *worker, struct slot *slot, int gpu) {
    uint64_t bytes = draw(worker, 8) ? draw(worker, 65536) + 64 : draw(worker, BYTES_MAX) + 64;
    uint64_t unit = 512;
    CUresult result;
    switch (draw(worker, 6)) {
    case 0:
        slot->what = ARRAY;
        bytes = bytes / 64 * 64;
        result = make_array(worker, bytes, &slot->handle);
        break;
    case 1:
        slot->what = MIPMAP;
        result = make_mipmap(worker, &bytes, &slot->handle);
        break;
    case 2:
        slot->what = POINTER;
        result = weir_cuMemAlloc_v2(&slot->handle, bytes);
        break;
    default:
        slot->what = POOLED;
        unit = test_driver.chunk_bytes;
        result = allocate_pooled(worker, &gpu, bytes, &slot->handle);
    }
    slot->gpu = gpu;
    if (!succeeded(worker, result, gpu, bytes, unit))
        slot->what = NOTHING;
}

static void release(struct worker *worker, struct slot *slot) {
    CUresult result;
    if (slot->what == ARRAY)
        result = weir_cuArrayDestroy((CUarray)(uintptr_t)slot->handle);
    else if (slot->what == MIPMAP)
        result = weir_cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)slot->handle);
    else if (draw(worker, 4) == 0)
        result = weir_cuMemFree_v2(slot->handle);
    else
        result = weir_cuMemFreeAsync(slot->handle, any_stream(worker, slot->gpu));
    expect(worker, names[slot->what], result);
    slot->what = NOTHING;
}

// Makes a pool, or destroys one, whether or not there still is memory of it.
static void change_pool(struct worker *worker, int gpu) {
    int one = (int)draw(worker, POOLS);
    CUmemPoolProps props = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu}};
    uint64_t keep_bytes = draw(worker, 2) * draw(worker, BYTES_MAX);
    CUresult result;
    if (!worker->pools[one]) {
        worker->pool_gpu[one] = gpu;
        result = weir_cuMemPoolCreate(&worker->pools[one], &props);
        if (result != CUDA_SUCCESS)
            worker->pools[one] = NULL;
    } else if (draw(worker, 3) == 0) {
        result = weir_cuMemPoolTrimTo(worker->pools[one], keep_bytes);
    } else if (draw(worker, 3) == 0) {
        result = weir_cuMemPoolSetAttribute(worker->pools[one], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                            &keep_bytes);
    } else {
        result = weir_cuMemPoolDestroy(worker->pools[one]);
        worker->pools[one] = NULL;
    }
    expect(worker, "pool", result);
}

// Makes an executable graph with up to three memory nodes; or destroys it.
static void change_exec(struct worker *worker, int gpu) {
    int one = (int)draw(worker, EXECS);
    if (worker->execs[one]) {
        expect(worker, "cuGraphExecDestroy", weir_cuGraphExecDestroy(worker->execs[one]));
        worker->execs[one] = NULL;
        return;
    }
    CUgraph graph;
    CUgraphNode node;
    worker->exec_bytes[one] = 0;
    worker->exec_gpu[one] = gpu;
    ((CUresult(*)(CUgraph *, unsigned))weir_real_table[WEIR_FN_cuGraphCreate])(&graph, 0);
    for (uint64_t nodes = draw(worker, 4); nodes > 0; nodes--) {
        CUDA_MEM_ALLOC_NODE_PARAMS params = {
            .poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu},
            .bytesize = draw(worker, BYTES_MAX / 2) + 1};
        worker->wrong += weir_cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params) != 0;
        worker->exec_bytes[one] += params.bytesize;
    }
    expect(worker, "cuGraphInstantiateWithFlags",
           weir_cuGraphInstantiateWithFlags(&worker->execs[one], graph, 0));
    ((CUresult(*)(CUgraph))weir_real_table[WEIR_FN_cuGraphDestroy])(graph);
}

static void run_graph(struct worker *worker) {
    int one = (int)draw(worker, EXECS);
    int gpu = worker->exec_gpu[one];
    if (!worker->execs[one])
        return;
    if (draw(worker, 8) == 0) {
        expect(worker, "cuDeviceGraphMemTrim", weir_cuDeviceGraphMemTrim(gpu));
        return;
    }
    CUstream stream = any_stream(worker, gpu);
    CUresult result = draw(worker, 4) ? weir_cuGraphLaunch(worker->execs[one], stream)
                                      : weir_cuGraphUpload(worker->execs[one], stream);
    succeeded(worker, result, gpu, worker->exec_bytes[one], test_driver.chunk_bytes);
}

static void wait_for_streams(struct worker *worker, int gpu) {
    switch (draw(worker, 3)) {
    case 0:
        worker->wrong += weir_cuCtxSynchronize() != CUDA_SUCCESS;
        break;
    case 1:
        worker->wrong += weir_cuStreamSynchronize(any_stream(worker, gpu)) != CUDA_SUCCESS;
        break;
    default:
        weir_cuStreamQuery(any_stream(worker, gpu));
    }
    test_driver_call_over();
}

// Ends a context, and with it the plain memory and the arrays in it.
static void end_context(struct worker *worker, int gpu) {
    for (int i = 0; i < SLOTS; i++) {
        struct slot *slot = &worker->slots[i];
        if (slot->gpu != gpu || slot->what == NOTHING || slot->what == POOLED)
            continue;
        if (slot->what == POINTER)
            worker->wrong += WEIR_REAL(cuMemFree_v2)(slot->handle) != CUDA_SUCCESS;
        else if (slot->what == ARRAY)
            worker->wrong +=
                WEIR_REAL(cuArrayDestroy)((CUarray)(uintptr_t)slot->handle) != CUDA_SUCCESS;
        else
            worker->wrong += WEIR_REAL(cuMipmappedArrayDestroy)(
                                 (CUmipmappedArray)(uintptr_t)slot->handle) != CUDA_SUCCESS;
        slot->what = NOTHING;
    }
    CUcontext context = (CUcontext)(uintptr_t)worker->contexts[gpu];
    worker->wrong += weir_cuCtxDestroy_v2(context) != CUDA_SUCCESS;
    worker->contexts[gpu] = test_driver_new_context(gpu);
}

static void step(struct worker *worker) {
    int gpu = (int)draw(worker, TEST_GPUS);
    struct slot *slot = &worker->slots[draw(worker, SLOTS)];
    uint64_t what = draw(worker, 1000);
    test_driver_use_context(worker->contexts[gpu]);
    if (what < 4)
        end_context(worker, gpu);
    else if (what < 30)
        change_pool(worker, gpu);
    else if (what < 50)
        change_exec(worker, gpu);
    else if (what < 100)
        run_graph(worker);
    else if (what < 150)
        wait_for_streams(worker, gpu);
    else if (slot->what != NOTHING)
        release(worker, slot);
    else
        allocate(worker, slot, gpu);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++)
        if (!worker->contexts[gpu])
            worker->contexts[gpu] = test_driver_new_context(gpu);
    while (now_ms() < worker->deadline_ms)
        step(worker);
    return NULL;
}

// What each reserve of a GPU is charged, and what the driver says of it.
static void show_reserves(const struct weir_state *state, int gpu) {
    for (uint32_t i = 0; i < state->reserves_used; i++) {
        const struct weir_reserve *reserve = &state->reserves[i];
        uint64_t reserved = 0;
        if (!reserve->kind || reserve->gpu != (uint32_t)gpu)
            continue;
        weir_reserved((enum weir_kind)reserve->kind, reserve->handle, &reserved);
        fprintf(stderr,
                "  %u of kind %u: charged %" PRIu64 ", reserved %" PRIu64 ", used %" PRIu64
                ", orphan %d, busy %d, pins %d, loose %d\n",
                i, (unsigned)reserve->kind, reserve->charged_bytes, reserved,
                weir_reserve_used((enum weir_kind)reserve->kind, reserve->handle),
                (int)reserve->orphan, (int)reserve->busy, (int)reserve->pins, (int)state->loose);
    }
}

// At rest, what the library is charged is what the driver has given out.
static int books_differ(void) {
    int wrong = 0;
    test_driver_use_context(1);
    test_driver.streams_busy = 0;
    weir_cuCtxSynchronize();
    struct weir_state *state = weir_state_page;
    weir_lock(&state->lock);
    for (int gpu = 0; gpu < TEST_GPUS; gpu++) {
        uint64_t owned = state->gpus[gpu].owned_bytes, used = test_driver.used_bytes[gpu];
        if (owned != used) {
            fprintf(stderr, "GPU %d: owns %" PRIu64 ", the driver has %" PRIu64 "\n", gpu, owned,
                    used);
            show_reserves(state, gpu);
        }
        wrong += owned != used;
    }
    weir_unlock(&state->lock);
    return wrong;
}

static void release_all(struct worker *worker) {
    for (int i = 0; i < SLOTS; i++)
        if (worker->slots[i].what != NOTHING)
            release(worker, &worker->slots[i]);
    for (int i = 0; i < POOLS; i++)
        if (worker->pools[i])
            worker->wrong += weir_cuMemPoolDestroy(worker->pools[i]) != CUDA_SUCCESS;
    for (int i = 0; i < EXECS; i++)
        if (worker->execs[i])
            worker->wrong += weir_cuGraphExecDestroy(worker->execs[i]) != CUDA_SUCCESS;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++)
        worker->wrong += weir_cuDeviceGraphMemTrim(gpu) != CUDA_SUCCESS;
}

int test_mix(int threads, int ms, int rounds, uint64_t seed) {
    static struct worker workers[THREADS_MAX];
    int wrong = 0;
    for (int i = 0; i < threads && i < THREADS_MAX; i++)
        workers[i] = (struct worker){.seed = seed + (uint64_t)i * 7919 + 1, .alone = threads == 1};
    for (int round = 0; round < rounds && !wrong; round++) {
        double deadline = now_ms() + ms;
        test_driver.streams_busy = round % 2;
        test_driver.used_lags = round / 2 % 2;
        for (int i = 0; i < threads && i < THREADS_MAX; i++) {
            workers[i].deadline_ms = deadline;
            pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        }
        for (int i = 0; i < threads && i < THREADS_MAX; i++) {
            pthread_join(workers[i].thread, NULL);
            wrong += workers[i].wrong;
        }
        wrong += books_differ();
    }
    for (int i = 0; i < threads && i < THREADS_MAX; i++)
        release_all(&workers[i]);
    return wrong + books_differ();
}
