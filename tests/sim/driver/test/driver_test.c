// driver_test.c: the simulated driver's API in one process: what calls answer, and that data and
// order are right. Every test begins with the primary context of device 0 current and idle.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_machine.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

static const char kernels[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".global .u32 counter;\n"
    ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n"
    ".visible .entry add(.param .u64 p, .param .u32 n, .param .u32 by) {\n"
    "  .reg .u64 %rd<4>; .reg .u32 %r<8>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[n]; ld.param.u32 %r6,[by];\n"
    "  mov.u32 %r2,%ctaid.x; mov.u32 %r3,%ntid.x; mov.u32 %r4,%tid.x;\n"
    "  mad.lo.u32 %r5,%r2,%r3,%r4; setp.ge.u32 %p1,%r5,%r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %rd2,%r5,4; add.u64 %rd3,%rd1,%rd2;\n"
    "  ld.global.u32 %r2,[%rd3]; add.u32 %r2,%r2,%r6; st.global.u32 [%rd3],%r2;\n"
    "DONE: ret; }\n"
    ".visible .entry store(.param .u64 p) {\n"
    "  .reg .u64 %rd<2>; .reg .u32 %r<2>;\n"
    "  ld.param.u64 %rd1,[p]; mov.u32 %r1,7; st.global.u32 [%rd1],%r1; ret; }\n";

static CUcontext primary;
static CUfunction add, spin, store;

static uint64_t now_ns(void) {
    return sim_now_ns();
}

static void launch(CUfunction function, unsigned grid, unsigned block, CUstream stream,
                   void **params) {
    OK(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params, NULL));
}

static void spin_for(uint64_t ns, CUstream stream) {
    void *params[] = {&ns};
    launch(spin, 1, 1, stream, params);
}

static void add_to(CUdeviceptr at, uint32_t count, uint32_t by, CUstream stream) {
    void *params[] = {&at, &count, &by};
    launch(add, (count + 255) / 256, 256, stream, params);
}

static CUdeviceptr alloc(size_t bytes) {
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, bytes));
    return at;
}

static uint64_t free_bytes(void) {
    size_t free_now, total;
    OK(cuMemGetInfo_v2(&free_now, &total));
    return free_now;
}

// ---- Before and at initialisation ----

static void before_init(void) {
    int n;
    CUdeviceptr at;
    CHECK_EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&n));
    CHECK_EQ(n, 12020);
    CHECK_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    setenv("WEIR_SIM", "/nonexistent", 1);
    CHECK_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE);
    CHECK_EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
}

static void init(void) {
    OK(cuInit(0));
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    CUmodule module;
    OK(cuModuleLoadData(&module, kernels));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuModuleGetFunction(&spin, module, "weir_spin_ns"));
    OK(cuModuleGetFunction(&store, module, "store"));
}

// ---- Devices ----

static void devices(void) {
    int n, value;
    CUdevice device;
    char text[64];
    size_t total;
    CUuuid uuid;
    OK(cuDeviceGetCount(&n));
    CHECK_EQ(n, 2);
    OK(cuDeviceGet(&device, 1));
    CHECK_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(text, sizeof text, 1));
    CHECK(!strcmp(text, "Simulated GPU"));
    OK(cuDeviceGetName(text, 4, 1));
    CHECK(!strcmp(text, "Sim"));
    OK(cuDeviceTotalMem_v2(&total, 0));
    CHECK_EQ(total, 64 * MIB);
    OK(cuDeviceGetUuid(&uuid, 1));
    CHECK_EQ(uuid.bytes[15], 0x11);
    OK(cuDeviceGetPCIBusId(text, sizeof text, 1));
    CHECK(!strcmp(text, "0000:3c:00.0"));
    OK(cuDeviceGetByPCIBusId(&device, text));
    CHECK_EQ(device, 1);
    OK(cuDeviceGetByPCIBusId(&device, "3b:0.0"));
    CHECK_EQ(device, 0);
    CHECK_EQ(cuDeviceGetByPCIBusId(&device, "0000:99:00.0"), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDeviceGetByPCIBusId(&device, "rubbish"), CUDA_ERROR_INVALID_VALUE);
    for (int attribute = 1; attribute <= 115; attribute++)
        OK(cuDeviceGetAttribute(&value, attribute, 0));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    CHECK_EQ(value, 56);
    CHECK_EQ(cuDeviceGetAttribute(&value, 100000, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK_EQ(value, 1);
}

static void errors(void) {
    const char *text;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    OK(cuGetErrorString(CUDA_ERROR_NOT_READY, &text));
    CHECK(text);
    CHECK_EQ(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
}

static void no_export_table(void) {
    const void *table = &table;
    CUuuid id = {{1}};
    CHECK_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
    CHECK(table == &table);
}

// ---- Contexts ----

static void contexts(void) {
    CUcontext context, current;
    CUdevice device;
    unsigned flags;
    int active;
    uint64_t before = free_bytes();
    OK(cuCtxCreate_v2(&context, 0, 0));
    CHECK_EQ(free_bytes(), before - 2 * MIB);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == context);
    OK(cuCtxPopCurrent_v2(&current));
    CHECK(current == context);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    OK(cuCtxPushCurrent_v2(context));
    CUdeviceptr at = alloc(MIB);
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(free_bytes(), before);  // its memory went with it
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxSetCurrent((CUcontext)0x1234), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetDevice(&device));
    CHECK_EQ(device, 0);
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 0);
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 1);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    CHECK_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(NULL));
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(primary));
}

static void *destroy_current(void *context) {
    OK(cuCtxDestroy_v2(context));
    return NULL;
}

static void destroyed_elsewhere(void) {
    CUcontext context;
    CUdevice device;
    pthread_t thread;
    OK(cuCtxCreate_v2(&context, 0, 0));
    CHECK(!pthread_create(&thread, NULL, destroy_current, context));
    CHECK(!pthread_join(thread, NULL));
    CHECK_EQ(cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxSetCurrent(primary));
}

static void limits(void) {
    size_t value;
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1234));
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK_EQ(value, 1234);
    CHECK_EQ(cuCtxGetLimit(&value, (CUlimit)99), 215);
}

// ---- Memory ----

static void memory(void) {
    uint64_t before = free_bytes();
    CUdeviceptr a = alloc(1), b = alloc(513), base;
    size_t bytes, pitch;
    CHECK_EQ(free_bytes(), before - 3 * 512);
    CHECK_EQ(a % 512, 0);
    OK(cuMemGetAddressRange_v2(&base, &bytes, b + 100));
    CHECK_EQ(base, b);
    CHECK_EQ(bytes, 513);
    CHECK_EQ(cuMemFree_v2(b + 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(b));
    CHECK_EQ(cuMemFree_v2(b), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(0));
    CHECK_EQ(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAlloc_v2(&a, before + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuMemAlloc_v2(&a, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&a, before));
    CHECK_EQ(free_bytes(), 0);
    OK(cuMemFree_v2(a));
    OK(cuMemAllocPitch_v2(&a, &pitch, 1000, 10, 4));
    CHECK_EQ(pitch, 1024);
    CHECK_EQ(free_bytes(), before - 10240);
    OK(cuMemFree_v2(a));
    CHECK_EQ(cuMemAllocPitch_v2(&a, &pitch, 1000, 10, 5), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX, 10, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(free_bytes(), before);
}

// Random sizes come and go; no two live blocks overlap, and each keeps its data.
static void many_allocations(void) {
    enum { LIVE = 500 };
    static struct {
        CUdeviceptr at;
        uint32_t bytes, mark;
    } live[LIVE];
    uint64_t before = free_bytes();
    srand(1);
    for (unsigned i = 0; i < 20000; i++) {
        unsigned slot = (unsigned)rand() % LIVE;
        if (live[slot].at) {
            uint32_t mark;
            OK(cuMemcpyDtoH_v2(&mark, live[slot].at + live[slot].bytes - 4, 4));
            CHECK_EQ(mark, live[slot].mark);
            OK(cuMemFree_v2(live[slot].at));
            live[slot].at = 0;
        } else {
            live[slot].bytes = 4 + (uint32_t)rand() % (rand() % 8 ? 2000 : 200000) / 4 * 4;
            live[slot].mark = i;
            live[slot].at = alloc(live[slot].bytes);
            OK(cuMemcpyHtoD_v2(live[slot].at + live[slot].bytes - 4, &i, 4));
        }
    }
    for (unsigned slot = 0; slot < LIVE; slot++)
        OK(cuMemFree_v2(live[slot].at));
    CHECK_EQ(free_bytes(), before);
}

static void host_memory(void) {
    void *host, *mine = malloc(10000);
    CUdeviceptr device;
    unsigned flags;
    uint64_t before = free_bytes();
    OK(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK_EQ(free_bytes(), before);
    memset(host, 1, 5000);
    OK(cuMemHostGetDevicePointer_v2(&device, host, 0));
    add_to(device, 1250, 1, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(((uint32_t *)host)[1249], 0x01010102);
    OK(cuMemHostGetFlags(&flags, host));
    CHECK_EQ(flags, CU_MEMHOSTALLOC_DEVICEMAP);
    OK(cuMemFreeHost(host));
    CHECK_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFreeHost(mine), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister_v2(mine, 10000, 0));
    CHECK_EQ(cuMemHostRegister_v2((char *)mine + 5000, 100, 0),
             CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostGetDevicePointer_v2(&device, (char *)mine + 16, 0));
    CHECK_EQ(device, (uintptr_t)mine + 16);
    OK(cuMemHostUnregister(mine));
    CHECK_EQ(cuMemHostUnregister(mine), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    free(mine);
}

static void managed_memory(void) {
    CUdeviceptr at;
    uint64_t before = free_bytes();
    OK(cuMemAllocManaged(&at, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(free_bytes(), before - 4096);
    uint32_t *host = (uint32_t *)(uintptr_t)at;
    for (unsigned i = 0; i < 1024; i++)
        host[i] = i;
    add_to(at, 1024, 5, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(host[1000], 1005);
    OK(cuMemFree_v2(at));
    CHECK_EQ(cuMemAllocManaged(&at, 4096, 0), CUDA_ERROR_INVALID_VALUE);
}

static void pointers(void) {
    CUdeviceptr at = alloc(1000), start;
    unsigned type = 9, managed = 9;
    int ordinal = 9;
    CUcontext context;
    void *host;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 5));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    CHECK(context == primary);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 999));
    CHECK_EQ(start, at);
    CHECK_EQ(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&type),
             CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &managed, &ordinal};
    OK(cuPointerGetAttributes(3, attributes, values, (uintptr_t)&type));
    CHECK_EQ(type, 0);
    CHECK_EQ(managed, 0);
    CHECK_EQ(ordinal, -2);
    OK(cuPointerGetAttributes(3, attributes, values, at));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(ordinal, 0);
    OK(cuMemFree_v2(at));
}

// ---- Copies and sets ----

static void copies(void) {
    enum { N = 100000 };
    uint8_t *from = malloc(N), *to = malloc(N);
    for (unsigned i = 0; i < N; i++)
        from[i] = (uint8_t)(i * 7);
    CUdeviceptr a = alloc(N), b = alloc(N);
    OK(cuMemcpyHtoD_v2(a, from, N));
    OK(cuMemcpyDtoD_v2(b, a, N));
    OK(cuMemcpyDtoH_v2(to, b, N));
    CHECK(!memcmp(from, to, N));
    memset(to, 0, N);
    OK(cuMemcpyAsync(a, (uintptr_t)from, N, NULL));
    OK(cuMemcpy((uintptr_t)to, a, N));
    CHECK(!memcmp(from, to, N));
    // The source of a small asynchronous copy may be changed at once.
    OK(cuMemcpyHtoDAsync_v2(a, from, 1000, NULL));
    memset(from, 0, 1000);
    OK(cuMemcpyDtoH_v2(to, a, 1000));
    CHECK_EQ(to[999], (uint8_t)(999 * 7));
    size_t room = (N + 511) / 512 * 512;
    CHECK_EQ(cuMemcpyHtoD_v2(a, from, room + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoD_v2(0, from, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyHtoD_v2((uintptr_t)to, from, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyHtoD_v2(a, from, 0));
    OK(cuMemFree_v2(a));
    OK(cuMemFree_v2(b));
    free(from);
    free(to);
}

static void copies_2d_3d(void) {
    uint8_t from[6][10][20], to[6][10][20];
    for (unsigned i = 0; i < sizeof from; i++)
        ((uint8_t *)from)[i] = (uint8_t)i;
    CUdeviceptr at;
    size_t pitch;
    OK(cuMemAllocPitch_v2(&at, &pitch, 20, 60, 4));
    CUDA_MEMCPY3D up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = from,
                        .srcPitch = 20,
                        .srcHeight = 10,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = at,
                        .dstPitch = pitch,
                        .dstHeight = 10,
                        .WidthInBytes = 20,
                        .Height = 10,
                        .Depth = 6};
    OK(cuMemcpy3D_v2(&up));
    memset(to, 0xff, sizeof to);
    // A window of the fourth plane, to the beginning of the result.
    CUDA_MEMCPY2D down = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = at,
                          .srcPitch = pitch,
                          .srcXInBytes = 5,
                          .srcY = 3 * 10 + 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = to,
                          .dstPitch = 20,
                          .WidthInBytes = 7,
                          .Height = 4};
    OK(cuMemcpy2D_v2(&down));
    for (unsigned y = 0; y < 4; y++) {
        CHECK(!memcmp(&to[0][y][0], &from[3][2 + y][5], 7));
        CHECK_EQ(to[0][y][7], 0xff);
    }
    down.srcPitch = 8;
    CHECK_EQ(cuMemcpy2D_v2(&down), CUDA_ERROR_INVALID_VALUE);
    down.srcPitch = pitch;
    down.Height = 1000;
    CHECK_EQ(cuMemcpy2D_v2(&down), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(at));
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                          size_t height);

static void sets(void) {
    uint32_t words[64];
    CUdeviceptr at = alloc(sizeof words);
    OK(cuMemsetD32_v2(at, 0x12345678, 64));
    OK(cuMemsetD8_v2(at + 4, 0xab, 3));
    OK(cuMemsetD16_v2(at + 8, 0xbeef, 1));
    OK(cuMemsetD2D16_v2(at + 16, 32, 0x5a5a, 2, 3));
    OK(cuMemcpyDtoH_v2(words, at, sizeof words));
    CHECK_EQ(words[0], 0x12345678);
    CHECK_EQ(words[1], 0x12ababab);
    CHECK_EQ(words[2], 0x1234beef);
    CHECK_EQ(words[4], 0x5a5a5a5a);
    CHECK_EQ(words[5], 0x12345678);
    CHECK_EQ(words[20], 0x5a5a5a5a);
    CHECK_EQ(words[28], 0x12345678);
    CHECK_EQ(cuMemsetD32_v2(at + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD32_v2(at, 0, 1000), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(at));
}

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
    CUevent start, end;
    CUstream stream;
    float ms;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventQuery(start));  // never recorded: nothing to wait for
    spin_for(1000, stream);
    uint64_t before = now_ns();
    OK(cuEventRecord(start, stream));
    for (unsigned i = 0; i < 4; i++)
        spin_for(10000000, stream);
    OK(cuEventRecord(end, stream));
    CHECK_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CHECK_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
    OK(cuEventSynchronize(end));
    CHECK(now_ns() - before >= 40000000);
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

// The time of a spin in one stream and then a tiny one in another, as events see it.
static float delay(CUstream first, CUstream second) {
    CUevent start, end;
    float ms;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(start, first));
    spin_for(20000000, first);
    OK(cuEventRecord(end, second));
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
    CHECK(delay(NULL, free_one) < 20);
    CHECK(delay(free_one, NULL) < 20);
    CHECK(delay(blocking, CU_STREAM_PER_THREAD) < 20);
    // Many blocking streams are joined, however many.
    CUstream many[20];
    for (unsigned i = 0; i < 20; i++) {
        OK(cuStreamCreate(&many[i], CU_STREAM_DEFAULT));
        spin_for(1000000, many[i]);
    }
    uint64_t before = now_ns();
    OK(cuStreamSynchronize(NULL));
    for (unsigned i = 0; i < 20; i++) {
        OK(cuStreamQuery(many[i]));
        OK(cuStreamDestroy_v2(many[i]));
    }
    CHECK(now_ns() - before >= 10000000);
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(free_one));
}

static uint64_t called_ns;
static CUresult inside;
static int may_end;

// Holds its stream until the test has seen that it holds nothing else.
static void host_function(void *user) {
    int n;
    inside = cuDeviceGetCount(&n);
    called_ns = now_ns();
    while (!__atomic_load_n(&may_end, __ATOMIC_ACQUIRE))
        usleep(1000);
    *(int *)user += 1;
}

static void callback(CUstream stream, CUresult status, void *user) {
    (void)stream;
    *(int *)user += status == CUDA_SUCCESS ? 10 : 1000;
}

static void host_functions(void) {
    int count = 0;
    uint32_t value;
    CUstream stream, other;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    uint64_t before = now_ns();
    spin_for(30000000, stream);
    OK(cuLaunchHostFunc(stream, host_function, &count));
    OK(cuStreamAddCallback(stream, callback, &count, 0));
    spin_for(1000, stream);
    // Another stream is not held up.
    CUdeviceptr at = alloc(4);
    OK(cuMemsetD32Async(at, 1, 1, other));
    OK(cuStreamSynchronize(other));
    OK(cuMemcpyDtoH_v2(&value, at, 4));
    CHECK_EQ(value, 1);
    CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    __atomic_store_n(&may_end, 1, __ATOMIC_RELEASE);
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
    uint64_t before = now_ns();
    for (unsigned i = 0; i < 1024 + 100; i++)
        spin_for(200000, NULL);
    uint64_t took = now_ns() - before;
    CHECK(took >= 99 * 200000);
    OK(cuCtxSynchronize());
    CHECK(now_ns() - before >= 1124u * 200000);
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

static void module_lookups(void) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr at;
    size_t bytes;
    int value;
    OK(cuModuleLoadData(&module, kernels));
    OK(cuModuleGetGlobal_v2(&at, &bytes, module, "counter"));
    CHECK_EQ(bytes, 4);
    OK(cuMemsetD32_v2(at, 5, 1));
    CHECK_EQ(cuModuleGetGlobal_v2(&at, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleGetFunction(&function, module, "add"));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK_EQ(value, 1024);
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
    uint64_t before = now_ns();
    launch(function, 1, 1, NULL, NULL);
    OK(cuCtxSynchronize());
    CHECK(now_ns() - before >= 20000000);
    OK(cuModuleUnload(module));
}

// Work of a destroyed stream still counts for the default stream, but not for others.
static void destroyed_streams(void) {
    CUstream gone, other;
    uint64_t before = now_ns();
    OK(cuStreamCreate(&gone, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    spin_for(30000000, gone);
    OK(cuStreamDestroy_v2(gone));
    spin_for(0, other);
    OK(cuStreamSynchronize(NULL));
    CHECK(now_ns() - before >= 30000000);
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
    CHECK(strstr(log, "5"));
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
    OK(cuModuleLoadData(&module, kernels));
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
    before_init();
    struct sim_config config = test_config();
    sim_machine_close(test_machine(&config));
    init();
    static const struct test tests[] = {
        TEST(devices),
        TEST(errors),
        TEST(no_export_table),
        TEST(contexts),
        TEST(destroyed_elsewhere),
        TEST(limits),
        TEST(memory),
        TEST(many_allocations),
        TEST(host_memory),
        TEST(managed_memory),
        TEST(pointers),
        TEST(copies),
        TEST(copies_2d_3d),
        TEST(sets),
        TEST(stream_order),
        TEST(event_times),
        TEST(default_stream),
        TEST(host_functions),
        TEST(bounded_queue),
        TEST(kernels_compute),
        TEST(old_launches),
        TEST(module_lookups),
        TEST(declared_cost),
        TEST(destroyed_streams),
        TEST(bad_ptx),
        TEST(faults_are_sticky),
        TEST(threads),
    };
    int rc = RUN(tests);
    OK(cuDevicePrimaryCtxRelease_v2(0));  // and with it all that is left
    test_machine_remove();
    return rc;
}
