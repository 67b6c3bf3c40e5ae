// texref.c: texture references, the form before texture objects.
//
// A reference holds settings only: those of a module cannot be had, since the interpreter knows no
// .texref variables, and the same goes for surface references, of which there are none at all.
#include "array.h"

#include <string.h>

#define FLAGS_KNOWN                                                                                \
    (CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |                     \
     CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP)
#define TEXTURE_ALIGN 512u

struct texref {
    struct object object;
    CUarray array;
    CUmipmappedArray mipmap;
    CUdeviceptr address;  // of linear memory; 0: none
    CUarray_format format;
    int channels;
    int address_mode[3];
    int filter, mipmap_filter;
    float bias, clamp_min, clamp_max;
    unsigned anisotropy, flags;
    float border[4];
};

static struct pool texrefs = {.bytes = sizeof(struct texref), .most = 1u << 16};

// A call on a reference whose values are good: the settings are `ref`'s.
static CUresult ref_enter(CUtexref handle, bool good, struct texref **ref) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *ref = pool_get(&texrefs, handle);
    if (!*ref)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return good ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

#define WITH_REF(handle, good, ...)                                                                \
    struct texref *ref;                                                                            \
    CUresult rc = ref_enter(handle, good, &ref);                                                   \
    if (rc)                                                                                        \
        return rc;                                                                                 \
    __VA_ARGS__;                                                                                   \
    return driver_leave(CUDA_SUCCESS)

API cuTexRefCreate(CUtexref *handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!handle)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct texref *ref = pool_take(&texrefs);
    if (!ref)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    ref->format = CU_AD_FORMAT_FLOAT;
    ref->channels = 1;
    *handle = (CUtexref)ref;
    return driver_leave(CUDA_SUCCESS);
}

API cuTexRefDestroy(CUtexref handle) {
    WITH_REF(handle, true, pool_drop(&texrefs, ref));
}

// ---- What it reads ----

static void bind(struct texref *ref, CUarray array, CUmipmappedArray mipmap, CUdeviceptr address) {
    ref->array = array;
    ref->mipmap = mipmap;
    ref->address = address;
}

static void set_format(struct texref *ref, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    ref->format = descriptor->Format;
    ref->channels = (int)descriptor->NumChannels;
}

API cuTexRefSetArray(CUtexref handle, CUarray array_handle, unsigned int flags) {
    struct texref *ref;
    CUresult rc = ref_enter(handle, flags == CU_TRSA_OVERRIDE_FORMAT, &ref);
    if (rc)
        return rc;
    const struct array *array = array_get(array_handle);
    if (!array)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    bind(ref, array_handle, NULL, 0);
    set_format(ref, &array->descriptor);
    return driver_leave(CUDA_SUCCESS);
}

API cuTexRefSetMipmappedArray(CUtexref handle, CUmipmappedArray mipmap, unsigned int flags) {
    struct texref *ref;
    CUresult rc = ref_enter(handle, flags == CU_TRSA_OVERRIDE_FORMAT, &ref);
    if (rc)
        return rc;
    struct context *owner;
    unsigned levels;
    const CUDA_ARRAY3D_DESCRIPTOR *descriptor = mipmap_descriptor(mipmap, &owner, &levels);
    if (!descriptor)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    bind(ref, NULL, mipmap, 0);
    set_format(ref, descriptor);
    return driver_leave(CUDA_SUCCESS);
}

// An address between the alignments that textures need is bound at the one before it.
API cuTexRefSetAddress_v2(size_t *byte_offset, CUtexref handle, CUdeviceptr address, size_t bytes) {
    struct texref *ref;
    size_t offset = address % TEXTURE_ALIGN;
    CUresult rc = ref_enter(handle, byte_offset || !offset, &ref);
    if (rc)
        return rc;
    int gpu;
    if (!bytes || !memory_data(address, bytes, &gpu))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bind(ref, NULL, NULL, address - offset);
    if (byte_offset)
        *byte_offset = offset;
    return driver_leave(CUDA_SUCCESS);
}

API cuTexRefSetAddress2D_v3(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *d, CUdeviceptr address,
                            size_t pitch) {
    struct texref *ref;
    CUresult rc =
        ref_enter(handle, d && d->Width && d->Height && address % TEXTURE_ALIGN == 0, &ref);
    if (rc)
        return rc;
    size_t width = array_format_bytes(d->Format) * d->NumChannels * d->Width, bytes;
    int gpu;
    if (!width || pitch < width || __builtin_mul_overflow(pitch, d->Height - 1, &bytes) ||
        __builtin_add_overflow(bytes, width, &bytes) || !memory_data(address, bytes, &gpu))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    bind(ref, NULL, NULL, address);
    ref->format = d->Format;
    ref->channels = (int)d->NumChannels;
    return driver_leave(CUDA_SUCCESS);
}

API cuTexRefSetAddress2D_v2(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR *descriptor,
                            CUdeviceptr address, size_t pitch) {
    return cuTexRefSetAddress2D_v3(handle, descriptor, address, pitch);
}

// Only what was bound can be asked for.
#define GET_BOUND(name, type, field)                                                               \
    API name(type *out, CUtexref handle) {                                                         \
        struct texref *ref;                                                                        \
        CUresult rc = ref_enter(handle, out, &ref);                                                \
        if (rc)                                                                                    \
            return rc;                                                                             \
        if (!ref->field)                                                                           \
            return driver_leave(CUDA_ERROR_INVALID_VALUE);                                         \
        *out = ref->field;                                                                         \
        return driver_leave(CUDA_SUCCESS);                                                         \
    }

GET_BOUND(cuTexRefGetArray, CUarray, array)
GET_BOUND(cuTexRefGetMipmappedArray, CUmipmappedArray, mipmap)
GET_BOUND(cuTexRefGetAddress_v2, CUdeviceptr, address)

// ---- How it reads ----

API cuTexRefSetFormat(CUtexref handle, CUarray_format format, int channels) {
    bool good = array_format_bytes(format) && (channels == 1 || channels == 2 || channels == 4);
    WITH_REF(handle, good, ref->format = format, ref->channels = channels);
}

API cuTexRefGetFormat(CUarray_format *format, int *channels, CUtexref handle) {
    WITH_REF(handle, format && channels, *format = ref->format, *channels = ref->channels);
}

static bool dimension_ok(int dimension) {
    return dimension >= 0 && dimension < 3;
}

API cuTexRefSetAddressMode(CUtexref handle, int dimension, int mode) {
    bool good = dimension_ok(dimension) && mode >= 0 && mode <= CU_TR_ADDRESS_MODE_BORDER;
    WITH_REF(handle, good, ref->address_mode[dimension] = mode);
}

API cuTexRefGetAddressMode(int *mode, CUtexref handle, int dimension) {
    WITH_REF(handle, mode && dimension_ok(dimension), *mode = ref->address_mode[dimension]);
}

API cuTexRefSetFilterMode(CUtexref handle, int mode) {
    WITH_REF(handle, mode >= 0 && mode <= CU_TR_FILTER_MODE_LINEAR, ref->filter = mode);
}

API cuTexRefGetFilterMode(int *mode, CUtexref handle) {
    WITH_REF(handle, mode, *mode = ref->filter);
}

API cuTexRefSetMipmapFilterMode(CUtexref handle, int mode) {
    WITH_REF(handle, mode >= 0 && mode <= CU_TR_FILTER_MODE_LINEAR, ref->mipmap_filter = mode);
}

API cuTexRefGetMipmapFilterMode(int *mode, CUtexref handle) {
    WITH_REF(handle, mode, *mode = ref->mipmap_filter);
}

API cuTexRefSetMipmapLevelBias(CUtexref handle, float bias) {
    WITH_REF(handle, true, ref->bias = bias);
}

API cuTexRefGetMipmapLevelBias(float *bias, CUtexref handle) {
    WITH_REF(handle, bias, *bias = ref->bias);
}

API cuTexRefSetMipmapLevelClamp(CUtexref handle, float least, float most) {
    WITH_REF(handle, least <= most, ref->clamp_min = least, ref->clamp_max = most);
}

API cuTexRefGetMipmapLevelClamp(float *least, float *most, CUtexref handle) {
    WITH_REF(handle, least && most, *least = ref->clamp_min, *most = ref->clamp_max);
}

API cuTexRefSetMaxAnisotropy(CUtexref handle, unsigned int most) {
    WITH_REF(handle, true, ref->anisotropy = most);
}

API cuTexRefGetMaxAnisotropy(int *most, CUtexref handle) {
    WITH_REF(handle, most, *most = (int)ref->anisotropy);
}

API cuTexRefSetBorderColor(CUtexref handle, float *color) {
    WITH_REF(handle, color, memcpy(ref->border, color, sizeof ref->border));
}

API cuTexRefGetBorderColor(float *color, CUtexref handle) {
    WITH_REF(handle, color, memcpy(color, ref->border, sizeof ref->border));
}

API cuTexRefSetFlags(CUtexref handle, unsigned int flags) {
    WITH_REF(handle, !(flags & ~(unsigned)FLAGS_KNOWN), ref->flags = flags);
}

API cuTexRefGetFlags(unsigned int *flags, CUtexref handle) {
    WITH_REF(handle, flags, *flags = ref->flags);
}

// ---- With functions and modules ----

API cuParamSetTexRef(CUfunction function, int unit, CUtexref handle) {
    bool good = unit == CU_PARAM_TR_DEFAULT && function;
    WITH_REF(handle, good, (void)ref);
}

// A module that loads has no such variables.
static CUresult no_reference(const void *out, CUmodule module, const char *name) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!pool_get(&driver.modules, module))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    return driver_leave(out && name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE);
}

API cuModuleGetTexRef(CUtexref *reference, CUmodule module, const char *name) {
    return no_reference(reference, module, name);
}

API cuModuleGetSurfRef(CUsurfref *reference, CUmodule module, const char *name) {
    return no_reference(reference, module, name);
}

API cuSurfRefSetArray(CUsurfref reference, CUarray array, unsigned int flags) {
    (void)reference, (void)array;
    CUresult rc = driver_check();
    return rc ? rc : flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

API cuSurfRefGetArray(CUarray *array, CUsurfref reference) {
    (void)reference;
    CUresult rc = driver_check();
    return rc ? rc : array ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}
