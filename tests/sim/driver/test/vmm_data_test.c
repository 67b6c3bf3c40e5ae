// vmm_data_test.c: what copies, sets and kernels find at addresses that are mapped, in one process.
#include "test_driver.h"
#include "test_share.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static size_t unit;  // the granularity

static CUdeviceptr reserve(size_t bytes) {
    CUdeviceptr at;
    OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}

static CUresult allow(CUdeviceptr at, size_t bytes, int device, CUmemAccess_flags flags) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return cuMemSetAccess(at, bytes, &access, 1);
}

static void unmap(CUdeviceptr at, size_t bytes) {
    OK(cuMemUnmap(at, bytes));
    OK(cuMemAddressFree(at, bytes));
}

static uint64_t held(void) {
    return 64 * MIB - free_bytes();
}

// ---- Data ----

// PyTorch's expandable segments: one tensor over many mappings.
static void neighbours(void) {
    enum { N = 8 };
    CUmemGenericAllocationHandle handles[N];
    CUdeviceptr at = reserve(2 * N * unit), back = alloc(N * unit);
    size_t words = N * unit / 4;
    uint32_t *data = malloc(N * unit);
    for (unsigned i = 0; i < N; i++) {
        handles[i] = create_on(0, unit);
        OK(cuMemMap(at + i * unit, unit, 0, handles[i], 0));
        OK(cuMemRelease(handles[i]));
    }
    OK(allow(at, N * unit, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD32_v2(at, 3, words));
    add_to(at, (uint32_t)words, 4, NULL);
    OK(cuMemcpyDtoD_v2(back, at, N * unit));
    OK(cuMemcpyDtoH_v2(data, back, N * unit));
    for (size_t i = 0; i < words; i++)
        CHECK_EQ(data[i], 7);
    data[words / 2] = 11;
    OK(cuMemcpyHtoD_v2(at + 100, data, N * unit - 100));
    memset(data, 0, N * unit);
    OK(cuMemcpyDtoH_v2(data, at + 100, N * unit - 100));
    CHECK_EQ(data[words / 2], 11);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = at,
                          .srcPitch = unit / 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = data,
                          .dstPitch = 16,
                          .WidthInBytes = 16,
                          .Height = 2 * N};
    OK(cuMemcpy2D_v2(&rows));
    CHECK_EQ(cuMemcpyDtoH_v2(data, at, N * unit + 4), CUDA_ERROR_INVALID_VALUE);

    // One of them away: what lies over it is not whole any more.
    OK(cuMemUnmap(at + 3 * unit, unit));
    CHECK_EQ(cuMemsetD8_v2(at, 1, N * unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemsetD8_v2(at, 1, 3 * unit));
    OK(cuMemsetD8_v2(at + 4 * unit, 1, (N - 4) * unit));
    CHECK_EQ(cuMemcpyDtoH_v2(data, at + 3 * unit, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, 3 * unit));
    OK(cuMemUnmap(at + 4 * unit, (N - 4) * unit));
    OK(cuMemAddressFree(at, 2 * N * unit));
    OK(cuMemFree_v2(back));
    free(data);
}

// The same memory at two places, and a part of it.
static void aliases(void) {
    CUmemGenericAllocationHandle handle = create_on(0, 2 * unit);
    CUdeviceptr one = map_all(handle, 2 * unit), two = map_all(handle, 2 * unit),
                part = reserve(unit);
    uint32_t word;
    OK(cuMemMap(part, unit, unit, handle, 0));
    OK(allow(part, unit, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemcpyHtoD_v2(one + unit + 8, &(uint32_t){42}, 4));
    OK(cuMemcpyDtoH_v2(&word, two + unit + 8, 4));
    CHECK_EQ(word, 42);
    OK(cuMemcpyDtoH_v2(&word, part + 8, 4));
    CHECK_EQ(word, 42);
    unmap(one, 2 * unit);
    OK(cuMemcpyDtoH_v2(&word, two + unit + 8, 4));
    CHECK_EQ(word, 42);
    unmap(two, 2 * unit);
    unmap(part, unit);
    OK(cuMemRelease(handle));
}

// New memory is zeros, whoever had it before.
static void fresh(void) {
    CUmemGenericAllocationHandle handle = create_on(0, 4 * unit);
    CUdeviceptr at = map_all(handle, 4 * unit);
    uint32_t *data = malloc(4 * unit);
    OK(cuMemsetD8_v2(at, 0xab, 4 * unit));
    unmap(at, 4 * unit);
    OK(cuMemRelease(handle));
    handle = create_on(0, 4 * unit);
    at = map_all(handle, 4 * unit);
    OK(cuMemcpyDtoH_v2(data, at, 4 * unit));
    for (size_t i = 0; i < unit; i++)
        CHECK_EQ(data[i], 0);
    unmap(at, 4 * unit);
    OK(cuMemRelease(handle));
    free(data);
}

// Unmapping waits for what is on its way.
static void unmapped_in_use(void) {
    CUmemGenericAllocationHandle handle = create_on(0, 16 * unit);
    CUdeviceptr at = map_all(handle, 16 * unit), sum = alloc(16 * unit);
    CUstream stream;
    uint32_t word;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 50; i++) {
        OK(cuMemsetD32Async(at, i, 4 * unit, stream));
        OK(cuMemcpyDtoDAsync_v2(sum, at, 16 * unit, stream));
        OK(cuMemUnmap(at, 16 * unit));
        OK(cuMemMap(at, 16 * unit, 0, handle, 0));
        OK(allow(at, 16 * unit, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&word, sum + 16 * unit - 4, 4));
    CHECK_EQ(word, 49);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(sum));
    unmap(at, 16 * unit);
    OK(cuMemRelease(handle));
}

static CUresult store_at(CUdeviceptr at) {
    void *params[] = {&at};
    launch(store, 1, 1, NULL, params);
    return cuCtxSynchronize();
}

// Memory is made, exported (which moves its data), used and unmapped by several threads at once.
static void *churn(void *argument) {
    uint32_t seed = (uint32_t)(uintptr_t)argument * 1000;
    CUstream stream;
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < 60; i++) {
        CUmemGenericAllocationHandle handle = create_on(0, 4 * unit);
        CUdeviceptr at = map_all(handle, 4 * unit), plain = alloc(3 * unit + 700);
        CUipcMemHandle name;
        int fd;
        OK(cuMemsetD32Async(at, seed + i, unit, stream));
        OK(cuMemsetD32Async(plain, seed + i + 1, 700 / 4, stream));
        OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        close(fd);
        OK(cuIpcGetMemHandle(&name, plain));
        OK(cuMemcpyDtoDAsync_v2(plain + 1024, at + unit, 2 * unit, stream));
        OK(cuStreamSynchronize(stream));
        CHECK_EQ(word_at(at + 4 * unit - 4), seed + i);
        CHECK_EQ(word_at(plain + 696), seed + i + 1);
        CHECK_EQ(word_at(plain + 1024 + 2 * unit - 4), seed + i);
        unmap(at, 4 * unit);
        OK(cuMemRelease(handle));
        OK(cuMemFree_v2(plain));
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

static void threads(void) {
    enum { N = 4 };
    pthread_t ids[N];
    for (uintptr_t i = 0; i < N; i++)
        CHECK_EQ(pthread_create(&ids[i], NULL, churn, (void *)i), 0);
    for (unsigned i = 0; i < N; i++)
        pthread_join(ids[i], NULL);
}

// Memory that is freed while another stream has yet to use it is missing there: an error of that
// context, as on hardware, and nothing worse.
static void freed_too_early(void) {
    CUcontext owner, user;
    CUdeviceptr from, to;
    CUipcMemHandle name;
    int go;
    OK(cuCtxCreate_v2(&owner, 0, 0));
    OK(cuMemAlloc_v2(&from, unit));
    OK(cuIpcGetMemHandle(&name, from));
    OK(cuCtxCreate_v2(&user, 0, 0));
    OK(cuMemAlloc_v2(&to, unit));
    hold(NULL, &go);
    OK(cuMemcpyDtoDAsync_v2(to, from, unit, NULL));
    OK(cuCtxDestroy_v2(owner));
    let_go(&go);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxDestroy_v2(user));
    OK(cuCtxSetCurrent(primary));
}

// A kernel that finds nothing, or may not write, ends its context.
static void kernels_need_rights(void) {
    for (unsigned round = 0; round < 4; round++) {
        CUmemGenericAllocationHandle handle = create_on(0, unit);
        CUdeviceptr at = reserve(2 * unit);
        OK(cuMemMap(at, unit, 0, handle, 0));
        uint32_t word = 0;
        if (round)
            OK(allow(at, unit, 0,
                     round == 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                : CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        CUcontext context;
        CUmodule module;
        CUfunction of_primary = store;
        OK(cuCtxCreate_v2(&context, 0, 0));
        OK(cuModuleLoadData(&module, test_kernels));
        OK(cuModuleGetFunction(&store, module, "store"));
        CUresult rc = store_at(round == 3 ? at + unit : at);
        CHECK_EQ(rc, round == 2 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_EQ(cuMemcpyDtoH_v2(&word, at, 4), rc);  // sticky
        OK(cuCtxDestroy_v2(context));
        store = of_primary;
        if (round == 2)
            CHECK_EQ(word, 7);
        OK(cuMemUnmap(at, unit));
        OK(cuMemAddressFree(at, 2 * unit));
        OK(cuMemRelease(handle));
    }
}

// ---- Other places ----

static void on_the_host(void) {
    uint64_t before = held();
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    CUmemGenericAllocationHandle handle;
    size_t pages;
    OK(cuMemGetAllocationGranularity(&pages, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&handle, 16 * pages, &p, 0));
    CHECK_EQ(held(), before);  // it is not the card's
    CUdeviceptr at = reserve(16 * pages);
    OK(cuMemMap(at, 16 * pages, 0, handle, 0));
    CUmemAccessDesc both[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, 3},
                               {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, 3}};
    OK(cuMemSetAccess(at, 16 * pages, both, 2));
    uint32_t *seen = (uint32_t *)(uintptr_t)at;
    seen[0] = 30;
    add_to(at, 4, 12, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(seen[0], 42);
    CHECK_EQ(seen[3], 12);
    CUdeviceptr device = alloc(64);
    OK(cuMemcpy(device, at, 16));
    uint32_t words[4];
    OK(cuMemcpyDtoH_v2(words, device, 16));
    CHECK_EQ(words[0], 42);
    unsigned type;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    CHECK_EQ(type, CU_MEMORYTYPE_HOST);
    CHECK_EQ(cuMemFreeHost(seen), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(device));
    unmap(at, 16 * pages);
    OK(cuMemRelease(handle));
}

int main(int argc, char **argv) {
    start_driver();
    CUmemAllocationProp p = shareable(0);
    OK(cuMemGetAllocationGranularity(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    static const struct test tests[] = {
        TEST(neighbours),      TEST(aliases),         TEST(fresh),       TEST(threads),
        TEST(freed_too_early), TEST(unmapped_in_use), TEST(on_the_host), TEST(kernels_need_rights),
    };
    uint64_t before = held();
    int rc = RUN(tests);
    CHECK_EQ(held(), before);
    stop_driver();
    return rc;
}
