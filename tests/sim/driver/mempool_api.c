// mempool_api.c: the calls of the stream-ordered allocator: pools, what they are like, and memory
// taken and freed in stream order.
#include "mempool.h"

#include <string.h>

// ---- Pools ----

// Only pinned memory of a device, for this process or to be passed on as a file descriptor.
static CUresult check_props(const CUmemPoolProps *props) {
    if (!props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    int place = props->location.type;
    if (place >= CU_MEM_LOCATION_TYPE_HOST && place <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (place != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_ok(props->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    return props->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

API cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = out ? check_props(props) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return driver_leave(rc);
    struct mempool *pool =
        mempool_make((uint32_t)props->location.id, props->handleTypes, props->maxSize);
    if (pool)
        *out = (CUmemoryPool)pool;
    return driver_leave(pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult pool_enter(CUmemoryPool handle, struct mempool **pool) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *pool = mempool_get(handle);
    return *pool ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

API cuMemPoolDestroy(CUmemoryPool handle) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (pool == mempool_default(pool->gpu))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    mempool_destroy(pool);
    return driver_leave(CUDA_SUCCESS);
}

API cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (pool->imported)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    mempool_trim(pool, keep);
    return driver_leave(CUDA_SUCCESS);
}

// ---- A device's pools ----

static CUresult device_pool(CUmemoryPool *out, CUdevice device,
                            struct mempool *(*which)(uint32_t gpu)) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!out || !device_ok(device))
        return driver_leave(out ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    struct mempool *pool = which((uint32_t)device);
    if (pool)
        *out = (CUmemoryPool)pool;
    return driver_leave(pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    return device_pool(pool, device, mempool_default);
}

API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    return device_pool(pool, device, mempool_current);
}

API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    if (pool->gpu != (uint32_t)device || pool->imported)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    mempool_use((uint32_t)device, pool);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Attributes ----

static int *policy_of(struct mempool *pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->internal;
    default:
        return NULL;
    }
}

API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (!value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    int *policy = policy_of(pool, attribute);
    uint64_t *out = value;
    if (policy)
        *(int *)value = *policy;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *out = pool->threshold;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *out = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        *out = pool->reserved_high;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *out = pool->used;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        *out = pool->used_high;
    else
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(CUDA_SUCCESS);
}

// A high-water mark can only be set to zero, which means: to what is now.
API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (!value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    int *policy = policy_of(pool, attribute);
    if (policy) {
        *policy = *(int *)value != 0;
        return driver_leave(CUDA_SUCCESS);
    }
    uint64_t given;
    memcpy(&given, value, sizeof given);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = given;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !given)
        pool->reserved_high = pool->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !given)
        pool->used_high = pool->used;
    else
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Access ----

static CUresult check_access(const struct mempool *pool, const CUmemAccessDesc *desc) {
    const struct sim_config *machine = sim_machine_config(driver.machine);
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (desc->flags & ~(unsigned)CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ||
        desc->flags == 2)  // nothing is written that cannot be read
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_ok(desc->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    uint32_t gpu = (uint32_t)desc->location.id;
    if (gpu == pool->gpu)  // its own device always has all
        return desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_DEVICE;
    return sim_peer_ok(machine, driver.cards[gpu], driver.cards[pool->gpu])
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (!map && count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count && !rc; i++)
        rc = check_access(pool, &map[i]);
    for (size_t i = 0; i < count && !rc; i++) {
        uint64_t bit = UINT64_C(1) << map[i].location.id;
        pool->reads =
            map[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? pool->reads | bit : pool->reads & ~bit;
        pool->writes = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? pool->writes | bit
                                                                          : pool->writes & ~bit;
    }
    imports_allow(pool);
    return driver_leave(rc);
}

API cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    struct mempool *pool;
    CUresult rc = pool_enter(handle, &pool);
    if (rc)
        return rc;
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!device_ok(location->id))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    uint64_t bit = UINT64_C(1) << location->id;
    *flags = pool->writes & bit  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : pool->reads & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return driver_leave(CUDA_SUCCESS);
}

// ---- Memory ----

// Out of a pool, or out of the pool in use on the stream's device.
static CUresult take(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, bool from_pool,
                     CUstream stream_handle, bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(stream_handle, per_thread, &stream);
    if (rc)
        return rc;
    struct mempool *pool = from_pool ? mempool_get(handle) : mempool_current(stream->context->gpu);
    if (!out || !bytes || (from_pool && (!pool || pool->imported)))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!pool)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t at = 0, reserved = pool->reserved;
    rc = stream->capture ? capture_alloc(stream, pool->gpu, bytes, &at)
                         : mempool_take(pool, stream, bytes, &at);
    if (!rc)
        *out = at;
    bool grown = !rc && pool->reserved > reserved;
    return grown ? memory_leave(driver.cards[pool->gpu]) : driver_leave(rc);
}

API cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    return take(address, bytes, NULL, false, stream, false);
}

API cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream) {
    return take(address, bytes, NULL, false, stream, true);
}

API cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                            CUstream stream) {
    return take(address, bytes, pool, true, stream, false);
}

API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    return take(address, bytes, pool, true, stream, true);
}

// Plain memory is given back when the stream has come there.
struct release {
    uint64_t address, id;
};

static bool release(struct task *task, uint64_t *wait_ns) {
    (void)wait_ns;
    struct release release;
    struct arena *arena;
    memcpy(&release, task->params, sizeof release);
    struct block *block = memory_mapped(release.address, &arena);
    if (block && block->id == release.id) {
        block->freed = 0;
        memory_release(arena, block);
    }
    return true;
}

static CUresult release_later(struct stream *stream, struct block *block, uint64_t address) {
    struct release what = {.address = address, .id = block->id};
    struct task *task = task_make(TASK_STEP, stream->context, sizeof what);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t seq;
    task->step.step = release;
    memcpy(task->params, &what, sizeof what);
    block->freed = 1;
    CUresult rc = submit(stream, SIM_ENGINE_HOST, 0, task, NULL, &seq);
    if (rc && block->id == what.id)
        block->freed = 0;
    worker_wake();
    return rc;
}

CUresult ordered_give(struct block *block) {
    struct context *context;
    uint64_t id = block->id;
    CUresult rc = context_current(&context);
    if (rc)
        return rc;
    if (block->kind == BLOCK_POOL && block->pool->imported) {
        mempool_give(block);
        return CUDA_SUCCESS;
    }
    context_settle(context);
    if (block->id != id || block->freed)
        return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
    if (block->kind == BLOCK_GRAPH)
        return allocation_give(block->allocation);
    mempool_give(block);
    return CUDA_SUCCESS;
}

static CUresult give(CUdeviceptr address, CUstream handle, bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    if (!block || arena_address(arena, block) != address)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (stream->capture)
        rc = capture_free(stream, address);
    else if (block->kind == BLOCK_POOL)
        rc = mempool_give_async(block, stream);
    else if (block->kind == BLOCK_GRAPH)
        rc = allocation_give_async(block->allocation, stream);
    else if (block->kind == BLOCK_PLAIN)
        rc = release_later(stream, block, address);
    else
        rc = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(rc);
}

API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    return give(address, stream, false);
}

API cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return give(address, stream, true);
}
