// arrays.c: the arrays of the tests' driver. An array's handle is the address of a block of the
// heap, as that of plain memory is, so the two are alike for the library.
#include <stdlib.h>

#include "../../hooks.h"
#include "driver.h"

#define ARRAY_MAGIC 0x61727261795f6f6bull

struct array {
    uint64_t magic;
    uint64_t bytes;
    int gpu;
    int levels;  // 0: a plain array
    int owned;   // has memory of its own
};

static CUresult make(void *handle, uint64_t bytes, int levels, int owned) {
    int gpu = test_driver_device();
    if (gpu < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    int code = test_driver_failure();
    if (code)
        return code;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    bytes = owned ? test_driver_round(bytes, test_driver.array_unit_bytes) : 0;
    if (!test_driver_take(gpu, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct array *array = malloc(sizeof(*array));
    *array = (struct array){ARRAY_MAGIC, bytes, gpu, levels, owned};
    *(struct array **)handle = array;
    return CUDA_SUCCESS;
}

// The tests' arrays have one to four channels of one or four bytes.
static uint64_t texel_bytes(unsigned format, unsigned channels) {
    return (format == CU_AD_FORMAT_UNSIGNED_INT8 ? 1 : 4) * channels;
}

static uint64_t at_least_1(uint64_t length) {
    return length ? length : 1;
}

static CUresult create(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *made) {
    return make(handle,
                made->Width * at_least_1(made->Height) *
                    texel_bytes(made->Format, made->NumChannels),
                0, 1);
}

static CUresult create_3d(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *made) {
    int owned = !(made->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING));
    return make(handle,
                made->Width * at_least_1(made->Height) * at_least_1(made->Depth) *
                    texel_bytes(made->Format, made->NumChannels),
                0, owned);
}

static CUresult create_mipmapped(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *made,
                                 unsigned levels) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < levels; i++)
        bytes += at_least_1(made->Width >> i) * at_least_1(made->Height >> i) *
                 at_least_1(made->Depth >> i) * texel_bytes(made->Format, made->NumChannels);
    return make(handle, bytes, (int)levels, 1);
}

// As long as arrays take nothing but what they contain, the driver does not tell.
static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, void *handle,
                             CUdevice device) {
    const struct array *array = handle;
    if (test_driver.array_unit_bytes == 512 || device != array->gpu)
        return CUDA_ERROR_INVALID_VALUE;
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array->bytes};
    return CUDA_SUCCESS;
}

static CUresult destroy(struct array *array, int mipmapped) {
    int code = test_driver_failure();
    if (code)
        return code;
    if (!array || array->magic != ARRAY_MAGIC || mipmapped != (array->levels > 0))
        return CUDA_ERROR_INVALID_VALUE;
    array->magic = 0;
    test_driver_give(array->gpu, array->bytes);
    free(array);
    return CUDA_SUCCESS;
}

static CUresult destroy_array(CUarray handle) {
    return destroy((struct array *)handle, 0);
}

static CUresult destroy_mipmapped(CUmipmappedArray handle) {
    return destroy((struct array *)handle, 1);
}

void test_arrays_install(void) {
    INSTALL(cuArrayCreate_v2, create);
    INSTALL(cuArray3DCreate_v2, create_3d);
    INSTALL(cuArrayDestroy, destroy_array);
    INSTALL(cuMipmappedArrayCreate, create_mipmapped);
    INSTALL(cuMipmappedArrayDestroy, destroy_mipmapped);
    INSTALL(cuArrayGetMemoryRequirements, requirements);
    INSTALL(cuMipmappedArrayGetMemoryRequirements, requirements);
}
