// charge.c: see charge.h, and credit.h for the books.
#include "charge.h"

#include "capture.h"
#include "credit.h"
#include "movable.h"
#include "note.h"
#include "reserve.h"
#include "share.h"
#include "tie.h"

// Ends a charge that has come to nothing.
static void abandon(struct weir_charge *charge) {
    struct weir_state *state = charge->state;
    if (weir_lock(&state->lock))
        return;
    weir_credit_give(state, charge->gpu, charge->bytes);
    weir_owner_release(&state->owners, charge->owner);
    weir_unlock(&state->lock);
}

// Finds the allocation's owner and makes `bytes` owned: out of the credit word, or by asking.
static CUresult get_credit(struct weir_charge *charge, uint64_t context) {
    struct weir_state *state = charge->state;
    if (weir_lock(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    charge->owner = weir_owner_use(&state->owners, context, charge->gpu);
    int known = charge->owner != WEIR_NO_OWNER;
    int taken = known && weir_credit_take(state, charge->gpu, charge->bytes);
    weir_unlock(&state->lock);
    if (taken)
        return CUDA_SUCCESS;
    if (!known)
        weir_note_bound(state, WEIR_BOUND_CONTEXTS, WEIR_OWNERS_MAX);
    uint64_t bytes = charge->bytes;
    charge->bytes = 0;
    CUresult result =
        known ? weir_obtain(state, charge->gpu, charge->kind, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        charge->bytes = bytes;
    else if (known)
        abandon(charge);
    return result;
}

CUresult weir_charge_begin_on(struct weir_charge *charge, enum weir_kind kind, CUdevice device,
                              uint64_t context, uint64_t bytes) {
    CUresult result = weir_obtain_enter(&charge->state, device);
    if (result != CUDA_SUCCESS || !charge->state)
        return result;
    if (bytes > WEIR_ALLOCATION_BYTES_MAX) {
        weir_note_bound(charge->state, WEIR_BOUND_BYTES, WEIR_ALLOCATION_BYTES_MAX);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge->gpu = (uint32_t)device;
    charge->kind = kind;
    charge->bytes = weir_charge_round(bytes);
    return get_credit(charge, context);
}

CUresult weir_charge_begin(struct weir_charge *charge, enum weir_kind kind, uint64_t bytes) {
    CUdevice device;
    CUcontext context;
    charge->state = NULL;
    if (weir_passing())
        return CUDA_SUCCESS;
    CUresult result = WEIR_REAL(cuCtxGetDevice)(&device);
    if (result == CUDA_SUCCESS)
        result = WEIR_REAL(cuCtxGetCurrent)(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return weir_charge_begin_on(charge, kind, device, (uint64_t)(uintptr_t)context, bytes);
}

static int feed_table(struct weir_state *state) {
    void *memory = weir_sys_map(WEIR_TABLE_FEED_BYTES);
    if (!memory)
        return ENOMEM;
    // A child finds zeros here as it does in the state, also if it was forked out of a signal
    // handler that interrupted us.
    weir_sys_madvise(memory, WEIR_TABLE_FEED_BYTES, WEIR_MADV_WIPEONFORK);
    int rc = weir_lock(&state->lock);
    if (rc == 0) {
        rc = weir_table_feed(&state->table, memory);
        weir_unlock(&state->lock);
    }
    if (rc != 0)
        weir_sys_unmap(memory, WEIR_TABLE_FEED_BYTES);
    return rc == EBUSY ? 0 : rc;  // another thread was faster
}

// Gives back the charge of an entry that is in the table no more, and ends its export if it was
// made before `stamp`. Lock held; what the agent is to hear waits for weir_share_settle.
static void give_back_entry(struct weir_state *state, const struct weir_entry *entry,
                            uint64_t stamp) {
    weir_tie_gone(state, entry->pointer, stamp);
    weir_credit_give(state, state->owners.owner[entry->owner].gpu, entry->bytes);
    weir_owner_release(&state->owners, entry->owner);
}

// Puts an entry into the table and feeds that as it needs. An older entry that gives way is one
// whose end we did not see, or that another thread is freeing at this moment. 0 or an errno.
static int put(struct weir_state *state, const struct weir_entry *entry) {
    struct weir_entry old;
    for (;;) {
        int rc = weir_lock(&state->lock);
        if (rc)
            return rc;
        rc = weir_table_put(&state->table, entry, &old);
        if (rc == 0 && old.pointer)
            give_back_entry(state, &old, UINT64_MAX);
        weir_unlock(&state->lock);
        weir_share_settle(state);
        if (rc != ENOMEM)
            return rc;
        rc = feed_table(state);
        if (rc)
            return rc;
    }
}

// Brings what is owned for an allocation to what it takes.
static CUresult adjust(struct weir_charge *charge, uint64_t bytes) {
    if (bytes > charge->bytes) {
        CUresult result =
            weir_obtain(charge->state, charge->gpu, charge->kind, bytes - charge->bytes);
        if (result != CUDA_SUCCESS)
            return result;
    } else {
        weir_give_back(charge->state, charge->gpu, charge->bytes - bytes);
    }
    charge->bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult weir_take_back(weir_undo_fn *undo, uint64_t handle) {
    int mode = weir_capture_relax();
    CUresult result = undo(handle);
    weir_capture_restore(mode);
    return result;
}

CUresult weir_charge_end_as(struct weir_charge *charge, CUresult result, enum weir_key_space space,
                            uint64_t handle, uint64_t bytes, weir_undo_fn *undo) {
    struct weir_state *state = charge->state;
    if (!state)
        return result;
    if (result != CUDA_SUCCESS ||
        !handle) {  // no address is no memory: nothing that could be freed
        abandon(charge);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, charge->gpu, charge->bytes);
        return result;
    }
    result = bytes <= WEIR_ALLOCATION_BYTES_MAX ? adjust(charge, weir_charge_round(bytes))
                                                : CUDA_ERROR_OUT_OF_MEMORY;
    struct weir_entry entry = {.pointer = weir_key(space, handle),
                               .bytes = charge->bytes,
                               .owner = (uint16_t)charge->owner};
    if (result == CUDA_SUCCESS && put(state, &entry) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        return result;
    // What the driver does not take back stays charged.
    if (weir_take_back(undo, handle) == CUDA_SUCCESS)
        abandon(charge);
    return result;
}

static CUresult free_pointer(uint64_t pointer) {
    return WEIR_REAL(cuMemFree_v2)(pointer);
}

CUresult weir_charge_end(struct weir_charge *charge, CUresult result, CUdeviceptr pointer,
                         uint64_t bytes) {
    return weir_charge_end_as(charge, result, WEIR_KEY_POINTER, pointer, bytes, free_pointer);
}

CUresult weir_discharge_begin(struct weir_discharge *discharge, uint64_t key) {
    if (!weir_enforced(&discharge->state)) {
        discharge->state = NULL;
        return CUDA_SUCCESS;
    }
    if (weir_lock_is_mine(&discharge->state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    weir_table_prefetch(&discharge->state->table, key);
    discharge->free = weir_table_free(&discharge->state->table, key);
    return CUDA_SUCCESS;
}

// The entry is taken out after the driver's call, so a free that fails has changed nothing. table.h
// says how it is told from that of another thread which was given the address meanwhile.
int weir_discharge_end(const struct weir_discharge *discharge, CUresult result, uint64_t key) {
    struct weir_state *state = discharge->state;
    struct weir_entry entry;
    if (!state || weir_lock(&state->lock))
        return 0;
    int known =
        result == CUDA_SUCCESS && weir_table_take(&state->table, key, discharge->free, &entry) == 0;
    if (known)
        give_back_entry(state, &entry, discharge->free.stamp);
    weir_table_freed(&state->table, discharge->free);
    weir_unlock(&state->lock);
    if (result != CUDA_SUCCESS)
        return 0;
    weir_share_settle(state);
    return known;
}

uint32_t weir_context_retire(struct weir_state **state, uint64_t context) {
    if (!weir_enforced(state) || weir_lock(&(*state)->lock))
        return 0;
    uint32_t ticket = weir_owner_retire(&(*state)->owners, context);
    weir_movables_retire(*state, context, ticket);
    weir_unlock(&(*state)->lock);
    return ticket;
}

void weir_context_restore(struct weir_state *state, uint32_t ticket) {
    if (!ticket || weir_lock(&state->lock))
        return;
    weir_owner_restore(&state->owners, ticket);
    weir_movables_restore(state, ticket);
    weir_unlock(&state->lock);
}

void weir_context_ended(struct weir_state *state, uint32_t ticket) {
    uint64_t cursor = 0;
    if (!ticket || weir_lock(&state->lock))
        return;
    weir_ties_end(state, ticket);
    weir_movables_ended(state, ticket);
    weir_unlock(&state->lock);
    weir_share_settle(state);
    weir_movables_tell(state);
    for (int more = 1; more;) {
        uint64_t freed_bytes[WEIR_ORDINALS_MAX] = {0};
        if (weir_lock(&state->lock))
            return;
        more = weir_table_sweep(&state->table, &cursor, &state->owners, ticket, freed_bytes);
        for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
            if (freed_bytes[i])
                weir_credit_give(state, i, freed_bytes[i]);
        weir_unlock(&state->lock);
    }
    weir_loosen(state);
}
