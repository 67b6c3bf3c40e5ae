// pointer.c: what the driver knows about an address.
#include "mempool.h"
#include "share.h"

// What holds an address: one of the driver's blocks, or registered host memory.
struct place {
    struct block *block;  // NULL: registered
    uint64_t start, span;
    uint64_t reserved_start, reserved_bytes;  // as asked for
    uint64_t address;
};

static bool find(uint64_t address, struct place *place) {
    struct arena *arena;
    unsigned flags;
    *place = (struct place){.address = address, .block = memory_find(address, &arena)};
    if (!place->block) {
        bool known = memory_registered(address, &place->start, &place->span, &flags);
        place->reserved_start = place->start;
        place->reserved_bytes = place->span;
        return known;
    }
    place->start = place->reserved_start = arena_address(arena, place->block);
    place->span = place->block->count * SIM_GRANULE;
    place->reserved_bytes = place->block->bytes;
    if (arena == driver.mapped)
        range_reservation(address, &place->reserved_start, &place->reserved_bytes);
    return true;
}

static bool is_host(const struct block *block) {
    return block->kind == BLOCK_HOST || block->kind == BLOCK_MAPPED_HOST;
}

// What the current context's device may do with the memory.
static unsigned access_flags(const struct block *block) {
    struct context *context;
    bool writable = true;
    if (block && !context_current(&context) && !memory_reachable(context, block, &writable))
        return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
}

static unsigned handle_types(const struct block *block) {
    if (block && block->kind == BLOCK_POOL)
        return block->pool->handle_types;
    bool mapped = block && (block->kind == BLOCK_MAPPED || block->kind == BLOCK_MAPPED_HOST);
    const struct range *range = (const struct range *)block;
    return mapped ? (unsigned)range->chunk->properties.requestedHandleTypes : 0;
}

static CUresult number(void *out, const struct place *place, CUpointer_attribute attribute) {
    const struct block *block = place->block;
    bool managed = block && block->kind == BLOCK_MANAGED;
    bool device = block && !is_host(block);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)out = block ? block->sync_memops : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)out = managed;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = block ? (int)block->gpu : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)out = block && block->kind == BLOCK_PLAIN;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)out = 1;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)out = 0;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)out = access_flags(block);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult get(void *out, const struct place *place, CUpointer_attribute attribute) {
    const struct block *block = place->block;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)out = block ? (CUcontext)block->context : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = place->address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (block && !is_host(block) && block->kind != BLOCK_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)out = (void *)(uintptr_t)place->address;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)out = block ? block->id : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = place->reserved_start;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)out = place->start;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = place->reserved_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)out = place->span;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)out = handle_types(block);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void **)out = block && block->kind == BLOCK_POOL ? block->pool : NULL;
        break;
    default:
        return number(out, place, attribute);
    }
    return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct place place;
    bool known = value && find(address, &place);
    if (!known && value && attribute == CU_POINTER_ATTRIBUTE_MAPPED && range_covers(address)) {
        *(unsigned *)value = 0;  // reserved, and nothing is there
        return driver_leave(CUDA_SUCCESS);
    }
    return driver_leave(known ? get(value, &place, attribute) : CUDA_ERROR_INVALID_VALUE);
}

static bool is_wide(CUpointer_attribute attribute) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return false;
    default:
        return true;
    }
}

// The null answer to an attribute that an address does not have: zero, or -2 for the ordinal of
// memory that no device has.
static void none(void *out, CUpointer_attribute attribute) {
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)out = -2;
    else if (is_wide(attribute))
        *(uint64_t *)out = 0;
    else
        *(unsigned *)out = 0;
}

API cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values,
                           CUdeviceptr address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!count || !attributes || !values)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        if (!values[i] || attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
            attributes[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
            return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct place place;
    bool known = find(address, &place);
    for (unsigned i = 0; i < count; i++)
        if (!known || get(values[i], &place, attributes[i]))
            none(values[i], attributes[i]);
    return driver_leave(CUDA_SUCCESS);
}

API cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct place place;
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !find(address, &place) ||
        !place.block || is_host(place.block))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    place.block->sync_memops = *(const unsigned *)value != 0;
    return driver_leave(CUDA_SUCCESS);
}
