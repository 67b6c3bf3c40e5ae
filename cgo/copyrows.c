// copyrows.c: copies of rows and planes, which are described by a structure. Each end is of a kind
// that it names, an address whose kind only the driver knows, or an array.
#include "peers.h"
#include "transfer.h"
#include "used.h"

// What is read of a structure, in whatever version.
struct shape {
    enum weir_transfer kind;
    uint64_t bytes, row_bytes;
};

static int is_on_device(unsigned type, CUdeviceptr address) {
    return type == CU_MEMORYTYPE_UNIFIED ? weir_transfer_on_device(address)
                                         : type != CU_MEMORYTYPE_HOST;
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// The versions have the same names in other types.
#define SHAPE(copy, depth)                                                                         \
    ((struct shape){weir_transfer_of(is_on_device((copy)->dstMemoryType, (copy)->dstDevice),       \
                                     is_on_device((copy)->srcMemoryType, (copy)->srcDevice)),      \
                    times(times((copy)->WidthInBytes, (copy)->Height), depth),                     \
                    (copy)->WidthInBytes})

static struct shape shape_2d(const CUDA_MEMCPY2D *copy) {
    return SHAPE(copy, 1);
}

static struct shape shape_2d_v1(const CUDA_MEMCPY2D_v1 *copy) {
    return SHAPE(copy, 1);
}

static struct shape shape_3d(const CUDA_MEMCPY3D *copy) {
    return SHAPE(copy, copy->Depth);
}

static struct shape shape_3d_v1(const CUDA_MEMCPY3D_v1 *copy) {
    return SHAPE(copy, copy->Depth);
}

// Without a structure it is the driver's to say what is wrong.
#define COPY_ROWS(export, copy_type, shape_of, per_thread)                                         \
    CUresult weir_##export(const copy_type *copy) {                                                \
        if (!copy)                                                                                 \
            return WEIR_REAL(export)(copy);                                                        \
        struct shape shape = shape_of(copy);                                                       \
        return WEIR_TRANSFER(                                                                      \
            shape.kind, per_thread, shape.bytes, shape.row_bytes,                                  \
            WEIR_USING(copy->dstDevice, copy->srcDevice, WEIR_REAL(export)(copy)));                \
    }
#define COPY_ROWS_ASYNC(export, copy_type, shape_of, per_thread)                                   \
    CUresult weir_##export(const copy_type *copy, CUstream stream) {                               \
        if (!copy)                                                                                 \
            return WEIR_REAL(export)(copy, stream);                                                \
        struct shape shape = shape_of(copy);                                                       \
        return WEIR_TRANSFER_IN_STREAM(                                                            \
            shape.kind, stream, per_thread, shape.bytes, shape.row_bytes,                          \
            WEIR_USING(copy->dstDevice, copy->srcDevice, WEIR_REAL(export)(copy, stream)));        \
    }

COPY_ROWS(cuMemcpy2D, CUDA_MEMCPY2D_v1, shape_2d_v1, 0)
COPY_ROWS(cuMemcpy2D_v2, CUDA_MEMCPY2D, shape_2d, 0)
COPY_ROWS(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, shape_2d, 1)
COPY_ROWS(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, shape_2d_v1, 0)
COPY_ROWS(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, shape_2d, 0)
COPY_ROWS(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, shape_2d, 1)
COPY_ROWS_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, shape_2d_v1, 0)
COPY_ROWS_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, shape_2d, 0)
COPY_ROWS_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, shape_2d, 1)

COPY_ROWS(cuMemcpy3D, CUDA_MEMCPY3D_v1, shape_3d_v1, 0)
COPY_ROWS(cuMemcpy3D_v2, CUDA_MEMCPY3D, shape_3d, 0)
COPY_ROWS(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, shape_3d, 1)
COPY_ROWS_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, shape_3d_v1, 0)
COPY_ROWS_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, shape_3d, 0)
COPY_ROWS_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, shape_3d, 1)

// ---- The form for peers, whose ends are each in a context ----

// Copies with an end in the host are like others.
#define COPY_PEERS(stream, per_thread, call, otherwise)                                            \
    if (!copy)                                                                                     \
        return call;                                                                               \
    struct shape shape = shape_3d(copy);                                                           \
    if (shape.kind != WEIR_TRANSFER_DEVICE)                                                        \
        return otherwise;                                                                          \
    return WEIR_PEERS((CUcontext)copy->reserved1, (CUcontext)copy->reserved0, stream, per_thread,  \
                      shape.bytes, shape.row_bytes,                                                \
                      WEIR_USING(copy->dstDevice, copy->srcDevice, call))
#define COPY_3D_PEER(export, per_thread)                                                           \
    CUresult weir_##export(const CUDA_MEMCPY3D_PEER *copy) {                                       \
        COPY_PEERS(                                                                                \
            NULL, per_thread, WEIR_REAL(export)(copy),                                             \
            WEIR_TRANSFER(shape.kind, per_thread, shape.bytes, shape.row_bytes,                    \
                          WEIR_USING(copy->dstDevice, copy->srcDevice, WEIR_REAL(export)(copy)))); \
    }
#define COPY_3D_PEER_ASYNC(export, per_thread)                                                     \
    CUresult weir_##export(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {                      \
        COPY_PEERS(stream, per_thread, WEIR_REAL(export)(copy, stream),                            \
                   WEIR_TRANSFER_IN_STREAM(shape.kind, stream, per_thread, shape.bytes,            \
                                           shape.row_bytes,                                        \
                                           WEIR_USING(copy->dstDevice, copy->srcDevice,            \
                                                      WEIR_REAL(export)(copy, stream))));          \
    }

COPY_3D_PEER(cuMemcpy3DPeer, 0)
COPY_3D_PEER(cuMemcpy3DPeer_ptds, 1)
COPY_3D_PEER_ASYNC(cuMemcpy3DPeerAsync, 0)
COPY_3D_PEER_ASYNC(cuMemcpy3DPeerAsync_ptsz, 1)
