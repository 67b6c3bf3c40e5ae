// ipc.c: plain memory that other processes open by a handle of 64 bytes. A handle is of a whole
// allocation, whatever address in it was given; the driver counts how often one was opened.
#include "convert.h"
#include "gpu.h"
#include "hooks.h"
#include "note.h"
#include "share.h"
#include "sharekey.h"
#include "tie.h"

// Gives the charge of an allocation in the table to a piece. Lock held. WEIR_NO_PIECE where it has
// none to give, is exported already, or no more can be.
static uint32_t take_charge(struct weir_state *state, CUdeviceptr base,
                            const struct weir_share_key *key) {
    struct weir_entry *entry = weir_table_find(&state->table, base);
    if (!entry || !entry->bytes)
        return WEIR_NO_PIECE;
    struct weir_owner *owner = &state->owners.owner[entry->owner];
    uint32_t piece = weir_share_take(state, key, owner->gpu, entry->bytes);
    if (!piece)
        return WEIR_NO_PIECE;
    if (weir_tie_make(state, WEIR_TIE_EXPORTED, base, piece, (uint32_t)entry->owner) != 0) {
        weir_share_untake(state, piece);
        return WEIR_NO_PIECE;
    }
    owner->uses++;
    entry->bytes = 0;
    return piece;
}

static void export(struct weir_state *state, CUdeviceptr pointer,
                   const struct weir_share_key *key) {
    CUdeviceptr base;
    size_t bytes;
    if (WEIR_REAL(cuMemGetAddressRange_v2)(&base, &bytes, pointer) != CUDA_SUCCESS ||
        weir_ties_ready(state) != 0 || weir_lock(&state->lock))
        return;
    uint32_t piece = take_charge(state, base, key);
    weir_unlock(&state->lock);
    if (piece)
        weir_share_export(state, piece);
}

CUresult weir_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer) {
    struct weir_state *state;
    struct weir_share_key key;
    CUresult result = WEIR_REAL(cuIpcGetMemHandle)(handle, pointer);
    if (result != CUDA_SUCCESS || !handle || !weir_enforced(&state))
        return weir_exported(result, pointer, WEIR_EXPORTED_IPC);
    weir_share_key_of_bytes(WEIR_SHARE_KEY_IPC, handle, sizeof(*handle), &key);
    export(state, pointer, &key);
    return result;
}

// What is being opened.
struct opening {
    struct weir_state *state;  // NULL: calls pass through
    CUcontext context;
    CUdevice device;
    uint32_t piece;
};

// Before the driver is called.
static CUresult begin(struct opening *opening, const CUipcMemHandle *handle) {
    struct weir_share_key key;
    opening->state = NULL;
    if (weir_passing())
        return CUDA_SUCCESS;
    CUresult result = WEIR_REAL(cuCtxGetDevice)(&opening->device);
    if (result == CUDA_SUCCESS)
        result = WEIR_REAL(cuCtxGetCurrent)(&opening->context);
    if (result == CUDA_SUCCESS)
        result = weir_obtain_enter(&opening->state, opening->device);
    if (result != CUDA_SUCCESS || !opening->state)
        return result;
    if (weir_lock_is_mine(&opening->state->lock) || weir_ties_ready(opening->state) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    weir_share_key_of_bytes(WEIR_SHARE_KEY_IPC, handle, sizeof(*handle), &key);
    opening->piece = weir_share_import(opening->state, &key);
    return opening->piece ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Charges what was opened, if its origin is unknown: to the device that it lies on.
static CUresult charge(const struct opening *opening, CUdeviceptr pointer) {
    CUdeviceptr base;
    size_t bytes;
    int device = opening->device;
    CUresult result = WEIR_REAL(cuMemGetAddressRange_v2)(&base, &bytes, pointer);
    if (result != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    WEIR_REAL(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
    if (weir_gpu_know(opening->state, device) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return weir_share_charge(opening->state, opening->piece, (uint32_t)device, bytes);
}

// Ties the pointer to the piece. 0 or an errno.
static int tie(const struct opening *opening, CUdeviceptr pointer) {
    struct weir_state *state = opening->state;
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    uint32_t owner = weir_owner_use(&state->owners, (uint64_t)(uintptr_t)opening->context,
                                    (uint32_t)opening->device);
    rc = owner == WEIR_NO_OWNER
             ? ENOSPC
             : weir_tie_make(state, WEIR_TIE_OPENED, pointer, opening->piece, owner);
    if (rc && owner != WEIR_NO_OWNER)
        weir_owner_release(&state->owners, owner);
    weir_unlock(&state->lock);
    if (owner == WEIR_NO_OWNER)
        weir_note_bound(state, WEIR_BOUND_CONTEXTS, WEIR_OWNERS_MAX);
    return rc;
}

// After the driver was called. Returns the code for the program.
static CUresult end(const struct opening *opening, CUresult result, const CUdeviceptr *pointer) {
    if (!opening->state)
        return result;
    if (result == CUDA_SUCCESS) {
        result = charge(opening, *pointer);
        if (result == CUDA_SUCCESS && tie(opening, *pointer) == 0)
            return result;
        WEIR_REAL(cuIpcCloseMemHandle)(*pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_share_release(opening->state, opening->piece);
    return result;
}

CUresult weir_cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags) {
    struct opening opening;
    if (!pointer)
        return WEIR_REAL(cuIpcOpenMemHandle)(pointer, handle, flags);
    CUresult result = begin(&opening, &handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuIpcOpenMemHandle)(pointer, handle, flags);
    return end(&opening, result, pointer);
}

CUresult weir_cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags) {
    struct opening opening;
    if (!pointer)
        return WEIR_REAL(cuIpcOpenMemHandle_v2)(pointer, handle, flags);
    CUresult result = begin(&opening, &handle);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuIpcOpenMemHandle_v2)(pointer, handle, flags);
    return end(&opening, result, pointer);
}

CUresult weir_cuIpcCloseMemHandle(CUdeviceptr pointer) {
    struct weir_untie untie;
    CUresult result = weir_untie_begin(&untie, WEIR_TIE_OPENED, pointer);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuIpcCloseMemHandle)(pointer);
    weir_untie_end(&untie, result);
    return result;
}
