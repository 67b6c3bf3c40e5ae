// context_test.c: what contexts can be told and asked, what their limits take of the card, and
// green contexts. Device 1 is of a newer kind. WEIR_TEST_SEED repeats the random limits.
#define _GNU_SOURCE
#include "test_driver.h"

#include <pthread.h>
#include <time.h>

static uint64_t state;

static uint32_t below(uint32_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)((state >> 11) % bound);
}

static uint64_t granules(uint64_t bytes) {
    return (bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
}

// ---- Limits ----

// What the limits of the current context must take.
struct model {
    size_t stack, fifo, heap;
};

static uint64_t beyond(size_t value, size_t standard) {
    return value > standard ? value - standard : 0;
}

static uint64_t bytes_of(const struct model *m) {
    return granules(beyond(m->stack, 1024) * 56 * 2048) + granules(beyond(m->fifo, 1 << 20)) +
           granules(beyond(m->heap, 8 << 20));
}

static void limits_take_their_bytes(void) {
    uint64_t before = free_bytes();
    size_t value;
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (8 << 20) + 1));
    CHECK_EQ(before - free_bytes(), 512);
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 << 20));
    CHECK_EQ(before - free_bytes(), 512 + 2 * MIB);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1040));
    CHECK_EQ(before - free_bytes(), 512 + 2 * MIB + 16 * 56 * 2048);
    OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    CHECK_EQ(value, 1040);
    // What does not fit leaves everything as it was.
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 100 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK_EQ(value, (8 << 20) + 1);
    CHECK_EQ(before - free_bytes(), 512 + 2 * MIB + 16 * 56 * 2048);
    OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1));
    OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 0));
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1));
    CHECK_EQ(free_bytes(), before);
}

static void random_limits(void) {
    uint64_t before = free_bytes();
    CUcontext context;
    OK(cuCtxCreate_v2(&context, 0, 0));
    uint64_t empty = free_bytes();
    struct model model = {1024, 1 << 20, 8 << 20};
    for (unsigned i = 0; i < 500; i++) {
        struct model next = model;
        CUlimit limit = (CUlimit)below(3);
        size_t value = limit == CU_LIMIT_STACK_SIZE ? below(1300) : below(60 << 20);
        size_t *field = limit == CU_LIMIT_STACK_SIZE         ? &next.stack
                        : limit == CU_LIMIT_PRINTF_FIFO_SIZE ? &next.fifo
                                                             : &next.heap;
        *field = value;
        bool fits = bytes_of(&next) <= empty;
        CHECK_EQ(cuCtxSetLimit(limit, value), fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
        if (fits)
            model = next;
        CHECK_EQ(empty - free_bytes(), bytes_of(&model));
    }
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(free_bytes(), before);
}

static void other_limits(void) {
    uint64_t before = free_bytes();
    size_t value;
    CUcontext newer;
    OK(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4));
    OK(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096));
    OK(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128));
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 129), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, SIZE_MAX));  // as much as there is
    OK(cuCtxGetLimit(&value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
    CHECK_EQ(value, 18874368);
    OK(cuCtxResetPersistingL2Cache());
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_MAX, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_EQ(cuCtxGetLimit(&value, (CUlimit)-1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_EQ(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(free_bytes(), before);
    OK(cuCtxCreate_v2(&newer, 0, 1));
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2), CUDA_ERROR_UNSUPPORTED_LIMIT);
    OK(cuCtxDestroy_v2(newer));
}

// ---- Making and sharing contexts ----

static void ways_to_make_contexts(void) {
    uint64_t before = free_bytes();
    CUcontext context;
    unsigned version, flags;
    unsigned long long id, other;
    CUexecAffinityParam affinity = {.param.smCount.val = 8};
    CUctxCreateParams params = {.execAffinityParams = &affinity, .numExecAffinityParams = 1};
    int supported = 1;
    OK(cuCtxCreate(&context, 0, 0));
    OK(cuCtxGetApiVersion(context, &version));
    CHECK_EQ(version, 3010);
    OK(cuCtxGetId(context, &id));
    OK(cuCtxGetId(primary, &other));
    CHECK(id != other);
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(cuCtxGetId(context, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxCreate_v3(&context, NULL, 0, CU_CTX_MAP_HOST, 0));
    OK(cuCtxGetFlags(&flags));
    CHECK_EQ(flags, CU_CTX_MAP_HOST);
    CHECK_EQ(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT),
             CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    OK(cuCtxDestroy_v2(context));
    OK(cuCtxCreate_v4(&context, NULL, 0, 0));
    OK(cuCtxDestroy_v2(context));
    OK(cuDeviceGetExecAffinitySupport(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
    CHECK_EQ(supported, 0);
    CHECK_EQ(cuCtxCreate_v3(&context, &affinity, 1, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    CHECK_EQ(cuCtxCreate_v3(&context, NULL, 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuCtxCreate_v4(&context, &params, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    params.cigParams = &params;
    CHECK_EQ(cuCtxCreate_v4(&context, &params, 0, 0), CUDA_ERROR_INVALID_VALUE);
    params.numExecAffinityParams = 0;
    CHECK_EQ(cuCtxCreate_v4(&context, &params, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuCtxCreate_v2(&context, 0, 9), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuCtxCreate_v2(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuCtxCreate_v2(&context, 1u << 20, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(free_bytes(), before);
}

static void attached_contexts(void) {
    uint64_t before = free_bytes();
    CUcontext context, attached;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxAttach(&attached, 0));
    CHECK(attached == context);
    CHECK_EQ(cuCtxAttach(&attached, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT);  // not the current one
    OK(cuCtxDetach(context));
    CHECK_EQ(before - free_bytes(), 2 * MIB);
    OK(cuCtxDetach(context));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT);
}

static void preferences(void) {
    int value, least, greatest;
    OK(cuCtxSetCacheConfig(2));
    OK(cuCtxGetCacheConfig(&value));
    CHECK_EQ(value, 2);
    CHECK_EQ(cuCtxSetCacheConfig(4), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetFlags(CU_CTX_LMEM_RESIZE_TO_MAX));
    OK(cuCtxSetFlags(0));
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
}

static void core_dumps(void) {
    bool on = true;
    char name[64] = "dump.%p";
    size_t bytes = sizeof on;
    CUcontext context;
    OK(cuCoredumpSetAttributeGlobal(1, &on, &bytes));
    OK(cuCtxCreate_v2(&context, 0, 0));
    on = false;
    OK(cuCoredumpGetAttribute(1, &on, &bytes));
    CHECK(on);
    on = false;
    OK(cuCoredumpSetAttribute(1, &on, &bytes));
    on = true;
    OK(cuCoredumpGetAttribute(1, &on, &bytes));
    CHECK(!on);
    OK(cuCoredumpGetAttributeGlobal(1, &on, &bytes));
    CHECK(on);
    bytes = sizeof name;
    OK(cuCoredumpSetAttribute(5, name, &bytes));
    OK(cuCoredumpGetAttribute(5, NULL, &bytes));
    CHECK_EQ(bytes, 8);
    memset(name, 0, sizeof name);
    OK(cuCoredumpGetAttribute(5, name, &bytes));
    CHECK(!strcmp(name, "dump.%p"));
    bytes = 7;
    CHECK_EQ(cuCoredumpGetAttribute(5, name, &bytes), CUDA_ERROR_INVALID_VALUE);
    bytes = 1;
    CHECK_EQ(cuCoredumpSetAttribute(4, &on, &bytes), CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(cuCoredumpSetAttribute(99, &on, &bytes), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxDestroy_v2(context));
    on = false;
    OK(cuCoredumpSetAttributeGlobal(1, &on, &bytes));
}

// ---- Parts of a device ----

static void divided_devices(void) {
    CUdevResource all, groups[8], rest, forged;
    unsigned count = 3;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(all.sm.smCount, 56);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 10));
    CHECK_EQ(count, 5);
    count = 3;
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 11));
    CHECK_EQ(count, 3);
    CHECK_EQ(groups[2].sm.smCount, 12);  // of two at least
    CHECK_EQ(rest.sm.smCount, 56 - 36);
    count = 8;
    OK(cuDevSmResourceSplitByCount(groups, &count, &rest, &rest, 0, 1));
    CHECK_EQ(count, 5);  // four is the least here
    CHECK_EQ(groups[0].sm.smCount, 4);
    CHECK_EQ(rest.sm.smCount, 0);
    OK(cuDeviceGetDevResource(1, &all, CU_DEV_RESOURCE_TYPE_SM));
    count = 8;
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 10));
    CHECK(count == 3 && groups[0].sm.smCount == 16 && rest.sm.smCount == 8);
    count = 8;
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, NULL,
                                   CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 10));
    CHECK(count == 5 && groups[0].sm.smCount == 10);
    CHECK_EQ(cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, 57),
             CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CHECK_EQ(cuDevSmResourceSplitByCount(groups, NULL, &all, NULL, 0, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceGetDevResource(0, &all, (CUdevResourceType)7),
             CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CHECK_EQ(cuDeviceGetDevResource(5, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
    forged = groups[0];
    forged.sm.smCount = 50;
    CHECK_EQ(cuDevSmResourceSplitByCount(NULL, &count, &forged, NULL, 0, 8),
             CUDA_ERROR_INVALID_VALUE);
}

static CUgreenCtx green_of(CUdevice device, unsigned processors) {
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned count = 1;
    OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &count, &all, NULL, 0, processors));
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    CHECK_EQ(cuGreenCtxCreate(&green, description, 1 - device, CU_GREEN_CTX_DEFAULT_STREAM),
             CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CHECK_EQ(cuGreenCtxCreate(&green, description, device, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static void green_contexts(void) {
    uint64_t before = free_bytes();
    CUgreenCtx green = green_of(0, 20), got_green;
    CUcontext context, got;
    CUdevResource resource;
    CUstream stream;
    CUmodule module;
    CUfunction function;
    CHECK_EQ(before - free_bytes(), 2 * MIB);
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuGreenCtxGetDevResource(green, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(resource.sm.smCount, 20);
    OK(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(resource.sm.smCount, 20);
    OK(cuCtxGetDevResource(primary, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(resource.sm.smCount, 56);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_EQ(cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamGetGreenCtx(stream, &got_green));
    CHECK(got_green == green);
    OK(cuStreamGetCtx_v2(stream, &got, &got_green));
    CHECK(!got && got_green == green);
    OK(cuStreamGetCtx_v2(NULL, &got, &got_green));
    CHECK(got == primary && !got_green);
    OK(cuCtxGetCurrent(&got));
    CHECK(got == primary);
    // It works as any context does.
    OK(cuCtxPushCurrent_v2(context));
    OK(cuModuleLoadData(&module, test_kernels));
    OK(cuModuleGetFunction(&function, module, "add"));
    CUdeviceptr at = alloc(16);
    uint32_t words[4] = {1, 2, 3, 4}, n = 4, by = 10;
    void *params[] = {&at, &n, &by};
    OK(cuMemcpyHtoD_v2(at, words, sizeof words));
    OK(cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, stream, params, NULL));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(words, at, sizeof words));
    CHECK_EQ(words[3], 14);
    OK(cuCtxPopCurrent_v2(NULL));
    CHECK_EQ(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuGreenCtxDestroy(green));
    CHECK_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxFromGreenCtx(&context, green), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(free_bytes(), before);
}

// It retains the primary context of a device that nobody uses yet.
static void green_retains_primary(void) {
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 0);
    CUgreenCtx green = green_of(1, 8);
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 1);
    OK(cuGreenCtxDestroy(green));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 0);
    // A program may release more than it has retained; the green context ends all the same.
    green = green_of(1, 8);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    OK(cuGreenCtxDestroy(green));
    CHECK_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
}

// An event after all work of a context; and all work of a context after an event.
static void all_work_at_once(void) {
    CUgreenCtx green = green_of(0, 8);
    CUcontext context;
    CUstream streams[2], later;
    CUevent after, go;
    CUmodule module;
    CUfunction slow;
    uint64_t cost = 1000000;
    void *params[] = {&cost};
    int holds[2];
    OK(cuCtxFromGreenCtx(&context, green));
    OK(cuCtxPushCurrent_v2(context));
    OK(cuModuleLoadData(&module, test_kernels));
    OK(cuModuleGetFunction(&slow, module, "weir_spin_ns"));
    OK(cuEventCreate(&after, 0));
    for (unsigned i = 0; i < 2; i++) {
        OK(cuGreenCtxStreamCreate(&streams[i], green, CU_STREAM_NON_BLOCKING, 0));
        hold(streams[i], &holds[i]);
        OK(cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, streams[i], params, NULL));
    }
    OK(cuCtxRecordEvent(context, after));
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
        let_go(&holds[i]);
    }
    OK(cuEventSynchronize(after));
    OK(cuStreamQuery(streams[0]));
    OK(cuStreamQuery(streams[1]));
    OK(cuCtxPopCurrent_v2(NULL));
    // The primary context's kernel holds up the green context, streams to come included.
    OK(cuEventCreate(&go, 0));
    hold(NULL, &holds[0]);
    spin_for(cost, NULL);
    OK(cuEventRecord(go, NULL));
    OK(cuGreenCtxWaitEvent(green, go));
    OK(cuGreenCtxStreamCreate(&later, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_EQ(cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(later), CUDA_ERROR_NOT_READY);
    let_go(&holds[0]);
    OK(cuStreamSynchronize(later));
    OK(cuEventQuery(go));
    CHECK_EQ(cuCtxRecordEvent(context, go), CUDA_ERROR_INVALID_HANDLE);  // of another context
    CHECK_EQ(cuCtxWaitEvent((CUcontext)&cost, go), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuGreenCtxRecordEvent(green, after));
    OK(cuEventSynchronize(after));
    OK(cuEventDestroy_v2(go));
    OK(cuGreenCtxDestroy(green));
}

// Contexts come and go in several threads; the books are exact at every moment that can be told.
static void *churn(void *unused) {
    for (unsigned i = 0; i < 40; i++) {
        CUcontext context;
        CUmodule module;
        CUdeviceptr at;
        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuModuleLoadData(&module, test_kernels));
        OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (8 << 20) + 4096));
        OK(cuMemAlloc_v2(&at, 1000));
        if (i % 2)
            OK(cuModuleUnload(module));
        OK(cuCtxDestroy_v2(context));
    }
    return unused;
}

static void contexts_in_threads(void) {
    uint64_t before = free_bytes();
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, churn, NULL));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK_EQ(free_bytes(), before);
}

int main(int argc, char **argv) {
    const char *seed = getenv("WEIR_TEST_SEED");
    state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
    state = state ? state : 1;
    printf("WEIR_TEST_SEED=%llu\n", (unsigned long long)state);
    struct sim_config machine = test_config();
    machine.gpus[1].compute_major = 9;
    start_driver_on(&machine);
    static const struct test tests[] = {
        TEST(limits_take_their_bytes),
        TEST(random_limits),
        TEST(other_limits),
        TEST(ways_to_make_contexts),
        TEST(attached_contexts),
        TEST(preferences),
        TEST(core_dumps),
        TEST(divided_devices),
        TEST(green_contexts),
        TEST(green_retains_primary),
        TEST(all_work_at_once),
        TEST(contexts_in_threads),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
