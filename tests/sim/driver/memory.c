// memory.c: device and managed memory, and where the data of any address lie.
//
// What is charged to the card is a multiple of SIM_GRANULE: plain memory by its size, pitched
// memory by pitch times height. Plain memory is at addresses that the host cannot touch; managed
// and host memory can be used by both. Managed memory is the card's where it lies there
// (managed.c), host memory never. The bytes of a block live in anonymous memory of this process,
// which arena.c alone knows.
#define _GNU_SOURCE
#include "share.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLAIN_BASE UINT64_C(0x200000000000)
#define MANAGED_BASE UINT64_C(0x300000000000)
#define PER_GPU (UINT64_C(1) << 40)
#define RESERVE_MIN (UINT64_C(1) << 30)
#define PITCH_ALIGN 512u
#define HOST_PAGE 4096u
#define WAIT_NS_MAX 100000000u

// ---- Arenas ----

// Four times the card: what can fit then finds room, however scattered the rest is.
static uint64_t reserve_bytes(uint64_t memory_bytes) {
    uint64_t bytes = memory_bytes * 4;
    bytes = bytes > RESERVE_MIN ? bytes : RESERVE_MIN;
    return (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
}

static uint64_t host_bytes(void) {
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static struct arena **arena_for(uint32_t gpu, enum block_kind kind) {
    uint64_t bytes = 0;
    if (kind == BLOCK_PLAIN) {
        struct arena **arena = &driver.plain[gpu];
        if (!*arena)
            arena_make(arena, reserve_bytes(driver.config->gpus[gpu].memory_bytes),
                       PLAIN_BASE + gpu * PER_GPU, true);
        return arena;
    }
    if (kind == BLOCK_HOST) {
        if (!driver.host)
            arena_make(&driver.host, host_bytes(), 0, false);
        return &driver.host;
    }
    if (!driver.managed) {
        uint64_t most = SIM_MANAGED_PAGES_MAX * managed_page_bytes();
        for (uint32_t i = 0; i < driver.config->gpu_count; i++)
            bytes += driver.config->gpus[i].memory_bytes;
        bytes = reserve_bytes(bytes > host_bytes() ? bytes : host_bytes());
        arena_make(&driver.managed, bytes < most ? bytes : most, MANAGED_BASE, false);
    }
    return &driver.managed;
}

static struct arena *arena_at(uint64_t address) {
    for (uint32_t i = 0; i < driver.config->gpu_count; i++) {
        if (arena_covers(driver.plain[i], address))
            return driver.plain[i];
        if (arena_covers(driver.pooled[i], address))
            return driver.pooled[i];
        if (arena_covers(driver.graphed[i], address))
            return driver.graphed[i];
    }
    if (arena_covers(driver.managed, address))
        return driver.managed;
    if (arena_covers(driver.mapped, address))
        return driver.mapped;
    return arena_covers(driver.host, address) ? driver.host : NULL;
}

struct block *memory_mapped(uint64_t address, struct arena **arena) {
    *arena = arena_at(address);
    return *arena ? arena_find(*arena, address) : NULL;
}

struct block *memory_find(uint64_t address, struct arena **arena) {
    struct block *block = memory_mapped(address, arena);
    return block && !block->freed ? block : NULL;
}

static uint32_t *list_of(struct context *context, enum block_kind kind) {
    return &context->blocks[kind - BLOCK_PLAIN];
}

// Managed memory is the card's only where it lies there.
static uint64_t charged(const struct block *block) {
    return block->kind == BLOCK_PLAIN ? block->count * SIM_GRANULE : 0;
}

CUresult memory_take(struct context *context, uint64_t bytes, enum block_kind kind,
                     uint64_t *address) {
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > UINT64_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t unit = kind == BLOCK_HOST ? HOST_PAGE : SIM_GRANULE;
    uint64_t charge = (bytes + unit - 1) / unit * unit;
    struct arena *arena = *arena_for(context->gpu, kind);
    if (!arena)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (kind == BLOCK_PLAIN && sim_memory_take(driver.machine, context->card, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = kind == BLOCK_MANAGED ? managed_take(arena, context->card, bytes)
                                                : arena_take(arena, charge, kind);
    if (!block) {
        if (kind == BLOCK_PLAIN)
            sim_memory_give(driver.machine, context->card, charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->bytes = bytes;
    block->context = context;
    block->gpu = context->gpu;
    arena_own(arena, block, list_of(context, kind));
    *address = arena_address(arena, block);
    return CUDA_SUCCESS;
}

void memory_release(struct arena *arena, struct block *block) {
    uint64_t bytes = charged(block);
    uint32_t card = block->context->card;
    struct chunk *chunk = block->chunk;
    if (block->kind == BLOCK_MANAGED)
        managed_give(arena, block);
    arena_disown(arena, block, list_of(block->context, block->kind));
    arena_give(arena, block);
    if (chunk)
        chunk_drop(chunk);
    else if (bytes)
        sim_memory_give(driver.machine, card, bytes);
}

struct block *memory_begins_at(uint64_t address, enum block_kind one, enum block_kind two,
                               struct arena **arena) {
    struct block *block = memory_find(address, arena);
    bool good = block && arena_address(*arena, block) == address &&
                (block->kind == one || block->kind == two);
    return good ? block : NULL;
}

CUresult memory_give(uint64_t address) {
    struct arena *arena;
    struct block *block = memory_begins_at(address, BLOCK_POOL, BLOCK_GRAPH, &arena);
    if (block)
        return ordered_give(block);
    if (memory_begins_at(address, BLOCK_EXTERNAL, BLOCK_EXTERNAL, &arena))
        return external_unmap(address);
    block = memory_begins_at(address, BLOCK_PLAIN, BLOCK_MANAGED, &arena);
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t id = block->id;
    context_settle(block->context);
    block = memory_find(address, &arena);
    if (!block || block->id != id)
        return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
    memory_release(arena, block);
    return CUDA_SUCCESS;
}

void memory_drop(struct context *context) {
    for (enum block_kind kind = BLOCK_PLAIN; kind <= BLOCK_HOST; kind++) {
        uint32_t *list = list_of(context, kind);
        while (*list) {
            struct arena *arena = *arena_for(context->gpu, kind);
            memory_release(arena, arena_owned(arena, *list));
        }
    }
}

// ---- Device memory ----

CUresult memory_leave(uint32_t card) {
    CUresult rc = driver_leave(CUDA_SUCCESS);
    uint64_t ns;
    while ((ns = sim_managed_wait_ns(driver.machine, card))) {
        ns = ns < WAIT_NS_MAX ? ns : WAIT_NS_MAX;
        nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
    }
    return rc;
}

static CUresult allocate(uint64_t *address, uint64_t bytes, enum block_kind kind) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    if (!address)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint32_t card = context->card;
    rc = memory_take(context, bytes, kind, address);
    return rc || kind != BLOCK_PLAIN ? driver_leave(rc) : memory_leave(card);
}

API cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    uint64_t at = 0;
    CUresult rc = allocate(address ? &at : NULL, bytes, BLOCK_PLAIN);
    if (!rc)
        *address = at;
    return rc;
}

API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                       unsigned int element_bytes) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    bool element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    if (!address || !pitch || !width || !height || !element)
        return CUDA_ERROR_INVALID_VALUE;
    size_t wide = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN, bytes;
    if (wide < width || __builtin_mul_overflow(wide, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t at;
    rc = allocate(&at, bytes, BLOCK_PLAIN);
    if (!rc) {
        *address = at;
        *pitch = wide;
    }
    return rc;
}

API cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!address || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t at;
    rc = allocate(&at, bytes, BLOCK_MANAGED);
    if (!rc)
        *address = at;
    return rc;
}

API cuMemFree_v2(CUdeviceptr address) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    struct arena *arena;
    const struct block *block = memory_find(address, &arena);
    if (block && block->inner)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(address ? memory_give(address) : CUDA_SUCCESS);
}

void memory_keep(uint64_t address) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    if (block)
        block->inner = 1;
}

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!free_bytes || !total_bytes)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t free_now, total;
    sim_memory_info(driver.machine, context->card, &free_now, &total);
    sim_limit_clamp(driver.machine, context->card, &free_now, &total);
    *free_bytes = free_now;
    *total_bytes = total;
    return driver_leave(CUDA_SUCCESS);
}

// As before CUDA 3.2: what has more bytes than fit is the most that fits.
API cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes) {
    size_t free_now, total;
    CUresult rc = cuMemGetInfo_v2(free_bytes ? &free_now : NULL, &total);
    if (rc || !total_bytes)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *free_bytes = free_now > UINT32_MAX ? UINT32_MAX : (unsigned int)free_now;
    *total_bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned int)total;
    return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    if (!block)
        return driver_leave(CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = arena_address(arena, block);
    if (bytes)
        *bytes = block->bytes;
    return driver_leave(CUDA_SUCCESS);
}

// ---- Where data lie ----

void *memory_data(uint64_t address, uint64_t bytes, int *gpu) {
    struct arena *arena;
    uint64_t start, room;
    unsigned flags;
    *gpu = -1;
    struct block *block = memory_find(address, &arena);
    if (block) {
        if (block->kind != BLOCK_HOST && block->kind != BLOCK_MAPPED_HOST)
            *gpu = (int)block->gpu;
        if (arena == driver.mapped)  // neighbours may go together
            return range_usable(address, bytes, false) ? arena_data(arena, address) : NULL;
        start = arena_address(arena, block);
        room = block->count * SIM_GRANULE;
    } else if (!memory_registered(address, &start, &room, &flags)) {
        return NULL;
    }
    if (bytes > room - (address - start))
        return NULL;
    return block ? arena_data(arena, address) : (void *)(uintptr_t)address;
}

static int kernel_write(void *user, uint64_t address, const void *data, uint64_t bytes) {
    (void)user;
    int gpu;
    pthread_mutex_lock(&driver.lock);
    void *to = memory_data(address, bytes, &gpu);
    driver_leave(CUDA_SUCCESS);
    if (!to)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, data, bytes);
    return CUDA_SUCCESS;
}

static bool kernel_resolve(void *user, uint64_t address, uint64_t *start, uint64_t *bytes,
                           void **host, bool *writable) {
    struct arena *arena;
    unsigned flags;
    pthread_mutex_lock(&driver.lock);
    struct block *block = memory_mapped(address, &arena);
    bool found = true;
    *writable = true;
    if (block) {
        *start = arena_address(arena, block);
        *bytes = block->count * SIM_GRANULE;
        *host = arena_data(arena, *start);
        found = memory_reachable(user, block, writable);
    } else {
        found = memory_registered(address, start, bytes, &flags);
        *host = (void *)(uintptr_t)*start;
    }
    driver_leave(CUDA_SUCCESS);
    return found;
}

const struct sim_ptx_memory kernel_memory = {
    .write = kernel_write,
    .resolve = kernel_resolve,
};
