// The small CUDA runtime's parts share: the driver's functions as it found them, errors, contexts.
//
// It finds the driver as CUDA 12's runtime does: dlopen of libcuda.so.1, dlsym of one name, all
// else through that with the version and flags that a 12.4 runtime asks with. A name that is
// missing is tolerated until it is used.
#ifndef WEIR_CUDART_RUNTIME_H
#define WEIR_CUDART_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define DEVICES_MAX 16

// Runtime and driver use the same numbers for the same errors.
enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorSharedObjectInitFailed = 303,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorNotSupported = 801,
};

typedef int cudaError_t;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUlibrary, *CUfunction, *CUstream, *CUevent;
typedef void *CUarray, *CUgraph, *CUgraphExec;

struct dim3 {
    unsigned x, y, z;
};

struct uuid {
    char bytes[16];
};

// X(name, version, arguments): the driver functions in use. All return int.
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuInit, 2000, (unsigned))                                                                    \
    X(cuDriverGetVersion, 2020, (int *))                                                           \
    X(cuDeviceGet, 2000, (CUdevice *, int))                                                        \
    X(cuDeviceGetCount, 2000, (int *))                                                             \
    X(cuDeviceGetName, 2000, (char *, int, CUdevice))                                              \
    X(cuDeviceTotalMem, 3020, (size_t *, CUdevice))                                                \
    X(cuDeviceGetAttribute, 2000, (int *, int, CUdevice))                                          \
    X(cuDeviceGetUuid, 9020, (struct uuid *, CUdevice))                                            \
    X(cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))                                     \
    X(cuDevicePrimaryCtxReset, 7000, (CUdevice))                                                   \
    X(cuCtxSetCurrent, 4000, (CUcontext))                                                          \
    X(cuCtxGetCurrent, 4000, (CUcontext *))                                                        \
    X(cuCtxGetDevice, 2000, (CUdevice *))                                                          \
    X(cuCtxSynchronize, 2000, (void))                                                              \
    X(cuModuleLoadData, 2000, (CUmodule *, const void *))                                          \
    X(cuModuleGetFunction, 2000, (CUfunction *, CUmodule, const char *))                           \
    X(cuModuleGetGlobal, 3020, (CUdeviceptr *, size_t *, CUmodule, const char *))                  \
    X(cuLibraryLoadData, 12000,                                                                    \
      (CUlibrary *, const void *, void *, void *, unsigned, void *, void *, unsigned))             \
    X(cuLibraryGetModule, 12000, (CUmodule *, CUlibrary))                                          \
    X(cuMemGetInfo, 3020, (size_t *, size_t *))                                                    \
    X(cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))                                  \
    X(cuArrayCreate, 3020, (CUarray *, const void *))                                              \
    X(cuArrayDestroy, 2000, (CUarray))                                                             \
    X(cuCtxGetLimit, 3010, (size_t *, int))                                                        \
    X(cuCtxSetLimit, 3010, (int, size_t))                                                          \
    X(cuGraphDestroy, 10000, (CUgraph))                                                            \
    X(cuGraphExecDestroy, 10000, (CUgraphExec))                                                    \
    X(cuGraphInstantiateWithFlags, 11040, (CUgraphExec *, CUgraph, unsigned long long))            \
    X(cuGraphLaunch, 10000, (CUgraphExec, CUstream))                                               \
    X(cuLaunchCooperativeKernel, 9000,                                                             \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **))                                                                                   \
    X(cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))                                   \
    X(cuMemFreeAsync, 11020, (CUdeviceptr, CUstream))                                              \
    X(cuMemcpy2DUnaligned, 3020, (const void *))                                                   \
    X(cuStreamBeginCapture, 10010, (CUstream, int))                                                \
    X(cuStreamEndCapture, 10000, (CUstream, CUgraph *))                                            \
    X(cuMemAlloc, 3020, (CUdeviceptr *, size_t))                                                   \
    X(cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                  \
    X(cuMemFree, 3020, (CUdeviceptr))                                                              \
    X(cuMemFreeHost, 2000, (void *))                                                               \
    X(cuMemHostAlloc, 2020, (void **, size_t, unsigned))                                           \
    X(cuMemcpy, 4000, (CUdeviceptr, CUdeviceptr, size_t))                                          \
    X(cuMemcpyAsync, 4000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                           \
    X(cuMemcpyHtoD, 3020, (CUdeviceptr, const void *, size_t))                                     \
    X(cuMemcpyHtoDAsync, 3020, (CUdeviceptr, const void *, size_t, CUstream))                      \
    X(cuMemcpyDtoH, 3020, (void *, CUdeviceptr, size_t))                                           \
    X(cuMemcpyDtoHAsync, 3020, (void *, CUdeviceptr, size_t, CUstream))                            \
    X(cuMemcpyDtoD, 3020, (CUdeviceptr, CUdeviceptr, size_t))                                      \
    X(cuMemcpyDtoDAsync, 3020, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                       \
    X(cuMemsetD8, 3020, (CUdeviceptr, unsigned char, size_t))                                      \
    X(cuMemsetD8Async, 3020, (CUdeviceptr, unsigned char, size_t, CUstream))                       \
    X(cuFuncGetAttribute, 2020, (int *, int, CUfunction))                                          \
    X(cuLaunchKernel, 4000,                                                                        \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))                                                                          \
    X(cuEventCreate, 2000, (CUevent *, unsigned))                                                  \
    X(cuEventRecord, 2000, (CUevent, CUstream))                                                    \
    X(cuEventQuery, 2000, (CUevent))                                                               \
    X(cuEventSynchronize, 2000, (CUevent))                                                         \
    X(cuEventDestroy, 4000, (CUevent))                                                             \
    X(cuEventElapsedTime, 2000, (float *, CUevent, CUevent))                                       \
    X(cuStreamCreate, 2000, (CUstream *, unsigned))                                                \
    X(cuStreamDestroy, 4000, (CUstream))                                                           \
    X(cuStreamWaitEvent, 3020, (CUstream, CUevent, unsigned))                                      \
    X(cuStreamSynchronize, 2000, (CUstream))                                                       \
    X(cuStreamQuery, 2000, (CUstream))

struct driver {
#define MEMBER(name, version, arguments) int(*name) arguments;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
};
extern struct driver driver;

struct device {
    CUdevice handle;
    CUcontext primary;  // NULL until its first use
    char name[256];
    size_t total_bytes;
    struct uuid uuid;
};

// driver.c: finds the driver and starts it, once. Returns cudaSuccess or what went wrong, every
// time.
cudaError_t runtime_start(void);
// How many devices there are, at most DEVICES_MAX. Only after a successful start.
int runtime_device_count(void);
struct device *runtime_device(int index);
// Makes a context current to this thread where none is, the primary one of the thread's device, and
// says which device the current one belongs to (may be NULL).
cudaError_t runtime_context(int *device);

// error.c: remembers an error as the thread's last one and returns it.
cudaError_t runtime_error(cudaError_t);

// module.c: forgets what was loaded on a device, whose primary context has been reset.
void runtime_forget_modules(int device);

// Calls a driver function in a context, starting the runtime where that has not been done.
#define CALL(name, ...)                                                                            \
    ({                                                                                             \
        cudaError_t call_error = runtime_context(NULL);                                            \
        if (call_error == cudaSuccess)                                                             \
            call_error = driver.name ? driver.name(__VA_ARGS__) : cudaErrorNotSupported;           \
        runtime_error(call_error);                                                                 \
    })

#endif
