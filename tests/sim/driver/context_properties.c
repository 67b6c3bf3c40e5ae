// context_properties.c: what a context can be asked and told: flags, preferences, affinity.
#include "driver.h"

API cuCtxGetDevice(CUdevice *device) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (device)
        *device = (CUdevice)context->gpu;
    return driver_leave(device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuCtxGetFlags(unsigned int *flags) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (flags)
        *flags = context->flags;
    return driver_leave(flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuCtxSetFlags(unsigned int flags) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    bool good = !(flags & ~(unsigned)CU_CTX_FLAGS_MASK);
    if (good)
        context->flags = flags;
    return driver_leave(good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuCtxGetId(CUcontext handle, unsigned long long *id) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct context *context = context_get(handle);
    if (!handle)
        rc = context_current(&context);
    if (!rc && !context)
        rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!rc && !id)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        *id = context->id;
    return driver_leave(rc);
}

API cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct context *context = context_get(handle);
    if (!handle)
        rc = context_current(&context);
    if (!rc && !context)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    if (!rc && !version)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        *version = context->version;
    return driver_leave(rc);
}

static CUresult get_int(int *value, size_t offset) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (value)
        *value = *(int *)((char *)context + offset);
    return driver_leave(value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult set_int(int value, int most, size_t offset) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (value >= 0 && value <= most)
        *(int *)((char *)context + offset) = value;
    return driver_leave(value >= 0 && value <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuCtxGetCacheConfig(int *config) {
    return get_int(config, offsetof(struct context, cache_config));
}

API cuCtxSetCacheConfig(int config) {
    return set_int(config, 3, offsetof(struct context, cache_config));
}

API cuCtxGetSharedMemConfig(int *config) {
    return get_int(config, offsetof(struct context, shared_config));
}

API cuCtxSetSharedMemConfig(int config) {
    return set_int(config, 2, offsetof(struct context, shared_config));
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return driver_leave(CUDA_SUCCESS);
}

// ---- Execution affinity: without MPS a context has the whole device ----

API cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!supported || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *supported = 0;
    return CUDA_SUCCESS;
}

API cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!affinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
}
