// driver_calls.h: the driver calls that the benchmark programs make, declared from their documented
// form, and the clock they share.
#ifndef WEIR_BENCH_DRIVER_CALLS_H
#define WEIR_BENCH_DRIVER_CALLS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status);

typedef int launch_fn(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      void *stream, void **parameters, void **extra);
launch_fn cuLaunchKernel;

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
