// function.c: what can be asked and told of functions.
#include "code.h"

// ---- Attributes, of a function or of a kernel on a device ----

#define SHARED_DEFAULT 49152  // bytes a block may use unless it is told more
#define PORTABLE_CLUSTER 8

void attributes_init(int settings[CU_FUNC_ATTRIBUTE_MAX], const struct sim_ptx_function *ptx) {
    const struct sim_ptx_function_info *info = sim_ptx_info(ptx);
    settings[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
        SHARED_DEFAULT - (int)info->static_shared_bytes;
    settings[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    settings[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = info->cluster_explicit;
    for (unsigned i = 0; i < 3; i++)
        settings[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i] = (int)info->cluster_required[i];
}

CUresult attribute_get(const int settings[CU_FUNC_ATTRIBUTE_MAX],
                       const struct sim_ptx_function *ptx, CUfunction_attribute attribute,
                       int *value) {
    const struct sim_ptx_function_info *info = sim_ptx_info(ptx);
    if (!value || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
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
        *value = settings[attribute];
    }
    return CUDA_SUCCESS;
}

// The least and the most that an attribute may be set to. False: it cannot be set.
static bool range_of(const struct sim_ptx_function *ptx, CUdevice device,
                     CUfunction_attribute attribute, int *least, int *most) {
    int shared = 0;
    *least = 0;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                             device);
        *most = shared - (int)sim_ptx_info(ptx)->static_shared_bytes;
        return true;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *least = -1;
        *most = 100;
        return true;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *most = 2 * PORTABLE_CLUSTER;
        return true;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *most = 1;
        return true;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *most = 2;
        return true;
    default:
        return false;
    }
}

CUresult attribute_set(int settings[CU_FUNC_ATTRIBUTE_MAX], const struct sim_ptx_function *ptx,
                       CUdevice device, CUfunction_attribute attribute, int value) {
    int least, most;
    if (!range_of(ptx, device, attribute, &least, &most) || value < least || value > most)
        return CUDA_ERROR_INVALID_VALUE;
    bool width = attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
                 attribute <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH;
    if (width && sim_ptx_info(ptx)->cluster_required[0])
        return CUDA_ERROR_NOT_PERMITTED;  // the code says what it is
    settings[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult param_info(const struct sim_ptx_function *ptx, size_t index, size_t *offset,
                    size_t *bytes) {
    struct sim_ptx_param param;
    if (!offset || index > UINT32_MAX || !sim_ptx_param(ptx, (uint32_t)index, &param))
        return CUDA_ERROR_INVALID_VALUE;
    *offset = param.offset;
    if (bytes)
        *bytes = param.bytes;
    return CUDA_SUCCESS;
}

CUresult function_resolve(CUfunction handle, struct context *context, struct function **function) {
    struct kernel *kernel = kernel_get(handle);
    if (kernel)
        return kernel_function(kernel, context, function);
    *function = pool_get(&driver.functions, handle);
    return *function && (*function)->module->context == context ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_HANDLE;
}

// ---- Functions ----

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
    return driver_leave(attribute_get(function->attributes, function->ptx, attribute, value));
}

API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    CUdevice device = (CUdevice)function->module->context->gpu;
    return driver_leave(
        attribute_set(function->attributes, function->ptx, device, attribute, value));
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

API cuFuncGetName(const char **name, CUfunction handle) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (name)
        *name = sim_ptx_info(function->ptx)->name;
    return driver_leave(name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    return driver_leave(param_info(function->ptx, index, offset, bytes));
}

API cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    if (state)
        *state = function->loaded ? CU_FUNCTION_LOADING_STATE_LOADED
                                  : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return driver_leave(state ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// Its module has its memory already: what is loaded late is only a matter of time.
API cuFuncLoad(CUfunction handle) {
    struct function *function;
    CUresult rc = function_enter(handle, &function);
    if (rc)
        return rc;
    function->loaded = true;
    return driver_leave(CUDA_SUCCESS);
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
