// copy_shape.c: copies of two and three dimensions, and between contexts, in all their forms.
#include "copy.h"

// ---- Two dimensions ----

static CUresult copy_2d(const CUDA_MEMCPY2D *c, struct order order) {
    CUresult rc = driver_check();
    if (rc || !c)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D what = {.srcXInBytes = c->srcXInBytes,
                          .srcY = c->srcY,
                          .srcMemoryType = c->srcMemoryType,
                          .srcHost = c->srcHost,
                          .srcDevice = c->srcDevice,
                          .srcArray = c->srcArray,
                          .srcPitch = c->srcPitch,
                          .dstXInBytes = c->dstXInBytes,
                          .dstY = c->dstY,
                          .dstMemoryType = c->dstMemoryType,
                          .dstHost = c->dstHost,
                          .dstDevice = c->dstDevice,
                          .dstArray = c->dstArray,
                          .dstPitch = c->dstPitch,
                          .WidthInBytes = c->WidthInBytes,
                          .Height = c->Height,
                          .Depth = 1};
    return copy(&what, false, order);
}

// A form that waits and its per-thread twin; then one in a stream and its twin.
#define SYNC_FORM(name, type, function)                                                            \
    API name(const type *c) {                                                                      \
        return function(c, (struct order){.wait = SYNC});                                          \
    }                                                                                              \
    API name##_ptds(const type *c) {                                                               \
        return function(c, (struct order){.per_thread = true, .wait = SYNC});                      \
    }

#define ASYNC_FORM(name, type, function)                                                           \
    API name(const type *c, CUstream stream) {                                                     \
        return function(c, (struct order){.stream = stream});                                      \
    }                                                                                              \
    API name##_ptsz(const type *c, CUstream stream) {                                              \
        return function(c, (struct order){.stream = stream, .per_thread = true});                  \
    }

SYNC_FORM(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy_2d)
SYNC_FORM(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy_2d)
ASYNC_FORM(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d)

// ---- Three dimensions; the peer form has contexts in the reserved places ----

static CUresult copy_3d(const CUDA_MEMCPY3D *c, struct order order) {
    CUresult rc = driver_check();
    if (rc || !c)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    return copy(c, false, order);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D *c, struct order order) {
    CUresult rc = driver_check();
    if (rc || !c)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    return copy(c, true, order);
}

SYNC_FORM(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy_3d)
ASYNC_FORM(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d)
SYNC_FORM(cuMemcpy3DPeer, CUDA_MEMCPY3D, copy_3d_peer)
ASYNC_FORM(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D, copy_3d_peer)

// ---- The forms of before CUDA 3.2, where sizes and device addresses had 32 bits ----

static CUresult copy_2d_v1(const CUDA_MEMCPY2D_v1 *c, struct order order) {
    CUresult rc = driver_check();
    if (rc || !c)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY2D wide = {.srcXInBytes = c->srcXInBytes,
                          .srcY = c->srcY,
                          .srcMemoryType = c->srcMemoryType,
                          .srcHost = c->srcHost,
                          .srcDevice = c->srcDevice,
                          .srcArray = c->srcArray,
                          .srcPitch = c->srcPitch,
                          .dstXInBytes = c->dstXInBytes,
                          .dstY = c->dstY,
                          .dstMemoryType = c->dstMemoryType,
                          .dstHost = c->dstHost,
                          .dstDevice = c->dstDevice,
                          .dstArray = c->dstArray,
                          .dstPitch = c->dstPitch,
                          .WidthInBytes = c->WidthInBytes,
                          .Height = c->Height};
    return copy_2d(&wide, order);
}

static CUresult copy_3d_v1(const CUDA_MEMCPY3D_v1 *c, struct order order) {
    CUresult rc = driver_check();
    if (rc || !c)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D wide = {.srcXInBytes = c->srcXInBytes,
                          .srcY = c->srcY,
                          .srcZ = c->srcZ,
                          .srcLOD = c->srcLOD,
                          .srcMemoryType = c->srcMemoryType,
                          .srcHost = c->srcHost,
                          .srcDevice = c->srcDevice,
                          .srcArray = c->srcArray,
                          .reserved0 = c->reserved0,
                          .srcPitch = c->srcPitch,
                          .srcHeight = c->srcHeight,
                          .dstXInBytes = c->dstXInBytes,
                          .dstY = c->dstY,
                          .dstZ = c->dstZ,
                          .dstLOD = c->dstLOD,
                          .dstMemoryType = c->dstMemoryType,
                          .dstHost = c->dstHost,
                          .dstDevice = c->dstDevice,
                          .dstArray = c->dstArray,
                          .reserved1 = c->reserved1,
                          .dstPitch = c->dstPitch,
                          .dstHeight = c->dstHeight,
                          .WidthInBytes = c->WidthInBytes,
                          .Height = c->Height,
                          .Depth = c->Depth};
    return copy(&wide, false, order);
}

API cuMemcpy2D(const CUDA_MEMCPY2D_v1 *c) {
    return copy_2d_v1(c, (struct order){.wait = SYNC});
}

API cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *c) {
    return copy_2d_v1(c, (struct order){.wait = SYNC});
}

API cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *c, CUstream stream) {
    return copy_2d_v1(c, (struct order){.stream = stream});
}

API cuMemcpy3D(const CUDA_MEMCPY3D_v1 *c) {
    return copy_3d_v1(c, (struct order){.wait = SYNC});
}

API cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *c, CUstream stream) {
    return copy_3d_v1(c, (struct order){.stream = stream});
}
