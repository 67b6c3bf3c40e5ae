// memory.c: device and managed memory, and where the data of any address lie.
//
// What is charged to the card is a multiple of SIM_GRANULE: plain and managed memory by its size,
// pitched memory by pitch times height. Plain memory is at addresses that the host cannot touch;
// managed and host memory can be used by both. Host memory is not the card's. The bytes of a block
// live in anonymous memory of this process, which arena.c alone knows.
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>
#include <unistd.h>

#define PLAIN_BASE UINT64_C(0x200000000000)
#define MANAGED_BASE UINT64_C(0x300000000000)
#define PER_GPU (UINT64_C(1) << 40)
#define RESERVE_MIN (UINT64_C(1) << 30)
#define PITCH_ALIGN 512u
#define HOST_PAGE 4096u

// ---- Arenas ----

// Four times the card: what can fit then finds room, however scattered the rest is.
static uint64_t reserve_bytes(uint64_t memory_bytes) {
    uint64_t bytes = memory_bytes * 4;
    bytes = bytes > RESERVE_MIN ? bytes : RESERVE_MIN;
    return (bytes + HOST_PAGE - 1) / HOST_PAGE * HOST_PAGE;
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
            arena_make(&driver.host,
                       (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), 0,
                       false);
        return &driver.host;
    }
    if (!driver.managed) {
        for (uint32_t i = 0; i < driver.config->gpu_count; i++)
            bytes += driver.config->gpus[i].memory_bytes;
        arena_make(&driver.managed, reserve_bytes(bytes), MANAGED_BASE, false);
    }
    return &driver.managed;
}

static struct arena *arena_at(uint64_t address) {
    for (uint32_t i = 0; i < driver.config->gpu_count; i++)
        if (arena_covers(driver.plain[i], address))
            return driver.plain[i];
    if (arena_covers(driver.managed, address))
        return driver.managed;
    return arena_covers(driver.host, address) ? driver.host : NULL;
}

struct block *memory_find(uint64_t address, struct arena **arena) {
    *arena = arena_at(address);
    return *arena ? arena_find(*arena, address) : NULL;
}

static uint32_t *list_of(struct context *context, enum block_kind kind) {
    return &context->blocks[kind - BLOCK_PLAIN];
}

static uint64_t charged(const struct block *block) {
    return block->kind == BLOCK_HOST ? 0 : block->count * SIM_GRANULE;
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
    if (kind != BLOCK_HOST && sim_memory_take(driver.machine, context->card, charge))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block *block = arena_take(arena, charge, kind);
    if (!block) {
        if (kind != BLOCK_HOST)
            sim_memory_give(driver.machine, context->card, charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->bytes = bytes;
    block->context = context;
    arena_own(arena, block, list_of(context, kind));
    *address = arena_address(arena, block);
    return CUDA_SUCCESS;
}

void memory_release(struct arena *arena, struct block *block) {
    uint64_t bytes = charged(block);
    uint32_t card = block->context->card;
    arena_disown(arena, block, list_of(block->context, block->kind));
    arena_give(arena, block);
    if (bytes)
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
    struct block *block = memory_begins_at(address, BLOCK_PLAIN, BLOCK_MANAGED, &arena);
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

static CUresult allocate(uint64_t *address, uint64_t bytes, enum block_kind kind) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!address)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(memory_take(context, bytes, kind, address));
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
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    return driver_leave(address ? memory_give(address) : CUDA_SUCCESS);
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
    *free_bytes = free_now;
    *total_bytes = total;
    return driver_leave(CUDA_SUCCESS);
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

// Everything is resident and visible everywhere: advice and prefetches change nothing. They are
// checked all the same.
static CUresult managed_range(CUdeviceptr address, size_t bytes) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    bool good = block && block->kind == BLOCK_MANAGED && bytes &&
                bytes <= block->count * SIM_GRANULE - (address - arena_address(arena, block));
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUdevice device, CUstream handle,
                         bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    rc = managed_range(address, bytes);
    if (!rc && device != -1 && !device_ok(device))
        rc = CUDA_ERROR_INVALID_DEVICE;
    return driver_leave(rc);
}

API cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return prefetch(address, bytes, device, stream, false);
}

API cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return prefetch(address, bytes, device, stream, true);
}

// A place by type: 1 is a device, 2 the host, 3 and 4 one of its NUMA nodes.
static CUdevice device_at(CUmemLocation location) {
    return location.type == 1 ? location.id : location.type >= 2 && location.type <= 4 ? -1 : -2;
}

API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                          unsigned int flags, CUstream stream) {
    return flags ? CUDA_ERROR_INVALID_VALUE
                 : prefetch(address, bytes, device_at(location), stream, false);
}

API cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream stream) {
    return flags ? CUDA_ERROR_INVALID_VALUE
                 : prefetch(address, bytes, device_at(location), stream, true);
}

static CUresult advise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = managed_range(address, bytes);
    if (!rc && (advice < 1 || advice > 6))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc && advice >= 3 && device != -1 && !device_ok(device))
        rc = CUDA_ERROR_INVALID_DEVICE;
    return driver_leave(rc);
}

API cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    return advise(address, bytes, advice, device);
}

API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location) {
    return advise(address, bytes, advice, device_at(location));
}

// ---- Where data lie ----

void *memory_data(uint64_t address, uint64_t bytes, int *gpu) {
    struct arena *arena;
    uint64_t start, room;
    unsigned flags;
    *gpu = -1;
    struct block *block = memory_find(address, &arena);
    if (block) {
        if (block->kind != BLOCK_HOST)
            *gpu = (int)block->context->gpu;
        start = arena_address(arena, block);
        room = block->count * SIM_GRANULE;
    } else if (!memory_registered(address, &start, &room, &flags)) {
        return NULL;
    }
    if (bytes > room - (address - start))
        return NULL;
    return block ? arena_data(arena, address) : (void *)(uintptr_t)address;
}

static int kernel_allocate(void *user, enum sim_ptx_space space, uint64_t bytes, uint64_t align,
                           uint64_t *address) {
    if (align > SIM_GRANULE)
        return CUDA_ERROR_INVALID_PTX;
    enum block_kind kind = space == SIM_PTX_MANAGED ? BLOCK_MANAGED : BLOCK_PLAIN;
    pthread_mutex_lock(&driver.lock);
    return (int)driver_leave(memory_take(user, bytes, kind, address));
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

static void kernel_release(void *user, uint64_t address) {
    (void)user;
    pthread_mutex_lock(&driver.lock);
    driver_leave(memory_give(address));
}

static bool kernel_resolve(void *user, uint64_t address, uint64_t *start, uint64_t *bytes,
                           void **host) {
    (void)user;
    struct arena *arena;
    unsigned flags;
    pthread_mutex_lock(&driver.lock);
    struct block *block = memory_find(address, &arena);
    bool found = true;
    if (block) {
        *start = arena_address(arena, block);
        *bytes = block->count * SIM_GRANULE;
        *host = arena_data(arena, *start);
    } else {
        found = memory_registered(address, start, bytes, &flags);
        *host = (void *)(uintptr_t)*start;
    }
    driver_leave(CUDA_SUCCESS);
    return found;
}

const struct sim_ptx_memory kernel_memory = {
    .allocate = kernel_allocate,
    .write = kernel_write,
    .release = kernel_release,
    .resolve = kernel_resolve,
};
