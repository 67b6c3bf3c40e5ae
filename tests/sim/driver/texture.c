// texture.c: texture and surface objects.
//
// An object is what it was made from: descriptions of a resource, of how it is sampled, and of how
// it is viewed. They are checked and kept, and take no device memory. The interpreter knows no
// texture or surface instructions: a module that has them does not load.
#include "array.h"

#define FLAGS_KNOWN                                                                                \
    (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |                     \
     CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP)
#define ANISOTROPY_MOST 16u

struct texture {
    struct object object;
    struct context *context;
    bool surface;
    bool viewed;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampling;
    CUDA_RESOURCE_VIEW_DESC view;
};

static struct pool textures = {.bytes = sizeof(struct texture), .most = 1u << 20};

void textures_drop(struct context *context) {
    struct texture *texture;
    for (uint32_t i = 0; (texture = pool_next(&textures, &i)); i++)
        if (texture->context == context)
            pool_drop(&textures, texture);
}

// ---- Checks ----

static size_t attribute(const struct context *context, int number) {
    int value = 0;
    cuDeviceGetAttribute(&value, number, (CUdevice)context->gpu);
    return (size_t)value;
}

// Bytes of a texel of linear memory; 0: none can be read so.
static size_t texel_bytes(CUarray_format format, unsigned channels) {
    bool packs = channels == 1 || channels == 2 || channels == 4;
    return packs ? array_format_bytes(format) * channels : 0;
}

static bool linear_good(const struct context *context, const CUDA_RESOURCE_DESC *resource) {
    CUdeviceptr address = resource->res.linear.devPtr;
    size_t texel = texel_bytes(resource->res.linear.format, resource->res.linear.numChannels);
    size_t bytes = resource->res.linear.sizeInBytes;
    int gpu;
    return texel && bytes && address % attribute(context, 14) == 0 &&
           bytes / texel <= attribute(context, 69) && memory_data(address, bytes, &gpu);
}

static bool pitched_good(const struct context *context, const CUDA_RESOURCE_DESC *resource) {
    CUdeviceptr address = resource->res.pitch2D.devPtr;
    size_t texel = texel_bytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
    size_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
    size_t pitch = resource->res.pitch2D.pitchInBytes;
    int gpu;
    return texel && width && height && address % attribute(context, 14) == 0 &&
           width <= attribute(context, 70) && height <= attribute(context, 71) &&
           pitch <= attribute(context, 72) && pitch % attribute(context, 51) == 0 &&
           pitch >= width * texel &&
           memory_data(address, pitch * (height - 1) + width * texel, &gpu);
}

static bool resource_good(const struct context *context, const CUDA_RESOURCE_DESC *resource) {
    struct context *owner;
    unsigned levels;
    if (resource->flags)
        return false;
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
        const struct array *array = array_get(resource->res.array.hArray);
        return array && array->context == context;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return mipmap_descriptor(resource->res.mipmap.hMipmappedArray, &owner, &levels) &&
               owner == context;
    case CU_RESOURCE_TYPE_LINEAR:
        return linear_good(context, resource);
    case CU_RESOURCE_TYPE_PITCH2D:
        return pitched_good(context, resource);
    default:
        return false;
    }
}

static bool sampling_good(const CUDA_TEXTURE_DESC *sampling) {
    for (unsigned i = 0; i < 3; i++)
        if ((unsigned)sampling->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
            return false;
    return (unsigned)sampling->filterMode <= CU_TR_FILTER_MODE_LINEAR &&
           (unsigned)sampling->mipmapFilterMode <= CU_TR_FILTER_MODE_LINEAR &&
           !(sampling->flags & ~(unsigned)FLAGS_KNOWN) &&
           sampling->maxAnisotropy <= ANISOTROPY_MOST;
}

// Linear memory has no views; the levels and layers of one must be there.
static bool view_good(const CUDA_RESOURCE_DESC *resource, const CUDA_RESOURCE_VIEW_DESC *view) {
    const CUDA_ARRAY3D_DESCRIPTOR *whole;
    struct context *owner;
    unsigned levels = 1;
    if (resource->resType == CU_RESOURCE_TYPE_ARRAY)
        whole = &array_get(resource->res.array.hArray)->descriptor;
    else if (resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
        whole = mipmap_descriptor(resource->res.mipmap.hMipmappedArray, &owner, &levels);
    else
        return false;
    bool layered = whole->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t layers = layered ? whole->Depth : 1;
    return (unsigned)view->format <= CU_RES_VIEW_FORMAT_MOST &&
           view->firstMipmapLevel <= view->lastMipmapLevel && view->lastMipmapLevel < levels &&
           view->firstLayer <= view->lastLayer && view->lastLayer < layers;
}

// ---- Objects ----

static struct texture *texture_get(unsigned long long object, bool surface) {
    struct texture *texture = pool_get(&textures, (const void *)(uintptr_t)object);
    return texture && texture->surface == surface ? texture : NULL;
}

static CUresult make(struct context *context, const CUDA_RESOURCE_DESC *resource,
                     struct texture **out) {
    struct texture *texture = pool_take(&textures);
    if (!texture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    texture->context = context;
    texture->resource = *resource;
    *out = texture;
    return CUDA_SUCCESS;
}

API cuTexObjectCreate(CUtexObject *object, const CUDA_RESOURCE_DESC *resource,
                      const CUDA_TEXTURE_DESC *sampling, const CUDA_RESOURCE_VIEW_DESC *view) {
    struct context *context;
    struct texture *texture;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!object || !resource || !sampling || !resource_good(context, resource) ||
        !sampling_good(sampling) || (view && !view_good(resource, view)))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = make(context, resource, &texture);
    if (rc)
        return driver_leave(rc);
    texture->sampling = *sampling;
    texture->viewed = view != NULL;
    if (view)
        texture->view = *view;
    *object = (uintptr_t)texture;
    return driver_leave(CUDA_SUCCESS);
}

API cuSurfObjectCreate(CUsurfObject *object, const CUDA_RESOURCE_DESC *resource) {
    struct context *context;
    struct texture *texture;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!object || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY ||
        !resource_good(context, resource) ||
        !(array_get(resource->res.array.hArray)->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = make(context, resource, &texture);
    if (rc)
        return driver_leave(rc);
    texture->surface = true;
    *object = (uintptr_t)texture;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult object_enter(unsigned long long object, bool surface, struct texture **texture) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *texture = texture_get(object, surface);
    return *texture ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult destroy(unsigned long long object, bool surface) {
    struct texture *texture;
    CUresult rc = object_enter(object, surface, &texture);
    if (rc)
        return rc;
    pool_drop(&textures, texture);
    return driver_leave(CUDA_SUCCESS);
}

API cuTexObjectDestroy(CUtexObject object) {
    return destroy(object, false);
}

API cuSurfObjectDestroy(CUsurfObject object) {
    return destroy(object, true);
}

static CUresult resource_of(CUDA_RESOURCE_DESC *resource, unsigned long long object, bool surface) {
    struct texture *texture;
    CUresult rc = object_enter(object, surface, &texture);
    if (rc)
        return rc;
    if (resource)
        *resource = texture->resource;
    return driver_leave(resource ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject object) {
    return resource_of(resource, object, false);
}

API cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject object) {
    return resource_of(resource, object, true);
}

API cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *sampling, CUtexObject object) {
    struct texture *texture;
    CUresult rc = object_enter(object, false, &texture);
    if (rc)
        return rc;
    if (sampling)
        *sampling = texture->sampling;
    return driver_leave(sampling ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// An error where the object was made without a view.
API cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject object) {
    struct texture *texture;
    CUresult rc = object_enter(object, false, &texture);
    if (rc)
        return rc;
    if (!view || !texture->viewed)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *view = texture->view;
    return driver_leave(CUDA_SUCCESS);
}
