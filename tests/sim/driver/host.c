// host.c: host memory that the driver knows: given out by it, or registered with it. It is nobody's
// device memory, and with unified addressing a kernel finds it where the host does.
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define REGISTERED_MOST 65536u

// Registered host memory, by address.
static struct registered {
    uint64_t start, bytes;
    unsigned flags;
} * registered;
static unsigned registered_count, registered_room;

// ---- Given out ----

API cuMemHostAlloc(void **address, size_t bytes, unsigned int flags) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    if (!address || flags > 7)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t at;
    rc = memory_take(context, bytes, BLOCK_HOST, &at);
    if (!rc) {
        struct arena *arena;
        memory_find(at, &arena)->flags = flags;
        *address = (void *)(uintptr_t)at;
    }
    return driver_leave(rc);
}

// The flags that a driver with unified addressing reports for it.
API cuMemAllocHost_v2(void **address, size_t bytes) {
    return cuMemHostAlloc(address, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

API cuMemAllocHost(void **address, unsigned int bytes) {
    return cuMemAllocHost_v2(address, bytes);
}

API cuMemFreeHost(void *address) {
    CUresult rc = driver_enter_unsafe();
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_begins_at((uintptr_t)address, BLOCK_HOST, BLOCK_HOST, &arena);
    if (!block)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t id = block->id;
    context_settle(block->context);
    block = memory_find((uintptr_t)address, &arena);
    if (block && block->id == id)
        memory_release(arena, block);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Registered ----

// The first registered range that ends after an address.
static unsigned registered_after(uint64_t address) {
    unsigned low = 0, high = registered_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (registered[middle].start + registered[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool memory_registered(uint64_t address, uint64_t *start, uint64_t *bytes, unsigned *flags) {
    unsigned i = registered_after(address);
    if (i == registered_count || registered[i].start > address)
        return false;
    *start = registered[i].start;
    *bytes = registered[i].bytes;
    *flags = registered[i].flags;
    return true;
}

API cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    struct arena *arena;
    uint64_t start = (uintptr_t)address;
    if (!address || !bytes || start + bytes < start || flags > 15 ||
        (memory_find(start, &arena) || arena))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    unsigned i = registered_after(start);
    if (i < registered_count && registered[i].start < start + bytes)
        return driver_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    if (registered_count == registered_room) {
        unsigned room = registered_room ? registered_room * 2 : 16;
        void *grown =
            room <= REGISTERED_MOST ? realloc(registered, room * sizeof *registered) : NULL;
        if (!grown)
            return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        registered = grown;
        registered_room = room;
    }
    memmove(&registered[i + 1], &registered[i], (registered_count - i) * sizeof *registered);
    registered[i] = (struct registered){.start = start, .bytes = bytes, .flags = flags};
    registered_count++;
    return driver_leave(CUDA_SUCCESS);
}

API cuMemHostRegister(void *address, size_t bytes, unsigned int flags) {
    return cuMemHostRegister_v2(address, bytes, flags);
}

API cuMemHostUnregister(void *address) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    unsigned i = registered_after((uintptr_t)address);
    if (i == registered_count || registered[i].start != (uintptr_t)address)
        return driver_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    context_settle(context);
    i = registered_after((uintptr_t)address);
    if (i < registered_count && registered[i].start == (uintptr_t)address)
        memmove(&registered[i], &registered[i + 1], (--registered_count - i) * sizeof *registered);
    return driver_leave(CUDA_SUCCESS);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned int flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct arena *arena;
    uint64_t start, bytes;
    unsigned registered_flags;
    struct block *block = memory_find((uintptr_t)host, &arena);
    bool known = (block && block->kind == BLOCK_HOST) ||
                 memory_registered((uintptr_t)host, &start, &bytes, &registered_flags);
    if (!device || flags || !known)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *device = (uintptr_t)host;  // unified addressing
    return driver_leave(CUDA_SUCCESS);
}

API cuMemHostGetFlags(unsigned int *flags, void *host) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_find((uintptr_t)host, &arena);
    if (!flags || !block || block->kind != BLOCK_HOST)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *flags = block->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return driver_leave(CUDA_SUCCESS);
}
