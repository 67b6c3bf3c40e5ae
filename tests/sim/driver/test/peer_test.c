// peer_test.c: two devices of one process, and memory that other interfaces have made.
#define _GNU_SOURCE
#include "test_driver.h"
#include "test_share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static CUcontext second;  // of device 1

static CUdeviceptr alloc_on(CUcontext context, size_t bytes) {
    CUdeviceptr at;
    OK(cuCtxPushCurrent_v2(context));
    OK(cuMemAlloc_v2(&at, bytes));
    OK(cuCtxPopCurrent_v2(NULL));
    return at;
}

static void free_on(CUcontext context, CUdeviceptr at) {
    OK(cuCtxPushCurrent_v2(context));
    OK(cuMemFree_v2(at));
    OK(cuCtxPopCurrent_v2(NULL));
}

// ---- Peers ----

static void attributes(void) {
    int value;
    OK(cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK_EQ(value, 1);
    OK(cuDeviceCanAccessPeer(&value, 1, 1));
    CHECK_EQ(value, 0);
    CHECK_EQ(cuDeviceCanAccessPeer(&value, 0, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDeviceCanAccessPeer(NULL, 0, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    CHECK_EQ(value, 1);
    CHECK_EQ(cuDeviceGetP2PAttribute(&value, 5, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceGetP2PAttribute(&value, 2, 0, 0), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDeviceGetP2PAttribute(NULL, 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

static void enable_and_disable(void) {
    CHECK_EQ(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CHECK_EQ(cuCtxEnablePeerAccess(second, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxEnablePeerAccess(primary, 0), CUDA_ERROR_INVALID_DEVICE);
    OK(cuCtxEnablePeerAccess(second, 0));
    CHECK_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuCtxDisablePeerAccess(second));
    CHECK_EQ(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

// A kernel reaches another device's memory only where that was enabled.
static void kernels(void) {
    CUdeviceptr at = alloc_on(second, 4096);
    uint32_t word;
    for (int enabled = 0; enabled < 2; enabled++) {
        CUcontext context;
        CUmodule module;
        CUfunction function;
        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuModuleLoadData(&module, test_kernels));
        OK(cuModuleGetFunction(&function, module, "store"));
        if (enabled)
            OK(cuCtxEnablePeerAccess(second, 0));
        void *params[] = {&at};
        launch(function, 1, 1, NULL, params);
        CHECK_EQ(cuCtxSynchronize(), enabled ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
        OK(cuCtxDestroy_v2(context));
    }
    OK(cuMemcpyDtoH_v2(&word, at, 4));  // copies go anyhow
    CHECK_EQ(word, 7);
    free_on(second, at);
}

// The time by the machine's own clock.
static float ms_of_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUevent start, end;
    float ms;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    int go;
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    OK(cuMemcpyPeerAsync(to, second, from, primary, bytes, NULL));
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    return ms;
}

static void copies(void) {
    size_t bytes = 4 * MIB;
    CUdeviceptr from = alloc(bytes), to = alloc_on(second, bytes);
    uint32_t word = 0;
    OK(cuMemsetD32_v2(from, 9, bytes / 4));
    OK(cuMemcpyPeer(to, second, from, primary, bytes));
    OK(cuMemcpyDtoH_v2(&word, to + bytes - 4, 4));
    CHECK_EQ(word, 9);
    CHECK_EQ(cuMemcpyPeer(to, NULL, from, primary, bytes), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuMemcpyPeer(to, second, from, primary, bytes + 1), CUDA_ERROR_INVALID_VALUE);
    // Over the link, at 400 MiB/s: 10 ms.
    float ms = ms_of_copy(to, from, bytes);
    CHECK(ms > 9.99 && ms < 10.02);

    OK(cuMemsetD32_v2(from, 10, bytes / 4));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = from,
                         .srcPitch = 1024,
                         .srcHeight = 16,
                         .reserved0 = primary,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = to,
                         .dstPitch = 1024,
                         .dstHeight = 16,
                         .reserved1 = second,
                         .WidthInBytes = 512,
                         .Height = 16,
                         .Depth = 4};
    CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D *);
    OK(cuMemcpy3DPeer(&box));
    OK(cuMemcpyDtoH_v2(&word, to + 3 * 16384 + 15 * 1024 + 508, 4));
    CHECK_EQ(word, 10);
    OK(cuMemcpyDtoH_v2(&word, to + 512, 4));
    CHECK_EQ(word, 9);
    OK(cuMemFree_v2(from));
    free_on(second, to);
}

// ---- Other interfaces ----

static int foreign_file(size_t bytes) {
    int fd = memfd_create("foreign", MFD_ALLOW_SEALING);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static CUresult import(int fd, size_t bytes, CUexternalMemory *memory) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd, .size = bytes};
    return cuImportExternalMemory(memory, &handle);
}

static CUdeviceptr buffer_of(CUexternalMemory memory, size_t offset, size_t bytes) {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = offset, .size = bytes};
    CUdeviceptr at;
    OK(cuExternalMemoryGetMappedBuffer(&at, memory, &buffer));
    return at;
}

// Of memory that nobody told the machine about: its importer takes it of the card.
static void foreign(void) {
    uint64_t before = free_bytes();
    int fd = foreign_file(65536), kept = dup(fd);
    CUexternalMemory memory;
    CHECK_EQ(import(fd, 65537, &memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(import(-1, 65536, &memory), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(free_bytes(), before);
    OK(import(fd, 65536, &memory));
    CHECK_EQ(fcntl(fd, F_GETFD), -1);  // the driver's now
    CHECK_EQ(free_bytes(), before - 65536);
    CHECK(ftruncate(kept, 0) < 0);  // nobody can pull it away

    CUdeviceptr at = buffer_of(memory, 4096, 8192);
    uint32_t word = 0;
    OK(cuMemsetD32_v2(at, 77, 2048));
    OK(cuCtxSynchronize());
    CHECK_EQ(pread(kept, &word, 4, 4096 + 8188), 4);
    CHECK_EQ(word, 77);
    add_to(at, 1, 3, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(pread(kept, &word, 4, 4096), 4);
    CHECK_EQ(word, 80);
    OK(cuDestroyExternalMemory(memory));
    CHECK_EQ(cuDestroyExternalMemory(memory), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(free_bytes(), before - 65536);  // mapped still
    OK(cuMemFree_v2(at));
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(free_bytes(), before);
    close(kept);
}

// What this driver exported is the same memory.
static void exported(void) {
    uint64_t before = free_bytes();
    CUmemGenericAllocationHandle handle = create_on(0, 65536);
    CUexternalMemory memory;
    int fd;
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(import(fd, 65536, &memory));
    CHECK_EQ(free_bytes(), before - 65536);
    OK(cuMemRelease(handle));
    CUdeviceptr at = buffer_of(memory, 0, 65536);
    OK(cuMemsetD8_v2(at, 1, 65536));
    CHECK_EQ(free_bytes(), before - 65536);
    OK(cuMemFree_v2(at));
    OK(cuDestroyExternalMemory(memory));
    CHECK_EQ(free_bytes(), before);
}

static void bad_arguments(void) {
    CUexternalMemory memory;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,
                                               .size = 4096};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.size = 4096};
    CUdeviceptr at;
    CHECK_EQ(cuImportExternalMemory(&memory, &handle), CUDA_ERROR_NOT_SUPPORTED);
    handle.type = 0;
    CHECK_EQ(cuImportExternalMemory(&memory, &handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuImportExternalMemory(NULL, &handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuImportExternalMemory(&memory, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuExternalMemoryGetMappedBuffer(&at, NULL, &buffer), CUDA_ERROR_INVALID_HANDLE);
    OK(import(foreign_file(8192), 8192, &memory));
    buffer.offset = 100;
    CHECK_EQ(cuExternalMemoryGetMappedBuffer(&at, memory, &buffer), CUDA_ERROR_INVALID_VALUE);
    buffer.offset = 4096, buffer.size = 4097;
    CHECK_EQ(cuExternalMemoryGetMappedBuffer(&at, memory, &buffer), CUDA_ERROR_INVALID_VALUE);
    buffer.size = 4096, buffer.flags = 1;
    CHECK_EQ(cuExternalMemoryGetMappedBuffer(&at, memory, &buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuExternalMemoryGetMappedBuffer(&at, memory, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuDestroyExternalMemory(memory));
}

// A context's end is the end of what was imported and mapped in it.
static void context_ends(void) {
    uint64_t before = free_bytes();
    CUcontext context;
    CUexternalMemory memory;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(import(foreign_file(65536), 65536, &memory));
    buffer_of(memory, 0, 65536);
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(free_bytes(), before);
}

int main(int argc, char **argv) {
    start_driver();
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    static const struct test tests[] = {
        TEST(attributes), TEST(enable_and_disable), TEST(kernels),       TEST(copies),
        TEST(foreign),    TEST(exported),           TEST(bad_arguments), TEST(context_ends),
    };
    int rc = RUN(tests);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    stop_driver();
    return rc;
}
