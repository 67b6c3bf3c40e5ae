// Arrays, of one or two dimensions.
#include "runtime.h"

#include <string.h>

enum { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT };
enum { HOST = 1, ARRAY = 3, UNIFIED = 4 };  // kinds of memory, to the driver
enum { TO_DEVICE = 1, TO_HOST = 2 };        // directions, to the runtime

struct cudaChannelFormatDesc {
    int x, y, z, w;  // bits of each component
    int f;
};

// The driver's descriptions of an array and of a copy.
struct array {
    size_t width, height;
    int format;
    unsigned channels;
};

struct copy_end {
    size_t x_bytes, y;
    int kind;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
};

struct copy {
    struct copy_end from, to;
    size_t width_bytes, height;
};

// The driver's number for components of some kind and bits; 0: there is none.
static int format_of(int kind, int bits) {
    int size = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
    static const int formats[3][4] = {{8, 9, 10, 0}, {1, 2, 3, 0}, {0, 0x10, 0x20, 0}};
    return kind >= KIND_SIGNED && kind <= KIND_FLOAT ? formats[kind][size] : 0;
}

API cudaError_t cudaMallocArray(CUarray *array, const struct cudaChannelFormatDesc *texel,
                                size_t width, size_t height, unsigned flags) {
    if (!array || !texel || flags)
        return runtime_error(cudaErrorInvalidValue);
    struct array driver_array = {
        .width = width,
        .height = height,
        .format = format_of(texel->f, texel->x),
        .channels = 1u + (texel->y > 0) + (texel->z > 0) + (texel->w > 0),
    };
    return CALL(cuArrayCreate, array, &driver_array);
}

API cudaError_t cudaFreeArray(CUarray array) {
    return array ? CALL(cuArrayDestroy, array) : cudaSuccess;
}

static struct copy_end in_array(CUarray array, size_t x_bytes, size_t y) {
    return (struct copy_end){.x_bytes = x_bytes, .y = y, .kind = ARRAY, .array = array};
}

// Memory that is the host's only where the direction says so.
static struct copy_end in_memory(const void *at, size_t pitch, bool host) {
    return (struct copy_end){.kind = host ? HOST : UNIFIED,
                             .host = at,
                             .device = (CUdeviceptr)(uintptr_t)at,
                             .pitch = pitch};
}

API cudaError_t cudaMemcpy2DToArray(CUarray array, size_t x_bytes, size_t y, const void *from,
                                    size_t pitch, size_t width_bytes, size_t height, int kind) {
    struct copy copy = {.from = in_memory(from, pitch, kind == TO_DEVICE),
                        .to = in_array(array, x_bytes, y),
                        .width_bytes = width_bytes,
                        .height = height};
    return CALL(cuMemcpy2DUnaligned, &copy);
}

API cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, CUarray array, size_t x_bytes,
                                      size_t y, size_t width_bytes, size_t height, int kind) {
    struct copy copy = {.from = in_array(array, x_bytes, y),
                        .to = in_memory(to, pitch, kind == TO_HOST),
                        .width_bytes = width_bytes,
                        .height = height};
    return CALL(cuMemcpy2DUnaligned, &copy);
}
