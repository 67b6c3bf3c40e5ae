// driver.c: see driver.h. An allocation's address is that of a small block of the heap, so
// addresses are used again as soon as they are free, which is what the library's table has to
// stand.
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "../../hooks.h"

struct test_driver test_driver = {.pitch_bytes = TEST_PITCH};

struct block {
    uint64_t magic;
    uint64_t bytes;
    struct block *next;  // while free
    int gpu;
};

static struct block *free_blocks;
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

static void dawdle(void) {
    unsigned us = __atomic_load_n(&test_driver.dawdle_us, __ATOMIC_RELAXED);
    if (!us)
        return;
    struct timespec length = {0, (long)(us * 1000u)};
    nanosleep(&length, NULL);
}

static int planned_failure(void) {
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
        __atomic_fetch_sub(&test_driver.used_bytes[block->gpu], block->bytes, __ATOMIC_SEQ_CST);
        block->next = free_blocks;
        free_blocks = block;
    }
    pthread_mutex_unlock(&blocks_lock);
    return wrong;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static void count(int gpu, uint64_t bytes) {
    uint64_t used = __atomic_add_fetch(&test_driver.used_bytes[gpu], bytes, __ATOMIC_SEQ_CST);
    uint64_t limit = __atomic_load_n(&test_driver.limit_bytes[gpu], __ATOMIC_RELAXED);
    if (limit && used > limit)
        __atomic_fetch_add(&test_driver.violations, 1, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&test_driver.peak_bytes[gpu], __ATOMIC_RELAXED);
    while (used > peak && !__atomic_compare_exchange_n(&test_driver.peak_bytes[gpu], &peak, used, 0,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes) {
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    __atomic_fetch_add(&test_driver.calls, 1, __ATOMIC_RELAXED);
    int code = planned_failure();
    if (code) {
        dawdle();
        return code;
    }
    if (bytes > TEST_GPU_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = take_block();
    *block = (struct block){BLOCK_MAGIC, round_up(bytes, 512), NULL, current_device};
    count(current_device, block->bytes);
    dawdle();
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
    *pitch = round_up(width, test_driver.pitch_bytes);
    return allocate(pointer, *pitch * height);
}

static CUresult driver_free(CUdeviceptr pointer) {
    int code = planned_failure();
    if (code)
        return code;
    if (pointer < LOWEST_POINTER)
        return CUDA_ERROR_INVALID_VALUE;
    if (release_block((struct block *)(uintptr_t)pointer))
        return CUDA_ERROR_INVALID_VALUE;
    dawdle();
    return CUDA_SUCCESS;
}

static CUresult driver_free_async(CUdeviceptr pointer, CUstream stream) {
    (void)stream;
    return driver_free(pointer);
}

static CUresult driver_info(size_t *free_bytes, size_t *total_bytes) {
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *total_bytes = TEST_GPU_BYTES;
    *free_bytes =
        TEST_GPU_BYTES - __atomic_load_n(&test_driver.used_bytes[current_device], __ATOMIC_RELAXED);
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
    return planned_failure();
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

void test_driver_use_context(uint64_t handle) {
    current = (CUcontext)(uintptr_t)handle;
    current_device = (int)handle - 1;
    if (handle > TEST_GPUS)
        current_device = __atomic_load_n(&context_device[handle % CONTEXTS], __ATOMIC_RELAXED);
}

#define INSTALL(export, function)                                                                  \
    __atomic_store_n(&weir_real_table[WEIR_FN_##export], (void *)(function), __ATOMIC_RELEASE)

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
}

static uint64_t next_pointer = 0x7f0000000000ull;

static CUresult null_alloc(CUdeviceptr *pointer, size_t bytes) {
    *pointer = next_pointer;
    next_pointer += round_up(bytes, 512);
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
