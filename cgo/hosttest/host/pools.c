// pools.c: stream-ordered memory of the tests' driver. A pool takes device memory in chunks, gives
// it out by first fit, and gives whole unused chunks back: when it is told to, and beyond what it
// keeps when somebody waits for a stream.
//
// A stream is idle unless test_driver.streams_busy: then what it was given to do is done only when
// somebody waits for it. Its handle says whose it is: the context's, times 256, plus its number; or
// it is one of the default streams.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../hooks.h"
#include "driver.h"

#define POOL_MAGIC 0x706f6f6c5f5f6f6bull
#define FIRST_ADDRESS 0x300000000000ull
#define ADDRESSES 0x100000000000ull
#define STREAMS 256

struct block {
    struct block *next;  // the one behind it in its chunk
    uint64_t start;
    uint64_t bytes;
    uint64_t mark;  // when it was freed, in what `stream` was given to do; 0: in use
    unsigned stream;
};

struct chunk {
    struct chunk *next;
    struct block *blocks;
    uint64_t start;
    uint64_t bytes;
    const void *maker;  // the last thread whose call has taken memory of it, if that is not over
    int tentative;      // does not count yet: not before that, and not if that call was undone
};

struct pool {
    uint64_t magic;
    struct pool *next;
    struct chunk *chunks;
    uint64_t reserved_bytes;
    uint64_t keep_bytes;
    int gpu;  // -1: in host memory
    int destroyed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool defaults[TEST_GPUS];
static struct pool *current[TEST_GPUS];
static struct pool *pools;
static uint64_t next_address = FIRST_ADDRESS;
static uint64_t submitted[STREAMS], done[STREAMS];

// Its address is the thread.
static __thread char this_thread;

static unsigned number_of(uintptr_t stream) {
    return (unsigned)(stream % STREAMS);
}

static void make_pool(struct pool *pool, int gpu) {
    *pool = (struct pool){.magic = POOL_MAGIC, .gpu = gpu, .next = pools};
    pools = pool;
}

// Drops the blocks that are free on the device.
static void collect(struct chunk *chunk) {
    for (struct block **at = &chunk->blocks; *at;) {
        struct block *block = *at;
        if (block->mark && block->mark <= done[block->stream]) {
            *at = block->next;
            free(block);
        } else {
            at = &block->next;
        }
    }
}

// Gives unused chunks back as long as `keep` bytes remain.
static void give_back(struct pool *pool, uint64_t keep_bytes) {
    for (struct chunk **at = &pool->chunks; *at;) {
        struct chunk *chunk = *at;
        collect(chunk);
        if (chunk->blocks || pool->reserved_bytes - chunk->bytes < keep_bytes) {
            at = &chunk->next;
            continue;
        }
        *at = chunk->next;
        pool->reserved_bytes -= chunk->bytes;
        if (pool->gpu >= 0)
            test_driver_give(pool->gpu, chunk->bytes);
        if (chunk->tentative)
            test_driver_firm(pool->gpu, chunk->bytes);
        free(chunk);
    }
}

static void synchronize(unsigned stream) {
    done[stream] = submitted[stream];
    for (struct pool *pool = pools; pool; pool = pool->next)
        give_back(pool, pool->destroyed ? 0 : pool->keep_bytes);
}

// The place for a block in a chunk, or NULL: a gap, or what the same stream has freed.
static struct block **find_gap(struct chunk *chunk, uint64_t bytes, unsigned stream,
                               uint64_t *start) {
    collect(chunk);
    for (struct block **at = &chunk->blocks; *at;) {
        struct block *block = *at;
        if (block->mark && block->stream == stream) {
            *at = block->next;
            free(block);
        } else {
            at = &block->next;
        }
    }
    *start = chunk->start;
    for (struct block **at = &chunk->blocks;; at = &(*at)->next) {
        uint64_t end = *at ? (*at)->start : chunk->start + chunk->bytes;
        if (end - *start >= bytes)
            return at;
        if (!*at)
            return NULL;
        *start = (*at)->start + (*at)->bytes;
    }
}

static struct chunk *grow(struct pool *pool, uint64_t bytes) {
    bytes = test_driver_round(bytes, test_driver.chunk_bytes);
    if (pool->gpu >= 0 && !test_driver_grow(pool->gpu, bytes))
        return NULL;
    struct chunk *chunk = malloc(sizeof(*chunk));
    *chunk = (struct chunk){.next = pool->chunks,
                            .start = next_address,
                            .bytes = bytes,
                            .maker = &this_thread,
                            .tentative = pool->gpu >= 0};
    next_address += bytes;
    pool->chunks = chunk;
    pool->reserved_bytes += bytes;
    return chunk;
}

static uint64_t allocate_in(struct pool *pool, uint64_t bytes, unsigned stream) {
    uint64_t start;
    struct block **at = NULL;
    struct chunk *chunk = pool->chunks;
    while (chunk && !(at = find_gap(chunk, bytes, stream, &start)))
        chunk = chunk->next;
    if (!at) {
        chunk = grow(pool, bytes);
        if (!chunk)
            return 0;
        at = &chunk->blocks;
        start = chunk->start;
    }
    chunk->maker = &this_thread;
    struct block *block = malloc(sizeof(*block));
    *block = (struct block){.next = *at, .start = start, .bytes = bytes};
    *at = block;
    return start;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, CUmemoryPool handle, CUstream stream) {
    struct pool *pool = (struct pool *)handle;
    int code = test_driver_failure();
    if (code)
        return code;
    if (!pointer || !bytes || !pool || pool->magic != POOL_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (test_graphs_capturing((uintptr_t)stream)) {
        *pointer = test_graphs_capture(pool->gpu, bytes);
        return CUDA_SUCCESS;
    }
    if (bytes > TEST_GPU_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    uint64_t start = pool->destroyed ? 0
                                     : allocate_in(pool, test_driver_round(bytes, 512),
                                                   number_of((uintptr_t)stream));
    pthread_mutex_unlock(&lock);
    test_driver_dawdle();
    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = start;
    return CUDA_SUCCESS;
}

static uint64_t context_of(CUstream stream) {
    return (uintptr_t)stream / STREAMS;
}

static CUresult allocate_current(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    uint64_t context = context_of(stream);
    int gpu = context ? test_driver_device_of(context) : test_driver_device();
    if (gpu < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return allocate(pointer, bytes, (CUmemoryPool)current[gpu], stream);
}

// The block that begins at an address, and where it hangs; NULL where there is none.
static struct block **find_block(uint64_t pointer) {
    for (struct pool *pool = pools; pool; pool = pool->next)
        for (struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next)
            if (pointer >= chunk->start && pointer < chunk->start + chunk->bytes)
                for (struct block **at = &chunk->blocks; *at; at = &(*at)->next)
                    if ((*at)->start == pointer && !(*at)->mark)
                        return at;
    return NULL;
}

int test_pools_free(uint64_t pointer, uintptr_t stream, int now) {
    if (pointer < FIRST_ADDRESS || pointer >= FIRST_ADDRESS + ADDRESSES)
        return 0;
    pthread_mutex_lock(&lock);
    struct block **at = find_block(pointer);
    if (at && !now && test_driver.streams_busy) {
        (*at)->stream = number_of(stream);
        (*at)->mark = ++submitted[number_of(stream)];
    } else if (at) {
        struct block *block = *at;
        *at = block->next;
        free(block);
    }
    pthread_mutex_unlock(&lock);
    return at ? 1 : -1;
}

static int has_used_block(const struct chunk *chunk) {
    for (const struct block *block = chunk->blocks; block; block = block->next)
        if (!block->mark)
            return 1;
    return 0;
}

void test_pools_call_over(void) {
    pthread_mutex_lock(&lock);
    for (struct pool *pool = pools; pool; pool = pool->next)
        for (struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next) {
            if (chunk->maker != &this_thread)
                continue;
            chunk->maker = NULL;
            if (chunk->tentative && has_used_block(chunk)) {
                chunk->tentative = 0;
                test_driver_firm(pool->gpu, chunk->bytes);
            }
        }
    pthread_mutex_unlock(&lock);
}

uint64_t test_pools_submit(uintptr_t stream) {
    pthread_mutex_lock(&lock);
    submitted[number_of(stream)] += test_driver.streams_busy != 0;
    uint64_t mark = submitted[number_of(stream)];
    pthread_mutex_unlock(&lock);
    return mark;
}

int test_pools_pending(uintptr_t stream, uint64_t mark) {
    pthread_mutex_lock(&lock);
    int pending = done[number_of(stream)] < mark;
    pthread_mutex_unlock(&lock);
    return pending;
}

static CUresult create(CUmemoryPool *handle, const CUmemPoolProps *props) {
    int code = test_driver_failure();
    if (code)
        return code;
    if (!handle || !props)
        return CUDA_ERROR_INVALID_VALUE;
    struct pool *pool = malloc(sizeof(*pool));
    pthread_mutex_lock(&lock);
    make_pool(pool, props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : -1);
    pthread_mutex_unlock(&lock);
    *handle = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

// Pools are never freed, so that a handle of the past is known as such.
static CUresult destroy(CUmemoryPool handle) {
    struct pool *pool = (struct pool *)handle;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++)
        if (pool == &defaults[gpu])
            return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int wrong = pool->destroyed;
    pool->destroyed = 1;
    for (int gpu = 0; gpu < TEST_GPUS; gpu++)
        if (pool == current[gpu])
            current[gpu] = &defaults[gpu];
    give_back(pool, 0);
    pthread_mutex_unlock(&lock);
    return wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static uint64_t used_bytes(const struct pool *pool) {
    uint64_t bytes = 0;
    for (const struct chunk *chunk = pool->chunks; chunk; chunk = chunk->next)
        for (const struct block *block = chunk->blocks; block; block = block->next)
            if (!block->mark || (test_driver.used_lags && block->mark > done[block->stream]))
                bytes += block->bytes;
    return bytes;
}

static CUresult get_attribute(CUmemoryPool handle, int attribute, void *value) {
    struct pool *pool = (struct pool *)handle;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (pool->destroyed)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *(uint64_t *)value = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *(uint64_t *)value = used_bytes(pool);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult set_attribute(CUmemoryPool handle, int attribute, void *value) {
    struct pool *pool = (struct pool *)handle;
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    test_driver_dawdle();
    pthread_mutex_lock(&lock);
    if (pool->destroyed) {
        fputs("a pool that was destroyed is set: a driver may do anything\n", stderr);
        abort();
    }
    pool->keep_bytes = *(const uint64_t *)value;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult trim(CUmemoryPool handle, size_t keep_bytes) {
    pthread_mutex_lock(&lock);
    give_back((struct pool *)handle, keep_bytes);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult get_pool(CUmemoryPool *pool, CUdevice device) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    *pool = (CUmemoryPool)current[device];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult get_default(CUmemoryPool *pool, CUdevice device) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    *pool = (CUmemoryPool)&defaults[device];
    return CUDA_SUCCESS;
}

static CUresult set_pool(CUdevice device, CUmemoryPool pool) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    current[device] = (struct pool *)pool;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult synchronize_context(void) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < STREAMS; i++)
        synchronize(i);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult synchronize_stream(CUstream stream) {
    pthread_mutex_lock(&lock);
    synchronize(number_of((uintptr_t)stream));
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

int test_pools_busy(CUstream stream) {
    unsigned number = number_of((uintptr_t)stream);
    pthread_mutex_lock(&lock);
    int pending = done[number] < submitted[number];
    pthread_mutex_unlock(&lock);
    return pending;
}

static CUresult query_stream(CUstream stream) {
    return test_pools_busy(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

// The tests' events are on the first stream.
static CUresult synchronize_event(CUevent event) {
    (void)event;
    return synchronize_stream(NULL);
}

static CUresult get_context(CUstream stream, CUcontext *context) {
    *context = (CUcontext)(uintptr_t)context_of(stream);
    return CUDA_SUCCESS;
}

void test_pools_install(void) {
    for (int gpu = 0; gpu < TEST_GPUS; gpu++) {
        make_pool(&defaults[gpu], gpu);
        current[gpu] = &defaults[gpu];
    }
    INSTALL(cuMemPoolCreate, create);
    INSTALL(cuMemPoolDestroy, destroy);
    INSTALL(cuMemPoolGetAttribute, get_attribute);
    INSTALL(cuMemPoolSetAttribute, set_attribute);
    INSTALL(cuMemPoolTrimTo, trim);
    INSTALL(cuDeviceGetMemPool, get_pool);
    INSTALL(cuDeviceGetDefaultMemPool, get_default);
    INSTALL(cuDeviceSetMemPool, set_pool);
    INSTALL(cuMemAllocAsync, allocate_current);
    INSTALL(cuMemAllocAsync_ptsz, allocate_current);
    INSTALL(cuMemAllocFromPoolAsync, allocate);
    INSTALL(cuMemAllocFromPoolAsync_ptsz, allocate);
    INSTALL(cuCtxSynchronize, synchronize_context);
    INSTALL(cuStreamSynchronize, synchronize_stream);
    INSTALL(cuStreamSynchronize_ptsz, synchronize_stream);
    INSTALL(cuStreamQuery, query_stream);
    INSTALL(cuStreamQuery_ptsz, query_stream);
    INSTALL(cuStreamGetCtx, get_context);
    INSTALL(cuEventSynchronize, synchronize_event);
}
