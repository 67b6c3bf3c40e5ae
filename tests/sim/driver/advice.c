// advice.c: what a program says about managed memory: prefetches, advice, attachment to streams;
// and what it asks. Advice changes where pages go from now on; nothing moves by it, except that
// copies end with read-mostly. Attachment changes nothing, though without concurrent managed access
// it would.
#include "managed.h"

#include <stdlib.h>

enum {
    ADVISE_SET_READ_MOSTLY = 1,
    ADVISE_UNSET_READ_MOSTLY,
    ADVISE_SET_PREFERRED_LOCATION,
    ADVISE_UNSET_PREFERRED_LOCATION,
    ADVISE_SET_ACCESSED_BY,
    ADVISE_UNSET_ACCESSED_BY,
};

enum {
    RANGE_READ_MOSTLY = 1,
    RANGE_PREFERRED_LOCATION,
    RANGE_ACCESSED_BY,
    RANGE_LAST_PREFETCH_LOCATION,
    RANGE_PREFERRED_LOCATION_TYPE,
    RANGE_PREFERRED_LOCATION_ID,
    RANGE_LAST_PREFETCH_LOCATION_TYPE,
    RANGE_LAST_PREFETCH_LOCATION_ID,
};

// Whether pages can be told to go there: not to a device without concurrent managed access.
static bool place_ok(CUdevice device) {
    return device == -1 || (device_ok(device) && managed_concurrent((uint32_t)device));
}

// A place as a device: the host and its NUMA nodes are -1, what is none is NO_DEVICE.
static CUdevice device_at(CUmemLocation location) {
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return -1;
    default:
        return NO_DEVICE;
    }
}

// ---- Prefetches ----

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUdevice device, CUstream handle,
                         bool per_thread) {
    struct stream *stream;
    struct pages pages;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    if (!managed_pages(address, bytes, &pages))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    // From a device without concurrent access they cannot be told to come back either.
    if (!place_ok(device) || !managed_concurrent(stream->context->gpu))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    struct task *task = task_make(TASK_PREFETCH, stream->context, 0);
    if (!task)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    task->prefetch.first = pages.first;
    task->prefetch.count = pages.count;
    task->prefetch.place = managed_place(device);
    for (uint32_t i = 0; i < pages.count; i++)
        managed_page(pages.first + i)->last_prefetch = (int8_t)device;
    enum sim_engine engine = device < 0 ? SIM_ENGINE_D2H : SIM_ENGINE_H2D;
    uint64_t seq;
    rc = submit(stream, engine, 0, task, NULL, &seq);
    worker_wake();
    return driver_leave(rc);
}

API cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return prefetch(address, bytes, device, stream, false);
}

API cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
    return prefetch(address, bytes, device, stream, true);
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

// ---- Advice ----

static void advise_page(struct page *page, int advice, CUdevice device) {
    uint32_t bit = device >= 0 ? 1u << device : 0;
    switch (advice) {
    case ADVISE_SET_READ_MOSTLY:
    case ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = advice == ADVISE_SET_READ_MOSTLY;
        break;
    case ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = (int8_t)device;
        break;
    case ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = NO_DEVICE;
        break;
    case ADVISE_SET_ACCESSED_BY:
        page->accessed_by |= bit;
        break;
    default:
        page->accessed_by &= ~bit;
    }
}

static CUresult advise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct arena *arena;
    struct pages pages, whole;
    if (!managed_pages(address, bytes, &pages) || advice < ADVISE_SET_READ_MOSTLY ||
        advice > ADVISE_UNSET_ACCESSED_BY)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bool needs_place = advice != ADVISE_SET_READ_MOSTLY && advice != ADVISE_UNSET_READ_MOSTLY &&
                       advice != ADVISE_UNSET_PREFERRED_LOCATION;
    if (needs_place && !place_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    const struct block *block = memory_find(address, &arena);
    managed_pages(arena_address(arena, block), block->bytes, &whole);
    for (uint32_t i = 0; i < whole.count; i++)
        managed_page(whole.first + i)->alike = 0;
    for (uint32_t i = 0; i < pages.count; i++)
        advise_page(managed_page(pages.first + i), advice, device);
    int preferred = managed_page(pages.first)->preferred;
    if (advice == ADVISE_UNSET_READ_MOSTLY)
        sim_managed_collapse(driver.machine, pages.first, pages.count,
                             preferred == NO_DEVICE ? SIM_AT_HOST : managed_place(preferred));
    return driver_leave(CUDA_SUCCESS);
}

API cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device) {
    return advise(address, bytes, advice, device);
}

API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location) {
    return advise(address, bytes, advice, device_at(location));
}

// ---- Streams ----

// Memory that is attached to one stream must not be attached to a default stream.
static CUresult attach(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags,
                       bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct arena *arena;
    struct block *block = memory_begins_at(address, BLOCK_MANAGED, BLOCK_MANAGED, &arena);
    bool one = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
               flags == CU_MEM_ATTACH_SINGLE;
    bool unnamed = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    if (!block || !one || (bytes && bytes != block->bytes) ||
        (flags == CU_MEM_ATTACH_SINGLE && unnamed))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t seq;
    return driver_leave(submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, &seq));
}

API cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned int flags) {
    return attach(stream, address, bytes, flags, false);
}

API cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t bytes,
                                unsigned int flags) {
    return attach(stream, address, bytes, flags, true);
}

// ---- Questions about ranges ----

// The place that all pages of a range have; NO_DEVICE: they have none in common.
static int common_place(struct pages pages, bool last_prefetch) {
    int place = NO_DEVICE;
    for (uint32_t i = 0; i < pages.count; i++) {
        const struct page *page = managed_page(pages.first + i);
        int own = last_prefetch ? page->last_prefetch : page->preferred;
        if (i && own != place)
            return NO_DEVICE;
        place = own;
    }
    return place;
}

static int type_of(int place) {
    return place >= 0 ? CU_MEM_LOCATION_TYPE_DEVICE
                      : (place == -1 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_INVALID);
}

static int all_read_mostly(struct pages pages) {
    for (uint32_t i = 0; i < pages.count; i++)
        if (!managed_page(pages.first + i)->read_mostly)
            return 0;
    return 1;
}

// Lists the devices by which all pages are accessed, as far as there is room.
static void list_accessors(struct pages pages, int *devices, size_t room) {
    uint32_t all = UINT32_MAX;
    for (uint32_t i = 0; i < pages.count; i++)
        all &= managed_page(pages.first + i)->accessed_by;
    for (size_t i = 0; i < room; i++) {
        devices[i] = all ? __builtin_ctz(all) : NO_DEVICE;
        all &= all - 1;
    }
}

static CUresult range_attribute(void *data, size_t bytes, int attribute, struct pages pages) {
    bool list = attribute == RANGE_ACCESSED_BY;
    if (!data || !bytes || bytes % sizeof(int) || (!list && bytes != sizeof(int)))
        return CUDA_ERROR_INVALID_VALUE;
    bool prefetch = attribute == RANGE_LAST_PREFETCH_LOCATION ||
                    attribute == RANGE_LAST_PREFETCH_LOCATION_TYPE ||
                    attribute == RANGE_LAST_PREFETCH_LOCATION_ID;
    int place = common_place(pages, prefetch), *out = data;
    switch (attribute) {
    case RANGE_READ_MOSTLY:
        *out = all_read_mostly(pages);
        break;
    case RANGE_PREFERRED_LOCATION:
    case RANGE_LAST_PREFETCH_LOCATION:
        *out = place;
        break;
    case RANGE_ACCESSED_BY:
        list_accessors(pages, out, bytes / sizeof(int));
        break;
    case RANGE_PREFERRED_LOCATION_TYPE:
    case RANGE_LAST_PREFETCH_LOCATION_TYPE:
        *out = type_of(place);
        break;
    case RANGE_PREFERRED_LOCATION_ID:
    case RANGE_LAST_PREFETCH_LOCATION_ID:
        *out = place >= 0 ? place : 0;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

API cuMemRangeGetAttribute(void *data, size_t data_bytes, int attribute, CUdeviceptr address,
                           size_t bytes) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct pages pages;
    if (!managed_pages(address, bytes, &pages))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(range_attribute(data, data_bytes, attribute, pages));
}

API cuMemRangeGetAttributes(void **data, size_t *data_bytes, int *attributes, size_t count,
                            CUdeviceptr address, size_t bytes) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct pages pages;
    if (!data || !data_bytes || !attributes || !count || !managed_pages(address, bytes, &pages))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count && !rc; i++)
        rc = range_attribute(data[i], data_bytes[i], attributes[i], pages);
    return driver_leave(rc);
}
