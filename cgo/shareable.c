// shareable.c: handles of created memory that other processes can import: file descriptors, and
// handles of a fabric. share.h says what the agent is told, and when.
#include "gpu.h"
#include "hooks.h"
#include "physical.h"
#include "share.h"
#include "sharekey.h"

// The key of a handle, as the driver takes or gives it. Whether there is one.
static int make_key(const void *bytes, int fd, int type, struct weir_share_key *key) {
    switch (type) {
    case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR:
        return weir_share_key_of_file(fd, key) == 0;
    case CU_MEM_HANDLE_TYPE_FABRIC:
        weir_share_key_of_bytes(WEIR_SHARE_KEY_FABRIC, bytes, sizeof(CUshareable), key);
        return 1;
    default:
        return 0;
    }
}

CUresult weir_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                           int type, uint64_t flags) {
    struct weir_state *state;
    struct weir_share_key key;
    CUresult result = WEIR_REAL(cuMemExportToShareableHandle)(shareable, handle, type, flags);
    if (result != CUDA_SUCCESS || !shareable || !weir_enforced(&state))
        return result;
    int fd = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? *(int *)shareable : -1;
    if (make_key(shareable, fd, type, &key))
        weir_physical_exported(state, weir_physical_find(state, handle), &key);
    return result;
}

// Enters an imported handle in the books. The caller's use of the piece is gone afterwards.
static CUresult adopt(struct weir_state *state, CUmemGenericAllocationHandle handle,
                      uint32_t piece) {
    CUmemAllocationProp prop = {0};
    CUresult result = WEIR_REAL(cuMemGetAllocationPropertiesFromHandle)(&prop, handle);
    if (result == CUDA_SUCCESS && prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        weir_share_release(state, piece);
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && weir_gpu_know(state, prop.location.id) == 0 &&
        weir_physical_ready(state) == 0 &&
        weir_physical_imported(state, handle, (uint32_t)prop.location.id, piece) == 0) {
        weir_share_settle(state);
        return CUDA_SUCCESS;
    }
    WEIR_REAL(cuMemRelease)(handle);
    weir_share_release(state, piece);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                             int type) {
    struct weir_state *state = NULL;
    struct weir_share_key key;
    enum weir_mode mode = !handle || weir_passing() ? WEIR_MODE_PASS : weir_enter(&state);
    if (mode == WEIR_MODE_PASS)
        return WEIR_REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    if (mode == WEIR_MODE_NEW || weir_lock_is_mine(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int keyed = (type != CU_MEM_HANDLE_TYPE_FABRIC || shareable) &&
                make_key(shareable, (int)(intptr_t)shareable, type, &key);
    uint32_t piece = weir_share_import(state, keyed ? &key : NULL);
    if (!piece)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = WEIR_REAL(cuMemImportFromShareableHandle)(handle, shareable, type);
    if (result == CUDA_SUCCESS)
        return adopt(state, *handle, piece);
    weir_share_release(state, piece);
    return result;
}
