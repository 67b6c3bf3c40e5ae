// external.c: memory of other interfaces (Vulkan and the like) that a program imports. The driver
// tells its size beforehand. It is charged here unless the agent knows who is charged for it; what
// is then mapped out of it (buffers, arrays) takes nothing more.
#include "charge.h"
#include "hooks.h"
#include "share.h"
#include "sharekey.h"
#include "tie.h"

// To the smallest charge.
static uint64_t round_up(uint64_t bytes) {
    return bytes > WEIR_ALLOCATION_BYTES_MAX
               ? bytes
               : (bytes + WEIR_CHARGE_UNIT - 1) & ~(uint64_t)(WEIR_CHARGE_UNIT - 1);
}

static uint32_t import(struct weir_state *state, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    struct weir_share_key key;
    int keyed = desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD &&
                weir_share_key_of_file(desc->handle.fd, &key) == 0;
    return weir_share_import(state, keyed ? &key : NULL);
}

static int tie(struct weir_state *state, CUexternalMemory memory, uint32_t piece) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    rc = weir_tie_make(state, WEIR_TIE_EXTERNAL, (uint64_t)(uintptr_t)memory, piece, WEIR_NO_OWNER);
    weir_unlock(&state->lock);
    return rc;
}

CUresult weir_cuImportExternalMemory(CUexternalMemory *memory,
                                     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
    struct weir_state *state = NULL;
    CUdevice device;
    if (!memory || !desc || !desc->size || weir_passing())
        return WEIR_REAL(cuImportExternalMemory)(memory, desc);
    CUresult result = WEIR_REAL(cuCtxGetDevice)(&device);
    if (result == CUDA_SUCCESS)
        result = weir_obtain_enter(&state, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!state)
        return WEIR_REAL(cuImportExternalMemory)(memory, desc);
    if (weir_lock_is_mine(&state->lock) || weir_ties_ready(state) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t piece = import(state, desc);
    if (!piece)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = weir_share_charge(state, piece, (uint32_t)device, round_up(desc->size));
    if (result == CUDA_SUCCESS)
        result = WEIR_REAL(cuImportExternalMemory)(memory, desc);
    if (result == CUDA_SUCCESS && tie(state, *memory, piece) == 0)
        return result;
    if (result == CUDA_SUCCESS) {
        WEIR_REAL(cuDestroyExternalMemory)(*memory);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_share_release(state, piece);
    return result;
}

CUresult weir_cuDestroyExternalMemory(CUexternalMemory memory) {
    struct weir_untie untie;
    CUresult result = weir_untie_begin(&untie, WEIR_TIE_EXTERNAL, (uint64_t)(uintptr_t)memory);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuDestroyExternalMemory)(memory);
    weir_untie_end(&untie, result);
    return result;
}
