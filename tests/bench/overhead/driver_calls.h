// driver_calls.h: the driver calls that the benchmark programs make, and the clock they share.
#ifndef WEIR_BENCH_DRIVER_CALLS_H
#define WEIR_BENCH_DRIVER_CALLS_H

#include "../../e2e/clients/cuda.h"

#include <stdint.h>
#include <time.h>

enum {
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_AD_FORMAT_UNSIGNED_INT8 = 1,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
};

typedef struct {
    int type, id;
} memory_location;

#define ON_DEVICE_0                                                                                \
    { CU_MEM_LOCATION_TYPE_DEVICE, 0 }

// CUmemPoolProps, CUmemAllocationProp, CUDA_ARRAY_DESCRIPTOR.
typedef struct {
    int type, handle_types;
    memory_location location;
    void *security;
    size_t bytes_max;
    char reserved[56];
} pool_properties;

typedef struct {
    int type, handle_types;
    memory_location location;
    void *security;
    char flags[8];
} memory_properties;

typedef struct {
    size_t width, height;
    int format;
    unsigned channels;
} array_description;

int cuMemPoolCreate(void **pool, const pool_properties *properties);
int cuMemPoolSetAttribute(void *pool, int attribute, void *value);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, void *pool, void *stream);
int cuMemCreate(uint64_t *handle, size_t bytes, const memory_properties *properties,
                uint64_t flags);
int cuMemRelease(uint64_t handle);
int cuArrayCreate_v2(void **array, const array_description *description);
int cuArrayDestroy(void *array);

// CUlaunchConfig, and CUDA_LAUNCH_PARAMS: one device's part of a launch on several.
typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
} launch_config;

typedef struct {
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream;
    void **parameters;
} device_launch;

typedef int launch_extended_fn(const launch_config *config, void *function, void **parameters,
                               void **extra);
typedef int launch_cooperative_fn(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z,
                                  unsigned shared_bytes, void *stream, void **parameters);
typedef int launch_multi_device_fn(device_launch *launches, unsigned count, unsigned flags);
typedef int launch_old_fn(void *function);
typedef int launch_grid_fn(void *function, int width, int height);
typedef int launch_grid_async_fn(void *function, int width, int height, void *stream);
typedef int launch_graph_fn(void *exec, void *stream);
typedef int launch_host_fn(void *stream, void (*call)(void *argument), void *argument);

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
