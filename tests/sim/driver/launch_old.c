// launch_old.c: launches in the form of the first CUDA versions: settings of the function first,
// then a launch without arguments.
#include "code.h"

#include <string.h>

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
