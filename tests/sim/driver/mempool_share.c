// mempool_share.c: pools that other processes use.
//
// A pool that can be exported grows by segments: each is a chunk of its own (share.h), mapped where
// the pool's arena has its data, and is given back as a whole. A descriptor that tells nothing but
// the device stands for the pool; an exported pointer names its segment. In the importing process
// a pool only gives out what is imported: ranges, each of which holds its segment.
// Freed in stream order, a range stays mapped until nothing can move data there any more: that is
// looked at when the program synchronises, and when the pool ends.
#define _GNU_SOURCE
#include "mempool.h"

#include "share.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IDENTITY_MAGIC UINT64_C(0x4c4f4f504d495357)  // "WSIMPOOL"
#define HOST_PAGE 4096u

struct segment {
    struct segment *next;
    uint64_t first, count;  // in granules of the pool's arena
    struct chunk *chunk;
};

// What the descriptor of a pool holds.
struct identity {
    uint64_t magic;
    uint8_t uuid[16];
};

// What a program has imported, and perhaps freed in stream order.
struct imported {
    struct imported *next;
    struct range *range;
    struct sim_dep free_op;  // seq 0: not freed
};

// ---- Segments ----

static struct segment *segment_at(const struct mempool *pool, const struct block *block) {
    for (struct segment *s = pool->segments; s; s = s->next)
        if (block->first >= s->first && block->first < s->first + s->count)
            return s;
    return NULL;
}

bool segment_is(const struct mempool *pool, const struct block *block) {
    const struct segment *segment = segment_at(pool, block);
    return segment && segment->first == block->first && segment->count == block->count;
}

bool segment_same(const struct mempool *pool, const struct block *a, const struct block *b) {
    return segment_at(pool, a) == segment_at(pool, b);
}

static void *data_of(const struct mempool *pool, const struct block *block) {
    struct arena *arena = driver.pooled[pool->gpu];
    return arena_data(arena, arena_address(arena, block));
}

// A chunk that is in a file of its own from the start, so that it never has to move.
static CUresult make_chunk(uint32_t gpu, uint64_t bytes, struct chunk **chunk) {
    int fd;
    CUresult rc = chunk_make((int)gpu, bytes, chunk);
    if (rc)
        return rc;
    rc = chunk_export(*chunk, &fd);
    if (rc)
        chunk_drop(*chunk);
    else
        close(fd);
    return rc;
}

CUresult segment_add(struct mempool *pool, const struct block *block) {
    struct segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t bytes = block->count * SIM_GRANULE;
    *segment = (struct segment){.first = block->first, .count = block->count};
    CUresult rc = make_chunk(pool->gpu, bytes, &segment->chunk);
    if (!rc && chunk_map(segment->chunk, 0, bytes, data_of(pool, block))) {
        chunk_drop(segment->chunk);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (rc) {
        free(segment);
        return rc;
    }
    segment->next = pool->segments;
    pool->segments = segment;
    return CUDA_SUCCESS;
}

void segment_remove(struct mempool *pool, const struct block *block) {
    struct segment *segment = segment_at(pool, block), **link = &pool->segments;
    while (*link != segment)
        link = &(*link)->next;
    *link = segment->next;
    chunk_unmap(data_of(pool, block), block->count * SIM_GRANULE, PROT_READ | PROT_WRITE);
    chunk_drop(segment->chunk);
    free(segment);
}

// ---- What is imported ----

// Whether data may still move that were asked for before an operation, or a kernel runs.
static bool data_move_before(struct sim_dep dep) {
    for (const struct op *op = driver.todo; op; op = op->next) {
        bool same = op->context->machine == dep.context;
        bool moves = op->task && (op->task->kind == TASK_COPY || op->task->kind == TASK_SET ||
                                  op->task->kind == TASK_KERNEL);
        if (moves && (op->running || !same || op->seq < dep.seq))
            return true;
    }
    return false;
}

void imports_settle(struct mempool *pool) {
    struct imported **link = &pool->imports;
    while (*link) {
        struct imported *entry = *link;
        if (!entry->free_op.seq || !op_done(entry->free_op) || data_move_before(entry->free_op)) {
            link = &entry->next;
            continue;
        }
        *link = entry->next;
        range_displace(entry->range);
        free(entry);
    }
}

static struct imported *import_of(const struct mempool *pool, const struct block *block) {
    struct imported *entry = pool->imports;
    while (entry && &entry->range->block != block)
        entry = entry->next;
    return entry;
}

static void take_back(struct mempool *pool, struct block *block) {
    block->freed = 1;
    pool->allocations--;
}

CUresult import_give_async(struct block *block, struct stream *stream) {
    struct mempool *pool = block->pool;
    struct imported *entry = import_of(pool, block);
    struct sim_dep dep = {.context = stream->context->machine};
    take_back(pool, block);  // before the lock may be dropped
    CUresult rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, &dep.seq);
    if (rc) {
        block->freed = 0;
        pool->allocations++;
        return rc;
    }
    entry->free_op = dep;
    if (pool->destroyed)
        mempool_destroy(pool);
    return CUDA_SUCCESS;
}

void import_give(struct block *block) {
    struct mempool *pool = block->pool;
    struct imported *entry = import_of(pool, block), **link = &pool->imports;
    take_back(pool, block);
    pool->busy++;
    data_settle();
    pool->busy--;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    range_displace(entry->range);
    free(entry);
    if (pool->destroyed)
        mempool_destroy(pool);
}

void imports_allow(const struct mempool *pool) {
    for (struct imported *i = pool->imports; i; i = i->next)
        range_allow(i->range, (uint32_t)pool->reads, (uint32_t)pool->writes);
}

// ---- The end ----

void shared_pool_end(struct mempool *pool) {
    if (pool->identity >= 0)
        close(pool->identity);
}

// ---- Calls ----

// The descriptor that stands for the pool; -1: there cannot be one.
static int identity_of(struct mempool *pool) {
    struct identity identity = {.magic = IDENTITY_MAGIC};
    if (pool->identity >= 0)
        return pool->identity;
    memcpy(identity.uuid, driver.config->gpus[pool->gpu].uuid, sizeof identity.uuid);
    int fd = memfd_create("weir-sim-pool", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, &identity, sizeof identity) != (ssize_t)sizeof identity) {
        close(fd);
        return -1;
    }
    return pool->identity = fd;
}

API cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool_handle,
                                     CUmemAllocationHandleType type, unsigned long long flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct mempool *pool = mempool_get(pool_handle);
    if (!handle || !pool || pool->imported || flags || !type || (pool->handle_types & type) != type)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    int fd = identity_of(pool);
    fd = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        *(int *)handle = fd;
    return driver_leave(fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
}

static bool device_by_uuid(const uint8_t uuid[16], uint32_t *gpu) {
    for (*gpu = 0; *gpu < driver.config->gpu_count; ++*gpu)
        if (!memcmp(driver.config->gpus[*gpu].uuid, uuid, 16))
            return true;
    return false;
}

API cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle,
                                       CUmemAllocationHandleType type, unsigned long long flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct identity identity;
    uint32_t gpu;
    int fd = (int)(intptr_t)handle;
    if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread(fd, &identity, sizeof identity, 0) != (ssize_t)sizeof identity ||
        identity.magic != IDENTITY_MAGIC)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!device_by_uuid(identity.uuid, &gpu))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    struct mempool *pool = mempool_make(gpu, 0, 0);
    if (!pool)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    pool->imported = true;
    *out = (CUmemoryPool)pool;
    return driver_leave(CUDA_SUCCESS);
}

API cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    bool good = data && block && block->kind == BLOCK_POOL && block->pool->handle_types &&
                arena_address(arena, block) == address;
    if (!good)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    const struct segment *segment = segment_at(block->pool, block);
    struct share_name name;
    rc = chunk_name(segment->chunk, (block->first - segment->first) * SIM_GRANULE,
                    block->count * SIM_GRANULE, &name);
    if (!rc)
        memcpy(data, &name, sizeof *data);
    return driver_leave(rc);
}

static CUresult import_pointer(struct mempool *pool, const struct share_name *name,
                               uint64_t *address) {
    struct chunk *chunk;
    struct imported *entry = calloc(1, sizeof *entry);
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = chunk_open(name, &chunk);
    if (!rc) {
        bool whole = name->offset % HOST_PAGE == 0 && name->bytes % HOST_PAGE == 0;
        bool ours = chunk->gpu == (int)pool->gpu && name->bytes;
        rc = whole && ours
                 ? range_place(chunk, name->offset, name->bytes, BLOCK_POOL, &entry->range)
                 : CUDA_ERROR_INVALID_VALUE;
        chunk_drop(chunk);  // the range has it
    }
    if (rc) {
        free(entry);
        return rc;
    }
    entry->range->block.pool = pool;
    range_allow(entry->range, (uint32_t)pool->reads, (uint32_t)pool->writes);
    entry->next = pool->imports;
    pool->imports = entry;
    pool->allocations++;
    *address = range_address(entry->range);
    return CUDA_SUCCESS;
}

API cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle, CUmemPoolPtrExportData *data) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct mempool *pool = mempool_get(handle);
    if (!out || !data || !pool || !pool->imported)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct share_name name;
    uint64_t at = 0;
    memcpy(&name, data, sizeof name);
    rc = import_pointer(pool, &name, &at);
    if (!rc)
        *out = at;
    return driver_leave(rc == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : rc);
}
