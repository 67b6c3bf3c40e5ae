// reserve.c: the book of reserves; see reserve.h.
#include "reserve.h"

#include "credit.h"
#include "hooks.h"
#include "note.h"
#include "share.h"
#include "tie.h"

static CUmemoryPool pool_of(uint64_t handle) {
    return (CUmemoryPool)(uintptr_t)handle;
}

CUresult weir_reserved(enum weir_kind kind, uint64_t handle, uint64_t *bytes) {
    *bytes = 0;
    if (kind == WEIR_KIND_POOL)
        return WEIR_REAL(cuMemPoolGetAttribute)(pool_of(handle),
                                                CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes);
    return WEIR_REAL(cuDeviceGetGraphMemAttribute)((CUdevice)handle,
                                                   CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes);
}

// Of graphs' memory it would say nothing: a graph that is not running keeps its place in it.
uint64_t weir_reserve_used(enum weir_kind kind, uint64_t handle) {
    uint64_t bytes = 0;
    if (kind == WEIR_KIND_POOL)
        WEIR_REAL(cuMemPoolGetAttribute)(pool_of(handle), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
    return bytes;
}

static void set_loose(struct weir_state *state) {
    __atomic_store_n(&state->loose, 1, __ATOMIC_RELAXED);
}

uint32_t weir_reserve_move(struct weir_reserve *reserve) {
    uint32_t moves = reserve->moves + 1;
    __atomic_store_n(&reserve->moves, moves, __ATOMIC_RELAXED);
    return moves;
}

// Shows what pools of a GPU that others may have imported have reserved. Lock held.
static void show(struct weir_state *state, uint32_t gpu) {
    uint32_t index = state->gpus[gpu].index;
    if (state->page_open && index < WEIR_GPUS_MAX)
        __atomic_store_n(&state->usage->gpus[index].pooled_bytes, state->gpus[gpu].pooled_bytes,
                         __ATOMIC_RELAXED);
}

void weir_reserves_show(struct weir_state *state) {
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        if (state->gpus[i].pooled_bytes)
            show(state, i);
}

void weir_reserve_share(struct weir_state *state, uint32_t number) {
    struct weir_reserve *reserve = &state->reserves[number];
    if (reserve->shared)
        return;
    reserve->shared = 1;
    state->gpus[reserve->gpu].pooled_bytes += reserve->charged_bytes;
    show(state, reserve->gpu);
}

void weir_reserve_charge(struct weir_state *state, struct weir_reserve *reserve, uint64_t bytes) {
    uint64_t *total = &state->gpus[reserve->gpu].reserved_bytes;
    __atomic_store_n(total, *total + bytes - reserve->charged_bytes, __ATOMIC_RELAXED);
    if (reserve->shared) {
        state->gpus[reserve->gpu].pooled_bytes += bytes - reserve->charged_bytes;
        show(state, reserve->gpu);
    }
    if (bytes < reserve->charged_bytes)
        reserve->room_bytes = 0;
    reserve->charged_bytes = bytes;
    weir_reserve_move(reserve);
}

static int is(const struct weir_reserve *reserve, enum weir_kind kind, uint64_t handle) {
    return reserve->handle == handle && reserve->kind == kind;
}

uint32_t weir_reserve_number(struct weir_state *state, enum weir_kind kind, uint64_t handle) {
    if (is(&state->reserves[state->reserve_last], kind, handle))
        return state->reserve_last;
    for (uint32_t i = 0; i < state->reserves_used; i++)
        if (is(&state->reserves[i], kind, handle))
            return state->reserve_last = i;
    return WEIR_NO_RESERVE;
}

// One that is in use, or was until now and is still pinned by who took it out.
static int is_taken(const struct weir_reserve *reserve) {
    return reserve->kind || reserve->pins;
}

// Lock held.
static uint32_t make(struct weir_state *state, enum weir_kind kind, uint64_t handle, uint32_t gpu) {
    uint32_t number = 0;
    while (number < state->reserves_used && is_taken(&state->reserves[number]))
        number++;
    if (number == WEIR_RESERVES_MAX)
        return WEIR_NO_RESERVE;
    if (number == state->reserves_used)
        __atomic_store_n(&state->reserves_used, number + 1, __ATOMIC_RELAXED);
    // The count of moves goes on, for those that still look at what was here.
    uint64_t keep_bytes = kind == WEIR_KIND_GRAPH ? UINT64_MAX : 0;  // all, until it is trimmed
    state->reserves[number] = (struct weir_reserve){.handle = handle,
                                                    .keep_bytes = keep_bytes,
                                                    .moves = state->reserves[number].moves + 1,
                                                    .gpu = gpu,
                                                    .kind = kind};
    return number;
}

uint32_t weir_reserve_find(struct weir_state *state, enum weir_kind kind, uint64_t handle,
                           uint32_t *gpu) {
    if (weir_lock(&state->lock))
        return WEIR_NO_RESERVE;
    uint32_t number = weir_reserve_number(state, kind, handle);
    if (number != WEIR_NO_RESERVE)
        *gpu = state->reserves[number].gpu;
    weir_unlock(&state->lock);
    return number;
}

int weir_reserve_add(struct weir_state *state, enum weir_kind kind, uint64_t handle, uint32_t gpu) {
    int rc = weir_lock(&state->lock);
    if (rc)
        return rc;
    uint32_t number = weir_reserve_number(state, kind, handle);
    if (number == WEIR_NO_RESERVE)
        number = make(state, kind, handle, gpu);
    weir_unlock(&state->lock);
    if (number != WEIR_NO_RESERVE)
        return 0;
    weir_note_bound(state, WEIR_BOUND_POOLS, WEIR_RESERVES_MAX);
    return ENOSPC;
}

void weir_loosen(struct weir_state *state) {
    if (__atomic_load_n(&state->reserves_used, __ATOMIC_RELAXED) &&
        !__atomic_load_n(&state->loose, __ATOMIC_RELAXED))
        set_loose(state);
}

// Takes a look at a reserve that is in use and charged: a copy of it, and a pin, with which it
// stays in the book and the driver's handle valid. Whether there is one at which nothing goes on;
// where something does, one has to look again.
static int pin(struct weir_state *state, uint32_t number, struct weir_reserve *seen) {
    struct weir_reserve *reserve = &state->reserves[number];
    if (weir_lock(&state->lock))
        return 0;
    int charged = reserve->kind && reserve->gpu != WEIR_NO_INDEX;
    int quiet = charged && !reserve->busy;
    reserve->pins += (uint32_t)quiet;
    *seen = *reserve;
    weir_unlock(&state->lock);
    if (charged && !quiet)
        set_loose(state);
    return quiet;
}

static void unpin(struct weir_state *state, uint32_t number) {
    if (weir_lock(&state->lock))
        return;
    state->reserves[number].pins--;
    weir_unlock(&state->lock);
}

// Brings the charge to what was read, if nothing has gone on meanwhile. Where something has, where
// more is reserved than can be charged, and where it may shrink at some later call, one has to look
// again.
static void apply(struct weir_state *state, uint32_t number, uint32_t moves,
                  uint64_t reserved_bytes) {
    struct weir_reserve *reserve = &state->reserves[number];
    if (weir_lock(&state->lock))
        return;
    uint64_t charged_bytes = reserve->charged_bytes;
    int done = reserve->moves == moves && !reserve->busy;
    if (done && reserved_bytes > charged_bytes)
        done = weir_credit_take(state, reserve->gpu, reserved_bytes - charged_bytes);
    else if (done && reserved_bytes < charged_bytes)
        weir_credit_give(state, reserve->gpu, charged_bytes - reserved_bytes);
    if (done && reserved_bytes != charged_bytes)
        weir_reserve_charge(state, reserve, reserved_bytes);
    if (!done || reserved_bytes > reserve->keep_bytes)
        set_loose(state);
    weir_unlock(&state->lock);
}

// Takes a pool out of the book that nobody but the caller, with so many pins, looks at or grows.
// Whether it was there, and is not any more.
static int take_out(struct weir_state *state, uint32_t number, uint64_t handle, uint32_t pins) {
    struct weir_reserve *reserve = &state->reserves[number];
    if (weir_lock(&state->lock))
        return 0;
    int taken = is(reserve, WEIR_KIND_POOL, handle) && !reserve->busy && !reserve->waiting &&
                reserve->pins == pins;
    if (taken && reserve->gpu != WEIR_NO_INDEX) {
        weir_credit_give(state, reserve->gpu, reserve->charged_bytes);
        weir_reserve_charge(state, reserve, 0);
    }
    if (taken && reserve->shared)
        weir_tie_release(state, weir_tie_find(state, WEIR_TIE_POOL, handle));
    if (taken)
        reserve->kind = 0;
    weir_unlock(&state->lock);
    return taken;
}

int weir_reserve_remove(struct weir_state *state, uint32_t number, uint64_t handle) {
    return take_out(state, number, handle, 0);
}

// Pinned.
static void settle(struct weir_state *state, uint32_t number, const struct weir_reserve *seen) {
    enum weir_kind kind = (enum weir_kind)seen->kind;
    uint32_t moves = seen->moves;
    uint64_t reserved;
    if (weir_reserved(kind, seen->handle, &reserved) != CUDA_SUCCESS)
        return;
    // What was refused and could not be given back then; what an orphan does not need.
    if (reserved > seen->charged_bytes || (seen->orphan && reserved)) {
        weir_reserve_trim(state, number, seen->orphan ? 0 : seen->charged_bytes);
        moves = __atomic_load_n(&state->reserves[number].moves, __ATOMIC_ACQUIRE);
        if (weir_reserved(kind, seen->handle, &reserved) != CUDA_SUCCESS)
            return;
    }
    apply(state, number, moves, reserved);
    if (!seen->orphan)
        return;
    // The driver's turn to destroy it, once none of its memory is in use.
    if (!reserved && take_out(state, number, seen->handle, 1)) {
        WEIR_REAL(cuMemPoolDestroy)(pool_of(seen->handle));
        weir_share_settle(state);
    } else {
        set_loose(state);
    }
}

void weir_reserve_settle(struct weir_state *state, uint32_t number) {
    struct weir_reserve seen;
    if (!pin(state, number, &seen))
        return;
    settle(state, number, &seen);
    unpin(state, number);
}

static uint32_t places(const struct weir_state *state) {
    return __atomic_load_n(&state->reserves_used, __ATOMIC_RELAXED);
}

void weir_reserves_settle(struct weir_state *state) {
    __atomic_store_n(&state->loose, 0, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < places(state); i++)
        weir_reserve_settle(state, i);
}

// Has a reserve on a GPU give back what it does not use, unless there is room for `bytes` without.
// Whether there was.
static int make_room(struct weir_state *state, uint32_t number, uint32_t gpu, uint64_t bytes) {
    struct weir_reserve seen;
    if (!pin(state, number, &seen))
        return 0;
    int enough = 0;
    if (seen.gpu == gpu && seen.charged_bytes &&
        seen.charged_bytes > weir_reserve_used((enum weir_kind)seen.kind, seen.handle)) {
        enough = weir_obtainable(state, gpu, bytes) >= bytes;
        if (!enough)
            weir_reserve_trim(state, number, 0);
    }
    unpin(state, number);
    if (!enough)
        weir_reserve_settle(state, number);
    return enough;
}

void weir_reserves_make_room(struct weir_state *state, uint32_t gpu, uint64_t bytes) {
    if (!__atomic_load_n(&state->gpus[gpu].reserved_bytes, __ATOMIC_RELAXED))
        return;
    weir_reserves_settle(state);
    for (uint32_t i = 0; i < places(state); i++)
        if (make_room(state, i, gpu, bytes))
            return;
}

void weir_reserve_keep(struct weir_state *state, uint32_t number, uint64_t handle,
                       uint64_t keep_bytes) {
    if (weir_lock(&state->lock))
        return;
    if (state->reserves[number].handle == handle)
        state->reserves[number].keep_bytes = keep_bytes;
    weir_unlock(&state->lock);
    weir_loosen(state);
}

int weir_reserve_orphan(struct weir_state *state, uint32_t number, uint64_t handle) {
    struct weir_reserve *reserve = &state->reserves[number];
    if (weir_lock(&state->lock))
        return 0;
    int is_new = is(reserve, WEIR_KIND_POOL, handle) && !reserve->orphan;
    if (is_new) {
        reserve->orphan = 1;
        reserve->keep_bytes = 0;
        reserve->pins++;
    }
    weir_unlock(&state->lock);
    return is_new;
}

void weir_reserve_orphaned(struct weir_state *state, uint32_t number) {
    unpin(state, number);
    weir_reserve_settle(state, number);
}
