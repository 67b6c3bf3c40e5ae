// launch.c: kernel launches, in today's form and in the one of the first CUDA versions.
//
// A launch is checked at once, its time is computed in the machine, and its body, if it has one
// that computes anything, is interpreted later by the worker.
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct launch {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t params_bytes;
    bool cooperative;
    unsigned char params[SIM_PTX_PARAM_BYTES_MAX];
};

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

static CUresult cooperative_fits(const struct function *function, const struct launch *launch) {
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    uint32_t processors = driver.config->gpus[function->module->context->gpu].sm_count;
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    return blocks > processors * (2048 / threads) ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                                  : CUDA_SUCCESS;
}

// Submits a checked launch. The driver is locked.
static CUresult start(struct stream *stream, struct function *function,
                      const struct launch *launch) {
    struct task *task = NULL;
    if (!function->bodiless) {
        task = task_make(TASK_KERNEL, stream->context, launch->params_bytes);
        if (!task)
            return CUDA_ERROR_OUT_OF_MEMORY;
        task->kernel.function = function;
        memcpy(task->kernel.grid, launch->grid, sizeof launch->grid);
        memcpy(task->kernel.block, launch->block, sizeof launch->block);
        task->kernel.shared_bytes = launch->shared_bytes;
        task->kernel.params_bytes = launch->params_bytes;
        memcpy(task->params, launch->params, launch->params_bytes);
    }
    uint64_t seq;
    CUresult rc = submit(stream, SIM_ENGINE_COMPUTE, cost_of(function, launch), task, NULL, &seq);
    if (task)
        worker_wake();
    return rc;
}

static CUresult launch_kernel(CUfunction handle, struct launch *launch, CUstream stream_handle,
                              bool per_thread, void **params, void **extra) {
    struct stream *stream;
    CUresult rc = stream_enter(stream_handle, per_thread, &stream);
    if (rc)
        return rc;
    struct function *function = pool_get(&driver.functions, handle);
    if (!function || function->module->context != stream->context)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (params && extra)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = extra ? unpack(extra, launch) : gather(function, params, launch);
    if (!rc)
        rc = check(function, launch);
    if (!rc && launch->cooperative)
        rc = cooperative_fits(function, launch);
    if (!rc)
        rc = start(stream, function, launch);
    return driver_leave(rc);
}

// ---- Today's form ----

#define GRID                                                                                       \
    unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,           \
        unsigned int block_y, unsigned int block_z, unsigned int shared_bytes
#define LAUNCH(together)                                                                           \
    struct launch launch;                                                                          \
    launch.grid[0] = grid_x, launch.grid[1] = grid_y, launch.grid[2] = grid_z;                     \
    launch.block[0] = block_x, launch.block[1] = block_y, launch.block[2] = block_z;               \
    launch.shared_bytes = shared_bytes;                                                            \
    launch.cooperative = together

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

// Attributes of a launch (clusters, priorities) are not modelled and change nothing.
static CUresult launch_config(const CUlaunchConfig *config, CUfunction function, void **params,
                              void **extra, bool per_thread) {
    CUresult rc = driver_check();
    if (rc || !config)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    struct launch launch = {
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared_bytes = config->sharedMemBytes,
    };
    return launch_kernel(function, &launch, config->hStream, per_thread, params, extra);
}

API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                     void **extra) {
    return launch_config(config, function, params, extra, false);
}

API cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra) {
    return launch_config(config, function, params, extra, true);
}

// ---- The old form: settings first, then a launch without arguments ----

static CUresult function_enter(CUfunction handle, struct function **function) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *function = pool_get(&driver.functions, handle);
    return *function ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    bool good = x > 0 && y > 0 && z > 0;
    if (good) {
        function->block[0] = (unsigned)x;
        function->block[1] = (unsigned)y;
        function->block[2] = (unsigned)z;
    }
    return driver_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    function->shared_bytes = bytes;
    return driver_leave(CUDA_SUCCESS);
}

API cuParamSetSize(CUfunction handle, unsigned int bytes) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (bytes <= sizeof function->params)
        function->params_bytes = bytes;
    return driver_leave(bytes <= sizeof function->params ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuParamSetv(CUfunction handle, int offset, void *data, unsigned int bytes) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    bool good = data && offset >= 0 && (unsigned)offset <= sizeof function->params &&
                bytes <= sizeof function->params - (unsigned)offset;
    if (good)
        memcpy(function->params + offset, data, bytes);
    return driver_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuParamSeti(CUfunction function, int offset, unsigned int value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

API cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

static CUresult launch_old(CUfunction handle, int width, int height, CUstream stream) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (width <= 0 || height <= 0)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct launch launch = {.grid = {(unsigned)width, (unsigned)height, 1},
                            .shared_bytes = function->shared_bytes};
    memcpy(launch.block, function->block, sizeof launch.block);
    size_t bytes = function->params_bytes;
    unsigned char params[SIM_PTX_PARAM_BYTES_MAX];
    memcpy(params, function->params, bytes);
    driver_leave(CUDA_SUCCESS);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    return launch_kernel(handle, &launch, stream, false, NULL, extra);
}

API cuLaunch(CUfunction function) {
    return launch_old(function, 1, 1, NULL);
}

API cuLaunchGrid(CUfunction function, int width, int height) {
    return launch_old(function, width, height, NULL);
}

API cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    return launch_old(function, width, height, stream);
}
