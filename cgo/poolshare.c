// poolshare.c: memory pools between processes. A pool that was exported stays charged as any pool
// of its process is, by what it has reserved; the agent is told of it with no bytes, so that
// whoever imports it learns that it is charged. Out of an imported pool nothing can be allocated;
// pointers that are imported out of one of unknown origin are charged here, each by its size, until
// they are freed.
//
// Whoever has imported a pool, or a pointer out of it, has its piece. When the exporter has ended,
// the driver keeps what importers still have, in chunks of the pool of which no call tells. So all
// that the pool had reserved by then (shown on the usage page) stays charged until nobody has the
// piece any more.
#include "charge.h"
#include "hooks.h"
#include "pool.h"
#include "share.h"
#include "sharekey.h"
#include "tie.h"

static int make_key(int fd, int type, struct weir_share_key *key) {
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && weir_share_key_of_file(fd, key) == 0;
}

// Ties a pool to a piece, of which the caller has a use that is the tie's afterwards. 0 or an
// errno.
static int tie(struct weir_state *state, CUmemoryPool pool, uint32_t piece) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    rc = weir_tie_make(state, WEIR_TIE_POOL, (uint64_t)(uintptr_t)pool, piece, WEIR_NO_OWNER);
    weir_unlock(&state->lock);
    return rc;
}

// A piece without bytes for a pool that is exported the first time. Its two uses are the tie's and
// that of weir_share_export. WEIR_NO_PIECE where there is nothing to tell.
static uint32_t take(struct weir_state *state, CUmemoryPool pool,
                     const struct weir_share_key *key) {
    uint32_t gpu, number = weir_pool_find(state, pool, &gpu);
    if (number == WEIR_NO_RESERVE || weir_ties_ready(state) != 0 || weir_lock(&state->lock))
        return WEIR_NO_PIECE;
    uint32_t piece = weir_share_take(state, key, gpu, 0);
    if (piece &&
        weir_tie_make(state, WEIR_TIE_POOL, (uint64_t)(uintptr_t)pool, piece, WEIR_NO_OWNER) != 0) {
        weir_share_untake(state, piece);
        piece = WEIR_NO_PIECE;
    }
    if (piece)
        weir_reserve_share(state, number);
    weir_unlock(&state->lock);
    return piece;
}

CUresult weir_cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, int type,
                                               uint64_t flags) {
    struct weir_state *state;
    struct weir_share_key key;
    CUresult result = WEIR_REAL(cuMemPoolExportToShareableHandle)(shareable, pool, type, flags);
    if (result != CUDA_SUCCESS || !shareable || !weir_enforced(&state) ||
        !make_key(*(int *)shareable, type, &key))
        return result;
    uint32_t piece = take(state, pool, &key);
    if (piece)
        weir_share_export(state, piece);
    return result;
}

CUresult weir_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable, int type,
                                                 uint64_t flags) {
    struct weir_state *state = NULL;
    struct weir_share_key key;
    enum weir_mode mode = !pool || weir_passing() ? WEIR_MODE_PASS : weir_enter(&state);
    if (mode == WEIR_MODE_PASS)
        return WEIR_REAL(cuMemPoolImportFromShareableHandle)(pool, shareable, type, flags);
    if (mode == WEIR_MODE_NEW || weir_lock_is_mine(&state->lock) || weir_ties_ready(state) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int keyed = make_key((int)(intptr_t)shareable, type, &key);
    uint32_t piece = weir_share_import(state, keyed ? &key : NULL);
    if (!piece)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = WEIR_REAL(cuMemPoolImportFromShareableHandle)(pool, shareable, type, flags);
    if (result == CUDA_SUCCESS && tie(state, *pool, piece) == 0)
        return result;
    if (result == CUDA_SUCCESS) {
        WEIR_REAL(cuMemPoolDestroy)(*pool);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_share_release(state, piece);
    return result;
}

// The piece of an imported pool that is charged to somebody else, with a use for the caller; or
// WEIR_NO_PIECE.
static uint32_t charged_elsewhere(struct weir_state *state, CUmemoryPool pool) {
    if (weir_lock(&state->lock))
        return WEIR_NO_PIECE;
    uint32_t piece =
        weir_tie_piece(state, weir_tie_find(state, WEIR_TIE_POOL, (uint64_t)(uintptr_t)pool));
    if (piece && weir_piece_at(state, piece)->state != WEIR_PIECE_TOLD)
        piece = WEIR_NO_PIECE;
    if (piece)
        weir_piece_use(state, piece);
    weir_unlock(&state->lock);
    return piece;
}

// Puts a pointer that was imported into the table, charged with its size or with nothing. Returns
// the code for the program; where that is an error, the pointer has been freed.
static CUresult enter(CUdeviceptr pointer, int charged) {
    struct weir_charge charge;
    CUdeviceptr base;
    CUdevice device;
    size_t bytes;
    CUresult result = WEIR_REAL(cuMemGetAddressRange_v2)(&base, &bytes, pointer);
    bytes = charged ? bytes : 0;
    if (result == CUDA_SUCCESS)
        result =
            WEIR_REAL(cuPointerGetAttribute)(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
    if (result == CUDA_SUCCESS)
        result = weir_charge_begin_on(&charge, WEIR_KIND_IMPORTED, device, 0, bytes);
    if (result == CUDA_SUCCESS)
        return weir_charge_end(&charge, CUDA_SUCCESS, pointer, bytes);
    WEIR_REAL(cuMemFree_v2)(pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void free_again(CUdeviceptr pointer) {
    struct weir_discharge discharge;
    if (weir_discharge_begin(&discharge, pointer) == CUDA_SUCCESS)
        weir_discharge_end(&discharge, WEIR_REAL(cuMemFree_v2)(pointer), pointer);
}

// Has a pointer hold a use of its pool's piece until it is freed, which is the caller's before.
// Returns as enter does.
static CUresult hold(struct weir_state *state, CUdeviceptr pointer, uint32_t piece) {
    CUresult result = enter(pointer, 0);
    int entered = result == CUDA_SUCCESS;
    if (entered && weir_lock(&state->lock) == 0) {
        if (weir_tie_make(state, WEIR_TIE_EXPORTED, pointer, piece, WEIR_NO_OWNER) != 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        weir_unlock(&state->lock);
    }
    if (result == CUDA_SUCCESS)
        return result;
    if (entered)
        free_again(pointer);
    weir_share_release(state, piece);
    return result;
}

CUresult weir_cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool,
                                     CUmemPoolPtrExportData *data) {
    struct weir_state *state;
    CUresult result = WEIR_REAL(cuMemPoolImportPointer)(pointer, pool, data);
    if (result != CUDA_SUCCESS || !pointer || !weir_enforced(&state))
        return result;
    uint32_t piece = charged_elsewhere(state, pool);
    return piece ? hold(state, *pointer, piece) : enter(*pointer, 1);
}
