// external.c: memory that another interface has made, imported by its file descriptor.
//
// What was exported by this driver is recognised, and is the same memory; of anything else the
// machine knows nothing, so that the importer takes it of its card. Mapped buffers are ranges,
// which cuMemFree ends. No semaphore of another interface is understood, and none of its images.
#include "share.h"

#include <unistd.h>

#define PAGE 4096u

struct external {
    struct object object;
    struct context *context;
    struct chunk *chunk;
    uint64_t bytes;
};

static struct pool externals = {.bytes = sizeof(struct external), .most = 1u << 16};

API cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!out || !handle || !handle->size ||
        handle->flags & ~(unsigned)CUDA_EXTERNAL_MEMORY_DEDICATED)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (handle->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return driver_leave(handle->type >= CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
                                    handle->type <= CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF
                                ? CUDA_ERROR_NOT_SUPPORTED
                                : CUDA_ERROR_INVALID_VALUE);
    struct external *external = pool_take(&externals);
    if (!external)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    struct chunk *chunk;
    int fd = handle->handle.fd;
    rc = chunk_import(fd, &chunk);
    if (rc == CUDA_ERROR_INVALID_VALUE)
        rc = chunk_import_unknown(fd, handle->size, context->gpu, &chunk);
    if (!rc && handle->size > chunk->bytes) {
        chunk_drop(chunk);
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    if (rc) {
        pool_drop(&externals, external);
        return driver_leave(rc);
    }
    close(fd);  // it is the driver's now
    external->context = context;
    external->chunk = chunk;
    external->bytes = handle->size;
    *out = (CUexternalMemory)external;
    return driver_leave(CUDA_SUCCESS);
}

API cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory handle,
                                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct external *external = pool_get(&externals, handle);
    if (!external)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (!address || !buffer || buffer->flags || !buffer->size || buffer->offset % PAGE ||
        buffer->offset > external->bytes || buffer->size > external->bytes - buffer->offset)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct range *range;
    rc = range_place(external->chunk, buffer->offset, (buffer->size + PAGE - 1) / PAGE * PAGE,
                     BLOCK_EXTERNAL, &range);
    if (rc)
        return driver_leave(rc);
    range->block.context = context;
    range->block.bytes = buffer->size;
    uint32_t bits = 1u << context->gpu | 1u << range->block.gpu;
    range_allow(range, bits, bits);
    *address = range_address(range);
    return driver_leave(CUDA_SUCCESS);
}

CUresult external_unmap(uint64_t address) {
    data_settle();
    struct range *range = range_find(address);
    if (!range || range->block.kind != BLOCK_EXTERNAL || range_address(range) != address)
        return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
    range_displace(range);
    return CUDA_SUCCESS;
}

API cuDestroyExternalMemory(CUexternalMemory handle) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct external *external = pool_get(&externals, handle);
    if (!external)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    chunk_drop(external->chunk);
    pool_drop(&externals, external);
    return driver_leave(CUDA_SUCCESS);
}

void externals_drop(struct context *context) {
    struct external *external;
    for (uint32_t i = 0; (external = pool_next(&externals, &i)); i++)
        if (external->context == context) {
            chunk_drop(external->chunk);
            pool_drop(&externals, external);
        }
}
