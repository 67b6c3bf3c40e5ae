// copy.c: copies of so many bytes in a row, in all their forms.
#include "peers.h"
#include "transfer.h"
#include "used.h"

// The forms differ in the types of sizes and device addresses, and in which default stream is
// meant. In what follows `size_type` is that of sizes; device addresses before 3.2 had 32 bits.
#define COPY(export, to_type, from_type, size_type, kind, per_thread)                              \
    CUresult weir_##export(to_type to, from_type from, size_type bytes) {                          \
        return WEIR_TRANSFER(kind, per_thread, bytes, 0,                                           \
                             WEIR_USING((uint64_t)(uintptr_t)(to), (uint64_t)(uintptr_t)(from),    \
                                        WEIR_REAL(export)(to, from, bytes)));                      \
    }
#define COPY_ASYNC(export, to_type, from_type, size_type, kind, per_thread)                        \
    CUresult weir_##export(to_type to, from_type from, size_type bytes, CUstream stream) {         \
        return WEIR_TRANSFER_IN_STREAM(kind, stream, per_thread, bytes, 0,                         \
                                       WEIR_USING((uint64_t)(uintptr_t)(to),                       \
                                                  (uint64_t)(uintptr_t)(from),                     \
                                                  WEIR_REAL(export)(to, from, bytes, stream)));    \
    }

#define DEVICE WEIR_TRANSFER_DEVICE
#define IN WEIR_TRANSFER_IN
#define OUT WEIR_TRANSFER_OUT

COPY(cuMemcpyDtoD, CUdeviceptr_v1, CUdeviceptr_v1, unsigned, DEVICE, 0)
COPY(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr, size_t, DEVICE, 0)
COPY(cuMemcpyDtoD_v2_ptds, CUdeviceptr, CUdeviceptr, size_t, DEVICE, 1)
COPY_ASYNC(cuMemcpyDtoDAsync, CUdeviceptr_v1, CUdeviceptr_v1, unsigned, DEVICE, 0)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, DEVICE, 0)
COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, CUdeviceptr, CUdeviceptr, size_t, DEVICE, 1)

COPY(cuMemcpyHtoD, CUdeviceptr_v1, const void *, unsigned, IN, 0)
COPY(cuMemcpyHtoD_v2, CUdeviceptr, const void *, size_t, IN, 0)
COPY(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void *, size_t, IN, 1)
COPY_ASYNC(cuMemcpyHtoDAsync, CUdeviceptr_v1, const void *, unsigned, IN, 0)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, IN, 0)
COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, CUdeviceptr, const void *, size_t, IN, 1)

COPY(cuMemcpyDtoH, void *, CUdeviceptr_v1, unsigned, OUT, 0)
COPY(cuMemcpyDtoH_v2, void *, CUdeviceptr, size_t, OUT, 0)
COPY(cuMemcpyDtoH_v2_ptds, void *, CUdeviceptr, size_t, OUT, 1)
COPY_ASYNC(cuMemcpyDtoHAsync, void *, CUdeviceptr_v1, unsigned, OUT, 0)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, OUT, 0)
COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, void *, CUdeviceptr, size_t, OUT, 1)

// ---- Arrays, of which a place is so many bytes from the beginning ----

#define INTO_ARRAY(export, from_type, size_type, kind, per_thread)                                 \
    CUresult weir_##export(CUarray to, size_type at, from_type from, size_type bytes) {            \
        return WEIR_TRANSFER(                                                                      \
            kind, per_thread, bytes, 0,                                                            \
            WEIR_USING(0, (uint64_t)(uintptr_t)(from), WEIR_REAL(export)(to, at, from, bytes)));   \
    }
#define INTO_ARRAY_ASYNC(export, from_type, size_type, kind, per_thread)                           \
    CUresult weir_##export(CUarray to, size_type at, from_type from, size_type bytes,              \
                           CUstream stream) {                                                      \
        return WEIR_TRANSFER_IN_STREAM(                                                            \
            kind, stream, per_thread, bytes, 0,                                                    \
            WEIR_USING(0, (uint64_t)(uintptr_t)(from),                                             \
                       WEIR_REAL(export)(to, at, from, bytes, stream)));                           \
    }
#define OUT_OF_ARRAY(export, to_type, size_type, kind, per_thread)                                 \
    CUresult weir_##export(to_type to, CUarray from, size_type at, size_type bytes) {              \
        return WEIR_TRANSFER(                                                                      \
            kind, per_thread, bytes, 0,                                                            \
            WEIR_USING((uint64_t)(uintptr_t)(to), 0, WEIR_REAL(export)(to, from, at, bytes)));     \
    }
#define OUT_OF_ARRAY_ASYNC(export, to_type, size_type, kind, per_thread)                           \
    CUresult weir_##export(to_type to, CUarray from, size_type at, size_type bytes,                \
                           CUstream stream) {                                                      \
        return WEIR_TRANSFER_IN_STREAM(                                                            \
            kind, stream, per_thread, bytes, 0,                                                    \
            WEIR_USING((uint64_t)(uintptr_t)(to), 0,                                               \
                       WEIR_REAL(export)(to, from, at, bytes, stream)));                           \
    }
#define WITHIN_ARRAYS(export, size_type, per_thread)                                               \
    CUresult weir_##export(CUarray to, size_type to_at, CUarray from, size_type from_at,           \
                           size_type bytes) {                                                      \
        return WEIR_TRANSFER(DEVICE, per_thread, bytes, 0,                                         \
                             WEIR_REAL(export)(to, to_at, from, from_at, bytes));                  \
    }

WITHIN_ARRAYS(cuMemcpyAtoA, unsigned, 0)
WITHIN_ARRAYS(cuMemcpyAtoA_v2, size_t, 0)
WITHIN_ARRAYS(cuMemcpyAtoA_v2_ptds, size_t, 1)

OUT_OF_ARRAY(cuMemcpyAtoD, CUdeviceptr_v1, unsigned, DEVICE, 0)
OUT_OF_ARRAY(cuMemcpyAtoD_v2, CUdeviceptr, size_t, DEVICE, 0)
OUT_OF_ARRAY(cuMemcpyAtoD_v2_ptds, CUdeviceptr, size_t, DEVICE, 1)
OUT_OF_ARRAY(cuMemcpyAtoH, void *, unsigned, OUT, 0)
OUT_OF_ARRAY(cuMemcpyAtoH_v2, void *, size_t, OUT, 0)
OUT_OF_ARRAY(cuMemcpyAtoH_v2_ptds, void *, size_t, OUT, 1)
OUT_OF_ARRAY_ASYNC(cuMemcpyAtoHAsync, void *, unsigned, OUT, 0)
OUT_OF_ARRAY_ASYNC(cuMemcpyAtoHAsync_v2, void *, size_t, OUT, 0)
OUT_OF_ARRAY_ASYNC(cuMemcpyAtoHAsync_v2_ptsz, void *, size_t, OUT, 1)

INTO_ARRAY(cuMemcpyDtoA, CUdeviceptr_v1, unsigned, DEVICE, 0)
INTO_ARRAY(cuMemcpyDtoA_v2, CUdeviceptr, size_t, DEVICE, 0)
INTO_ARRAY(cuMemcpyDtoA_v2_ptds, CUdeviceptr, size_t, DEVICE, 1)
INTO_ARRAY(cuMemcpyHtoA, const void *, unsigned, IN, 0)
INTO_ARRAY(cuMemcpyHtoA_v2, const void *, size_t, IN, 0)
INTO_ARRAY(cuMemcpyHtoA_v2_ptds, const void *, size_t, IN, 1)
INTO_ARRAY_ASYNC(cuMemcpyHtoAAsync, const void *, unsigned, IN, 0)
INTO_ARRAY_ASYNC(cuMemcpyHtoAAsync_v2, const void *, size_t, IN, 0)
INTO_ARRAY_ASYNC(cuMemcpyHtoAAsync_v2_ptsz, const void *, size_t, IN, 1)

// ---- Between any two addresses: whose they are only the driver knows ----

static enum weir_transfer between(CUdeviceptr to, CUdeviceptr from) {
    return weir_transfer_of(weir_transfer_on_device(to), weir_transfer_on_device(from));
}

static CUresult copy_any(cuMemcpy_fn *real, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                         int per_thread) {
    enum weir_transfer kind = between(to, from);
    return WEIR_TRANSFER(kind, per_thread, bytes, 0, WEIR_USING(to, from, real(to, from, bytes)));
}

CUresult weir_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_any(WEIR_REAL(cuMemcpy), to, from, bytes, 0);
}

CUresult weir_cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return copy_any(WEIR_REAL(cuMemcpy_ptds), to, from, bytes, 1);
}

static CUresult copy_any_async(cuMemcpyAsync_fn *real, CUdeviceptr to, CUdeviceptr from,
                               size_t bytes, CUstream stream, int per_thread) {
    enum weir_transfer kind = between(to, from);
    return WEIR_TRANSFER_IN_STREAM(kind, stream, per_thread, bytes, 0,
                                   WEIR_USING(to, from, real(to, from, bytes, stream)));
}

CUresult weir_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_any_async(WEIR_REAL(cuMemcpyAsync), to, from, bytes, stream, 0);
}

CUresult weir_cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy_any_async(WEIR_REAL(cuMemcpyAsync_ptsz), to, from, bytes, stream, 1);
}

// ---- From one context's device to another's: in the current one's stream ----

#define PEER(export, per_thread)                                                                   \
    CUresult weir_##export(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                 \
                           CUcontext from_context, size_t bytes) {                                 \
        return WEIR_PEERS(                                                                         \
            to_context, from_context, NULL, per_thread, bytes, 0,                                  \
            WEIR_USING(to, from, WEIR_REAL(export)(to, to_context, from, from_context, bytes)));   \
    }
#define PEER_ASYNC(export, per_thread)                                                             \
    CUresult weir_##export(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,                 \
                           CUcontext from_context, size_t bytes, CUstream stream) {                \
        return WEIR_PEERS(                                                                         \
            to_context, from_context, stream, per_thread, bytes, 0,                                \
            WEIR_USING(to, from,                                                                   \
                       WEIR_REAL(export)(to, to_context, from, from_context, bytes, stream)));     \
    }

PEER(cuMemcpyPeer, 0)
PEER(cuMemcpyPeer_ptds, 1)
PEER_ASYNC(cuMemcpyPeerAsync, 0)
PEER_ASYNC(cuMemcpyPeerAsync_ptsz, 1)
