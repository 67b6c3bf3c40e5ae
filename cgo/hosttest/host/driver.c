// driver.c: see driver.h. An allocation's address is that of a small block of the heap, so
// addresses are used again as soon as they are free, which is what the library's table has to
// stand.
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "../../hooks.h"

struct test_driver test_driver = {
    .pitch_bytes = TEST_PITCH, .array_unit_bytes = 512, .chunk_bytes = 256 << 10};

struct block {
    uint64_t magic;
    uint64_t bytes;
    struct block *next;  // while free
    int gpu;
    uint64_t serial;
};

static struct block *free_blocks;
static uint64_t block_serials;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

// Contexts that exist at one time, more or less: a table by handle.
#define CONTEXTS 65536
#define BLOCK_MAGIC 0x626c6f636b5f6f6bull
// Addresses below this are nobody's.
#define LOWEST_POINTER 65536u

static __thread CUcontext current;
static __thread int current_device = -1;
// Handles of contexts are small numbers; a primary context's is its device's number plus 1.
static uint64_t next_context = 100;
static int context_device[CONTEXTS];
static int primary_count[TEST_GPUS];

void test_driver_dawdle(void) {
    unsigned us = __atomic_load_n(&test_driver.dawdle_us, __ATOMIC_RELAXED);
    if (!us)
        return;
    struct timespec length = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&length, NULL);
}

int test_driver_failure(void) {
    int code = __atomic_load_n(&test_driver.fail_code, __ATOMIC_RELAXED);
    if (code)
        __atomic_store_n(&test_driver.fail_code, 0, __ATOMIC_RELAXED);
    return code;
}

static struct block *take_block(void) {
    pthread_mutex_lock(&blocks_lock);
    struct block *block = free_blocks;
    if (block)
        free_blocks = block->next;
    pthread_mutex_unlock(&blocks_lock);
    return block ? block : malloc(sizeof(*block));
}

// 0, or 1 where that is no block in use.
static int release_block(struct block *block) {
    pthread_mutex_lock(&blocks_lock);
    int wrong = block->magic != BLOCK_MAGIC;
    if (!wrong) {
        block->magic = 0;
        test_driver_give(block->gpu, block->bytes);
        block->next = free_blocks;
        free_blocks = block;
    }
    pthread_mutex_unlock(&blocks_lock);
    return wrong;
}

static pthread_mutex_t books_lock = PTHREAD_MUTEX_INITIALIZER;

// More than the limit is in use, beyond what calls have taken that are not over yet.
static void check(int gpu) {
    uint64_t limit = test_driver.limit_bytes[gpu];
    if (limit && test_driver.used_bytes[gpu] > limit + test_driver.tentative_bytes[gpu])
        test_driver.violations++;
    if (test_driver.used_bytes[gpu] > test_driver.peak_bytes[gpu])
        test_driver.peak_bytes[gpu] = test_driver.used_bytes[gpu];
}

static int take(int gpu, uint64_t bytes, uint64_t tentative_bytes) {
    pthread_mutex_lock(&books_lock);
    int fits = test_driver.used_bytes[gpu] + bytes <= TEST_GPU_BYTES;
    if (fits) {
        test_driver.used_bytes[gpu] += bytes;
        test_driver.tentative_bytes[gpu] += tentative_bytes;
        check(gpu);
    }
    pthread_mutex_unlock(&books_lock);
    return fits;
}

int test_driver_take(int gpu, uint64_t bytes) {
    return take(gpu, bytes, 0);
}

int test_driver_grow(int gpu, uint64_t bytes) {
    return take(gpu, bytes, bytes);
}

void test_driver_give(int gpu, uint64_t bytes) {
    pthread_mutex_lock(&books_lock);
    test_driver.used_bytes[gpu] -= bytes;
    pthread_mutex_unlock(&books_lock);
}

void test_driver_firm(int gpu, uint64_t bytes) {
    pthread_mutex_lock(&books_lock);
    test_driver.tentative_bytes[gpu] -= bytes;
    check(gpu);
    pthread_mutex_unlock(&books_lock);
}

void test_driver_call_over(void) {
    test_pools_call_over();
    test_graphs_call_over();
}

int test_driver_block(uint64_t pointer, uint64_t *bytes, uint64_t *serial, int *gpu) {
    if (pointer < LOWEST_POINTER || pointer >> 47 || pointer % sizeof(uint64_t))
        return 0;
    const struct block *block = (struct block *)(uintptr_t)pointer;
    *bytes = block->bytes;
    *serial = block->serial;
    *gpu = block->gpu;
    return block->magic == BLOCK_MAGIC;
}

int test_driver_device(void) {
    return current ? current_device : -1;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes) {
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    __atomic_fetch_add(&test_driver.calls, 1, __ATOMIC_RELAXED);
    int code = test_driver_failure();
    if (code) {
        test_driver_dawdle();
        return code;
    }
    if (bytes > TEST_GPU_BYTES || !test_driver_take(current_device, test_driver_round(bytes, 512)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = take_block();
    *block = (struct block){BLOCK_MAGIC, test_driver_round(bytes, 512), NULL, current_device,
                            __atomic_add_fetch(&block_serials, 1, __ATOMIC_RELAXED)};
    test_driver_dawdle();
    *pointer = (CUdeviceptr)(uintptr_t)block;
    return CUDA_SUCCESS;
}

static CUresult driver_alloc(CUdeviceptr *pointer, size_t bytes) {
    return allocate(pointer, bytes);
}

static CUresult driver_alloc_managed(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    return flags == 1 || flags == 2 ? allocate(pointer, bytes) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult driver_alloc_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    if (!pitch || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = test_driver_round(width, test_driver.pitch_bytes);
    return allocate(pointer, *pitch * height);
}

static CUresult release(CUdeviceptr pointer, CUstream stream, int now) {
    int code = test_driver_failure();
    if (code)
        return code;
    if (pointer < LOWEST_POINTER)
        return CUDA_ERROR_INVALID_VALUE;
    if (test_graphs_owns(pointer))
        return CUDA_SUCCESS;
    int pooled = test_pools_free(pointer, (uintptr_t)stream, now);
    if (pooled < 0 || (!pooled && release_block((struct block *)(uintptr_t)pointer)))
        return CUDA_ERROR_INVALID_VALUE;
    test_driver_dawdle();
    return CUDA_SUCCESS;
}

static CUresult driver_free(CUdeviceptr pointer) {
    return release(pointer, NULL, 1);
}

static CUresult driver_free_async(CUdeviceptr pointer, CUstream stream) {
    return release(pointer, stream, 0);
}

static CUresult driver_info(size_t *free_bytes, size_t *total_bytes) {
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *total_bytes = TEST_GPU_BYTES;
    pthread_mutex_lock(&books_lock);
    *free_bytes = TEST_GPU_BYTES - test_driver.used_bytes[current_device];
    pthread_mutex_unlock(&books_lock);
    return CUDA_SUCCESS;
}

static CUresult driver_total(size_t *bytes, CUdevice device) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = TEST_GPU_BYTES;
    return CUDA_SUCCESS;
}

static CUresult driver_init(unsigned flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult driver_version(int *version) {
    *version = 12040;
    return CUDA_SUCCESS;
}

static CUresult driver_count(int *count) {
    *count = TEST_GPUS;
    return CUDA_SUCCESS;
}

static CUresult driver_get_device(CUdevice *device) {
    *device = current_device;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult driver_get_current(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult driver_uuid(CUuuid *uuid, CUdevice device) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (uint8_t)(0xa0 + device);
    return CUDA_SUCCESS;
}

static CUresult driver_destroy(CUcontext context) {
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (current == context)
        test_driver_use_context(0);
    return test_driver_failure();
}

static CUresult driver_attach(CUcontext *context, unsigned flags) {
    *context = current;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult driver_retain(CUcontext *context, CUdevice device) {
    primary_count[device]++;
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

static CUresult driver_release(CUdevice device) {
    if (!primary_count[device])
        return CUDA_ERROR_INVALID_CONTEXT;
    primary_count[device]--;
    return CUDA_SUCCESS;
}

static CUresult driver_reset(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult driver_primary_state(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = primary_count[device] > 0;
    return CUDA_SUCCESS;
}

uint64_t test_driver_new_context(int device) {
    uint64_t handle = __atomic_fetch_add(&next_context, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&context_device[handle % CONTEXTS], device, __ATOMIC_RELAXED);
    test_driver_use_context(handle);
    return handle;
}

void test_driver_place_context(uint64_t handle, int device) {
    __atomic_store_n(&context_device[handle % CONTEXTS], device, __ATOMIC_RELAXED);
}

int test_driver_device_of(uint64_t handle) {
    return handle > TEST_GPUS
               ? __atomic_load_n(&context_device[handle % CONTEXTS], __ATOMIC_RELAXED)
               : (int)handle - 1;
}

void test_driver_use_context(uint64_t handle) {
    current = (CUcontext)(uintptr_t)handle;
    current_device = test_driver_device_of(handle);
}

static __thread CUcontext pushed_over;

static CUresult driver_push(CUcontext context) {
    pushed_over = current;
    test_driver_use_context((uint64_t)(uintptr_t)context);
    return CUDA_SUCCESS;
}

static CUresult driver_pop(CUcontext *context) {
    *context = current;
    test_driver_use_context((uint64_t)(uintptr_t)pushed_over);
    return CUDA_SUCCESS;
}

void test_driver_install(void) {
    INSTALL(cuInit, driver_init);
    INSTALL(cuDriverGetVersion, driver_version);
    INSTALL(cuMemAlloc_v2, driver_alloc);
    INSTALL(cuMemAllocManaged, driver_alloc_managed);
    INSTALL(cuMemAllocPitch_v2, driver_alloc_pitch);
    INSTALL(cuMemFree_v2, driver_free);
    INSTALL(cuMemFreeAsync, driver_free_async);
    INSTALL(cuMemGetInfo_v2, driver_info);
    INSTALL(cuDeviceTotalMem_v2, driver_total);
    INSTALL(cuCtxGetDevice, driver_get_device);
    INSTALL(cuCtxGetCurrent, driver_get_current);
    INSTALL(cuDeviceGetUuid_v2, driver_uuid);
    INSTALL(cuCtxDestroy_v2, driver_destroy);
    INSTALL(cuCtxAttach, driver_attach);
    INSTALL(cuCtxDetach, driver_destroy);
    INSTALL(cuDevicePrimaryCtxRetain, driver_retain);
    INSTALL(cuDevicePrimaryCtxRelease_v2, driver_release);
    INSTALL(cuDevicePrimaryCtxReset_v2, driver_reset);
    INSTALL(cuDevicePrimaryCtxGetState, driver_primary_state);
    INSTALL(cuDeviceGetCount, driver_count);
    INSTALL(cuCtxPushCurrent_v2, driver_push);
    INSTALL(cuCtxPopCurrent_v2, driver_pop);
    test_arrays_install();
    test_pools_install();
    test_graphs_install();
    test_shared_install();
    test_work_install();
}

static uint64_t next_pointer = 0x7f0000000000ull;

static CUresult null_alloc(CUdeviceptr *pointer, size_t bytes) {
    *pointer = next_pointer;
    next_pointer += test_driver_round(bytes, 512);
    return CUDA_SUCCESS;
}

static CUresult null_free(CUdeviceptr pointer) {
    (void)pointer;
    return CUDA_SUCCESS;
}

void test_driver_install_null(void) {
    INSTALL(cuMemAlloc_v2, null_alloc);
    INSTALL(cuMemFree_v2, null_free);
}
