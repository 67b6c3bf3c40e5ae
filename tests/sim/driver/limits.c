// limits.c: the limits of a context, of which three take device memory.
//
// What a context takes for them is exact and known in advance:
//   malloc heap, printf fifo   the bytes beyond the default, rounded up to SIM_GRANULE
//   stack                      the bytes beyond the default x the threads that the device can hold
// Values below the defaults take nothing. A value that does not fit leaves the old one. All of it
// ends with the context.
#include "driver.h"

static const size_t defaults[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

#define FETCH_GRANULARITY_MOST 128

static int attribute(const struct context *context, int number) {
    int value = 0;
    cuDeviceGetAttribute(&value, number, (CUdevice)context->gpu);
    return value;
}

void limits_init(struct context *context) {
    for (unsigned i = 0; i < CU_LIMIT_MAX; i++)
        context->limits[i] = defaults[i];
}

void limits_end(struct context *context) {
    sim_memory_give(driver.machine, context->card, context->limit_bytes);
    context->limit_bytes = 0;
}

// Adds what one limit takes. False: more than there can be.
static bool add_bytes(const struct context *context, CUlimit limit, size_t value, uint64_t *bytes) {
    if (limit > CU_LIMIT_MALLOC_HEAP_SIZE || value <= defaults[limit])
        return true;
    uint64_t units = 1, extra = value - defaults[limit];
    if (limit == CU_LIMIT_STACK_SIZE)
        units = (uint64_t)attribute(context, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                (uint64_t)attribute(context, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    return !__builtin_mul_overflow(extra, units, &extra) &&
           !__builtin_add_overflow(extra, SIM_GRANULE - 1, &extra) &&
           !__builtin_add_overflow(*bytes, extra / SIM_GRANULE * SIM_GRANULE, bytes);
}

// Takes or gives back the difference that a new value makes.
static CUresult settle(struct context *context, CUlimit limit, size_t value) {
    uint64_t wanted = 0;
    for (CUlimit i = 0; i < CU_LIMIT_MAX; i++)
        if (!add_bytes(context, i, i == limit ? value : context->limits[i], &wanted))
            return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t have = context->limit_bytes;
    if (wanted > have && sim_memory_take(driver.machine, context->card, wanted - have))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (wanted < have)
        sim_memory_give(driver.machine, context->card, have - wanted);
    context->limit_bytes = wanted;
    return CUDA_SUCCESS;
}

// Whether the device has the limit at all.
static bool known(const struct context *context, CUlimit limit) {
    int major = attribute(context, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return false;
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)
        return major < 9;
    return limit != CU_LIMIT_PERSISTING_L2_CACHE_SIZE ||
           attribute(context, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE) > 0;
}

API cuCtxGetLimit(size_t *value, CUlimit limit) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!known(context, limit))
        return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = context->limits[limit];
    return driver_leave(CUDA_SUCCESS);
}

API cuCtxSetLimit(CUlimit limit, size_t value) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!known(context, limit))
        return driver_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > FETCH_GRANULARITY_MOST)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        size_t most = (size_t)attribute(context, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
        value = value < most ? value : most;
    }
    rc = settle(context, limit, value);
    if (!rc)
        context->limits[limit] = value;
    return driver_leave(rc);
}

API cuCtxResetPersistingL2Cache(void) {
    struct context *context;
    CUresult rc = context_enter(&context);
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}
