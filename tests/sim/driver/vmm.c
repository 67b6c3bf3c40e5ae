// vmm.c: virtual memory management: addresses, physical memory and access, each by itself.
//
// Physical memory lives until its last handle is released and its last mapping is undone, here and
// in all processes that have imported it. A mapping is a range (share.h). An undone mapping waits
// until no data move: as on hardware, work that comes later finds nothing there.
#include "share.h"

#include <unistd.h>

#define HANDLE_TYPES                                                                               \
    (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_WIN32 |                         \
     CU_MEM_HANDLE_TYPE_WIN32_KMT | CU_MEM_HANDLE_TYPE_FABRIC)
#define PAGE 4096u

// ---- Properties ----

static bool on_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_properties(const CUmemAllocationProp *p) {
    if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (!device_ok(p->location.id))
            return CUDA_ERROR_INVALID_DEVICE;
    } else if (!on_host(&p->location)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned types = (unsigned)p->requestedHandleTypes;
    if (types & ~(unsigned)HANDLE_TYPES)
        return CUDA_ERROR_INVALID_VALUE;
    // What attributes of the device deny: other handles, remote access, compression.
    if (types & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    return p->allocFlags.gpuDirectRDMACapable ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static uint64_t granularity_of(const CUmemAllocationProp *p) {
    return on_host(&p->location) ? PAGE : driver.config->gpus[p->location.id].page_bytes;
}

static uint64_t chunk_granularity(const struct chunk *chunk) {
    return chunk->gpu < 0 ? PAGE : driver.config->gpus[chunk->gpu].page_bytes;
}

API cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                  CUmemAllocationGranularity_flags option) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    rc = check_properties(properties);
    if (!rc)
        *granularity = granularity_of(properties);
    return rc;
}

// ---- Addresses ----

API cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!address || !bytes || bytes % PAGE || alignment & (alignment - 1) || hint % PAGE || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t align = alignment, at;
    for (uint32_t i = 0; i < driver.config->gpu_count; i++)  // at least what any mapping needs
        if (align < driver.config->gpus[i].page_bytes)
            align = driver.config->gpus[i].page_bytes;
    rc = range_reserve(bytes, align & (align - 1) ? PAGE : align, hint, &at);
    if (!rc)
        *address = at;
    return driver_leave(rc);
}

// Reservations that hold what others manage (imports, pools) are not the program's to free.
static bool is_mine(uint64_t address, uint64_t bytes) {
    uint64_t start, all;
    if (!range_reservation(address, &start, &all) || bytes > all - (address - start))
        return false;
    const struct range *range = range_after(start);
    bool used = range && range_address(range) < start + all;
    return !used || range->block.kind == BLOCK_MAPPED || range->block.kind == BLOCK_MAPPED_HOST;
}

API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    return driver_leave(is_mine(address, bytes) ? range_release(address, bytes)
                                                : CUDA_ERROR_INVALID_VALUE);
}

// ---- Physical memory ----

API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                const CUmemAllocationProp *properties, unsigned long long flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = handle && !flags ? check_properties(properties) : CUDA_ERROR_INVALID_VALUE;
    if (!rc && (!bytes || bytes % granularity_of(properties)))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return driver_leave(rc);
    struct chunk *chunk;
    rc = chunk_make(on_host(&properties->location) ? -1 : properties->location.id, bytes, &chunk);
    if (!rc) {
        chunk->handles = 1;
        chunk->properties = *properties;
        *handle = (uintptr_t)chunk;
    }
    return rc || chunk->gpu < 0 ? driver_leave(rc) : memory_leave(chunk->card);
}

API cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct chunk *chunk = chunk_get(handle);
    if (!chunk)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    chunk->handles--;
    chunk_drop(chunk);
    return driver_leave(CUDA_SUCCESS);
}

static CUmemGenericAllocationHandle hand_out(struct chunk *chunk) {
    chunk->handles++;
    return (uintptr_t)chunk;
}

API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    const struct range *range = range_find((uintptr_t)address);
    if (!handle || !range ||
        (range->block.kind != BLOCK_MAPPED && range->block.kind != BLOCK_MAPPED_HOST))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    chunk_keep(range->chunk);
    *handle = hand_out(range->chunk);
    return driver_leave(CUDA_SUCCESS);
}

API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                           CUmemGenericAllocationHandle handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    const struct chunk *chunk = chunk_get(handle);
    if (!properties || !chunk)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *properties = chunk->properties;
    return driver_leave(CUDA_SUCCESS);
}

// ---- Sharing ----

static CUresult check_type(CUmemAllocationHandleType type) {
    switch (type) {
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
        return CUDA_SUCCESS;
    case CU_MEM_HANDLE_TYPE_WIN32:
    case CU_MEM_HANDLE_TYPE_WIN32_KMT:
    case CU_MEM_HANDLE_TYPE_FABRIC:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct chunk *chunk = chunk_get(handle);
    rc = shareable && chunk && !flags ? check_type(type) : CUDA_ERROR_INVALID_VALUE;
    if (!rc && !((unsigned)chunk->properties.requestedHandleTypes & (unsigned)type))
        rc = CUDA_ERROR_INVALID_VALUE;
    int fd;
    if (!rc)
        rc = chunk_export(chunk, &fd);
    if (!rc)
        *(int *)shareable = fd;
    return driver_leave(rc);
}

API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                   CUmemAllocationHandleType type) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = handle ? check_type(type) : CUDA_ERROR_INVALID_VALUE;
    struct chunk *chunk;
    if (!rc)
        rc = chunk_import((int)(intptr_t)shareable, &chunk);
    if (!rc && chunk->properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        chunk_drop(chunk);  // it was not made by cuMemCreate
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    if (!rc)
        *handle = hand_out(chunk);
    return driver_leave(rc);
}

// No device has dma-buf descriptors (attribute 124).
API cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                  CUmemRangeHandleType type, unsigned long long flags) {
    (void)address;
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!handle || !bytes || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- Mappings ----

API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct chunk *chunk = chunk_get(handle);
    if (!chunk || !bytes || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t unit = chunk_granularity(chunk);
    if (address % unit || bytes % unit || offset % unit || offset > chunk->bytes ||
        bytes > chunk->bytes - offset || !is_mine(address, bytes))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct range *range;
    return driver_leave(range_map(address, bytes, chunk, offset,
                                  chunk->gpu < 0 ? BLOCK_MAPPED_HOST : BLOCK_MAPPED, &range));
}

// Whether whole mappings of the program fill a run of addresses.
static bool is_filled(uint64_t address, uint64_t bytes) {
    uint64_t end;
    if (!bytes || __builtin_add_overflow(address, bytes, &end) || !is_mine(address, bytes))
        return false;
    while (address < end) {
        const struct range *range = range_find(address);
        if (!range || range_address(range) != address || range_bytes(range) > end - address)
            return false;
        address += range_bytes(range);
    }
    return true;
}

API cuMemUnmap(CUdeviceptr address, size_t bytes) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!is_filled(address, bytes))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    data_settle();
    if (!is_filled(address, bytes))  // another thread was faster
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct range *range;
    while ((range = range_after(address)) && range_address(range) < address + bytes)
        range_unmap(range);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Access ----

// Who is meant, as one bit. The host can have what is on the host, and nothing else.
static CUresult location_bit(const CUmemLocation *location, uint32_t *bit) {
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        if (!device_ok(location->id))
            return CUDA_ERROR_INVALID_DEVICE;
        *bit = 1u << location->id;
        return CUDA_SUCCESS;
    }
    *bit = RANGE_HOST;
    return on_host(location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult may_have(const struct range *range, const CUmemLocation *location) {
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return range->chunk->gpu < 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    uint32_t owner = (uint32_t)range->chunk->gpu, device = (uint32_t)location->id;
    bool ok = range->chunk->gpu < 0 || owner == device || peer_ok(device, owner);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc *access) {
    uint32_t bit;
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = location_bit(&access->location, &bit);
    const struct range *range;
    for (uint64_t at = address; !rc && at < address + bytes; at += range_bytes(range)) {
        range = range_find(at);
        rc = may_have(range, &access->location);
    }
    return rc;
}

static void set_access(struct range *range, const CUmemAccessDesc *access) {
    uint32_t bit = 0, reads = range->reads, writes = range->writes;
    location_bit(&access->location, &bit);
    reads = access->flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? reads | bit : reads & ~bit;
    writes = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? writes | bit : writes & ~bit;
    range_allow(range, reads, writes);
}

API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!access || !count || !is_filled(address, bytes))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count && !rc; i++)
        rc = check_access(address, bytes, &access[i]);
    for (uint64_t at = address; !rc && at < address + bytes;) {
        struct range *range = range_find(at);
        for (size_t i = 0; i < count; i++)
            set_access(range, &access[i]);
        at += range_bytes(range);
    }
    return driver_leave(rc);
}

API cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    const struct range *range = range_find(address);
    uint32_t bit;
    if (!flags || !location || !range ||
        (range->block.kind != BLOCK_MAPPED && range->block.kind != BLOCK_MAPPED_HOST))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = location_bit(location, &bit);
    if (!rc)
        *flags = range->writes & bit  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : range->reads & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return driver_leave(rc);
}
