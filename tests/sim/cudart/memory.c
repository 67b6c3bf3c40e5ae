// Allocation, copies and sets. Copies from and to pageable memory become the driver's
// host-to-device and device-to-host forms, as a CUDA runtime does.
#include "runtime.h"

#include <string.h>

#define PITCH_ELEMENT_BYTES 4

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT_KIND };

static CUdeviceptr device_address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

API cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    if (!pointer)
        return runtime_error(cudaErrorInvalidValue);
    *pointer = NULL;
    CUdeviceptr at = 0;
    cudaError_t err =
        bytes > 0 ? CALL(cuMemAlloc, &at, bytes) : runtime_error(runtime_context(NULL));
    if (err == cudaSuccess)
        *pointer = (void *)(uintptr_t)at;
    return err;
}

API cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    if (!pointer || !pitch)
        return runtime_error(cudaErrorInvalidValue);
    *pointer = NULL;
    CUdeviceptr at = 0;
    cudaError_t err = CALL(cuMemAllocPitch, &at, pitch, width, height, PITCH_ELEMENT_BYTES);
    if (err == cudaSuccess)
        *pointer = (void *)(uintptr_t)at;
    return err;
}

API cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags) {
    if (!pointer)
        return runtime_error(cudaErrorInvalidValue);
    *pointer = NULL;
    CUdeviceptr at = 0;
    cudaError_t err = CALL(cuMemAllocManaged, &at, bytes, flags);
    if (err == cudaSuccess)
        *pointer = (void *)(uintptr_t)at;
    return err;
}

API cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
    if (!pointer)
        return runtime_error(cudaErrorInvalidValue);
    *pointer = NULL;
    return CALL(cuMemHostAlloc, pointer, bytes, 0);
}

API cudaError_t cudaFree(void *pointer) {
    if (!pointer)
        return runtime_error(runtime_context(NULL));
    return CALL(cuMemFree, device_address(pointer));
}

API cudaError_t cudaFreeHost(void *pointer) {
    if (!pointer)
        return cudaSuccess;
    return CALL(cuMemFreeHost, pointer);
}

API cudaError_t cudaMallocAsync(void **pointer, size_t bytes, CUstream stream) {
    if (!pointer)
        return runtime_error(cudaErrorInvalidValue);
    *pointer = NULL;
    CUdeviceptr at = 0;
    cudaError_t err = CALL(cuMemAllocAsync, &at, bytes, stream);
    if (err == cudaSuccess)
        *pointer = (void *)(uintptr_t)at;
    return err;
}

API cudaError_t cudaFreeAsync(void *pointer, CUstream stream) {
    return CALL(cuMemFreeAsync, device_address(pointer), stream);
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    switch (kind) {
    case HOST_TO_HOST:
        memmove(to, from, bytes);
        return cudaSuccess;
    case HOST_TO_DEVICE:
        return CALL(cuMemcpyHtoD, device_address(to), from, bytes);
    case DEVICE_TO_HOST:
        return CALL(cuMemcpyDtoH, to, device_address(from), bytes);
    case DEVICE_TO_DEVICE:
        return CALL(cuMemcpyDtoD, device_address(to), device_address(from), bytes);
    case DEFAULT_KIND:
        return CALL(cuMemcpy, device_address(to), device_address(from), bytes);
    default:
        return runtime_error(cudaErrorInvalidMemcpyDirection);
    }
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                                CUstream stream) {
    switch (kind) {
    case HOST_TO_DEVICE:
        return CALL(cuMemcpyHtoDAsync, device_address(to), from, bytes, stream);
    case DEVICE_TO_HOST:
        return CALL(cuMemcpyDtoHAsync, to, device_address(from), bytes, stream);
    case DEVICE_TO_DEVICE:
        return CALL(cuMemcpyDtoDAsync, device_address(to), device_address(from), bytes, stream);
    case HOST_TO_HOST:
    case DEFAULT_KIND:
        return CALL(cuMemcpyAsync, device_address(to), device_address(from), bytes, stream);
    default:
        return runtime_error(cudaErrorInvalidMemcpyDirection);
    }
}

API cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
    return CALL(cuMemsetD8, device_address(pointer), (unsigned char)value, bytes);
}

API cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, CUstream stream) {
    return CALL(cuMemsetD8Async, device_address(pointer), (unsigned char)value, bytes, stream);
}

API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return CALL(cuMemGetInfo, free_bytes, total_bytes);
}
