// vmm_test.c: virtual memory management in one process: addresses, physical memory, mappings and
// access, each function with its errors.
#include "test_driver.h"
#include "test_share.h"

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

// ---- Each function ----

static void granularity(void) {
    CUmemAllocationProp p = shareable(0);
    size_t recommended;
    OK(cuMemGetAllocationGranularity(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemGetAllocationGranularity(&recommended, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK_EQ(unit, 32768);  // 2 MiB / scale
    CHECK_EQ(recommended, unit);
    CHECK_EQ(cuMemGetAllocationGranularity(NULL, &p, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAllocationGranularity(&unit, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAllocationGranularity(&unit, &p, 2), CUDA_ERROR_INVALID_VALUE);
    p.location.id = 2;
    CHECK_EQ(cuMemGetAllocationGranularity(&unit, &p, 0), CUDA_ERROR_INVALID_DEVICE);
    p.location.type = 0;
    CHECK_EQ(cuMemGetAllocationGranularity(&unit, &p, 0), CUDA_ERROR_INVALID_VALUE);
    int supported;
    OK(cuDeviceGetAttribute(&supported, 102, 0));
    CHECK_EQ(supported, 1);
    OK(cuDeviceGetAttribute(&supported, 103, 0));
    CHECK_EQ(supported, 1);
}

static void addresses(void) {
    uint64_t before = held();
    CUdeviceptr at, hinted, aligned;
    OK(cuMemAddressReserve(&at, unit, 0, 0, 0));
    CHECK_EQ(at % unit, 0);
    OK(cuMemAddressReserve(&aligned, 3 * unit, 64 * unit, 0, 0));
    CHECK_EQ(aligned % (64 * unit), 0);
    OK(cuMemAddressFree(aligned, 3 * unit));
    OK(cuMemAddressReserve(&hinted, 3 * unit, 0, aligned, 0));  // free again, so it is had
    CHECK_EQ(hinted, aligned);
    OK(cuMemAddressReserve(&aligned, unit, 0, hinted, 0));  // taken, so another is
    CHECK(aligned != hinted);
    CHECK_EQ(cuMemAddressReserve(NULL, unit, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&at, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&at, unit + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&at, unit, 3 * unit, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&at, unit, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressReserve(&at, UINT64_C(1) << 60, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuMemAddressFree(at, 2 * unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressFree(hinted + unit, unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(at, unit));
    CHECK_EQ(cuMemAddressFree(at, unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(hinted, 3 * unit));
    OK(cuMemAddressFree(aligned, unit));
    CHECK_EQ(held(), before);  // addresses take nothing
}

static void physical(void) {
    uint64_t before = held();
    CUmemAllocationProp p = shareable(0), got;
    CUmemGenericAllocationHandle handle;
    CHECK_EQ(cuMemCreate(NULL, unit, &p, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, unit, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, unit, &p, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, 0, &p, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, unit / 2, &p, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemCreate(&handle, 64 * MIB, &p, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(held(), before);
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CHECK_EQ(cuMemCreate(&handle, unit, &p, 0), CUDA_ERROR_NOT_SUPPORTED);
    p.requestedHandleTypes = 32;
    CHECK_EQ(cuMemCreate(&handle, unit, &p, 0), CUDA_ERROR_INVALID_VALUE);
    p = shareable(5);
    CHECK_EQ(cuMemCreate(&handle, unit, &p, 0), CUDA_ERROR_INVALID_DEVICE);
    p = shareable(0);
    p.type = 2;
    CHECK_EQ(cuMemCreate(&handle, unit, &p, 0), CUDA_ERROR_INVALID_VALUE);

    handle = create_on(0, 4 * unit);
    CHECK_EQ(held(), before + 4 * unit);
    OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    p = shareable(0);
    CHECK(!memcmp(&got, &p, sizeof p));
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(NULL, handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&got, 17), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(handle));
    CHECK_EQ(held(), before);
    CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&got, handle), CUDA_ERROR_INVALID_VALUE);
}

// All that is free can be had, not a granule more; another device is another card.
static void to_the_last(void) {
    uint64_t before = held(), most = free_bytes() / unit * unit;
    CUmemAllocationProp p = shareable(0);
    CUmemGenericAllocationHandle all = create_on(0, most), other = create_on(1, 32 * MIB), one;
    CHECK_EQ(cuMemCreate(&one, unit, &p, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(held(), before + most);
    OK(cuMemRelease(all));
    OK(cuMemRelease(other));
    CHECK_EQ(held(), before);
}

static void mappings(void) {
    uint64_t before = held();
    CUmemGenericAllocationHandle handle = create_on(0, 4 * unit);
    CUdeviceptr at = reserve(8 * unit);
    CHECK_EQ(cuMemMap(at, unit / 2, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at, unit, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at, unit, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at + 4096, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at, 5 * unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at, 2 * unit, 3 * unit, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(at + 6 * unit, 4 * unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemMap(0x12340000, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr plain = alloc(4 * unit);
    CHECK_EQ(cuMemMap(plain / unit * unit, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(plain));

    OK(cuMemMap(at, 4 * unit, 0, handle, 0));
    CHECK_EQ(cuMemMap(at + 3 * unit, 4 * unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAddressFree(at, 8 * unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(at, 3 * unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(at + unit, 3 * unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(at, 5 * unit), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemUnmap(at, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(at + 4 * unit, 4 * unit, 0, handle, 0));  // the same memory again
    CHECK_EQ(held(), before + 4 * unit);
    OK(cuMemRelease(handle));  // lives on, mapped
    CHECK_EQ(held(), before + 4 * unit);
    OK(cuMemUnmap(at, 8 * unit));  // both at once
    CHECK_EQ(held(), before);
    CHECK_EQ(cuMemUnmap(at, 4 * unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(at, 8 * unit));
}

static void retained(void) {
    uint64_t before = held();
    CUmemGenericAllocationHandle handle = create_on(0, unit), again = 0;
    CUdeviceptr at = map_all(handle, unit);
    OK(cuMemRelease(handle));
    CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 100)));
    CHECK_EQ(again, handle);
    OK(cuMemUnmap(at, unit));
    CHECK_EQ(held(), before + unit);
    OK(cuMemMap(at, unit, 0, again, 0));
    OK(cuMemRelease(again));
    CHECK_EQ(cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)at), CUDA_ERROR_INVALID_VALUE);
    unmap(at, unit);
    CHECK_EQ(held(), before);
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr plain = alloc(unit);
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)plain),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(plain));
}

static void rights(void) {
    CUmemGenericAllocationHandle handle = create_on(0, 2 * unit);
    CUdeviceptr at = reserve(4 * unit);
    unsigned long long flags;
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    CUmemAccessDesc bad = {device, 2};
    uint32_t word = 5;
    OK(cuMemMap(at, 2 * unit, 0, handle, 0));
    OK(cuMemGetAccess(&flags, &device, at));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(cuMemcpyHtoD_v2(at, &word, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyDtoH_v2(&word, at, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD8_v2(at, 1, 4), CUDA_ERROR_INVALID_VALUE);

    OK(allow(at, 2 * unit, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemGetAccess(&flags, &device, at + unit));
    CHECK_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemcpyDtoH_v2(&word, at, 4));
    CHECK_EQ(word, 0);
    CHECK_EQ(cuMemcpyHtoD_v2(at, &word, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemsetD8_v2(at, 1, 4), CUDA_ERROR_INVALID_VALUE);
    unsigned pointer_flags;
    OK(cuPointerGetAttribute(&pointer_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
    CHECK_EQ(pointer_flags, CU_MEM_ACCESS_FLAGS_PROT_READ);

    OK(allow(at, 2 * unit, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemcpyHtoD_v2(at, &(uint32_t){7}, 4));
    OK(allow(at, 2 * unit, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    CHECK_EQ(cuMemcpyDtoH_v2(&word, at, 4), CUDA_ERROR_INVALID_VALUE);
    OK(allow(at, 2 * unit, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cuMemcpyDtoH_v2(&word, at, 4));
    CHECK_EQ(word, 7);

    CHECK_EQ(cuMemSetAccess(at, 2 * unit, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemSetAccess(at, 2 * unit, &bad, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemSetAccess(at, 2 * unit, &bad, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(allow(at, unit, 0, 3), CUDA_ERROR_INVALID_VALUE);      // part of a mapping
    CHECK_EQ(allow(at, 3 * unit, 0, 3), CUDA_ERROR_INVALID_VALUE);  // more than is mapped
    CHECK_EQ(allow(at, 2 * unit, 9, 3), CUDA_ERROR_INVALID_DEVICE);
    CUmemAccessDesc for_host = {host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_EQ(cuMemSetAccess(at, 2 * unit, &for_host, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAccess(NULL, &device, at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAccess(&flags, NULL, at), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetAccess(&flags, &device, at + 3 * unit), CUDA_ERROR_INVALID_VALUE);
    device.id = 4;
    CHECK_EQ(cuMemGetAccess(&flags, &device, at), CUDA_ERROR_INVALID_DEVICE);

    // A new mapping has no rights, whatever the last one at the place had.
    OK(cuMemUnmap(at, 2 * unit));
    OK(cuMemMap(at, 2 * unit, 0, handle, 0));
    CHECK_EQ(cuMemcpyDtoH_v2(&word, at, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at, 2 * unit));
    OK(cuMemAddressFree(at, 4 * unit));
    OK(cuMemRelease(handle));
}

// Needs no context: a thread without one can create (M2).
static void without_context(void) {
    CUcontext context;
    OK(cuCtxPopCurrent_v2(&context));
    CUmemGenericAllocationHandle handle = create_on(0, unit);
    CUdeviceptr at = map_all(handle, unit);
    unmap(at, unit);
    OK(cuMemRelease(handle));
    OK(cuCtxPushCurrent_v2(context));
}

static void pointers(void) {
    CUmemGenericAllocationHandle handle = create_on(1, 2 * unit);
    CUdeviceptr at = reserve(8 * unit), base;
    OK(cuMemMap(at + 2 * unit, 2 * unit, 0, handle, 0));
    OK(allow(at + 2 * unit, 2 * unit, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CUdeviceptr inside = at + 3 * unit;
    int device;
    unsigned number;
    size_t bytes;
    unsigned long long types;
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    CHECK_EQ(device, 1);
    OK(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    CHECK_EQ(number, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MAPPED, inside));
    CHECK_EQ(number, 1);
    OK(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MAPPED, at));
    CHECK_EQ(number, 0);
    OK(cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
    CHECK_EQ(number, 0);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
    CHECK_EQ(base, at + 2 * unit);
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
    CHECK_EQ(bytes, 2 * unit);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    CHECK_EQ(base, at);
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    CHECK_EQ(bytes, 8 * unit);
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
    CHECK_EQ(types, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    void *host;
    CHECK_EQ(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetAddressRange_v2(&base, &bytes, inside));
    CHECK_EQ(base, at + 2 * unit);
    CHECK_EQ(bytes, 2 * unit);
    CHECK_EQ(cuMemGetAddressRange_v2(&base, &bytes, at), CUDA_ERROR_NOT_FOUND);
    OK(cuMemUnmap(at + 2 * unit, 2 * unit));
    OK(cuMemAddressFree(at, 8 * unit));
    OK(cuMemRelease(handle));
}

static void not_supported(void) {
    CUmemGenericAllocationHandle handle = create_on(0, unit);
    CUdeviceptr at = map_all(handle, unit);
    int fd;
    CHECK_EQ(cuMemGetHandleForAddressRange(&fd, at, unit, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuMemGetHandleForAddressRange(NULL, at, unit, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemGetHandleForAddressRange(&fd, at, unit, 9, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuMemImportFromShareableHandle(&handle, &fd, CU_MEM_HANDLE_TYPE_FABRIC),
             CUDA_ERROR_NOT_SUPPORTED);
    unmap(at, unit);
    OK(cuMemRelease(handle));
}

static void many(void) {
    uint64_t before = held();
    for (unsigned i = 0; i < 2000; i++) {
        CUmemGenericAllocationHandle handle = create_on(0, unit);
        CUdeviceptr at = map_all(handle, unit);
        OK(cuMemRelease(handle));
        unmap(at, unit);
    }
    enum { N = 500 };
    CUdeviceptr at = reserve(N * unit);
    for (unsigned i = 0; i < N; i++) {
        CUmemGenericAllocationHandle handle = create_on(0, unit);
        OK(cuMemMap(at + (N - 1 - i) * unit, unit, 0, handle, 0));  // downwards
        OK(cuMemRelease(handle));
    }
    CHECK_EQ(held(), before + N * unit);
    unmap(at, N * unit);
    CHECK_EQ(held(), before);
}

int main(int argc, char **argv) {
    start_driver();
    granularity();  // the others need the unit
    static const struct test tests[] = {
        TEST(addresses), TEST(physical), TEST(to_the_last),     TEST(mappings), TEST(retained),
        TEST(rights),    TEST(pointers), TEST(without_context), TEST(many),     TEST(not_supported),
    };
    uint64_t before = held();
    int rc = RUN(tests);
    CHECK_EQ(held(), before);
    stop_driver();
    return rc;
}
