// vmm.c: the driver's functions that create physical memory and map it. It is charged when it is
// created, to the device that it is created on (no context is needed), in the driver's granularity,
// of which its size is a multiple; and given back with the last reference to its handle and the
// last mapping (physical.h). Host memory has no cap.
//
// Not hooked, since they take no memory: reservations of addresses, access rights, multicast
// objects (what is bound to one has its own handle), and sparse arrays' mappings. The last two keep
// memory whose handle is released, which is then charged no more.
#include "hooks.h"
#include "note.h"
#include "obtain.h"
#include "physical.h"
#include "share.h"

// Whether a call of ours that interrupted this thread at its books could not be accounted for.
static int in_own_books(const struct weir_state *state) {
    return weir_lock_is_mine(&state->lock);
}

// Creates and charges. The credit is there already.
static CUresult create(struct weir_state *state, CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *prop, uint64_t flags) {
    uint32_t gpu = (uint32_t)prop->location.id;
    CUresult result = WEIR_REAL(cuMemCreate)(handle, bytes, prop, flags);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, gpu, bytes);
    if (result == CUDA_SUCCESS && weir_physical_created(state, *handle, gpu, bytes) != 0) {
        if (WEIR_REAL(cuMemRelease)(*handle) != CUDA_SUCCESS)
            return CUDA_ERROR_OUT_OF_MEMORY;  // what the driver does not take back stays charged
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        weir_give_back(state, gpu, bytes);
    return result;
}

// Whether the driver says that it has no such device, which is its to refuse then.
static int is_no_device(int ordinal) {
    int count;
    return ordinal < 0 || (WEIR_REAL(cuDeviceGetCount)(&count) == CUDA_SUCCESS && ordinal >= count);
}

CUresult weir_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                          const CUmemAllocationProp *prop, uint64_t flags) {
    struct weir_state *state;
    if (!handle || !bytes || !prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        weir_passing() || is_no_device(prop->location.id))
        return WEIR_REAL(cuMemCreate)(handle, bytes, prop, flags);
    CUresult result = weir_obtain_enter(&state, prop->location.id);
    if (result != CUDA_SUCCESS)
        return result;
    if (!state)
        return WEIR_REAL(cuMemCreate)(handle, bytes, prop, flags);
    if (weir_physical_ready(state) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = weir_obtain(state, (uint32_t)prop->location.id, WEIR_KIND_CREATED, bytes);
    return result == CUDA_SUCCESS ? create(state, handle, bytes, prop, flags) : result;
}

CUresult weir_cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct weir_state *state;
    if (!weir_enforced(&state))
        return WEIR_REAL(cuMemRelease)(handle);
    if (in_own_books(state))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct weir_physical physical = weir_physical_find(state, handle);
    CUresult result = WEIR_REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS)
        weir_physical_released(state, physical);
    return result;
}

CUresult weir_cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, uint64_t flags) {
    struct weir_state *state;
    if (!weir_enforced(&state))
        return WEIR_REAL(cuMemMap)(pointer, bytes, offset, handle, flags);
    if (in_own_books(state))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct weir_physical physical = weir_physical_find(state, handle);
    CUresult result = weir_physical_pin(state, physical, (uint64_t)offset + bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuMemMap)(pointer, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && weir_physical_mapped(state, physical, pointer, bytes) != 0) {
        WEIR_REAL(cuMemUnmap)(pointer, bytes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        weir_physical_unpin(state, physical);
    return result;
}

CUresult weir_cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    struct weir_state *state;
    if (!weir_enforced(&state))
        return WEIR_REAL(cuMemUnmap)(pointer, bytes);
    if (in_own_books(state))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = WEIR_REAL(cuMemUnmap)(pointer, bytes);
    if (result == CUDA_SUCCESS)
        weir_physical_unmapped(state, pointer, bytes);
    return result;
}

CUresult weir_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    struct weir_state *state;
    if (weir_enforced(&state) && in_own_books(state))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = WEIR_REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS && handle && weir_enforced(&state))
        weir_physical_retained(state, *handle);
    return result;
}
