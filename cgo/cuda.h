// cuda.h: the driver's types, result codes and function types that the library uses.
//
// Declared from documented facts; nothing here is NVIDIA's text. A function type is named
// <export>_fn after the driver's export, not after the name that a program writes: cuMemAlloc is
// the 32-bit form of before 3.2, cuMemAlloc_v2 what is called today.
#ifndef WEIR_CUDA_H
#define WEIR_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint32_t CUdeviceptr_v1;  // of the functions without a suffix that are older than 3.2
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;

typedef struct {
    uint8_t bytes[16];
} CUuuid;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NOT_FOUND = 500,
};

// What cuThreadExchangeStreamCaptureMode takes. Relaxed: our own calls disturb no capture.
enum {
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

typedef CUresult cuInit_fn(unsigned flags);
typedef CUresult cuDriverGetVersion_fn(int *version);

// Finding functions.
typedef CUresult cuGetProcAddress_fn(const char *symbol, void **function, int version,
                                     uint64_t flags);
typedef CUresult cuGetProcAddress_v2_fn(const char *symbol, void **function, int version,
                                        uint64_t flags, int *status);

// Memory: allocation and free.
typedef CUresult cuMemAlloc_fn(CUdeviceptr_v1 *pointer, unsigned bytes);
typedef CUresult cuMemAlloc_v2_fn(CUdeviceptr *pointer, size_t bytes);
typedef CUresult cuMemAllocPitch_fn(CUdeviceptr_v1 *pointer, unsigned *pitch, unsigned width_bytes,
                                    unsigned height, unsigned element_bytes);
typedef CUresult cuMemAllocPitch_v2_fn(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                       size_t height, unsigned element_bytes);
typedef CUresult cuMemAllocManaged_fn(CUdeviceptr *pointer, size_t bytes, unsigned flags);
typedef CUresult cuMemFree_fn(CUdeviceptr_v1 pointer);
typedef CUresult cuMemFree_v2_fn(CUdeviceptr pointer);
typedef CUresult cuMemFreeAsync_fn(CUdeviceptr pointer, CUstream stream);
typedef CUresult cuMemFreeAsync_ptsz_fn(CUdeviceptr pointer, CUstream stream);

// Memory: reports.
typedef CUresult cuMemGetInfo_fn(unsigned *free_bytes, unsigned *total_bytes);
typedef CUresult cuMemGetInfo_v2_fn(size_t *free_bytes, size_t *total_bytes);
typedef CUresult cuDeviceTotalMem_fn(unsigned *bytes, CUdevice device);
typedef CUresult cuDeviceTotalMem_v2_fn(size_t *bytes, CUdevice device);

// Devices and contexts. What a context holds ends with it.
typedef CUresult cuDeviceGet_fn(CUdevice *device, int ordinal);
typedef CUresult cuDeviceGetCount_fn(int *count);
typedef CUresult cuDeviceGetUuid_fn(CUuuid *uuid, CUdevice device);
typedef CUresult cuDeviceGetUuid_v2_fn(CUuuid *uuid, CUdevice device);
typedef CUresult cuCtxGetCurrent_fn(CUcontext *context);
typedef CUresult cuCtxGetDevice_fn(CUdevice *device);
typedef CUresult cuCtxPushCurrent_v2_fn(CUcontext context);
typedef CUresult cuCtxPopCurrent_v2_fn(CUcontext *context);
typedef CUresult cuCtxAttach_fn(CUcontext *context, unsigned flags);
typedef CUresult cuCtxDestroy_fn(CUcontext context);
typedef CUresult cuCtxDestroy_v2_fn(CUcontext context);
typedef CUresult cuCtxDetach_fn(CUcontext context);
typedef CUresult cuDevicePrimaryCtxGetState_fn(CUdevice device, unsigned *flags, int *active);
typedef CUresult cuDevicePrimaryCtxRetain_fn(CUcontext *context, CUdevice device);
typedef CUresult cuDevicePrimaryCtxRelease_fn(CUdevice device);
typedef CUresult cuDevicePrimaryCtxRelease_v2_fn(CUdevice device);
typedef CUresult cuDevicePrimaryCtxReset_fn(CUdevice device);
typedef CUresult cuDevicePrimaryCtxReset_v2_fn(CUdevice device);
typedef CUresult cuThreadExchangeStreamCaptureMode_fn(int *mode);

#endif
