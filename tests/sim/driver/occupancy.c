// occupancy.c: how many blocks and clusters of a function fit on the device.
//
// By the published rules: a multiprocessor has so many threads, blocks, registers and bytes of
// shared memory; a block takes whole warps, a warp's registers in units of 256, shared memory in
// units of 128 bytes and some for the system. A cluster lies within one group of multiprocessors
// (assumed: of 16). A kernel that no context has is looked at on the current context's device.
#include "code.h"

#define WARP 32u
#define REGISTER_UNIT 256u
#define WARP_UNIT 4u  // a multiprocessor's warps are spread over so many parts
#define SHARED_UNIT 128u
#define GROUP 16u  // multiprocessors
#define CLUSTER_PORTABLE 8u
#define CLUSTER_MOST 16u

static unsigned attribute(uint32_t gpu, int number) {
    int value = 0;
    cuDeviceGetAttribute(&value, number, (CUdevice)gpu);
    return (unsigned)value;
}

void occupancy_see(const struct sim_ptx_function *ptx, const int *settings, uint32_t gpu,
                   struct occupancy *o) {
    const struct sim_ptx_function_info *info = sim_ptx_info(ptx);
    *o = (struct occupancy){
        .threads_max = info->threads_max,
        .registers = info->registers,
        .static_bytes = info->static_shared_bytes,
        .cluster_most = settings[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]
                            ? CLUSTER_MOST
                            : CLUSTER_PORTABLE,
        .processors = attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        .threads = attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
        .blocks = attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
        .registers_all = attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
        .shared = attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        .shared_most = attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        .shared_system = attribute(gpu, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
    };
    if (!attribute(gpu, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH))
        o->cluster_most = 1;
    for (unsigned i = 0; i < 3; i++)
        o->cluster[i] = (uint32_t)settings[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
}

static unsigned round_up(unsigned value, unsigned unit) {
    return (value + unit - 1) / unit * unit;
}

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

unsigned occupancy_blocks(const struct occupancy *o, unsigned threads, size_t dynamic_bytes) {
    if (!threads || threads > o->threads_max || dynamic_bytes > o->shared_most ||
        o->static_bytes + dynamic_bytes > o->shared_most)
        return 0;
    unsigned warps = (threads + WARP - 1) / WARP;
    unsigned warp_registers = round_up(o->registers * WARP, REGISTER_UNIT);
    unsigned warps_all = o->registers_all / warp_registers / WARP_UNIT * WARP_UNIT;
    unsigned shared = o->static_bytes + (unsigned)dynamic_bytes + o->shared_system;
    unsigned blocks = least(o->blocks, o->threads / WARP / warps);
    blocks = least(blocks, warps_all / warps);
    return least(blocks, o->shared / round_up(shared, SHARED_UNIT));
}

// ---- Of a function or kernel ----

static CUresult see(CUfunction handle, struct occupancy *o) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct function *function = pool_get(&driver.functions, handle);
    const struct kernel *kernel = kernel_get(handle);
    struct context *context;
    if (function)
        occupancy_see(function->ptx, function->attributes, function->module->context->gpu, o);
    else if (!kernel)
        rc = CUDA_ERROR_INVALID_HANDLE;
    else if (!(rc = context_current(&context)))
        occupancy_see(kernel->ptx, kernel->settings[context->gpu], context->gpu, o);
    return driver_leave(rc);
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle,
                                                         int threads, size_t dynamic_bytes,
                                                         unsigned int flags) {
    struct occupancy o;
    CUresult rc = see(handle, &o);
    if (rc)
        return rc;
    if (!blocks || threads <= 0 || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = (int)occupancy_blocks(&o, (unsigned)threads, dynamic_bytes);
    return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                size_t dynamic_bytes) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                dynamic_bytes, 0);
}

// The block size with the most threads on a multiprocessor; the largest of equals. The program's
// own function is called without any lock: it may use the driver.
API cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
                                              CUoccupancyB2DSize dynamic_for, size_t dynamic_bytes,
                                              int limit, unsigned int flags) {
    struct occupancy o;
    CUresult rc = see(handle, &o);
    if (rc)
        return rc;
    if (!grid || !block || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned most = o.threads_max, best = 0, best_threads = 0, best_blocks = 0;
    if (limit > 0 && (unsigned)limit < most)
        most = (unsigned)limit;
    for (unsigned threads = most; threads > 0; threads = (threads - 1) / WARP * WARP) {
        size_t bytes = dynamic_for ? dynamic_for((int)threads) : dynamic_bytes;
        unsigned blocks = occupancy_blocks(&o, threads, bytes);
        if (blocks * threads > best_threads) {
            best_threads = blocks * threads;
            best_blocks = blocks;
            best = threads;
        }
    }
    if (!best)
        return CUDA_ERROR_INVALID_VALUE;
    *block = (int)best;
    *grid = (int)(best_blocks * o.processors);
    return CUDA_SUCCESS;
}

API cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                     CUoccupancyB2DSize dynamic_for, size_t dynamic_bytes,
                                     int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, dynamic_for,
                                                     dynamic_bytes, limit, 0);
}

// The most dynamic shared memory with which so many blocks still fit.
API cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks,
                                            int threads) {
    struct occupancy o;
    CUresult rc = see(handle, &o);
    if (rc)
        return rc;
    if (!bytes || blocks <= 0 || threads <= 0 ||
        occupancy_blocks(&o, (unsigned)threads, 0) < (unsigned)blocks)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned each = o.shared / (unsigned)blocks / SHARED_UNIT * SHARED_UNIT;
    unsigned room = least(each - o.shared_system, o.shared_most);
    *bytes = room - o.static_bytes;
    return CUDA_SUCCESS;
}

// ---- Clusters ----

CUresult occupancy_cluster(const struct occupancy *o, uint32_t cluster[3]) {
    bool asked = cluster[0] || cluster[1] || cluster[2];
    if (o->cluster[0] && asked)
        for (unsigned i = 0; i < 3; i++)
            if (cluster[i] != (o->cluster[i] ? o->cluster[i] : 1))
                return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (unsigned i = 0; i < 3 && o->cluster[0]; i++)
        cluster[i] = o->cluster[i] ? o->cluster[i] : 1;
    if (!asked && !o->cluster[0])
        return CUDA_SUCCESS;
    uint64_t blocks = (uint64_t)cluster[0] * cluster[1];
    bool good =
        blocks && blocks <= CLUSTER_MOST && cluster[2] && blocks * cluster[2] <= o->cluster_most;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

unsigned occupancy_clusters(const struct occupancy *o, unsigned cluster, unsigned threads,
                            size_t dynamic_bytes) {
    unsigned blocks = occupancy_blocks(o, threads, dynamic_bytes);
    return o->processors / GROUP * (GROUP * blocks / cluster) +
           o->processors % GROUP * blocks / cluster;
}

// What the two calls below begin with: the function, and the launch that is thought of.
static CUresult see_launch(CUfunction handle, const CUlaunchConfig *config, struct occupancy *o,
                           struct launch *launch) {
    CUresult rc = see(handle, o);
    if (rc)
        return rc;
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    rc = launch_describe(config, launch);
    return rc ? rc : occupancy_cluster(o, launch->cluster);
}

// A block too large to be one counts as one of no size: none of it fits.
static unsigned block_threads(const struct launch *launch) {
    uint64_t threads = 1;
    for (unsigned i = 0; i < 3; i++) {
        threads *= launch->block[i];
        if (threads > SIM_PTX_BLOCK_THREADS_MAX)
            return 0;
    }
    return (unsigned)threads;
}

API cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config) {
    struct occupancy o;
    struct launch launch;
    CUresult rc = see_launch(handle, config, &o, &launch);
    if (rc)
        return rc;
    if (!clusters || !launch.cluster[0])
        return CUDA_ERROR_INVALID_VALUE;
    unsigned size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
    *clusters = (int)occupancy_clusters(&o, size, block_threads(&launch), launch.shared_bytes);
    return CUDA_SUCCESS;
}

API cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config) {
    struct occupancy o;
    struct launch launch;
    CUresult rc = see_launch(handle, config, &o, &launch);
    if (rc)
        return rc;
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    if (o.cluster_most == 1)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    unsigned most = o.cluster_most;
    while (most && !occupancy_clusters(&o, most, block_threads(&launch), launch.shared_bytes))
        most /= 2;
    *size = (int)most;
    return most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}
