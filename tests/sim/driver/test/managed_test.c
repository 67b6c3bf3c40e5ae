// managed_test.c: managed memory of one process: where it lies, what moving it costs on the GPU's
// own clock, and that its data stay as they are.
#include "test_managed.h"

// ---- Where it lies ----

static void counts_where_it_lies(void) {
    uint64_t before = free_bytes();
    struct sim_managed start = books(0);
    CUdeviceptr at = managed(PAGES(100));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(books(0).allocated_bytes - start.allocated_bytes, PAGES(100));
    touch(at, PAGES(10));
    CHECK_EQ(free_bytes(), before - PAGES(10));
    touch(at + PAGES(5), PAGES(10));
    CHECK_EQ(resident(), PAGES(15));
    CHECK_EQ(books(0).populated_bytes - start.populated_bytes, PAGES(15));
    prefetch(at, PAGES(100), -1);
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(books(0).prefetch_out_bytes - start.prefetch_out_bytes, PAGES(15));
    touch(at, PAGES(100));
    CHECK_EQ(books(0).fault_in_bytes - start.fault_in_bytes, PAGES(100));
    CHECK_EQ(books(0).fault_batches - start.fault_batches, 115);
    CHECK_EQ(free_bytes(), before - PAGES(100));
    OK(cuMemFree_v2(at));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(books(0).allocated_bytes, start.allocated_bytes);
}

// What the host has written to by the first use has to come from there.
static void host_writes_first(void) {
    struct sim_managed start = books(0);
    CUdeviceptr at = managed(PAGES(10));
    uint8_t *host = (uint8_t *)(uintptr_t)at;
    host[PAGES(2) + 5] = 1;
    memset(host + PAGES(6), 1, PAGES(3));
    touch(at, PAGES(10));
    CHECK_EQ(books(0).fault_in_bytes - start.fault_in_bytes, PAGES(4));
    CHECK_EQ(books(0).populated_bytes - start.populated_bytes, PAGES(6));
    OK(cuMemFree_v2(at));
    // What comes to lie there next has not been written to.
    CHECK_EQ(managed(PAGES(10)), at);
    touch(at, PAGES(10));
    CHECK_EQ(books(0).fault_in_bytes - start.fault_in_bytes, PAGES(4));
    OK(cuMemFree_v2(at));
}

static void small_ones_share_pages(void) {
    CUdeviceptr at[4];
    for (unsigned i = 0; i < 4; i++)
        at[i] = managed(1000);
    for (unsigned i = 1; i < 4; i++)
        CHECK_EQ(at[i], at[0] + i * 1024);
    void *params[] = {&at[2]};
    launch(nothing, 1, 1, NULL, params);
    OK(cuCtxSynchronize());
    CHECK_EQ(resident(), PAGE);
    OK(cuMemFree_v2(at[2]));
    CHECK_EQ(resident(), PAGE);
    CUdeviceptr large = managed(PAGE + 1);
    CHECK_EQ((large - at[0]) % PAGE, 0);
    touch(large, PAGE + 1);
    CHECK_EQ(resident(), 3 * PAGE);
    OK(cuMemFree_v2(large));
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQ(cuMemFree_v2(at[i]), i == 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    CHECK_EQ(resident(), 0);
}

// A kernel without ranges of its own touches whole allocations; one with many, all of them.
static void what_kernels_touch(void) {
    CUdeviceptr at[6], inside;
    uint64_t cost = 0, bytes = PAGES(2);
    uint64_t launches = 0;
    for (unsigned i = 0; i < 6; i++)
        at[i] = managed(PAGES(8));
    inside = at[3] + PAGES(5) + 100;
    void *one[] = {&inside};
    launch(nothing, 1, 1, NULL, one);
    OK(cuCtxSynchronize());
    CHECK_EQ(resident(), PAGES(8));
    struct sim_gpu_state state;
    CHECK_EQ(sim_machine_gpu(machine, 0, &state), 0);
    launches = state.launches;
    void *all[] = {&cost,  &at[0], &bytes, &at[1], &bytes, &at[2], &bytes,
                   &at[3], &bytes, &at[4], &bytes, &at[5], &bytes};
    launch(spin_many, 1, 1, NULL, all);
    OK(cuCtxSynchronize());
    CHECK_EQ(resident(), PAGES(8 + 5 * 2));
    CHECK_EQ(sim_machine_gpu(machine, 0, &state), 0);
    CHECK_EQ(state.launches - launches, 1);
    for (unsigned i = 0; i < 6; i++)
        OK(cuMemFree_v2(at[i]));
}

// ---- What it costs ----

static void faults_take_time(void) {
    CUdeviceptr at = managed(PAGES(100));
    CUevent start = event(), end = event();
    int go;
    prefetch(at, PAGES(100), -1);
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    touch_for(2000000, at, PAGES(100), NULL);
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), 2 + 100 * 0.035 + link_ms(PAGES(100)));
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    touch_for(2000000, at, PAGES(100), NULL);
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), 2);
    OK(cuMemFree_v2(at));
}

static void prefetches_run_beside_kernels(void) {
    CUdeviceptr at = managed(PAGES(200));
    CUstream copies;
    CUevent start = event(), end = event(), done = event();
    int go;
    double move = 0.005 + link_ms(PAGES(100));
    OK(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
    prefetch(at, PAGES(200), -1);
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    OK(cuStreamWaitEvent(copies, start, 0));
    OK(cuMemPrefetchAsync(at, PAGES(100), 0, copies));
    OK(cuEventRecord(done, copies));
    spin_for(10000000, NULL);
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), 10);
    close_to(elapsed(start, done), move);
    // Pages that are under way are waited for, and not fetched again.
    uint64_t faults = books(0).fault_in_bytes;
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    OK(cuStreamWaitEvent(copies, start, 0));
    OK(cuMemPrefetchAsync(at + PAGES(100), PAGES(100), 0, copies));
    spin_for(1000000, NULL);
    touch_for(1000000, at + PAGES(100), PAGES(10), NULL);
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), move + 1);
    CHECK_EQ(books(0).fault_in_bytes, faults);
    OK(cuStreamDestroy_v2(copies));
    OK(cuMemFree_v2(at));
}

// What has to go takes its time before what faults, and beside what is prefetched.
static void evictions_take_time(void) {
    uint64_t room = free_bytes() / PAGE;
    CUdeviceptr old = managed(PAGES(room)), at = managed(PAGES(100));
    CUevent start = event(), end = event();
    int go;
    prefetch(at, PAGES(100), -1);
    touch(old, PAGES(room));
    uint64_t evicted = books(0).evicted_bytes;
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    touch_for(1000000, at, PAGES(100), NULL);
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), 1 + 100 * 0.035 + 2 * link_ms(PAGES(100)));
    CHECK_EQ(books(0).evicted_bytes - evicted, PAGES(100));
    // The oldest went: the first pages of the old memory.
    hold(NULL, &go);
    OK(cuEventRecord(start, NULL));
    OK(cuMemPrefetchAsync(old, PAGES(100), 0, NULL));
    OK(cuEventRecord(end, NULL));
    let_go(&go);
    close_to(elapsed(start, end), 0.005 + link_ms(PAGES(100)));
    CHECK_EQ(books(0).evicted_bytes - evicted, PAGES(200));
    CHECK_EQ(resident(), PAGES(room));
    OK(cuMemFree_v2(old));
    OK(cuMemFree_v2(at));
}

// A kernel's pages are looked for when it begins, not when it is submitted.
static void touched_when_it_begins(void) {
    CUdeviceptr at = managed(PAGES(10));
    CUstream copies;
    struct sim_managed before;
    int go;
    OK(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
    touch(at, PAGES(10));
    before = books(0);
    hold(NULL, &go);
    touch_for(0, at, PAGES(10), NULL);
    OK(cuMemPrefetchAsync(at, PAGES(10), -1, copies));
    OK(cuStreamSynchronize(copies));
    CHECK_EQ(resident(), 0);
    let_go(&go);
    OK(cuCtxSynchronize());
    CHECK_EQ(books(0).prefetch_out_bytes - before.prefetch_out_bytes, PAGES(10));
    CHECK_EQ(books(0).fault_in_bytes - before.fault_in_bytes, PAGES(10));
    OK(cuStreamDestroy_v2(copies));
    OK(cuMemFree_v2(at));
}

// A graph's kernels touch their pages at each of its launches; prefetches cannot be captured.
static void graphs_touch_it(void) {
    CUdeviceptr at = managed(PAGES(10));
    CUstream stream;
    CUgraph graph, none;
    CUgraphExec exec;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    touch_for(1000, at, PAGES(10), stream);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_EQ(resident(), 0);
    for (unsigned i = 0; i < 2; i++) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        CHECK_EQ(resident(), PAGES(10));
        prefetch(at, PAGES(10), -1);
    }
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuMemPrefetchAsync(at, PAGES(10), 0, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(cuStreamEndCapture(stream, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(at));
}

// ---- More than the card has ----

static void data_survive_thrashing(void) {
    enum { PIECES = 12 };
    CUdeviceptr at[PIECES];
    uint64_t bytes = 8 * MIB;
    uint32_t value;
    for (unsigned i = 0; i < PIECES; i++) {
        at[i] = managed(bytes);
        OK(cuMemsetD32_v2(at[i], i * 1000, bytes / 4));
    }
    for (unsigned round = 1; round <= 3; round++)
        for (unsigned i = 0; i < PIECES; i++)
            for (unsigned k = 0; k < 4; k++)
                add_to(at[i] + k * 2 * MIB, 64, round, NULL);
    OK(cuCtxSynchronize());
    CHECK(books(0).evicted_bytes >= 2 * PIECES * bytes);
    CHECK(resident() <= 62 * MIB);
    for (unsigned i = 0; i < PIECES; i++)
        for (unsigned k = 0; k < 4; k++) {
            OK(cuMemcpyDtoH_v2(&value, at[i] + k * 2 * MIB + 4 * 63, 4));
            CHECK_EQ(value, i * 1000 + 6);
            CHECK_EQ(((uint32_t *)(uintptr_t)at[i])[64], i * 1000);
        }
    for (unsigned i = 0; i < PIECES; i++)
        OK(cuMemFree_v2(at[i]));
    CHECK_EQ(resident(), 0);
}

// Plain memory takes the place of managed pages, and only other plain memory is in its way.
static void plain_memory_first(void) {
    uint64_t all = free_bytes();
    CUdeviceptr at = managed(2 * all), plain, more;
    touch(at, all);
    CHECK(free_bytes() < PAGE);
    uint64_t evicted = books(0).evicted_bytes, before = sim_now_ns();
    OK(cuMemAlloc_v2(&plain, PAGES(300)));
    CHECK_EQ(books(0).evicted_bytes - evicted, PAGES(300));
    CHECK(sim_now_ns() - before >= (uint64_t)(link_ms(PAGES(300)) * 1e6));
    CHECK_EQ(cuMemAlloc_v2(&more, all - PAGES(300) + 512), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&more, all - PAGES(300)));
    CHECK_EQ(resident(), 0);
    CHECK_EQ(free_bytes(), 0);
    // There is no room for any page: the kernel uses them over the link.
    uint64_t remote = books(0).remote_bytes;
    touch(at, PAGES(10));
    CHECK_EQ(books(0).remote_bytes - remote, PAGES(10));
    OK(cuMemFree_v2(more));
    OK(cuMemFree_v2(plain));
    OK(cuMemFree_v2(at));
    CHECK_EQ(free_bytes(), all);
}

enum taking { TAKE_PLAIN, TAKE_CREATED, TAKE_ARRAY, TAKE_MIPMAP, TAKE_POOL, TAKES };

// Takes 300 pages of the card; what is to be given back, and the pool that it came from.
static CUdeviceptr take(enum taking taking, CUmemoryPool *pool) {
    CUmemAllocationProp created = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = PAGE / 4, .Height = 300, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUdeviceptr taken = 0;
    switch (taking) {
    case TAKE_PLAIN:
        OK(cuMemAlloc_v2(&taken, PAGES(300)));
        break;
    case TAKE_CREATED:
        OK(cuMemCreate(&taken, PAGES(300), &created, 0));
        break;
    case TAKE_ARRAY:
        OK(cuArray3DCreate_v2((CUarray *)&taken, &shape));
        break;
    case TAKE_MIPMAP:
        OK(cuMipmappedArrayCreate((CUmipmappedArray *)&taken, &shape, 1));
        break;
    default:
        OK(cuMemPoolCreate(pool, &props));
        OK(cuMemAllocFromPoolAsync(&taken, PAGES(300), *pool, NULL));
    }
    return taken;
}

static void give_back(enum taking taking, CUdeviceptr taken, CUmemoryPool pool) {
    switch (taking) {
    case TAKE_CREATED:
        OK(cuMemRelease(taken));
        break;
    case TAKE_ARRAY:
        OK(cuArrayDestroy((CUarray)taken));
        break;
    case TAKE_MIPMAP:
        OK(cuMipmappedArrayDestroy((CUmipmappedArray)taken));
        break;
    default:
        OK(cuMemFree_v2(taken));
    }
    if (taking == TAKE_POOL)
        OK(cuMemPoolDestroy(pool));
}

// Whatever takes the place of managed pages waits until they have gone.
static void all_kinds_wait(void) {
    uint64_t all = free_bytes();
    CUdeviceptr at = managed(all);
    for (enum taking taking = TAKE_PLAIN; taking < TAKES; taking++) {
        CUmemoryPool pool = NULL;
        touch(at, all);
        uint64_t evicted = books(0).evicted_bytes, before = sim_now_ns();
        CUdeviceptr taken = take(taking, &pool);
        CHECK(books(0).evicted_bytes - evicted >= PAGES(300));
        CHECK(sim_now_ns() - before >= (uint64_t)(link_ms(PAGES(300)) * 1e6));
        give_back(taking, taken, pool);
        OK(cuCtxSynchronize());
    }
    OK(cuMemFree_v2(at));
    CHECK_EQ(free_bytes(), all);
}

int main(int argc, char **argv) {
    start_managed();
    static const struct test tests[] = {
        TEST(counts_where_it_lies),   TEST(host_writes_first),  TEST(small_ones_share_pages),
        TEST(what_kernels_touch),     TEST(faults_take_time),   TEST(prefetches_run_beside_kernels),
        TEST(touched_when_it_begins), TEST(graphs_touch_it),    TEST(evictions_take_time),
        TEST(data_survive_thrashing), TEST(plain_memory_first), TEST(all_kinds_wait),
    };
    int rc = RUN(tests);
    stop_managed();
    return rc;
}
