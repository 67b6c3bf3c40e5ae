// ipc_memory.c: plain memory that another process opens by a handle.
//
// At its first handle the memory comes to lie in a chunk of its own (export.c), at the address that
// it has. Whoever opens it holds the same chunk: it outlives its maker, and counts on the card
// until the last of them has closed it.
#include "share.h"

#include <string.h>

_Static_assert(sizeof(CUipcMemHandle) == sizeof(struct share_name), "the handle is the name");

API cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    if (!handle || !block || block->kind != BLOCK_PLAIN)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t start = arena_address(arena, block), bytes = block->bytes;
    struct share_name name;
    struct chunk *chunk;
    rc = chunk_adopt(start, block->id, &chunk);
    if (!rc)
        rc = chunk_name(chunk, 0, bytes, &name);
    if (!rc)
        memcpy(handle, &name, sizeof name);
    return driver_leave(rc);
}

// Whether the chunk, whose reference is ours, can be opened in a context: *opened is where it is
// already.
static CUresult can_open(struct context *context, const struct chunk *chunk,
                         struct range **opened) {
    if (!chunk->imported)
        return CUDA_ERROR_INVALID_CONTEXT;  // its own process has it
    uint32_t owner = (uint32_t)chunk->gpu;
    if (chunk->gpu < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (owner != context->gpu && !peer_ok(context->gpu, owner))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    *opened = range_of(chunk, BLOCK_IMPORTED);
    return *opened && (*opened)->block.context != context ? CUDA_ERROR_ALREADY_MAPPED
                                                          : CUDA_SUCCESS;
}

static CUresult open_chunk(struct context *context, struct chunk *chunk, uint64_t bytes,
                           struct range **range) {
    CUresult rc = can_open(context, chunk, range);
    if (rc || *range)
        return rc;
    rc = range_place(chunk, 0, chunk->bytes, BLOCK_IMPORTED, range);
    if (rc)
        return rc;
    uint32_t bits = 1u << context->gpu | 1u << chunk->gpu;
    (*range)->block.context = context;
    (*range)->block.bytes = bytes;
    range_allow(*range, bits, bits);
    return CUDA_SUCCESS;
}

API cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct share_name name;
    memcpy(&name, &handle, sizeof name);
    if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !name.bytes || name.offset)
        return driver_leave(address && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
                                ? CUDA_ERROR_INVALID_HANDLE
                                : CUDA_ERROR_INVALID_VALUE);
    struct chunk *chunk;
    rc = chunk_open(&name, &chunk);
    if (rc)
        return driver_leave(rc);
    struct range *range = NULL;
    rc = open_chunk(context, chunk, name.bytes, &range);
    if (!rc) {
        range->opened++;
        *address = range_address(range);
    }
    chunk_drop(chunk);  // the range has it
    return driver_leave(rc);
}

API cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) {
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

static struct range *opened_at(uint64_t address) {
    struct range *range = range_find(address);
    bool good = range && range->block.kind == BLOCK_IMPORTED && range_address(range) == address;
    return good ? range : NULL;
}

API cuIpcCloseMemHandle(CUdeviceptr address) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct range *range = opened_at(address);
    if (!range)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (range->opened > 1) {
        range->opened--;
        return driver_leave(CUDA_SUCCESS);
    }
    uint64_t id = range->block.id;
    data_settle();
    range = opened_at(address);  // another thread may have been here
    if (!range || range->block.id != id)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!--range->opened)
        range_displace(range);
    return driver_leave(CUDA_SUCCESS);
}
