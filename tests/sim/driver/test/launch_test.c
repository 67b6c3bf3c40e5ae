// launch_test.c: the forms of launches, their attributes and limits, and occupancy. Device 1 is of
// a kind that has clusters.
#define _GNU_SOURCE
#include "test_driver.h"

// Kernels by what they need: registers are an estimate, so only their bounds are relied on.
static const char kernels[] =
    ".version 7.8\n.target sm_70\n.address_size 64\n"
    ".visible .entry sum(.param .u64 p, .param .u32 x, .param .f32 y) {\n"
    "  .reg .u64 %rd<2>; .reg .u32 %r<4>; .reg .f32 %f<3>;\n"
    "  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[x]; ld.param.f32 %f1,[y];\n"
    "  cvt.rzi.u32.f32 %r2,%f1; add.u32 %r1,%r1,%r2;\n"
    "  atom.global.add.u32 %r3,[%rd1],%r1; ret; }\n"
    ".visible .entry shared() { .shared .align 4 .b8 room[30000]; .reg .u32 %r<2>;\n"
    "  mov.u32 %r1,room; st.shared.u32 [room],%r1; ret; }\n"
    ".visible .entry clustered() .reqnctapercluster 2, 2, 1 { .reg .u32 %r<2>;\n"
    "  mov.u32 %r1,0; ret; }\n"
    ".visible .entry explicit() .explicitcluster { .reg .u32 %r<2>; mov.u32 %r1,0; ret; }\n"
    ".visible .entry meet(.param .u64 p, .param .u32 n) {\n"
    "  .reg .u64 %rd<2>; .reg .u32 %r<4>; .reg .pred %q;\n"
    "  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[n]; atom.global.add.u32 %r2,[%rd1],1;\n"
    "SPIN: ld.volatile.global.u32 %r3,[%rd1]; setp.lt.u32 %q,%r3,%r1; @%q bra SPIN; ret; }\n"
    ".visible .entry small() .maxntid 128, 1, 1 { ret; }\n";

static CUcontext second;
static CUmodule modules[2];
static CUfunction sum, shared, small;
static CUdeviceptr at;

static CUfunction function(unsigned device, const char *name) {
    CUfunction function;
    OK(cuModuleGetFunction(&function, modules[device], name));
    return function;
}

static void prepare(void) {
    OK(cuModuleLoadData(&modules[0], kernels));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent_v2(second));
    OK(cuModuleLoadData(&modules[1], kernels));
    OK(cuCtxPopCurrent_v2(NULL));
    sum = function(0, "sum");
    shared = function(0, "shared");
    small = function(0, "small");
    at = alloc(4);
}

// What `sum` has added since the last look.
static uint32_t added(void) {
    uint32_t word;
    OK(cuMemcpyDtoH_v2(&word, at, sizeof word));
    OK(cuMemsetD32_v2(at, 0, 1));
    return word;
}

static CUlaunchConfig config(unsigned grid, unsigned block, CUlaunchAttribute *attributes,
                             unsigned count) {
    return (CUlaunchConfig){grid, 1, 1, block, 1, 1, 0, NULL, attributes, count};
}

// ---- By a configuration ----

static void attributes_of_launches(void) {
    uint32_t x = 3;
    float y = 4.5f;
    void *params[] = {&at, &x, &y};
    CUevent event, timed;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    CUlaunchAttribute all[] = {
        {.id = CU_LAUNCH_ATTRIBUTE_IGNORE},
        {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -2},
        {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
         .value.programmaticStreamSerializationAllowed = 1},
        {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, .value.memSyncDomain = 1},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
         .value.clusterSchedulingPolicyPreference = 1},
        {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
         .value.accessPolicyWindow = {NULL, 0, 0.5f, 2, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, .value.sharedMemCarveout = 50},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, .value.programmaticEvent = {event, 0, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
         .value.launchCompletionEvent = {event, 0}},
    };
    CUlaunchConfig c = config(2, 32, all, sizeof all / sizeof all[0]);
    OK(cuLaunchKernelEx(&c, sum, params, NULL));
    OK(cuEventSynchronize(event));
    CHECK_EQ(added(), 2 * 32 * 7);
    OK(cuLaunchKernelEx_ptsz(&c, sum, params, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), 2 * 32 * 7);
    const CUlaunchAttribute bad[] = {
        {.id = 99},
        {.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY},  // of streams
        {.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE},
        {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 2},
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 0, 1}},
        {.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
         .value.accessPolicyWindow = {.hitRatio = 1.5f}},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, .value.programmaticEvent = {timed, 0, 0}},
        {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT},
        {.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, .value.memSyncDomain = 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CUlaunchAttribute one = bad[i];
        c = config(1, 1, &one, 1);
        CHECK_EQ(cuLaunchKernelEx(&c, sum, params, NULL), CUDA_ERROR_INVALID_VALUE);
    }
    c = config(1, 1, NULL, 1);
    CHECK_EQ(cuLaunchKernelEx(&c, sum, params, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernelEx(NULL, sum, params, NULL), CUDA_ERROR_INVALID_VALUE);
    c = config(1, 1, NULL, 0);
    CHECK_EQ(cuLaunchKernelEx(&c, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), 0);
    OK(cuEventDestroy_v2(event));
    OK(cuEventDestroy_v2(timed));
}

// ---- Cooperative grids ----

static void cooperative_grids_must_fit(void) {
    uint32_t x = 1;
    float y = 0;
    void *params[] = {&at, &x, &y};
    int each;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, sum, 1024, 0));
    CHECK_EQ(each, 2);
    unsigned most = 56 * (unsigned)each;
    OK(cuLaunchCooperativeKernel(sum, most, 1, 1, 1024, 1, 1, 0, NULL, params));
    CHECK_EQ(cuLaunchCooperativeKernel(sum, most + 1, 1, 1, 1024, 1, 1, 0, NULL, params),
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    CHECK_EQ(cuLaunchCooperativeKernel(sum, 1, most + 1, 1, 1024, 1, 1, 0, NULL, params),
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), most * 1024);
    // Shared memory counts: five blocks of 30,000 bytes and one for the system fit.
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, shared, 32, 0));
    CHECK_EQ(each, 5);
    OK(cuLaunchCooperativeKernel(shared, 56 * 5, 1, 1, 32, 1, 1, 0, NULL, NULL));
    CHECK_EQ(cuLaunchCooperativeKernel(shared, 56 * 5 + 1, 1, 1, 32, 1, 1, 0, NULL, NULL),
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(cuLaunchKernel(shared, 56 * 5 + 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
}

// The blocks of a cooperative grid can wait for each other.
static void cooperative_blocks_meet(void) {
    uint32_t all = 100 * 32;
    void *params[] = {&at, &all};
    OK(cuLaunchCooperativeKernel(function(0, "meet"), 100, 1, 1, 32, 1, 1, 0, NULL, params));
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), all);
}

static void on_several_devices(void) {
    CUstream streams[2], same_device;
    CUcontext contexts[2] = {primary, second};
    CUdeviceptr words[2];
    uint32_t x = 2;
    float y = 0;
    CUDA_LAUNCH_PARAMS launches[2];
    void *params[2][3];
    for (unsigned i = 0; i < 2; i++) {
        OK(cuCtxPushCurrent_v2(contexts[i]));
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        words[i] = alloc(4);
        OK(cuMemsetD32_v2(words[i], 0, 1));
        OK(cuCtxSynchronize());  // the set does not wait, and the stream not for it
        params[i][0] = &words[i], params[i][1] = &x, params[i][2] = &y;
        launches[i] =
            (CUDA_LAUNCH_PARAMS){function(i, "sum"), 4, 1, 1, 64, 1, 1, 0, streams[i], params[i]};
        OK(cuCtxPopCurrent_v2(NULL));
    }
    OK(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0));
    for (unsigned i = 0; i < 2; i++) {
        uint32_t word;
        OK(cuStreamSynchronize(streams[i]));
        OK(cuMemcpyDtoH_v2(&word, words[i], sizeof word));
        CHECK_EQ(word, 4 * 64 * 2);
    }
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(launches, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(launches, 3, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(launches, 2, 4), CUDA_ERROR_INVALID_VALUE);
    launches[1].gridDimX = 5;  // all must be the same
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0), CUDA_ERROR_INVALID_VALUE);
    launches[1].gridDimX = 4, launches[1].hStream = NULL;  // on streams of their own
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamCreate(&same_device, 0));
    launches[1].hStream = same_device;
    CHECK_EQ(cuLaunchCooperativeKernelMultiDevice(launches, 2, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy_v2(same_device));
    OK(cuStreamDestroy_v2(streams[0]));
    OK(cuStreamDestroy_v2(streams[1]));
    OK(cuMemFree_v2(words[0]));
    OK(cuMemFree_v2(words[1]));
}

// ---- Clusters ----

static CUresult launch_cluster(unsigned device, const char *name, unsigned grid, unsigned x,
                               unsigned y, unsigned z) {
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                 .value.clusterDim = {x, y, z}};
    CUlaunchConfig c = config(grid, 32, &cluster, x ? 1 : 0);
    c.gridDimY = 4;
    if (device)
        OK(cuCtxPushCurrent_v2(second));
    CUresult rc = cuLaunchKernelEx(&c, function(device, name), NULL, NULL);
    OK(cuCtxSynchronize());
    if (device)
        OK(cuCtxPopCurrent_v2(NULL));
    return rc;
}

static void clusters(void) {
    CUfunction wide = function(1, "small"), required = function(1, "clustered");
    int value;
    // A device without clusters has those of one block.
    CHECK_EQ(launch_cluster(0, "small", 8, 1, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(launch_cluster(0, "small", 8, 2, 1, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK_EQ(launch_cluster(1, "small", 8, 2, 2, 1), CUDA_SUCCESS);
    CHECK_EQ(launch_cluster(1, "small", 8, 8, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(launch_cluster(1, "small", 8, 3, 1, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK_EQ(launch_cluster(1, "small", 16, 16, 1, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cuFuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    CHECK_EQ(launch_cluster(1, "small", 16, 16, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(launch_cluster(1, "small", 32, 32, 1, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cuFuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0));
    // What the code demands.
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, required));
    CHECK_EQ(value, 2);
    CHECK_EQ(cuFuncSetAttribute(required, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4),
             CUDA_ERROR_NOT_PERMITTED);
    CHECK_EQ(launch_cluster(1, "clustered", 8, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(launch_cluster(1, "clustered", 7, 0, 0, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK_EQ(launch_cluster(1, "clustered", 8, 2, 2, 1), CUDA_SUCCESS);
    CHECK_EQ(launch_cluster(1, "clustered", 8, 4, 1, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK_EQ(launch_cluster(0, "clustered", 8, 0, 0, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK_EQ(launch_cluster(1, "explicit", 8, 0, 0, 0), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    CHECK_EQ(launch_cluster(1, "explicit", 8, 4, 1, 1), CUDA_SUCCESS);
}

static void clusters_that_fit(void) {
    CUfunction wide = function(1, "small");
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                 .value.clusterDim = {4, 1, 1}};
    CUlaunchConfig c = config(8, 128, &cluster, 1);
    int value, each;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, wide, 128, 0));
    CHECK_EQ(each, 16);
    OK(cuOccupancyMaxActiveClusters(&value, wide, &c));
    CHECK_EQ(value, 56 * 16 / 4);
    c.sharedMemBytes = 40000;  // five blocks a multiprocessor: 80 in a group of 16, 40 in the rest
    OK(cuOccupancyMaxActiveClusters(&value, wide, &c));
    CHECK_EQ(value, 3 * (16 * 5 / 4) + 8 * 5 / 4);
    OK(cuOccupancyMaxPotentialClusterSize(&value, wide, &c));
    CHECK_EQ(value, 8);
    OK(cuFuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    OK(cuOccupancyMaxPotentialClusterSize(&value, wide, &c));
    CHECK_EQ(value, 16);
    OK(cuFuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0));
    c.numAttrs = 0;
    CHECK_EQ(cuOccupancyMaxActiveClusters(&value, wide, &c), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuOccupancyMaxActiveClusters(&value, wide, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuOccupancyMaxPotentialClusterSize(&value, small, &c),
             CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

// ---- Occupancy ----

static size_t grows(int threads) {
    CUdevice device;
    OK(cuCtxGetDevice(&device));  // the driver may be used
    return (size_t)threads * 64;
}

static void occupancy(void) {
    int blocks, grid, block;
    size_t bytes;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, 0));
    CHECK_EQ(blocks, 16);  // 2048 threads
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 1, 0));
    CHECK_EQ(blocks, 32);  // no more than that
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 129, 0));
    CHECK_EQ(blocks, 0);  // the function has smaller blocks
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, 100000));
    CHECK_EQ(blocks, 1);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, 166913));
    CHECK_EQ(blocks, 0);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 0, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, small, 32, 0),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, NULL, 32, 0),
             CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, small, 32, 0, 2),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, sum, NULL, 0, 0));
    CHECK_EQ(block, 1024);
    CHECK_EQ(grid, 2 * 56);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, sum, NULL, 0, 100));
    CHECK_EQ(block, 64);  // 32 blocks of 64 threads; of 100 or 96 fewer threads fit
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, small, grows, 0, 0));
    CHECK_EQ(block, 128);  // sixteen of 8192 bytes and one for the system
    CHECK_EQ(grid, 16 * 56);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, small, 2, 128));
    CHECK_EQ(bytes, 167936 / 2 - 1024);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, bytes));
    CHECK_EQ(blocks, 2);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, bytes + 1));
    CHECK_EQ(blocks, 1);
    CHECK_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, small, 17, 128),
             CUDA_ERROR_INVALID_VALUE);
}

// A kernel that no context has yet is looked at on the current context's device.
static void occupancy_of_kernels(void) {
    CUlibrary library;
    CUkernel kernel;
    int blocks;
    uint64_t before = free_bytes();
    OK(cuLibraryLoadData(&library, kernels, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "small"));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (CUfunction)kernel, 128, 0));
    CHECK_EQ(blocks, 16);
    CHECK_EQ(free_bytes(), before);
    OK(cuLibraryUnload(library));
}

// ---- The old forms ----

static void old_launches(void) {
    CUtexref reference;
    OK(cuFuncSetBlockShape(sum, 8, 2, 1));
    OK(cuFuncSetSharedSize(sum, 0));
    OK(cuParamSetSize(sum, 16));
    OK(cuParamSetv(sum, 0, &at, 8));
    OK(cuParamSeti(sum, 8, 5));
    OK(cuParamSetf(sum, 12, 1.0f));
    OK(cuLaunch(sum));
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), 16 * 6);
    OK(cuLaunchGrid(sum, 3, 2));
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), 6 * 16 * 6);
    OK(cuLaunchGridAsync(sum, 2, 1, NULL));
    OK(cuCtxSynchronize());
    CHECK_EQ(added(), 2 * 16 * 6);
    OK(cuTexRefCreate(&reference));
    OK(cuParamSetTexRef(sum, CU_PARAM_TR_DEFAULT, reference));
    CHECK_EQ(cuParamSetTexRef(sum, 0, reference), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexRefDestroy(reference));
    CHECK_EQ(cuParamSetTexRef(sum, CU_PARAM_TR_DEFAULT, reference), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuLaunchGrid(sum, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuFuncSetBlockShape(sum, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuParamSetSize(sum, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuParamSetv(sum, 4094, &at, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuParamSetv(sum, -1, &at, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunch(NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuParamSetSize(sum, 8));  // fewer than the function has
    CHECK_EQ(cuLaunch(sum), CUDA_ERROR_INVALID_VALUE);
}

// What is refused of a plain launch.
static void bad_launches(void) {
    void *none[] = {NULL, NULL, NULL};
    CHECK_EQ(cuLaunchKernel(small, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(small, 1, 1, 1, 129, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHECK_EQ(cuLaunchKernel(small, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(small, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 166912));
    OK(cuLaunchKernel(small, 1, 1, 1, 1, 1, 1, 166912, NULL, NULL, NULL));
    CHECK_EQ(cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 166913),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, NULL, none, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunchKernel(function(1, "small"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
             CUDA_ERROR_INVALID_HANDLE);  // of another context
    OK(cuCtxSynchronize());
}

int main(int argc, char **argv) {
    struct sim_config machine = test_config();
    machine.gpus[1].compute_major = 9;
    start_driver_on(&machine);
    prepare();
    static const struct test tests[] = {
        TEST(attributes_of_launches),
        TEST(cooperative_grids_must_fit),
        TEST(cooperative_blocks_meet),
        TEST(on_several_devices),
        TEST(clusters),
        TEST(clusters_that_fit),
        TEST(occupancy),
        TEST(occupancy_of_kernels),
        TEST(old_launches),
        TEST(bad_launches),
    };
    int rc = RUN(tests);
    OK(cuDevicePrimaryCtxRelease_v2(1));
    stop_driver();
    return rc;
}
