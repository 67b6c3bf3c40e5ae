// mipmap.c: mipmapped arrays.
//
// One block of device memory holds the levels one after the other, without gaps: it takes the sum
// of their bytes, rounded up to SIM_GRANULE once. Each level halves the extents of the one before
// it, down to one; layers and the faces of a cube stay as many. A level's handle is made when it is
// first asked for and ends with the whole.
#include "array.h"

#define LEVELS_MAX 20u

struct mipmap {
    struct object object;
    struct context *context;
    uint64_t address;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    unsigned levels;
    struct array *level[LEVELS_MAX];
};

static struct pool mipmaps = {.bytes = sizeof(struct mipmap), .most = 1u << 14};

static size_t halved(size_t extent, unsigned level) {
    return extent >> level ? extent >> level : extent != 0;
}

static CUDA_ARRAY3D_DESCRIPTOR at_level(const CUDA_ARRAY3D_DESCRIPTOR *whole, unsigned level) {
    CUDA_ARRAY3D_DESCRIPTOR d = *whole;
    d.Width = halved(whole->Width, level);
    d.Height = halved(whole->Height, level);
    if (!(whole->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        d.Depth = halved(whole->Depth, level);
    return d;
}

// The bytes of all levels before this one.
static size_t bytes_before(const CUDA_ARRAY3D_DESCRIPTOR *whole, unsigned level) {
    size_t bytes = 0;
    for (unsigned i = 0; i < level; i++) {
        CUDA_ARRAY3D_DESCRIPTOR d = at_level(whole, i);
        struct array_layout layout;
        array_layout_of(&d, &layout);
        bytes += layout.row_bytes * layout.rows * layout.slices;
    }
    return bytes;
}

// As many as there can be: the last has no extent left to halve.
static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d) {
    bool flat = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t longest = d->Width > d->Height ? d->Width : d->Height;
    if (!flat && d->Depth > longest)
        longest = d->Depth;
    return 64 - (unsigned)__builtin_clzll(longest);
}

static struct mipmap *mipmap_get(CUmipmappedArray handle) {
    return pool_get(&mipmaps, handle);
}

const CUDA_ARRAY3D_DESCRIPTOR *mipmap_descriptor(CUmipmappedArray handle, struct context **context,
                                                 unsigned *levels) {
    struct mipmap *mipmap = mipmap_get(handle);
    if (!mipmap)
        return NULL;
    *context = mipmap->context;
    *levels = mipmap->levels;
    return &mipmap->descriptor;
}

void mipmaps_drop(struct context *context) {
    struct mipmap *mipmap;
    for (uint32_t i = 0; (mipmap = pool_next(&mipmaps, &i)); i++)
        if (mipmap->context == context)
            pool_drop(&mipmaps, mipmap);
}

API cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                           unsigned int levels) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    struct array_layout layout;
    size_t bytes;
    uint64_t address;
    bool planar = descriptor && descriptor->Format == CU_AD_FORMAT_NV12;
    if (!out || !descriptor || planar)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = array_plan(descriptor, context->gpu, true, &layout, &bytes);
    if (rc)
        return driver_leave(rc);
    unsigned most = levels_of(descriptor);
    levels = levels < 1 ? 1 : levels > most ? most : levels;
    rc = memory_take(context, bytes_before(descriptor, levels), BLOCK_PLAIN, &address);
    if (rc)
        return driver_leave(rc);
    memory_keep(address);
    struct mipmap *mipmap = pool_take(&mipmaps);
    if (!mipmap) {
        memory_give(address);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    mipmap->context = context;
    mipmap->address = address;
    mipmap->descriptor = *descriptor;
    mipmap->levels = levels;
    *out = (CUmipmappedArray)mipmap;
    return memory_leave(context->card);
}

API cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    CUresult rc = driver_enter_unsafe();
    if (rc)
        return rc;
    struct mipmap *mipmap = mipmap_get(handle);
    if (!mipmap)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    uint64_t address = mipmap->address;
    for (unsigned i = 0; i < mipmap->levels; i++)
        if (mipmap->level[i])
            array_drop(mipmap->level[i]);
    pool_drop(&mipmaps, mipmap);
    return driver_leave(memory_give(address));
}

API cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned int level) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct mipmap *mipmap = mipmap_get(handle);
    if (!mipmap || !out || level >= mipmap->levels)
        return driver_leave(mipmap ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    struct array **array = &mipmap->level[level];
    if (!*array) {
        CUDA_ARRAY3D_DESCRIPTOR d = at_level(&mipmap->descriptor, level);
        *array = array_make(mipmap->context, &d,
                            mipmap->address + bytes_before(&mipmap->descriptor, level));
        if (!*array)
            return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        (*array)->is_part = true;
    }
    *out = (CUarray)*array;
    return driver_leave(CUDA_SUCCESS);
}

API cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                          CUmipmappedArray handle, CUdevice device) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    return driver_leave(array_requirements(requirements, mipmap_get(handle), device));
}

API cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                        CUmipmappedArray handle) {
    (void)properties;
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    return driver_leave(mipmap_get(handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
}
