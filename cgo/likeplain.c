// likeplain.c: what is asked about movable memory, or tried with it, is answered as for the plain
// memory that it stands for. What only managed memory can is refused, as the driver refuses it of
// plain memory; what only plain memory can is the driver's to refuse (convert.h).
#include "convert.h"
#include "hooks.h"

// ---- Attributes ----

// The movable allocation that holds an address, as it was at one moment. 0 where there is none.
static int look(CUdeviceptr address, struct weir_movable *out) {
    struct weir_swap *swap = weir_swap_known();
    if (__builtin_expect(!swap, 1) || weir_lock(&swap->state->lock))
        return 0;
    uint32_t number = weir_movable_holding(swap, address);
    if (number)
        *out = *weir_movable_at(swap, number);
    weir_unlock(&swap->state->lock);
    return number != 0;
}

static int is_movable(CUdeviceptr address) {
    struct weir_movable movable;
    return look(address, &movable);
}

// Writes what plain memory would answer in place of managed memory's answer, which the driver has
// written. The code: only the host's address is one that plain memory does not have.
static CUresult correct(const struct weir_movable *movable, int attribute, void *value) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = 0;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)value = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = (int)movable->gpu;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)value = movable->asked_bytes;
        break;
    default:
        break;
    }
    return CUDA_SUCCESS;
}

CUresult weir_cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    struct weir_movable movable;
    CUresult result = WEIR_REAL(cuPointerGetAttribute)(value, attribute, pointer);
    if (result == CUDA_SUCCESS && value && look(pointer, &movable))
        return correct(&movable, attribute, value);
    return result;
}

CUresult weir_cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                     CUdeviceptr pointer) {
    struct weir_movable movable;
    CUresult result = WEIR_REAL(cuPointerGetAttributes)(count, attributes, values, pointer);
    if (result != CUDA_SUCCESS || !attributes || !values || !look(pointer, &movable))
        return result;
    for (unsigned i = 0; i < count; i++)
        if (values[i])
            correct(&movable, attributes[i], values[i]);
    return result;
}

CUresult weir_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    struct weir_movable movable;
    CUresult result = WEIR_REAL(cuMemGetAddressRange_v2)(base, bytes, pointer);
    if (result == CUDA_SUCCESS && bytes && look(pointer, &movable))
        *bytes = movable.asked_bytes;
    return result;
}

// ---- For managed memory only ----

// A call about a range of managed memory, which movable memory is not said to be.
#define MANAGED_ONLY(export, parameters, arguments)                                                \
    CUresult weir_##export parameters {                                                            \
        return is_movable(pointer) ? CUDA_ERROR_INVALID_VALUE : WEIR_REAL(export) arguments;       \
    }

MANAGED_ONLY(cuMemPrefetchAsync,
             (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
             (pointer, bytes, device, stream))
MANAGED_ONLY(cuMemPrefetchAsync_ptsz,
             (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
             (pointer, bytes, device, stream))
MANAGED_ONLY(cuMemPrefetchAsync_v2,
             (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
              CUstream stream),
             (pointer, bytes, location, flags, stream))
MANAGED_ONLY(cuMemPrefetchAsync_v2_ptsz,
             (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags,
              CUstream stream),
             (pointer, bytes, location, flags, stream))
MANAGED_ONLY(cuMemAdvise, (CUdeviceptr pointer, size_t bytes, int advice, CUdevice device),
             (pointer, bytes, advice, device))
MANAGED_ONLY(cuMemAdvise_v2,
             (CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location),
             (pointer, bytes, advice, location))
MANAGED_ONLY(cuMemRangeGetAttribute,
             (void *data, size_t data_bytes, int attribute, CUdeviceptr pointer, size_t bytes),
             (data, data_bytes, attribute, pointer, bytes))
MANAGED_ONLY(cuMemRangeGetAttributes,
             (void **data, size_t *data_bytes, int *attributes, size_t count, CUdeviceptr pointer,
              size_t bytes),
             (data, data_bytes, attributes, count, pointer, bytes))
MANAGED_ONLY(cuStreamAttachMemAsync,
             (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags),
             (stream, pointer, bytes, flags))
MANAGED_ONLY(cuStreamAttachMemAsync_ptsz,
             (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags),
             (stream, pointer, bytes, flags))

// ---- For plain memory only ----

CUresult weir_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                            int type, uint64_t flags) {
    return weir_exported(
        WEIR_REAL(cuMemGetHandleForAddressRange)(handle, pointer, bytes, type, flags), pointer,
        WEIR_EXPORTED_RANGE);
}

#define VALUE(export, value_type)                                                                  \
    CUresult weir_##export(CUstream stream, CUdeviceptr pointer, value_type value,                 \
                           unsigned flags) {                                                       \
        return weir_exported(WEIR_REAL(export)(stream, pointer, value, flags), pointer,            \
                             WEIR_EXPORTED_STREAM_VALUE);                                          \
    }
#define VALUES(name)                                                                               \
    VALUE(name##32, uint32_t)                                                                      \
    VALUE(name##32_ptsz, uint32_t)                                                                 \
    VALUE(name##32_v2, uint32_t)                                                                   \
    VALUE(name##32_v2_ptsz, uint32_t)                                                              \
    VALUE(name##64, uint64_t)                                                                      \
    VALUE(name##64_ptsz, uint64_t)                                                                 \
    VALUE(name##64_v2, uint64_t)                                                                   \
    VALUE(name##64_v2_ptsz, uint64_t)

VALUES(cuStreamWaitValue)
VALUES(cuStreamWriteValue)

// Waits and writes have their address in the same place; the other operations have none.
static CUresult batch_end(CUresult result, unsigned count, const CUstreamBatchMemOpParams *ops) {
    for (unsigned i = 0; result != CUDA_SUCCESS && weir_swap_known() && ops && i < count; i++)
        weir_exported(result, ops[i].value.address, WEIR_EXPORTED_STREAM_VALUE);
    return result;
}

#define BATCH(export)                                                                              \
    CUresult weir_##export(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops,         \
                           unsigned flags) {                                                       \
        return batch_end(WEIR_REAL(export)(stream, count, ops, flags), count, ops);                \
    }

BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_ptsz)
BATCH(cuStreamBatchMemOp_v2)
BATCH(cuStreamBatchMemOp_v2_ptsz)
