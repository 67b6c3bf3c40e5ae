// driver_test.c: devices, contexts, memory and copies of the simulated driver, in one process.
#define _GNU_SOURCE
#include "test_driver.h"

#include <pthread.h>
#include <unistd.h>

// ---- Before initialisation ----

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

// What was retained must be released as often, though a reset took the context away in between.
static void reset_is_no_release(void) {
    CUcontext context, again;
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuDevicePrimaryCtxReset_v2(1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 0);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    OK(cuDevicePrimaryCtxRetain(&again, 1));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK_EQ(active, 1);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    CHECK_EQ(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxReset_v2(1));
}

static void *release_primary(void *unused) {
    OK(cuDevicePrimaryCtxRelease_v2(1));
    return unused;
}

// A release waits for the context's work; who retains it meanwhile keeps it.
static void retained_while_released(void) {
    CUcontext context, again;
    CUdevice device;
    pthread_t thread;
    int go;
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxPushCurrent_v2(context));
    hold(NULL, &go);
    CHECK(!pthread_create(&thread, NULL, release_primary, NULL));
    usleep(50000);
    OK(cuDevicePrimaryCtxRetain(&again, 1));
    let_go(&go);
    CHECK(!pthread_join(thread, NULL));
    CHECK(again == context);
    OK(cuCtxGetDevice(&device));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void events_go_with_their_context(void) {
    CUcontext context;
    CUevent event;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, NULL));
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxCreate_v2(&context, 0, 0));  // may lie where the first one was
    CHECK_EQ(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxDestroy_v2(context));
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
    for (int i = 0; i < 100; i++) {
        OK(cuMemsetD8_v2(device, (unsigned char)i, 5000));
        CHECK_EQ(((uint8_t *)host)[4999], i);
    }
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
    CHECK_EQ(free_bytes(), before);  // it lies nowhere yet
    uint32_t *host = (uint32_t *)(uintptr_t)at;
    for (unsigned i = 0; i < 1024; i++)
        host[i] = i;
    add_to(at, 1024, 5, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(host[1000], 1005);
    // The forms without a stream are done when they return, where the host can look.
    for (unsigned i = 0; i < 100; i++) {
        OK(cuMemsetD32_v2(at, i, 1024));
        CHECK_EQ(host[1023], i);
    }
    CHECK_EQ(free_bytes(), before - (2 * MIB) / 64);  // a page of the card
    OK(cuMemFree_v2(at));
    CHECK_EQ(free_bytes(), before);
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

int main(int argc, char **argv) {
    before_init();
    start_driver();
    static const struct test tests[] = {
        TEST(devices),
        TEST(errors),
        TEST(no_export_table),
        TEST(contexts),
        TEST(reset_is_no_release),
        TEST(retained_while_released),
        TEST(events_go_with_their_context),
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
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
