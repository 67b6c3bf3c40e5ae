// resource.c: a device's multiprocessors as a resource that can be divided.
//
// A resource is a value in the program's hands: what it must not change is marked, so that a
// made-up one is recognised. Nothing is reserved by a division, and kernels are no slower in a part
// of a device: which context has how many multiprocessors is only recorded.
#include "green.h"

#include <string.h>

#define MARK 0x77736d31u  // "1msw"

// What lies in the driver's own bytes of a resource.
struct inside {
    uint32_t mark;
    int32_t device;
    uint32_t processors;
};

struct description {
    struct object object;
    CUdevice device;
    unsigned processors;
};

static struct pool descriptions = {.bytes = sizeof(struct description), .most = 1u << 16};

void resource_make(CUdevResource *resource, CUdevice device, unsigned processors) {
    struct inside inside = {.mark = MARK, .device = device, .processors = processors};
    memset(resource, 0, sizeof *resource);
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = processors;
    memcpy(resource->internal, &inside, sizeof inside);
}

// CUDA_ERROR_INVALID_RESOURCE_TYPE; CUDA_ERROR_INVALID_VALUE for one that we did not make.
static CUresult look(const CUdevResource *resource, struct inside *inside) {
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(inside, resource->internal, sizeof *inside);
    bool ours = inside->mark == MARK && device_ok(inside->device) &&
                inside->processors == resource->sm.smCount;
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check(const CUdevResource *resource, CUdevResourceType type) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

API cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
    CUresult rc = check(resource, type);
    if (rc)
        return rc;
    if (!device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    resource_make(resource, device, driver.config->gpus[device].sm_count);
    return CUDA_SUCCESS;
}

API cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type) {
    CUresult rc = check(resource, type);
    if (!rc)
        rc = driver_enter();
    if (rc)
        return rc;
    const struct context *context = context_get(handle);
    if (!context)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    unsigned processors =
        context->green ? context->green->processors : driver.config->gpus[context->gpu].sm_count;
    resource_make(resource, (CUdevice)context->gpu, processors);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Division ----

// The least multiprocessors of a group, of which a group has a multiple.
static void units(CUdevice device, bool free, unsigned *least, unsigned *multiple) {
    uint32_t major = driver.config->gpus[device].compute_major;
    *multiple = major >= 9 && !free ? 8 : major >= 7 ? 2 : 1;
    *least = free || major < 8 ? *multiple : major >= 9 ? 8 : 4;
}

API cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count,
                                const CUdevResource *input, CUdevResource *remaining,
                                unsigned int flags, unsigned int wanted) {
    struct inside inside;
    CUresult rc = driver_check();
    if (rc)
        return rc;
    if (!count || !input || flags & ~3u || (groups && !*count))
        return CUDA_ERROR_INVALID_VALUE;
    rc = look(input, &inside);
    if (rc)
        return rc;
    unsigned least, multiple;
    units(inside.device, flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, &least,
          &multiple);
    if (wanted > inside.processors)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned size = wanted < least ? least : (wanted + multiple - 1) / multiple * multiple;
    unsigned most = inside.processors / size;
    if (!most)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (!groups) {  // only asked how many there can be
        *count = most;
        return CUDA_SUCCESS;
    }
    *count = *count < most ? *count : most;
    for (unsigned i = 0; i < *count; i++)
        resource_make(&groups[i], inside.device, size);
    if (remaining)
        resource_make(remaining, inside.device, inside.processors - *count * size);
    return CUDA_SUCCESS;
}

// ---- Descriptions ----

API cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources,
                              unsigned int count) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!out || !resources || !count)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct inside first = {0}, inside;
    unsigned processors = 0;
    for (unsigned i = 0; i < count; i++) {
        rc = look(&resources[i], &inside);
        if (!rc && i && inside.device != first.device)
            rc = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        if (rc)
            return driver_leave(rc);
        first = i ? first : inside;
        processors += inside.processors;
    }
    if (!processors || processors > driver.config->gpus[first.device].sm_count)
        return driver_leave(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    struct description *description = pool_take(&descriptions);
    if (!description)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    description->device = first.device;
    description->processors = processors;
    *out = (CUdevResourceDesc)description;
    return driver_leave(CUDA_SUCCESS);
}

CUresult resource_described(CUdevResourceDesc handle, CUdevice device, unsigned *processors) {
    const struct description *description = pool_get(&descriptions, handle);
    if (!description)
        return CUDA_ERROR_INVALID_VALUE;
    *processors = description->processors;
    return description->device == device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}
