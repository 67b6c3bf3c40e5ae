// array.c: CUDA arrays.
//
// An array takes the bytes of its texels from the card: width x height x depth x channels x the
// bytes of a channel, where a flat height or depth counts as one, rounded up to SIM_GRANULE. Its
// data lie as rows without gaps in a block of device memory that the program has no address of.
// Formats in blocks (BC1 to BC7) are rows of 4x4 blocks; NV12 is its two planes one after the
// other. Nothing is sparse or mapped late.
#include "array.h"

#define BLOCK_SIDE 4u

static struct pool arrays = {.bytes = sizeof(struct array), .most = 1u << 16};

// ---- Formats ----

struct format {
    CUarray_format first, last;
    unsigned bytes;     // of a channel, or of a block
    unsigned channels;  // the only number of them; 0: one, two or four
    bool blocks;
};

static const struct format formats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, false},
    {CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT16, 2, 0, false},
    {CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_UNSIGNED_INT32, 4, 0, false},
    {CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8, 1, 0, false},
    {CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16, 2, 0, false},
    {CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, 4, 0, false},
    {CU_AD_FORMAT_HALF, CU_AD_FORMAT_HALF, 2, 0, false},
    {CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_FLOAT, 4, 0, false},
    {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB, 8, 4, true},
    {CU_AD_FORMAT_BC2_UNORM, CU_AD_FORMAT_BC3_UNORM_SRGB, 16, 4, true},
    {CU_AD_FORMAT_BC4_UNORM, CU_AD_FORMAT_BC4_SNORM, 8, 1, true},
    {CU_AD_FORMAT_BC5_UNORM, CU_AD_FORMAT_BC5_SNORM, 16, 2, true},
    {CU_AD_FORMAT_BC6H_UF16, CU_AD_FORMAT_BC6H_SF16, 16, 3, true},
    {CU_AD_FORMAT_BC7_UNORM, CU_AD_FORMAT_BC7_UNORM_SRGB, 16, 4, true},
    {CU_AD_FORMAT_NV12, CU_AD_FORMAT_NV12, 1, 3, false},
    {CU_AD_FORMAT_UNORM_INT8X1, CU_AD_FORMAT_UNORM_INT8X1, 1, 1, false},
    {CU_AD_FORMAT_UNORM_INT8X2, CU_AD_FORMAT_UNORM_INT8X2, 1, 2, false},
    {CU_AD_FORMAT_UNORM_INT8X4, CU_AD_FORMAT_UNORM_INT8X4, 1, 4, false},
    {CU_AD_FORMAT_UNORM_INT16X1, CU_AD_FORMAT_UNORM_INT16X1, 2, 1, false},
    {CU_AD_FORMAT_UNORM_INT16X2, CU_AD_FORMAT_UNORM_INT16X2, 2, 2, false},
    {CU_AD_FORMAT_UNORM_INT16X4, CU_AD_FORMAT_UNORM_INT16X4, 2, 4, false},
    {CU_AD_FORMAT_SNORM_INT8X1, CU_AD_FORMAT_SNORM_INT8X1, 1, 1, false},
    {CU_AD_FORMAT_SNORM_INT8X2, CU_AD_FORMAT_SNORM_INT8X2, 1, 2, false},
    {CU_AD_FORMAT_SNORM_INT8X4, CU_AD_FORMAT_SNORM_INT8X4, 1, 4, false},
    {CU_AD_FORMAT_SNORM_INT16X1, CU_AD_FORMAT_SNORM_INT16X1, 2, 1, false},
    {CU_AD_FORMAT_SNORM_INT16X2, CU_AD_FORMAT_SNORM_INT16X2, 2, 2, false},
    {CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_SNORM_INT16X4, 2, 4, false},
};

static const struct format *format_of(CUarray_format format) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (format >= formats[i].first && format <= formats[i].last)
            return &formats[i];
    return NULL;
}

unsigned array_format_bytes(CUarray_format format) {
    const struct format *known = format_of(format);
    return known && !known->blocks && !known->channels ? known->bytes : 0;
}

// ---- Shapes ----

enum shape_kind { LINE, PLANE, VOLUME, LINES, PLANES, CUBE, CUBES };

// The device attributes that bound width, height and depth; 0: no such extent. The second column
// is for arrays that surfaces are made of.
static const int bounds[][2][3] = {
    [LINE] = {{21, 0, 0}, {55, 0, 0}},       [PLANE] = {{22, 23, 0}, {56, 57, 0}},
    [VOLUME] = {{24, 25, 26}, {58, 59, 60}}, [LINES] = {{42, 0, 43}, {61, 0, 62}},
    [PLANES] = {{27, 28, 29}, {63, 64, 65}}, [CUBE] = {{52, 52, 52}, {66, 66, 66}},
    [CUBES] = {{53, 53, 54}, {67, 67, 68}},
};
static const int gather_bounds[3] = {45, 46, 0};
static const int tall_bounds[3] = {47, 48, 49};  // another set for volumes
static const int mipmapped_bounds[][3] = {[LINE] = {77, 0, 0}, [PLANE] = {73, 74, 0}};

static bool within(const CUDA_ARRAY3D_DESCRIPTOR *d, uint32_t gpu, const int attributes[3]) {
    const size_t extents[] = {d->Width, d->Height, d->Depth};
    for (unsigned i = 0; i < 3; i++) {
        int most = 0;
        if (attributes[i] && cuDeviceGetAttribute(&most, attributes[i], (CUdevice)gpu))
            return false;
        if (extents[i] > (size_t)most)
            return false;
    }
    return true;
}

static bool kind_of(const CUDA_ARRAY3D_DESCRIPTOR *d, enum shape_kind *kind) {
    bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;
    if (cube) {
        *kind = layered ? CUBES : CUBE;
        return d->Height == d->Width && (layered ? d->Depth && d->Depth % 6 == 0 : d->Depth == 6);
    }
    if (layered) {
        *kind = d->Height ? PLANES : LINES;
        return d->Depth > 0;
    }
    *kind = d->Depth ? VOLUME : d->Height ? PLANE : LINE;
    return d->Height || !d->Depth;
}

static bool shape_fits(const CUDA_ARRAY3D_DESCRIPTOR *d, uint32_t gpu, bool mipmapped) {
    enum shape_kind kind;
    if (!d->Width || !kind_of(d, &kind))
        return false;
    bool gather = d->Flags & CUDA_ARRAY3D_TEXTURE_GATHER;
    if (gather)
        return kind == PLANE && within(d, gpu, gather_bounds);
    if (d->Flags & CUDA_ARRAY3D_SURFACE_LDST)
        return within(d, gpu, bounds[kind][1]);
    if (mipmapped && kind <= PLANE)
        return within(d, gpu, mipmapped_bounds[kind]);
    return within(d, gpu, bounds[kind][0]) || (kind == VOLUME && within(d, gpu, tall_bounds));
}

static bool format_fits(const CUDA_ARRAY3D_DESCRIPTOR *d, const struct format *format) {
    if (!format)
        return false;
    if (d->Format == CU_AD_FORMAT_NV12 && (!d->Height || d->Depth || d->Width % 2 || d->Height % 2))
        return false;
    if (format->blocks && (!d->Height || d->Flags & CUDA_ARRAY3D_SURFACE_LDST))
        return false;
    unsigned channels = d->NumChannels;
    return format->channels ? channels == format->channels
                            : channels == 1 || channels == 2 || channels == 4;
}

void array_layout_of(const CUDA_ARRAY3D_DESCRIPTOR *d, struct array_layout *layout) {
    const struct format *format = format_of(d->Format);
    bool planar = d->Format == CU_AD_FORMAT_NV12;
    size_t width = d->Width, height = d->Height ? d->Height : 1;
    if (format->blocks) {
        width = (width + BLOCK_SIDE - 1) / BLOCK_SIDE;
        height = (height + BLOCK_SIDE - 1) / BLOCK_SIDE;
    }
    layout->element_bytes =
        format->blocks || planar ? format->bytes : format->bytes * d->NumChannels;
    layout->row_bytes = width * layout->element_bytes;
    layout->rows = planar ? height / 2 * 3 : height;
    layout->slices = d->Depth ? d->Depth : 1;
}

CUresult array_plan(const CUDA_ARRAY3D_DESCRIPTOR *d, uint32_t gpu, bool mipmapped,
                    struct array_layout *layout, size_t *bytes) {
    unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                     CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                     CUDA_ARRAY3D_COLOR_ATTACHMENT;
    if (d->Flags & ~known || !format_fits(d, format_of(d->Format)) ||
        !shape_fits(d, gpu, mipmapped))
        return CUDA_ERROR_INVALID_VALUE;
    array_layout_of(d, layout);
    // No product overflows: each extent is within its bound.
    *bytes = layout->row_bytes * layout->rows * layout->slices;
    return CUDA_SUCCESS;
}

// ---- Arrays ----

struct array *array_make(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                         uint64_t address) {
    struct array *array = pool_take(&arrays);
    if (array) {
        array->context = context;
        array->descriptor = *descriptor;
        array->address = address;
    }
    return array;
}

void array_drop(struct array *array) {
    for (unsigned i = 0; i < ARRAY_PLANES_MAX; i++)
        if (array->planes[i])
            pool_drop(&arrays, array->planes[i]);
    pool_drop(&arrays, array);
}

struct array *array_get(CUarray handle) {
    return pool_get(&arrays, handle);
}

// Their memory goes with the context's.
void arrays_drop(struct context *context) {
    struct array *array;
    for (uint32_t i = 0; (array = pool_next(&arrays, &i)); i++)
        if (array->context == context)
            pool_drop(&arrays, array);
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    struct context *context;
    CUresult rc = context_enter_unsafe(&context);
    if (rc)
        return rc;
    struct array_layout layout;
    size_t bytes;
    uint64_t address;
    rc = array_plan(descriptor, context->gpu, false, &layout, &bytes);
    if (!rc)
        rc = memory_take(context, bytes, BLOCK_PLAIN, &address);
    if (rc)
        return driver_leave(rc);
    memory_keep(address);
    struct array *array = array_make(context, descriptor, address);
    if (!array) {
        memory_give(address);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *out = (CUarray)array;
    return memory_leave(context->card);
}

API cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
    CUresult rc = driver_check();
    if (rc || !out || !descriptor)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    return create(out, descriptor);
}

API cuArray3DCreate(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d) {
    CUresult rc = driver_check();
    if (rc || !out || !d)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {d->Width,  d->Height,      d->Depth,
                                          d->Format, d->NumChannels, d->Flags};
    return create(out, &descriptor);
}

API cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d) {
    CUresult rc = driver_check();
    if (rc || !out || !d)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    return create(out, &descriptor);
}

API cuArrayCreate(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *d) {
    CUresult rc = driver_check();
    if (rc || !out || !d)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
    return create(out, &descriptor);
}

static CUresult array_enter(CUarray handle, struct array **array) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *array = array_get(handle);
    return *array ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuArrayDestroy(CUarray handle) {
    struct array *array;
    CUresult rc = array_enter(handle, &array);
    if (rc)
        return rc;
    rc = array->is_part ? CUDA_ERROR_INVALID_HANDLE : capture_unsafe();
    if (rc)
        return driver_leave(rc);
    uint64_t address = array->address;
    // Gone at once, so that no other thread gives its memory back while this one waits.
    array_drop(array);
    return driver_leave(memory_give(address));
}

// ---- What is known of an array ----

API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle) {
    struct array *array;
    CUresult rc = array_enter(handle, &array);
    if (rc)
        return rc;
    if (out)
        *out = array->descriptor;
    return driver_leave(out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *out, CUarray handle) {
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult rc = cuArray3DGetDescriptor_v2(&d, handle);
    if (rc || !out)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned)d.Width, (unsigned)d.Height, (unsigned)d.Depth,
                                        d.Format,          d.NumChannels,      d.Flags};
    return CUDA_SUCCESS;
}

API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle) {
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult rc = cuArray3DGetDescriptor_v2(&d, handle);
    if (rc || !out)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
    return CUDA_SUCCESS;
}

API cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *out, CUarray handle) {
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult rc = cuArray3DGetDescriptor_v2(&d, handle);
    if (rc || !out)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    *out =
        (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)d.Width, (unsigned)d.Height, d.Format, d.NumChannels};
    return CUDA_SUCCESS;
}

// A plane is made when it is first asked for.
static struct array *plane_of(struct array *array, unsigned index) {
    if (array->planes[index])
        return array->planes[index];
    const CUDA_ARRAY3D_DESCRIPTOR *whole = &array->descriptor;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = index ? whole->Width / 2 : whole->Width,
                                 .Height = index ? whole->Height / 2 : whole->Height,
                                 .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                 .NumChannels = index ? 2 : 1,
                                 .Flags = whole->Flags};
    uint64_t before = index ? whole->Width * whole->Height : 0;
    struct array *plane = array_make(array->context, &d, array->address + before);
    if (plane)
        plane->is_part = true;
    array->planes[index] = plane;
    return plane;
}

API cuArrayGetPlane(CUarray *out, CUarray handle, unsigned int index) {
    struct array *array;
    CUresult rc = array_enter(handle, &array);
    if (rc)
        return rc;
    if (!out || array->descriptor.Format != CU_AD_FORMAT_NV12 || index >= ARRAY_PLANES_MAX)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct array *plane = plane_of(array, index);
    if (plane)
        *out = (CUarray)plane;
    return driver_leave(plane ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult array_requirements(const void *requirements, bool known, CUdevice device) {
    if (!known)
        return CUDA_ERROR_INVALID_HANDLE;
    if (requirements && !device_ok(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_ERROR_INVALID_VALUE;
}

API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray handle,
                                 CUdevice device) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    return driver_leave(array_requirements(requirements, array_get(handle), device));
}

API cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray handle) {
    (void)properties;
    struct array *array;
    CUresult rc = array_enter(handle, &array);
    return rc ? rc : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

API cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned int channels,
                                       CUdevice device) {
    CUresult rc = driver_check();
    if (rc)
        return rc;
    unsigned bytes = array_format_bytes(format);
    if (!width || !bytes || (channels != 1 && channels != 2 && channels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    int most;
    rc = cuDeviceGetAttribute(&most, 69, device);
    if (!rc)
        *width = (size_t)most / (bytes * channels);
    return rc;
}
