// Errors: the thread's last one, and their names.
#include "runtime.h"

static __thread cudaError_t last_error;

cudaError_t runtime_error(cudaError_t err) {
    if (err != cudaSuccess && err != cudaErrorNotReady)
        last_error = err;
    return err;
}

API cudaError_t cudaGetLastError(void) {
    cudaError_t err = last_error;
    last_error = cudaSuccess;
    return err;
}

API cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "the driver could not be initialised"},
    {4, "cudaErrorCudartUnloading", "the driver is shutting down"},
    {9, "cudaErrorInvalidConfiguration", "invalid grid or block"},
    {13, "cudaErrorInvalidSymbol", "no such variable on the device"},
    {17, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid direction of a copy"},
    {35, "cudaErrorInsufficientDriver", "no driver, or one too old for this runtime"},
    {98, "cudaErrorInvalidDeviceFunction", "no such function on the device"},
    {100, "cudaErrorNoDevice", "no CUDA device"},
    {101, "cudaErrorInvalidDevice", "no device of that number"},
    {200, "cudaErrorDeviceImageInvalid", "the kernel image is invalid"},
    {201, "cudaErrorDeviceUninitialized", "invalid context"},
    {209, "cudaErrorNoKernelImageForDevice", "no kernel image for this device"},
    {218, "cudaErrorInvalidPtx", "invalid PTX"},
    {222, "cudaErrorUnsupportedPtxVersion", "PTX newer than the driver"},
    {303, "cudaErrorSharedObjectInitFailed", "a shared library failed to initialise"},
    {400, "cudaErrorInvalidResourceHandle", "invalid stream, event or other handle"},
    {500, "cudaErrorSymbolNotFound", "no such name"},
    {600, "cudaErrorNotReady", "not ready"},
    {700, "cudaErrorIllegalAddress", "a kernel accessed an illegal address"},
    {701, "cudaErrorLaunchOutOfResources", "too many resources asked for a launch"},
    {702, "cudaErrorLaunchTimeout", "a kernel took too long and was ended"},
    {710, "cudaErrorAssert", "an assertion failed in a kernel"},
    {714, "cudaErrorHardwareStackError", "stack overflow in a kernel"},
    {716, "cudaErrorMisalignedAddress", "misaligned address in a kernel"},
    {717, "cudaErrorInvalidAddressSpace", "address of the wrong space in a kernel"},
    {718, "cudaErrorInvalidPc", "call of no function in a kernel"},
    {719, "cudaErrorLaunchFailure", "a kernel failed"},
    {801, "cudaErrorNotSupported", "not supported"},
    {999, "cudaErrorUnknown", "unknown error"},
};

API const char *cudaGetErrorName(cudaError_t err) {
    for (size_t k = 0; k < sizeof(errors) / sizeof(errors[0]); k++)
        if (errors[k].code == err)
            return errors[k].name;
    return "unrecognized error code";
}

API const char *cudaGetErrorString(cudaError_t err) {
    for (size_t k = 0; k < sizeof(errors) / sizeof(errors[0]); k++)
        if (errors[k].code == err)
            return errors[k].text;
    return "unrecognized error code";
}
