// work_test.c: streams, events, host functions, modules and launches of the simulated driver, in
// one process: that order and results are right, and that time passes on the GPU as it does here.
#define _GNU_SOURCE
#include "test_driver.h"

#include <limits.h>
#include <pthread.h>

// ---- Streams and events ----

static void stream_order(void) {
    uint32_t *host;
    CUstream streams[4];
    CUdeviceptr at = alloc(4096);
    OK(cuMemHostAlloc((void **)&host, 4096, 0));
    for (unsigned i = 0; i < 4; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32_v2(at, 0, 1024));
    OK(cuCtxSynchronize());
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < 100; i++) {
        // From stream to stream by one event that is recorded again and again.
        add_to(at, 1024, 1, streams[i % 4]);
        OK(cuEventRecord(event, streams[i % 4]));
        OK(cuStreamWaitEvent(streams[(i + 1) % 4], event, 0));
    }
    OK(cuMemcpyDtoHAsync_v2(host, at, 4096, streams[0]));
    OK(cuStreamSynchronize(streams[0]));
    CHECK_EQ(host[0], 100);
    CHECK_EQ(host[1023], 100);
    for (unsigned i = 0; i < 4; i++)
        OK(cuStreamDestroy_v2(streams[i]));
    CHECK_EQ(cuStreamDestroy_v2(streams[0]), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(event));
    OK(cuMemFreeHost(host));
    OK(cuMemFree_v2(at));
}

// A time that has passed on the GPU has passed here, and the other way round.
static void event_times(void) {
    CUevent start, end, never;
    CUstream stream;
    float ms;
    int go;
    OK(cuEventCreate(&never, CU_EVENT_DEFAULT));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventQuery(start));  // never recorded: nothing to wait for
    uint64_t before = sim_now_ns();
    hold(stream, &go);
    OK(cuEventRecord(start, stream));
    for (unsigned i = 0; i < 4; i++)
        spin_for(10000000, stream);
    OK(cuEventRecord(end, stream));
    CHECK_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuEventElapsedTime(&ms, end, never), CUDA_ERROR_INVALID_HANDLE);
    let_go(&go);
    OK(cuEventSynchronize(end));
    CHECK(sim_now_ns() - before >= 40000000);
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms > 39.9 && ms < 40.1);
    OK(cuStreamQuery(stream));
    // The ring of operations forgets the recordings; the events do not.
    for (unsigned i = 0; i < 3000; i++)
        spin_for(0, stream);
    OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms > 39.9 && ms < 40.1);
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(stream));
}

// The time from the beginning of a spin in one stream to an event in another, which does not wait
// for it where that is below 0.
static float delay(CUstream first, CUstream second) {
    CUevent start, end;
    float ms;
    int go;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    hold(first, &go);
    OK(cuEventRecord(start, first));
    spin_for(20000000, first);
    OK(cuEventRecord(end, second));
    let_go(&go);
    OK(cuCtxSynchronize());
    OK(cuEventElapsedTime(&ms, start, end));
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    return ms;
}

static void default_stream(void) {
    CUstream blocking, free_one;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    CHECK(delay(NULL, blocking) >= 20);
    CHECK(delay(blocking, NULL) >= 20);
    CHECK(delay(blocking, CU_STREAM_LEGACY) >= 20);
    CHECK(delay(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) >= 20);
    CHECK(delay(CU_STREAM_PER_THREAD, NULL) >= 20);
    CHECK(delay(NULL, free_one) < 0);
    CHECK(delay(free_one, NULL) < 0);
    CHECK(delay(blocking, CU_STREAM_PER_THREAD) < 0);
    // Many blocking streams are joined, however many.
    CUstream many[20];
    uint64_t before = sim_now_ns();
    for (unsigned i = 0; i < 20; i++) {
        OK(cuStreamCreate(&many[i], CU_STREAM_DEFAULT));
        spin_for(1000000, many[i]);
    }
    OK(cuStreamSynchronize(NULL));
    CHECK(sim_now_ns() - before >= 20 * 1000000);
    for (unsigned i = 0; i < 20; i++) {
        OK(cuStreamQuery(many[i]));
        OK(cuStreamDestroy_v2(many[i]));
    }
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(free_one));
}

static uint64_t called_ns;
static CUresult inside;

static void host_function(void *user) {
    int n;
    inside = cuDeviceGetCount(&n);
    called_ns = sim_now_ns();
    *(int *)user += 1;
}

static void callback(CUstream stream, CUresult status, void *user) {
    (void)stream;
    *(int *)user += status == CUDA_SUCCESS ? 10 : 1000;
}

static void host_functions(void) {
    int count = 0, go;
    uint32_t value;
    CUstream stream, other;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    uint64_t before = sim_now_ns();
    spin_for(30000000, stream);
    OK(cuLaunchHostFunc(stream, host_function, &count));
    hold(stream, &go);  // until it is seen that this holds nothing else
    OK(cuStreamAddCallback(stream, callback, &count, 0));
    spin_for(1000, stream);
    // Another stream is not held up.
    CUdeviceptr at = alloc(4);
    OK(cuMemsetD32Async(at, 1, 1, other));
    OK(cuStreamSynchronize(other));
    OK(cuMemcpyDtoH_v2(&value, at, 4));
    CHECK_EQ(value, 1);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    let_go(&go);
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(count, 11);
    CHECK_EQ(inside, CUDA_ERROR_NOT_PERMITTED);
    CHECK(called_ns - before >= 30000000);
    OK(cuMemFree_v2(at));
    OK(cuStreamDestroy_v2(stream));
    OK(cuStreamDestroy_v2(other));
}

// A launcher that is ahead by the depth of the queue waits for the oldest kernel.
static void bounded_queue(void) {
    uint64_t before = sim_now_ns();
    for (unsigned i = 0; i < 1024 + 100; i++)
        spin_for(200000, NULL);
    uint64_t took = sim_now_ns() - before;
    CHECK(took >= 99 * 200000);
    OK(cuCtxSynchronize());
    CHECK(sim_now_ns() - before >= 1124u * 200000);
}

// A query never waits, however full the queue: what has to end before there is a place has not.
static void query_of_full_queue(void) {
    CUstream stream;
    CUevent place;
    OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&place, CU_EVENT_DISABLE_TIMING));
    spin_for(2000000000, stream);
    OK(cuEventRecord(place, stream));
    for (unsigned i = 2; i < SIM_QUEUE_MAX; i++)
        spin_for(0, stream);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuEventQuery(place), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamQuery(NULL));
    OK(cuEventDestroy_v2(place));
    OK(cuStreamDestroy_v2(stream));
}

// ---- Modules and launches ----

static void kernels_compute(void) {
    uint32_t host[1000];
    CUdeviceptr at = alloc(sizeof host);
    for (unsigned i = 0; i < 1000; i++)
        host[i] = i;
    OK(cuMemcpyHtoD_v2(at, host, sizeof host));
    add_to(at, 1000, 3, NULL);
    // The same in one buffer, and with a configuration.
    struct {
        CUdeviceptr at;
        uint32_t count, by;
    } arguments = {at, 1000, 10};
    size_t bytes = sizeof arguments;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, extra));
    CUlaunchConfig config = {4, 1, 1, 256, 1, 1, 0, NULL, NULL, 0};
    OK(cuLaunchKernelEx(&config, add, NULL, extra));
    OK(cuMemcpyDtoH_v2(host, at, sizeof host));
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(host[i], i + 23);
    OK(cuMemFree_v2(at));
    CHECK_EQ(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
    CHECK(cuLaunchKernel(add, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, extra));
    CHECK_EQ(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel((CUfunction)&bytes, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
             CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z);
CUresult cuParamSetSize(CUfunction function, unsigned int bytes);
CUresult cuParamSeti(CUfunction function, int offset, unsigned int value);
CUresult cuParamSetv(CUfunction function, int offset, void *data, unsigned int bytes);
CUresult cuLaunchGrid(CUfunction function, int width, int height);

static void old_launches(void) {
    uint32_t host[1000] = {0};
    CUdeviceptr at = alloc(sizeof host);
    OK(cuMemcpyHtoD_v2(at, host, sizeof host));
    OK(cuFuncSetBlockShape(add, 256, 1, 1));
    OK(cuParamSetv(add, 0, &at, sizeof at));
    OK(cuParamSeti(add, 8, 1000));
    OK(cuParamSeti(add, 12, 4));
    OK(cuParamSetSize(add, 16));
    OK(cuLaunchGrid(add, 4, 1));
    OK(cuMemcpyDtoH_v2(host, at, sizeof host));
    CHECK_EQ(host[999], 4);
    OK(cuMemFree_v2(at));
    CHECK_EQ(cuParamSeti(add, 1 << 20, 0), CUDA_ERROR_INVALID_VALUE);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t dynamic);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int threads);

static void module_lookups(void) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr at;
    size_t bytes;
    int value;
    OK(cuModuleLoadData(&module, test_kernels));
    OK(cuModuleGetGlobal_v2(&at, &bytes, module, "counter"));
    CHECK_EQ(bytes, 4);
    OK(cuMemsetD32_v2(at, 5, 1));
    CHECK_EQ(cuModuleGetGlobal_v2(&at, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK_EQ(value, 1024);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 1024, 0));
    CHECK_EQ(value, 2);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, SIZE_MAX - 1023));
    CHECK_EQ(value, 0);
    CHECK_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, INT_MAX - 30),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuModuleUnload(module));
    CHECK_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
             CUDA_ERROR_INVALID_HANDLE);
}

// A module may say what its kernels cost.
static void declared_cost(void) {
    static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                               ".visible .global .u64 weir_sim_cost_ns = 20000000;\n"
                               ".visible .entry f() { ret; }\n";
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&function, module, "f"));
    uint64_t before = sim_now_ns();
    launch(function, 1, 1, NULL, NULL);
    OK(cuCtxSynchronize());
    CHECK(sim_now_ns() - before >= 20000000);
    OK(cuModuleUnload(module));
}

// Work of a destroyed stream still counts for the default stream, but not for others.
static void destroyed_streams(void) {
    CUstream gone, other;
    uint64_t before = sim_now_ns();
    OK(cuStreamCreate(&gone, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    spin_for(30000000, gone);
    OK(cuStreamDestroy_v2(gone));
    spin_for(0, other);
    OK(cuStreamSynchronize(NULL));
    CHECK(sim_now_ns() - before >= 30000000);
    OK(cuStreamDestroy_v2(other));
}

static void bad_ptx(void) {
    static const char bad[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry f() {\n  frobnicate.u32 %r1, %r2;\n  ret;\n}\n";
    char log[256] = "";
    CUmodule module;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CHECK_EQ(cuModuleLoadDataEx(&module, bad, 2, options, values), CUDA_ERROR_INVALID_PTX);
    CHECK(strstr(log, "line 5: unknown instruction 'frobnicate.u32'"));
    CHECK_EQ((uintptr_t)values[1], strlen(log) + 1);
    CHECK_EQ(cuModuleLoadData(&module, "\x7f"
                                       "ELF, for hardware"),
             CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
    CHECK(cuModuleLoadData(&module, ""));
}

// A fault belongs to its context, and stays with it.
static void faults_are_sticky(void) {
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr at, bad = 0x123456000;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, test_kernels));
    OK(cuModuleGetFunction(&function, module, "store"));
    at = alloc(64);
    void *params[] = {&bad};
    launch(function, 1, 1, NULL, params);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(cuMemAlloc_v2(&at, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxDestroy_v2(context));
    OK(cuMemFree_v2(alloc(64)));
    launch(store, 1, 1, NULL, (void *[]){&(CUdeviceptr){at = alloc(64)}});
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(at));
}

// ---- Threads ----

static void *work_in_thread(void *user) {
    unsigned id = (unsigned)(uintptr_t)user;
    uint32_t host[256];
    CUstream stream;
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 0; round < 20; round++) {
        CUdeviceptr at = alloc(sizeof host);
        OK(cuMemsetD32Async(at, id, 256, stream));
        add_to(at, 256, round, stream);
        spin_for(1000, stream);
        OK(cuMemcpyDtoHAsync_v2(host, at, sizeof host, stream));
        OK(cuStreamSynchronize(stream));
        CHECK_EQ(host[0], id + round);
        CHECK_EQ(host[255], id + round);
        OK(cuMemFree_v2(at));
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void threads(void) {
    pthread_t ids[8];
    uint64_t before = free_bytes();
    for (uintptr_t i = 0; i < 8; i++)
        CHECK(!pthread_create(&ids[i], NULL, work_in_thread, (void *)(i * 1000)));
    for (unsigned i = 0; i < 8; i++)
        CHECK(!pthread_join(ids[i], NULL));
    CHECK_EQ(free_bytes(), before);
}

int main(int argc, char **argv) {
    start_driver();
    static const struct test tests[] = {
        TEST(stream_order),      TEST(event_times),       TEST(default_stream),
        TEST(host_functions),    TEST(bounded_queue),     TEST(query_of_full_queue),
        TEST(kernels_compute),   TEST(old_launches),      TEST(module_lookups),
        TEST(declared_cost),     TEST(destroyed_streams), TEST(bad_ptx),
        TEST(faults_are_sticky), TEST(threads),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
