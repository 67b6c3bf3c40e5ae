// advice_test.c: advice about managed memory, and what else the driver does and says about it.
#include "test_managed.h"

// ---- Advice ----

static int range_attribute(int attribute, CUdeviceptr at, uint64_t bytes) {
    int value = -100;
    OK(cuMemRangeGetAttribute(&value, sizeof value, attribute, at, bytes));
    return value;
}

static void advice_is_remembered(void) {
    CUdeviceptr at = managed(PAGES(8));
    int devices[3], read_mostly, preferred;
    CHECK_EQ(range_attribute(2, at, PAGES(8)), -2);
    CHECK_EQ(range_attribute(4, at, PAGES(8)), -2);
    OK(cuMemAdvise(at, PAGES(4), 1, 0));
    CHECK_EQ(range_attribute(1, at, PAGES(4)), 1);
    CHECK_EQ(range_attribute(1, at, PAGES(5)), 0);
    OK(cuMemAdvise(at, PAGES(8), 3, -1));
    CHECK_EQ(range_attribute(2, at, PAGES(8)), -1);
    CHECK_EQ(range_attribute(5, at, PAGES(8)), CU_MEM_LOCATION_TYPE_HOST);
    OK(cuMemAdvise(at, PAGES(1), 3, 1));
    CHECK_EQ(range_attribute(2, at, PAGES(8)), -2);
    CHECK_EQ(range_attribute(6, at, PAGES(1)), 1);
    OK(cuMemAdvise(at, PAGES(8), 5, 1));
    OK(cuMemAdvise(at, PAGES(8), 5, 0));
    OK(cuMemAdvise(at, PAGES(2), 6, 0));
    OK(cuMemRangeGetAttribute(devices, sizeof devices, 3, at, PAGES(8)));
    CHECK_EQ(devices[0], 1);
    CHECK_EQ(devices[1], -2);
    OK(cuMemPrefetchAsync_v2(at, PAGES(8), (CUmemLocation){.type = 1, .id = 0}, 0, NULL));
    CHECK_EQ(range_attribute(4, at, PAGES(8)), 0);
    CHECK_EQ(range_attribute(7, at, PAGES(8)), CU_MEM_LOCATION_TYPE_DEVICE);
    void *data[] = {&read_mostly, &preferred};
    size_t sizes[] = {4, 4};
    int attributes[] = {1, 2};
    OK(cuMemRangeGetAttributes(data, sizes, attributes, 2, at, PAGES(1)));
    CHECK_EQ(read_mostly, 1);
    CHECK_EQ(preferred, 1);
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(at));
    CHECK_EQ(managed(PAGES(8)), at);  // and forgotten with the memory
    CHECK_EQ(range_attribute(1, at, PAGES(4)), 0);
    CHECK_EQ(range_attribute(2, at, PAGES(4)), -2);
    OK(cuMemFree_v2(at));
}

static void bad_advice(void) {
    CUdeviceptr at = managed(PAGES(2)), plain = alloc(PAGE);
    int value;
    CHECK_EQ(cuMemAdvise(at, PAGES(2), 7, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAdvise(at, PAGES(2), 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAdvise(at, PAGES(2) + 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAdvise(at, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemAdvise(at, PAGE, 3, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemAdvise(at, PAGE, 3, -2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemAdvise(plain, PAGE, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPrefetchAsync(plain, PAGE, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemPrefetchAsync(at, PAGE, 5, NULL), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemRangeGetAttribute(&value, 8, 1, at, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemRangeGetAttribute(&value, 4, 9, at, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemRangeGetAttribute(NULL, 4, 1, at, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemRangeGetAttribute(&value, 4, 1, plain, PAGE), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(plain));
    OK(cuMemFree_v2(at));
}

// Pages that are mostly read are copied, until they are written to or the advice ends.
static void read_mostly(void) {
    struct sim_managed start = books(0);
    CUdeviceptr at = managed(PAGES(10));
    uint64_t before = free_bytes();
    prefetch(at, PAGES(10), -1);
    OK(cuMemAdvise(at, PAGES(10), 1, 0));
    touch(at, PAGES(10));
    CHECK_EQ(books(0).fault_in_bytes - start.fault_in_bytes, PAGES(10));
    CUdeviceptr plain = alloc(before);  // the copies go, without a move
    CHECK_EQ(books(0).evicted_bytes, start.evicted_bytes);
    CHECK_EQ(resident(), 0);
    OK(cuMemFree_v2(plain));
    touch(at, PAGES(10));
    OK(cuMemsetD8_v2(at, 1, PAGES(5)));  // written to: only there
    prefetch(at, PAGES(10), -1);
    CHECK_EQ(books(0).prefetch_out_bytes - start.prefetch_out_bytes, PAGES(5));
    CHECK_EQ(resident(), PAGES(10));
    OK(cuMemAdvise(at, PAGES(10), 2, 0));
    CHECK_EQ(resident(), 0);
    OK(cuMemFree_v2(at));
}

static void two_devices(void) {
    CUcontext other;
    CUmodule module;
    CUfunction spin_there;
    uint64_t cost = 0, bytes = PAGES(10);
    struct sim_managed start = books(0);
    CUdeviceptr at = managed(bytes);
    void *params[] = {&cost, &at, &bytes};
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    OK(cuCtxPushCurrent_v2(other));
    OK(cuModuleLoadData(&module, managed_kernels));
    OK(cuModuleGetFunction(&spin_there, module, "weir_spin_ns_on"));
    OK(cuCtxPopCurrent_v2(NULL));
    touch(at, bytes);
    OK(cuCtxPushCurrent_v2(other));
    launch(spin_there, 1, 1, NULL, params);
    OK(cuCtxSynchronize());
    CHECK_EQ(resident(), 0);
    CHECK_EQ(books(0).peer_out_bytes - start.peer_out_bytes, bytes);
    CHECK_EQ(books(1).resident_bytes, bytes);
    CHECK_EQ(books(1).fault_in_bytes, bytes);
    OK(cuMemAdvise(at, bytes, 1, 0));
    OK(cuCtxPopCurrent_v2(NULL));
    touch(at, bytes);
    CHECK_EQ(resident(), bytes);
    CHECK_EQ(books(1).resident_bytes, bytes);
    OK(cuMemAdvise(at, bytes, 2, 0));
    CHECK_EQ(resident() + books(1).resident_bytes, bytes);
    OK(cuMemAdvise(at, bytes, 3, 1));
    prefetch(at, bytes, 1);
    uint64_t remote = books(0).remote_bytes;
    touch(at, bytes);  // where it is preferred to be it stays
    CHECK_EQ(books(0).remote_bytes - remote, bytes);
    CHECK_EQ(books(1).resident_bytes, bytes);
    OK(cuMemFree_v2(at));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void preferred_on_the_host(void) {
    CUdeviceptr at = managed(PAGES(10));
    CUevent start = event(), end = event();
    int go;
    struct sim_managed before = books(0);
    OK(cuMemAdvise(at, PAGES(10), 3, -1));
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    touch_for(1000000, at, PAGES(10), NULL);
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), 1 + link_ms(PAGES(10)));
    CHECK_EQ(resident(), 0);
    CHECK_EQ(books(0).remote_bytes - before.remote_bytes, PAGES(10));
    CHECK_EQ(books(0).fault_batches, before.fault_batches);
    OK(cuMemAdvise(at, PAGES(10), 4, 0));
    OK(cuMemAdvise(at, PAGES(10), 5, 0));
    touch(at, PAGES(10));  // mapped from where it is
    CHECK_EQ(resident(), 0);
    OK(cuMemAdvise(at, PAGES(10), 6, 0));
    touch(at, PAGES(10));
    CHECK_EQ(resident(), PAGES(10));
    OK(cuMemFree_v2(at));
}

// ---- What else knows it ----

static void copies_bring_it(void) {
    static uint32_t words[PAGE / 4];
    struct sim_managed start = books(0);
    CUdeviceptr at = managed(PAGES(4)), plain = alloc(PAGE);
    for (unsigned i = 0; i < PAGE / 4; i++)
        words[i] = i * 3;
    OK(cuMemcpyHtoD_v2(at + PAGES(1), words, PAGE));
    CHECK_EQ(resident(), PAGE);
    OK(cuMemcpyDtoD_v2(at + PAGES(3), at + PAGES(1), PAGE));
    OK(cuMemcpyDtoD_v2(plain, at + PAGES(3), PAGE));
    memset(words, 0, sizeof words);
    OK(cuMemcpyDtoH_v2(words, plain, PAGE));
    CHECK_EQ(words[1000], 3000);
    CHECK_EQ(resident(), PAGES(2));
    CHECK_EQ(books(0).populated_bytes - start.populated_bytes, PAGES(2));
    OK(cuMemFree_v2(plain));
    OK(cuMemFree_v2(at));
}

static void attachment(void) {
    CUdeviceptr at = managed(PAGES(2));
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    OK(cuStreamAttachMemAsync(stream, at, 0, CU_MEM_ATTACH_SINGLE));
    OK(cuStreamAttachMemAsync(stream, at, PAGES(2), CU_MEM_ATTACH_HOST));
    OK(cuStreamAttachMemAsync(NULL, at, 0, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(cuStreamAttachMemAsync(NULL, at, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamAttachMemAsync(stream, at, PAGE, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamAttachMemAsync(stream, at + PAGE, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamAttachMemAsync(stream, at, 0, 3), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(at));
}

static void pointer_attributes(void) {
    CUdeviceptr at = managed(PAGES(2));
    unsigned is_managed = 0, type = 0, ipc = 9;
    void *host = NULL;
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 9));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
    OK(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    CHECK_EQ(is_managed, 1);
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ((uintptr_t)host, at);
    CHECK_EQ(ipc, 0);
    OK(cuMemFree_v2(at));
}

// All that a context allocated goes with it, wherever it lies.
static void goes_with_its_context(void) {
    CUcontext context;
    uint64_t before = free_bytes(), allocated = books(0).allocated_bytes;
    OK(cuCtxCreate_v2(&context, 0, 0));
    CUdeviceptr at = managed(PAGES(20));
    OK(cuMemsetD8_v2(at, 1, PAGES(20)));
    CHECK_EQ(resident(), PAGES(20));
    OK(cuCtxDestroy_v2(context));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(books(0).allocated_bytes, allocated);
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
}

int main(int argc, char **argv) {
    start_managed();
    static const struct test tests[] = {
        TEST(advice_is_remembered),
        TEST(bad_advice),
        TEST(read_mostly),
        TEST(two_devices),
        TEST(preferred_on_the_host),
        TEST(copies_bring_it),
        TEST(attachment),
        TEST(pointer_attributes),
        TEST(goes_with_its_context),
    };
    int rc = RUN(tests);
    stop_managed();
    return rc;
}
