// function.c: attributes of functions, and how many blocks of one fit on a multiprocessor.
#include "driver.h"

#define BLOCKS_MAX 32
#define THREADS_MAX 2048
#define REGISTERS_MAX 65536
#define SHARED_MAX 167936
#define SHARED_RESERVED 1024

static CUresult function_enter(CUfunction handle, struct function **function) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *function = pool_get(&driver.functions, handle);
    return *function ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (!value || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct sim_ptx_function_info *info = sim_ptx_info(function->ptx);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)info->threads_max;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)info->static_shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)info->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)info->registers;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)info->target;
        break;
    default:
        *value = function->attributes[attribute];
    }
    return driver_leave(CUDA_SUCCESS);
}

API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    int most;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        most = SHARED_MAX - SHARED_RESERVED - (int)sim_ptx_info(function->ptx)->static_shared_bytes;
    else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        most = 100;
    else
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (value < -1 || value > most)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    function->attributes[attribute] = value;
    return driver_leave(CUDA_SUCCESS);
}

API cuFuncGetModule(CUmodule *module, CUfunction handle) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (module)
        *module = (CUmodule)function->module;
    return driver_leave(module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// Preferences for a cache that is not modelled.
static CUresult prefer(CUfunction handle, int value, int most) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    return driver_leave(value >= 0 && value <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuFuncSetCacheConfig(CUfunction function, int config) {
    return prefer(function, config, 3);
}

API cuFuncSetSharedMemConfig(CUfunction function, int config) {
    return prefer(function, config, 2);
}

// ---- Occupancy ----

static int blocks_that_fit(const struct function *function, int threads, size_t dynamic) {
    const struct sim_ptx_function_info *info = sim_ptx_info(function->ptx);
    if (threads > THREADS_MAX || dynamic > SHARED_MAX)
        return 0;
    int warps = (threads + 31) / 32;
    size_t shared = info->static_shared_bytes + dynamic + SHARED_RESERVED;
    int blocks = BLOCKS_MAX;
    int by_threads = THREADS_MAX / (warps * 32);
    int by_registers = REGISTERS_MAX / (int)(info->registers * (unsigned)warps * 32);
    blocks = by_threads < blocks ? by_threads : blocks;
    blocks = by_registers < blocks ? by_registers : blocks;
    if (SHARED_MAX / shared < (size_t)blocks)
        blocks = (int)(SHARED_MAX / shared);
    return blocks;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle,
                                                         int threads, size_t dynamic,
                                                         unsigned int flags) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (!blocks || threads <= 0 || flags > 1)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bool fits = (unsigned)threads <= sim_ptx_info(function->ptx)->threads_max;
    *blocks = fits ? blocks_that_fit(function, threads, dynamic) : 0;
    return driver_leave(CUDA_SUCCESS);
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                size_t dynamic) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic,
                                                                0);
}

// The block size with the most threads on a multiprocessor; the largest of equals.
API cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
                                              CUoccupancyB2DSize dynamic_for, size_t dynamic,
                                              int limit, unsigned int flags) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (!grid || !block || flags > 1)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    int most = (int)sim_ptx_info(function->ptx)->threads_max;
    if (limit > 0 && limit < most)
        most = limit;
    int best = 0, best_threads = 0, best_blocks = 0;
    for (int threads = most; threads > 0; threads = (threads - 1) / 32 * 32) {
        size_t bytes = dynamic_for ? dynamic_for(threads) : dynamic;
        int blocks = blocks_that_fit(function, threads, bytes);
        if (blocks * threads > best_threads) {
            best_threads = blocks * threads;
            best_blocks = blocks;
            best = threads;
        }
    }
    *block = best;
    *grid = best_blocks * (int)driver.config->gpus[function->module->context->gpu].sm_count;
    return driver_leave(best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                     CUoccupancyB2DSize dynamic_for, size_t dynamic, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, dynamic_for, dynamic,
                                                     limit, 0);
}

API cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks,
                                            int threads) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (!bytes || blocks <= 0 || threads <= 0 || blocks_that_fit(function, threads, 0) < blocks)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *bytes = (size_t)(SHARED_MAX / blocks) - SHARED_RESERVED -
             sim_ptx_info(function->ptx)->static_shared_bytes;
    return driver_leave(CUDA_SUCCESS);
}
