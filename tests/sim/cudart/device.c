// cudaGetDeviceProperties: the few properties that weir's programs read.
#include "runtime.h"

#include <string.h>

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock;
    int major, minor, multiProcessorCount, maxThreadsPerBlock, clockRate;
};

// The driver's numbers of device attributes.
enum {
    MAX_THREADS_PER_BLOCK = 1,
    MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CLOCK_RATE = 13,
    MULTIPROCESSOR_COUNT = 16,
    COMPUTE_CAPABILITY_MAJOR = 75,
    COMPUTE_CAPABILITY_MINOR = 76,
};

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int index) {
    cudaError_t err = runtime_start();
    if (err == cudaSuccess && !p)
        err = cudaErrorInvalidValue;
    if (err == cudaSuccess && (index < 0 || index >= runtime_device_count()))
        err = cudaErrorInvalidDevice;
    if (err == cudaSuccess && !driver.cuDeviceGetAttribute)
        err = cudaErrorNotSupported;
    if (err != cudaSuccess)
        return runtime_error(err);
    const struct device *d = runtime_device(index);
    int shared_bytes = 0;
    const struct {
        int attribute;
        int *value;
    } wanted[] = {
        {MAX_THREADS_PER_BLOCK, &p->maxThreadsPerBlock},
        {MAX_SHARED_MEMORY_PER_BLOCK, &shared_bytes},
        {CLOCK_RATE, &p->clockRate},
        {MULTIPROCESSOR_COUNT, &p->multiProcessorCount},
        {COMPUTE_CAPABILITY_MAJOR, &p->major},
        {COMPUTE_CAPABILITY_MINOR, &p->minor},
    };
    memset(p, 0, sizeof(*p));
    memcpy(p->name, d->name, sizeof(p->name));
    p->totalGlobalMem = d->total_bytes;
    for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]) && err == cudaSuccess; k++)
        err = driver.cuDeviceGetAttribute(wanted[k].value, wanted[k].attribute, d->handle);
    p->sharedMemPerBlock = (size_t)shared_bytes;
    return runtime_error(err);
}

// The runtime's numbers of limits are the driver's.
API cudaError_t cudaDeviceGetLimit(size_t *value, int limit) {
    return CALL(cuCtxGetLimit, value, limit);
}

API cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
    return CALL(cuCtxSetLimit, limit, value);
}
