// copy_linear.c: copies of one row: between addresses, and with arrays of one dimension.
#include "array.h"
#include "copy.h"

// ---- The two sides of a row ----

static void to_any(CUDA_MEMCPY3D *what, CUdeviceptr address) {
    what->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    what->dstDevice = address;
}

static void from_any(CUDA_MEMCPY3D *what, CUdeviceptr address) {
    what->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    what->srcDevice = address;
}

static void to_device(CUDA_MEMCPY3D *what, CUdeviceptr address) {
    what->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    what->dstDevice = address;
}

static void from_device(CUDA_MEMCPY3D *what, CUdeviceptr address) {
    what->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    what->srcDevice = address;
}

static void to_host(CUDA_MEMCPY3D *what, void *address) {
    what->dstMemoryType = CU_MEMORYTYPE_HOST;
    what->dstHost = address;
}

static void from_host(CUDA_MEMCPY3D *what, const void *address) {
    what->srcMemoryType = CU_MEMORYTYPE_HOST;
    what->srcHost = address;
}

static void to_array(CUDA_MEMCPY3D *what, CUarray array, size_t at) {
    what->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    what->dstArray = array;
    what->dstXInBytes = at;
}

static void from_array(CUDA_MEMCPY3D *what, CUarray array, size_t at) {
    what->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    what->srcArray = array;
    what->srcXInBytes = at;
}

static CUDA_MEMCPY3D row_of(size_t bytes) {
    return (CUDA_MEMCPY3D){.WidthInBytes = bytes, .Height = 1, .Depth = 1};
}

static struct order waiting(bool per_thread) {
    return (struct order){.per_thread = per_thread, .wait = SYNC};
}

static struct order in(CUstream stream, bool per_thread) {
    return (struct order){.stream = stream, .per_thread = per_thread, .wait = ASYNC};
}

// A copy whose arguments are TO and FROM, and which `sides` describes: the form that waits and its
// per-thread twin; then the one in a stream and its twin.
#define SYNC_FORM(name, twin, TO, FROM, sides)                                                     \
    API name(TO, FROM, size_t bytes) {                                                             \
        CUDA_MEMCPY3D what = row_of(bytes);                                                        \
        sides;                                                                                     \
        return copy(&what, false, waiting(false));                                                 \
    }                                                                                              \
    API twin(TO, FROM, size_t bytes) {                                                             \
        CUDA_MEMCPY3D what = row_of(bytes);                                                        \
        sides;                                                                                     \
        return copy(&what, false, waiting(true));                                                  \
    }

#define ASYNC_FORM(name, TO, FROM, sides)                                                          \
    API name(TO, FROM, size_t bytes, CUstream stream) {                                            \
        CUDA_MEMCPY3D what = row_of(bytes);                                                        \
        sides;                                                                                     \
        return copy(&what, false, in(stream, false));                                              \
    }                                                                                              \
    API name##_ptsz(TO, FROM, size_t bytes, CUstream stream) {                                     \
        CUDA_MEMCPY3D what = row_of(bytes);                                                        \
        sides;                                                                                     \
        return copy(&what, false, in(stream, true));                                               \
    }

// Arguments of more than one word.
#define TO_ARRAY CUarray to, size_t to_at
#define FROM_ARRAY CUarray from, size_t from_at

// ---- Between addresses ----

#define ANY_TO_ANY to_any(&what, to), from_any(&what, from)
#define HOST_TO_DEVICE to_device(&what, to), from_host(&what, from)
#define DEVICE_TO_HOST to_host(&what, to), from_device(&what, from)
#define DEVICE_TO_DEVICE to_device(&what, to), from_device(&what, from)

SYNC_FORM(cuMemcpy, cuMemcpy_ptds, CUdeviceptr to, CUdeviceptr from, ANY_TO_ANY)
SYNC_FORM(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, CUdeviceptr to, const void *from, HOST_TO_DEVICE)
SYNC_FORM(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, void *to, CUdeviceptr from, DEVICE_TO_HOST)
SYNC_FORM(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, CUdeviceptr to, CUdeviceptr from, DEVICE_TO_DEVICE)
ASYNC_FORM(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, ANY_TO_ANY)
ASYNC_FORM(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, HOST_TO_DEVICE)
ASYNC_FORM(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, DEVICE_TO_HOST)
ASYNC_FORM(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, DEVICE_TO_DEVICE)

// ---- With arrays: one row, its first if it has more ----

#define ARRAY_TO_ARRAY to_array(&what, to, to_at), from_array(&what, from, from_at)
#define ARRAY_TO_DEVICE to_device(&what, to), from_array(&what, from, from_at)
#define DEVICE_TO_ARRAY to_array(&what, to, to_at), from_device(&what, from)
#define ARRAY_TO_HOST to_host(&what, to), from_array(&what, from, from_at)
#define HOST_TO_ARRAY to_array(&what, to, to_at), from_host(&what, from)

SYNC_FORM(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds, TO_ARRAY, FROM_ARRAY, ARRAY_TO_ARRAY)
SYNC_FORM(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds, CUdeviceptr to, FROM_ARRAY, ARRAY_TO_DEVICE)
SYNC_FORM(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds, TO_ARRAY, CUdeviceptr from, DEVICE_TO_ARRAY)
SYNC_FORM(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, void *to, FROM_ARRAY, ARRAY_TO_HOST)
SYNC_FORM(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, TO_ARRAY, const void *from, HOST_TO_ARRAY)
ASYNC_FORM(cuMemcpyAtoHAsync_v2, void *to, FROM_ARRAY, ARRAY_TO_HOST)
ASYNC_FORM(cuMemcpyHtoAAsync_v2, TO_ARRAY, const void *from, HOST_TO_ARRAY)

// The same of before CUDA 3.2, where sizes had 32 bits.
API cuMemcpyAtoA(CUarray to, unsigned int to_at, CUarray from, unsigned int from_at,
                 unsigned int bytes) {
    return cuMemcpyAtoA_v2(to, to_at, from, from_at, bytes);
}

API cuMemcpyAtoH(void *to, CUarray from, unsigned int from_at, unsigned int bytes) {
    return cuMemcpyAtoH_v2(to, from, from_at, bytes);
}

API cuMemcpyHtoA(CUarray to, unsigned int to_at, const void *from, unsigned int bytes) {
    return cuMemcpyHtoA_v2(to, to_at, from, bytes);
}

API cuMemcpyAtoHAsync(void *to, CUarray from, unsigned int from_at, unsigned int bytes,
                      CUstream stream) {
    return cuMemcpyAtoHAsync_v2(to, from, from_at, bytes, stream);
}

API cuMemcpyHtoAAsync(CUarray to, unsigned int to_at, const void *from, unsigned int bytes,
                      CUstream stream) {
    return cuMemcpyHtoAAsync_v2(to, to_at, from, bytes, stream);
}

// ---- Between contexts: the addresses say it all, the contexts must only exist ----

static CUresult peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                     size_t bytes, struct order order) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    bool good = context_get(to_context) && context_get(from_context);
    driver_leave(CUDA_SUCCESS);
    CUDA_MEMCPY3D what = row_of(bytes);
    DEVICE_TO_DEVICE;
    return good ? copy(&what, false, order) : CUDA_ERROR_INVALID_CONTEXT;
}

API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                 size_t bytes) {
    return peer(to, to_context, from, from_context, bytes, waiting(false));
}

API cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) {
    return peer(to, to_context, from, from_context, bytes, waiting(true));
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes, CUstream stream) {
    return peer(to, to_context, from, from_context, bytes, in(stream, false));
}

API cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) {
    return peer(to, to_context, from, from_context, bytes, in(stream, true));
}
