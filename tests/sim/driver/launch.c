// launch.c: kernel launches.
//
// A launch is checked at once, its time is computed in the machine, and its body, if it has one
// that computes anything, is interpreted later by the worker. The blocks of a cooperative grid run
// together and may wait for each other, in global memory; those of any other run one after another,
// also where they are of one cluster: the interpreter does not know the instructions of clusters.
#include "code.h"

#include <stdlib.h>
#include <string.h>

// Takes the arguments out of the caller's list of pointers.
static CUresult gather(const struct function *function, void **params, struct launch *launch) {
    const struct sim_ptx_function_info *info = sim_ptx_info(function->ptx);
    launch->params_bytes = info->params_bytes;
    if (info->param_count && !params)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < info->param_count; i++) {
        struct sim_ptx_param param;
        if (!sim_ptx_param(function->ptx, i, &param) || !params[i] ||
            param.offset + param.bytes > sizeof launch->params)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(launch->params + param.offset, params[i], param.bytes);
    }
    return CUDA_SUCCESS;
}

// Takes them out of one buffer, which the caller describes in a list of keys and values.
static CUresult unpack(void **extra, struct launch *launch) {
    const void *buffer = NULL;
    size_t bytes = 0;
    for (unsigned i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1])
            bytes = *(size_t *)extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes > sizeof launch->params || (bytes && !buffer))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes)
        memcpy(launch->params, buffer, bytes);
    launch->params_bytes = (uint32_t)bytes;
    return CUDA_SUCCESS;
}

static CUresult check(const struct function *function, const struct launch *launch) {
    struct sim_ptx_launch ptx = {.dynamic_shared_bytes = launch->shared_bytes,
                                 .params = launch->params,
                                 .params_bytes = launch->params_bytes,
                                 .memory = &kernel_memory};
    memcpy(ptx.grid, launch->grid, sizeof ptx.grid);
    memcpy(ptx.block, launch->block, sizeof ptx.block);
    int dynamic_max = function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    if (dynamic_max < 0 || launch->shared_bytes > (uint32_t)dynamic_max)
        return CUDA_ERROR_INVALID_VALUE;
    return (CUresult)sim_ptx_check(function->ptx, &ptx);
}

static uint64_t threads_of(const struct launch *launch) {
    double threads = 1;
    for (unsigned i = 0; i < 3; i++)
        threads *= (double)launch->grid[i] * launch->block[i];
    return threads < 1e18 ? (uint64_t)threads : (uint64_t)1e18;
}

// What the kernel takes of the simulated GPU, in ns: what it says itself, or by its threads.
static uint64_t cost_of(const struct function *function, const struct launch *launch) {
    const struct sim_ptx_variable *variable = function->module->cost;
    uint64_t cost;
    int gpu;
    if (function->spins) {
        memcpy(&cost, launch->params, sizeof cost);
        return cost;
    }
    const void *data = variable ? memory_data(variable->address, sizeof cost, &gpu) : NULL;
    if (data) {
        memcpy(&cost, data, sizeof cost);
        return cost;
    }
    return sim_cost_kernel(driver.machine, function->module->context->card, threads_of(launch));
}

static bool divides(const uint32_t grid[3], const uint32_t cluster[3]) {
    return grid[0] % cluster[0] == 0 && grid[1] % cluster[1] == 0 && grid[2] % cluster[2] == 0;
}

// What a launch needs of the device at once: room for all blocks of a cooperative grid, and for a
// cluster. The cluster's size is settled: the function may demand one.
static CUresult fit(const struct function *function, struct launch *launch) {
    struct occupancy o;
    occupancy_see(function->ptx, function->attributes, function->module->context->gpu, &o);
    unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    uint64_t room = (uint64_t)occupancy_blocks(&o, threads, launch->shared_bytes) * o.processors;
    if (launch->cooperative && blocks > room)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    CUresult rc = occupancy_cluster(&o, launch->cluster);
    if (rc || !launch->cluster[0])
        return rc;
    unsigned size = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
    bool good = divides(launch->grid, launch->cluster) &&
                occupancy_clusters(&o, size, threads, launch->shared_bytes);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult launch_check(const struct function *function, struct launch *launch, void **params,
                      void **extra) {
    const int *settings = function->attributes;
    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = extra ? unpack(extra, launch) : gather(function, params, launch);
    if (!rc)
        rc = check(function, launch);
    bool clusters = launch->cluster[0] || settings[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
    if (!rc && !clusters && settings[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET])
        rc = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return !rc && (launch->cooperative || clusters) ? fit(function, launch) : rc;
}

CUresult launch_job(struct function *function, const struct launch *launch, bool whole,
                    struct job *job) {
    *job = (struct job){.engine = SIM_ENGINE_COMPUTE, .cost_ns = cost_of(function, launch)};
    if (function->bodiless && !whole &&
        !managed_among(function, launch->params, launch->params_bytes))
        return CUDA_SUCCESS;
    struct task *task = task_make(TASK_KERNEL, function->module->context, launch->params_bytes);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    task->kernel.function = function;
    memcpy(task->kernel.grid, launch->grid, sizeof launch->grid);
    memcpy(task->kernel.block, launch->block, sizeof launch->block);
    task->kernel.shared_bytes = launch->shared_bytes;
    task->kernel.cooperative = launch->cooperative;
    task->kernel.priority = launch->priority;
    memcpy(task->kernel.cluster, launch->cluster, sizeof launch->cluster);
    task->kernel.params_bytes = launch->params_bytes;
    memcpy(task->params, launch->params, launch->params_bytes);
    job->task = task;
    return CUDA_SUCCESS;
}

// Submits a checked launch. The driver is locked.
static CUresult start(struct stream *stream, struct function *function,
                      const struct launch *launch) {
    struct job job;
    uint64_t seq;
    CUresult rc = launch_job(function, launch, stream->capture != NULL, &job);
    bool wake = job.task && !managed_task_is_empty(job.task);
    if (!rc)
        rc = submit(stream, job.engine, job.cost_ns, job.task, NULL, &seq);
    if (wake)
        worker_wake();
    return rc;
}

CUresult launch_kernel(CUfunction handle, struct launch *launch, CUstream stream_handle,
                       bool per_thread, void **params, void **extra) {
    struct stream *stream;
    struct function *function;
    CUresult rc = stream_enter(stream_handle, per_thread, &stream);
    if (rc)
        return rc;
    struct context *context = stream->context;
    rc = function_resolve(handle, context, &function);
    if (!rc && kernel_get(handle)) {  // the lock may have been dropped while code was loaded
        rc = stream_get(stream_handle, per_thread, &stream);
        if (!rc && stream->context != context)
            rc = CUDA_ERROR_INVALID_HANDLE;
    }
    if (!rc)
        rc = launch_check(function, launch, params, extra);
    if (!rc)
        rc = start(stream, function, launch);
    if (!rc)
        function->loaded = true;
    return driver_leave(rc);
}

// ---- The plain forms ----

#define GRID                                                                                       \
    unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,           \
        unsigned int block_y, unsigned int block_z, unsigned int shared_bytes
#define LAUNCH(together)                                                                           \
    struct launch launch;                                                                          \
    launch.grid[0] = grid_x, launch.grid[1] = grid_y, launch.grid[2] = grid_z;                     \
    launch.block[0] = block_x, launch.block[1] = block_y, launch.block[2] = block_z;               \
    launch.shared_bytes = shared_bytes;                                                            \
    launch.cooperative = together;                                                                 \
    launch.cluster[0] = launch.cluster[1] = launch.cluster[2] = 0;                                 \
    launch.priority = 0

API cuLaunchKernel(CUfunction function, GRID, CUstream stream, void **params, void **extra) {
    LAUNCH(false);
    return launch_kernel(function, &launch, stream, false, params, extra);
}

API cuLaunchKernel_ptsz(CUfunction function, GRID, CUstream stream, void **params, void **extra) {
    LAUNCH(false);
    return launch_kernel(function, &launch, stream, true, params, extra);
}

API cuLaunchCooperativeKernel(CUfunction function, GRID, CUstream stream, void **params) {
    LAUNCH(true);
    return launch_kernel(function, &launch, stream, false, params, NULL);
}

API cuLaunchCooperativeKernel_ptsz(CUfunction function, GRID, CUstream stream, void **params) {
    LAUNCH(true);
    return launch_kernel(function, &launch, stream, true, params, NULL);
}

// ---- One kernel on several devices ----

// The devices that the launches are for, as bits; 0: not one launch each on streams of their own.
static uint64_t devices_of(const CUDA_LAUNCH_PARAMS *launches, unsigned count) {
    uint64_t devices = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct stream *stream = pool_get(&driver.streams, launches[i].hStream);
        uint64_t bit = stream ? UINT64_C(1) << stream->context->gpu : 0;
        if (!bit || devices & bit)
            return 0;
        devices |= bit;
    }
    return devices;
}

static bool same(const CUDA_LAUNCH_PARAMS *a, const CUDA_LAUNCH_PARAMS *b) {
    const struct function *one = pool_get(&driver.functions, a->function);
    const struct function *other = pool_get(&driver.functions, b->function);
    return one && other && !strcmp(sim_ptx_info(one->ptx)->name, sim_ptx_info(other->ptx)->name) &&
           a->gridDimX == b->gridDimX && a->gridDimY == b->gridDimY && a->gridDimZ == b->gridDimZ &&
           a->blockDimX == b->blockDimX && a->blockDimY == b->blockDimY &&
           a->blockDimZ == b->blockDimZ && a->sharedMemBytes == b->sharedMemBytes;
}

static CUresult check_several(const CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    bool good = launches && count && count <= driver.config->gpu_count && flags <= 3 &&
                devices_of(launches, count);
    for (unsigned i = 1; i < count && good; i++)
        good = same(&launches[0], &launches[i]);
    return driver_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                         unsigned int flags) {
    CUresult rc = check_several(launches, count, flags);
    for (unsigned i = 0; i < count && !rc; i++) {
        const CUDA_LAUNCH_PARAMS *l = &launches[i];
        rc = cuLaunchCooperativeKernel(l->function, l->gridDimX, l->gridDimY, l->gridDimZ,
                                       l->blockDimX, l->blockDimY, l->blockDimZ, l->sharedMemBytes,
                                       l->hStream, l->kernelParams);
    }
    return rc;
}
