// array.h: CUDA arrays, as copies and textures see them.
#ifndef SIM_ARRAY_H
#define SIM_ARRAY_H

#include "driver.h"

#define ARRAY_PLANES_MAX 2u

// An array, a level of a mipmapped array, or a plane of a planar one. Only the first has memory of
// its own; the others end with what they are part of.
struct array {
    struct object object;
    struct context *context;
    uint64_t address;  // of its data, as memory.c sees it; no program is ever told
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    bool is_part;  // of a mipmapped array or of a planar one
    struct array *planes[ARRAY_PLANES_MAX];
};

// How the data lie: rows of row_bytes, without gaps, `rows` of them a slice. A row is one of
// texels, or one of blocks where the format is compressed.
struct array_layout {
    size_t element_bytes;  // of a texel, or of a block
    size_t row_bytes, rows, slices;
};

// ---- array.c ----

// Whether an array may have this shape; its layout and its bytes, where it may. A flat `depth` or
// `height` is 0. CUDA_ERROR_INVALID_VALUE.
CUresult array_plan(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, uint32_t gpu, bool mipmapped,
                    struct array_layout *layout, size_t *bytes);
// As array_plan, of a descriptor that is known to be good.
void array_layout_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, struct array_layout *layout);
// An array over memory that is there. NULL: too many.
struct array *array_make(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                         uint64_t address);
void array_drop(struct array *array);
struct array *array_get(CUarray handle);  // NULL: no array
void arrays_drop(struct context *context);
// Bytes of one channel of a texel, for the formats that memory can be read in; 0: another format.
unsigned array_format_bytes(CUarray_format format);
// What every query for requirements of memory checks: nothing is mapped late here.
CUresult array_requirements(const void *requirements, bool known, CUdevice device);

// ---- mipmap.c ----

struct mipmap;
// NULL: no mipmapped array.
const CUDA_ARRAY3D_DESCRIPTOR *mipmap_descriptor(CUmipmappedArray handle, struct context **context,
                                                 unsigned *levels);
void mipmaps_drop(struct context *context);

#endif
