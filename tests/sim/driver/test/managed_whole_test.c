// managed_whole_test.c: managed memory on a card without concurrent managed access: all of it comes
// before a kernel, none of it by faults.
#include "test_managed.h"

static void says_so(void) {
    int concurrent = -1;
    OK(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
    CHECK_EQ(concurrent, 0);
}

// Whatever a kernel's parameters are, in as many stretches as there are.
static void all_of_it_comes(void) {
    struct sim_managed start = books(0);
    CUdeviceptr at[14];
    for (unsigned i = 0; i < 14; i++)
        at[i] = managed(PAGES(2));
    for (unsigned i = 1; i < 14; i += 2)
        OK(cuMemFree_v2(at[i]));
    memset((void *)(uintptr_t)at[2], 1, PAGES(1));
    CHECK_EQ(resident(), 0);
    touch(at[0], 1);
    CHECK_EQ(resident(), PAGES(14));
    CHECK_EQ(books(0).fault_in_bytes - start.fault_in_bytes, PAGES(1));
    CHECK_EQ(books(0).fault_batches, start.fault_batches);
    for (unsigned i = 0; i < 14; i += 2)
        OK(cuMemFree_v2(at[i]));
    CHECK_EQ(resident(), 0);
}

// It takes as long as it takes over the link.
static void costs_the_link(void) {
    CUdeviceptr at = managed(PAGES(64));
    memset((void *)(uintptr_t)at, 1, PAGES(64));
    CUevent start = event(), end = event();
    OK(cuEventRecord(start, NULL));
    touch_for(0, at, 1, NULL);
    OK(cuEventRecord(end, NULL));
    CHECK(elapsed(start, end) >= link_ms(PAGES(64)));
    OK(cuMemFree_v2(at));
}

static void nothing_is_prefetched(void) {
    CUdeviceptr at = managed(PAGES(2));
    CHECK_EQ(cuMemPrefetchAsync(at, PAGES(2), 0, NULL), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemPrefetchAsync(at, PAGES(2), -1, NULL), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemAdvise(at, PAGES(2), 3, 0), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuMemAdvise(at, PAGES(2), 5, 0), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemAdvise(at, PAGES(2), 3, -1));
    OK(cuMemAdvise(at, PAGES(2), 1, 0));
    OK(cuMemFree_v2(at));
}

static void no_more_than_the_card_has(void) {
    size_t free_now, total;
    CUdeviceptr at, more;
    OK(cuMemGetInfo_v2(&free_now, &total));
    OK(cuMemAllocManaged(&at, total / 2, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQ(cuMemAllocManaged(&more, total / 2 + SIM_GRANULE, CU_MEM_ATTACH_GLOBAL),
             CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAllocManaged(&more, total / 2, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemFree_v2(at));
    OK(cuMemFree_v2(more));
}

int main(int argc, char **argv) {
    start_managed_whole();
    static const struct test tests[] = {
        TEST(says_so),
        TEST(all_of_it_comes),
        TEST(costs_the_link),
        TEST(nothing_is_prefetched),
        TEST(no_more_than_the_card_has),
    };
    int rc = RUN(tests);
    stop_managed();
    return rc;
}
