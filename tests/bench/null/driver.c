// driver.c: the calls of the null driver that give something back: devices, contexts, handles,
// addresses and sizes.
//
// Addresses are distinct while the process lives and are never used twice, which is the harder case
// for a library that keeps a table of them. Each thread draws from a range of its own, so that
// eight threads do not meet in the driver.
#include "null.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DRIVER_VERSION = 12020,
    GPUS_MAX = 16,
    ALIGNMENT = 512,
    PITCH = 512,
    POOL_RESERVED = 5,  // the attribute
};

static const uint64_t GPU_BYTES = 24ull << 30;
static const uint64_t FREE_BYTES = 23ull << 30;
static const uint64_t POOL_BYTES = 32ull << 20;
static const uint64_t RANGE_BYTES = 1ull << 32;
static const uint64_t FIRST_ADDRESS = 0x100000000000;

static int gpus = 1;
static long context_ms;
static unsigned char uuids[GPUS_MAX][16];
static uint64_t next_range, next_handle = 0x1000;
static __thread uint64_t address, range_end;
static __thread void *current;
static __thread int current_device;

// "GPU-01234567-89ab-…" into 16 bytes; stops at the comma or the end.
static const char *read_uuid(const char *text, unsigned char *uuid) {
    int digits = 0;
    if (!strncmp(text, "GPU-", 4))
        text += 4;
    for (; *text && *text != ',' && digits < 32; text++) {
        int c = *text, value;
        if (c >= '0' && c <= '9')
            value = c - '0';
        else if (c >= 'a' && c <= 'f')
            value = c - 'a' + 10;
        else
            continue;
        uuid[digits / 2] = (unsigned char)(uuid[digits / 2] << 4 | value);
        digits++;
    }
    return *text == ',' ? text + 1 : text;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *text = getenv("WEIR_NULL_GPUS");
    if (text && atoi(text) > 0)
        gpus = atoi(text) < GPUS_MAX ? atoi(text) : GPUS_MAX;
    for (int i = 0; i < gpus; i++)
        uuids[i][15] = (unsigned char)i;
    text = getenv("WEIR_NULL_UUIDS");
    for (int i = 0; text && *text && i < gpus; i++)
        text = read_uuid(text, uuids[i]);
    text = getenv("WEIR_NULL_CONTEXT_MS");
    context_ms = text ? atol(text) : 0;
    null_counting = getenv("WEIR_NULL_COUNT") != NULL;
}

static uint64_t take_address(uint64_t bytes) {
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > RANGE_BYTES)
        return FIRST_ADDRESS +
               __atomic_fetch_add(&next_range, bytes / RANGE_BYTES + 1, __ATOMIC_RELAXED) *
                   RANGE_BYTES;
    if (range_end - address < bytes) {
        address =
            FIRST_ADDRESS + __atomic_fetch_add(&next_range, 1, __ATOMIC_RELAXED) * RANGE_BYTES;
        range_end = address + RANGE_BYTES;
    }
    uint64_t taken = address;
    address += bytes;
    return taken;
}

static void *take_handle(void) {
    return (void *)(uintptr_t)__atomic_add_fetch(&next_handle, 16, __ATOMIC_RELAXED);
}

static int give_address(uint64_t *out, uint64_t bytes) {
    if (!out || bytes == 0)
        return CU_INVALID_VALUE;
    *out = take_address(bytes);
    return CU_OK;
}

static int give_handle(void **out) {
    if (!out)
        return CU_INVALID_VALUE;
    *out = take_handle();
    return CU_OK;
}

// Every call below counts itself, then does its one thing.
#define CALL(export, ...) NULL_API int export(__VA_ARGS__)

CALL(cuDriverGetVersion, int *version) {
    NULL_COUNT(cuDriverGetVersion);
    *version = DRIVER_VERSION;
    return CU_OK;
}

CALL(cuGetErrorString, int error, const char **text) {
    NULL_COUNT(cuGetErrorString);
    *text = error ? "an error of the null driver" : "no error";
    return CU_OK;
}

CALL(cuGetErrorName, int error, const char **text) {
    NULL_COUNT(cuGetErrorName);
    *text = error ? "CUDA_ERROR_UNKNOWN" : "CUDA_SUCCESS";
    return CU_OK;
}

// The null driver has no tables to give.
CALL(cuGetExportTable, const void **table, const void *id) {
    NULL_COUNT(cuGetExportTable);
    (void)table;
    (void)id;
    return CU_NOT_FOUND;
}

// Devices.

CALL(cuDeviceGetCount, int *count) {
    NULL_COUNT(cuDeviceGetCount);
    *count = gpus;
    return CU_OK;
}

CALL(cuDeviceGet, int *device, int ordinal) {
    NULL_COUNT(cuDeviceGet);
    if (ordinal < 0 || ordinal >= gpus)
        return CU_INVALID_DEVICE;
    *device = ordinal;
    return CU_OK;
}

CALL(cuDeviceGetName, char *name, int bytes, int device) {
    NULL_COUNT(cuDeviceGetName);
    (void)device;
    if (bytes > 0) {
        strncpy(name, "null device", (size_t)bytes - 1);
        name[bytes - 1] = 0;
    }
    return CU_OK;
}

static int give_uuid(unsigned char *uuid, int device) {
    if (device < 0 || device >= gpus)
        return CU_INVALID_DEVICE;
    memcpy(uuid, uuids[device], 16);
    return CU_OK;
}

CALL(cuDeviceGetUuid, unsigned char *uuid, int device) {
    NULL_COUNT(cuDeviceGetUuid);
    return give_uuid(uuid, device);
}

CALL(cuDeviceGetUuid_v2, unsigned char *uuid, int device) {
    NULL_COUNT(cuDeviceGetUuid_v2);
    return give_uuid(uuid, device);
}

CALL(cuDeviceGetAttribute, int *value, int attribute, int device) {
    NULL_COUNT(cuDeviceGetAttribute);
    (void)attribute;
    (void)device;
    *value = 1;
    return CU_OK;
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, int device) {
    NULL_COUNT(cuDeviceTotalMem_v2);
    (void)device;
    *bytes = GPU_BYTES;
    return CU_OK;
}

CALL(cuMemGetInfo_v2, size_t *free_bytes, size_t *total_bytes) {
    NULL_COUNT(cuMemGetInfo_v2);
    *free_bytes = FREE_BYTES;
    *total_bytes = GPU_BYTES;
    return CU_OK;
}

// Contexts.

static int make_context(void **context) {
    struct timespec delay = {context_ms / 1000, context_ms % 1000 * 1000000};
    if (context_ms > 0)
        nanosleep(&delay, NULL);
    return give_handle(context);
}

CALL(cuCtxCreate_v2, void **context, unsigned flags, int device) {
    NULL_COUNT(cuCtxCreate_v2);
    (void)flags;
    int error = make_context(context);
    if (error)
        return error;
    current = *context;
    current_device = device;
    return CU_OK;
}

CALL(cuCtxCreate_v3, void **context, void *affinity, int count, unsigned flags, int device) {
    NULL_COUNT(cuCtxCreate_v3);
    (void)affinity;
    (void)count;
    (void)flags;
    int error = make_context(context);
    if (error)
        return error;
    current = *context;
    current_device = device;
    return CU_OK;
}

CALL(cuDevicePrimaryCtxRetain, void **context, int device) {
    NULL_COUNT(cuDevicePrimaryCtxRetain);
    static void *primary[GPUS_MAX];
    if (device < 0 || device >= gpus)
        return CU_INVALID_DEVICE;
    if (!__atomic_load_n(&primary[device], __ATOMIC_ACQUIRE)) {
        void *made = NULL;
        int error = make_context(&made);
        if (error)
            return error;
        __atomic_store_n(&primary[device], made, __ATOMIC_RELEASE);
    }
    *context = primary[device];
    return CU_OK;
}

CALL(cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active) {
    NULL_COUNT(cuDevicePrimaryCtxGetState);
    (void)device;
    *flags = 0;
    *active = 1;
    return CU_OK;
}

CALL(cuCtxSetCurrent, void *context) {
    NULL_COUNT(cuCtxSetCurrent);
    current = context;
    return CU_OK;
}

CALL(cuCtxGetCurrent, void **context) {
    NULL_COUNT(cuCtxGetCurrent);
    *context = current;
    return CU_OK;
}

CALL(cuCtxGetDevice, int *device) {
    NULL_COUNT(cuCtxGetDevice);
    *device = current_device;
    return CU_OK;
}

CALL(cuCtxPushCurrent_v2, void *context) {
    NULL_COUNT(cuCtxPushCurrent_v2);
    current = context;
    return CU_OK;
}

CALL(cuCtxPopCurrent_v2, void **context) {
    NULL_COUNT(cuCtxPopCurrent_v2);
    if (context)
        *context = current;
    return CU_OK;
}

// Streams, events and code: handles that are not null.

#define HANDLE(export, ...)                                                                        \
    CALL(export, void **handle, __VA_ARGS__) {                                                     \
        NULL_COUNT(export);                                                                        \
        return give_handle(handle);                                                                \
    }

#define UNUSED __attribute__((unused))

HANDLE(cuStreamCreate, UNUSED unsigned flags)
HANDLE(cuStreamCreateWithPriority, UNUSED unsigned flags, UNUSED int priority)
HANDLE(cuEventCreate, UNUSED unsigned flags)
HANDLE(cuModuleLoad, UNUSED const char *path)
HANDLE(cuModuleLoadData, UNUSED const void *image)
HANDLE(cuModuleLoadDataEx, UNUSED const void *image, UNUSED unsigned count, UNUSED void *options,
       UNUSED void *values)
HANDLE(cuLibraryLoadData, UNUSED const void *image, UNUSED void *options, UNUSED void *values,
       UNUSED unsigned count, UNUSED void *library_options, UNUSED void *library_values,
       UNUSED unsigned library_count)
HANDLE(cuModuleGetFunction, UNUSED void *module, UNUSED const char *name)
HANDLE(cuGraphCreate, UNUSED unsigned flags)
HANDLE(cuGraphInstantiateWithFlags, UNUSED void *graph, UNUSED uint64_t flags)
HANDLE(cuArrayCreate_v2, UNUSED const void *descriptor)
HANDLE(cuArray3DCreate_v2, UNUSED const void *descriptor)
HANDLE(cuMipmappedArrayCreate, UNUSED const void *descriptor, UNUSED unsigned levels)

// Size and alignment first: it does not say.
#define REQUIREMENTS(export)                                                                       \
    CALL(export, size_t *requirements, UNUSED void *array, UNUSED int device) {                    \
        NULL_COUNT(export);                                                                        \
        requirements[0] = requirements[1] = 0;                                                     \
        return CU_OK;                                                                              \
    }

REQUIREMENTS(cuArrayGetMemoryRequirements)
REQUIREMENTS(cuMipmappedArrayGetMemoryRequirements)

HANDLE(cuMemCreate, UNUSED size_t bytes, UNUSED const void *properties, UNUSED uint64_t flags)
HANDLE(cuMemPoolCreate, UNUSED const void *properties)

// Each device has one pool, which has always reserved the same and in which nothing is used.

static int give_pool(void **pool, int device) {
    static char pools[GPUS_MAX];
    if (device < 0 || device >= gpus)
        return CU_INVALID_DEVICE;
    *pool = &pools[device];
    return CU_OK;
}

CALL(cuDeviceGetDefaultMemPool, void **pool, int device) {
    NULL_COUNT(cuDeviceGetDefaultMemPool);
    return give_pool(pool, device);
}

CALL(cuDeviceGetMemPool, void **pool, int device) {
    NULL_COUNT(cuDeviceGetMemPool);
    return give_pool(pool, device);
}

CALL(cuMemPoolGetAttribute, void *pool, int attribute, uint64_t *value) {
    NULL_COUNT(cuMemPoolGetAttribute);
    (void)pool;
    *value = attribute == POOL_RESERVED ? POOL_BYTES : 0;
    return CU_OK;
}

CALL(cuStreamGetCtx, void *stream, void **context) {
    NULL_COUNT(cuStreamGetCtx);
    (void)stream;
    *context = current;
    return CU_OK;
}

CALL(cuStreamIsCapturing, void *stream, int *status) {
    NULL_COUNT(cuStreamIsCapturing);
    (void)stream;
    *status = 0;
    return CU_OK;
}

// Any two events are a millisecond apart, and one of itself: who learns from times has some.
CALL(cuEventElapsedTime, float *ms, void *start, void *end) {
    NULL_COUNT(cuEventElapsedTime);
    *ms = start == end ? 0 : 1;
    return CU_OK;
}

// Allocation. A free is success, which the stub already returns.

#define ALLOCATE(export, ...)                                                                      \
    CALL(export, uint64_t *out, size_t bytes __VA_OPT__(, ) __VA_ARGS__) {                         \
        NULL_COUNT(export);                                                                        \
        return give_address(out, bytes);                                                           \
    }

ALLOCATE(cuMemAlloc_v2)
ALLOCATE(cuMemAllocManaged, UNUSED unsigned flags)
ALLOCATE(cuMemAllocAsync, UNUSED void *stream)
ALLOCATE(cuMemAllocAsync_ptsz, UNUSED void *stream)
ALLOCATE(cuMemAllocFromPoolAsync, UNUSED void *pool, UNUSED void *stream)
ALLOCATE(cuMemAllocFromPoolAsync_ptsz, UNUSED void *pool, UNUSED void *stream)
ALLOCATE(cuMemAddressReserve, UNUSED size_t alignment, UNUSED uint64_t hint, UNUSED uint64_t flags)

CALL(cuMemAllocPitch_v2, uint64_t *out, size_t *pitch, size_t width, size_t height,
     unsigned element_bytes) {
    NULL_COUNT(cuMemAllocPitch_v2);
    (void)element_bytes;
    if (!pitch)
        return CU_INVALID_VALUE;
    *pitch = (width + PITCH - 1) / PITCH * PITCH;
    return give_address(out, *pitch * height);
}

CALL(cuMemGetAllocationGranularity, size_t *bytes, const void *properties, int option) {
    NULL_COUNT(cuMemGetAllocationGranularity);
    (void)properties;
    (void)option;
    *bytes = 2 << 20;
    return CU_OK;
}

CALL(cuMemHostAlloc, void **host, size_t bytes, unsigned flags) {
    NULL_COUNT(cuMemHostAlloc);
    (void)flags;
    *host = malloc(bytes);
    return *host ? CU_OK : CU_INVALID_VALUE;
}

CALL(cuMemFreeHost, void *host) {
    NULL_COUNT(cuMemFreeHost);
    free(host);
    return CU_OK;
}
