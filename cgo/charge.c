// charge.c: see charge.h, and credit.h for the books.
#include "charge.h"

#include "ask.h"
#include "credit.h"
#include "gpu.h"
#include "hooks.h"
#include "note.h"

static uint64_t round_up(uint64_t bytes) {
    return (bytes + WEIR_CHARGE_UNIT - 1) & ~(uint64_t)(WEIR_CHARGE_UNIT - 1);
}

// Gives back a part of what is owned for an allocation or, where that comes to nothing, all of it
// and its owner.
static void give_back(struct weir_charge *charge, uint64_t bytes, int for_good) {
    struct weir_state *state = charge->state;
    if (weir_lock(&state->lock))
        return;
    weir_credit_give(state, charge->gpu, bytes);
    if (for_good)
        weir_owner_release(&state->owners, charge->owner);
    weir_unlock(&state->lock);
}

// Asks the agent for what is not in the credit word.
static CUresult ask_for(struct weir_charge *charge, uint64_t bytes) {
    struct weir_state *state = charge->state;
    int rc = weir_ask_credit(state, charge->gpu, charge->kind, bytes);
    if (rc == ENODEV)
        weir_note(state, WEIR_NOTE_BIT_UNKNOWN, charge->gpu, 0);
    else if (rc != 0 && rc != EDQUOT)
        weir_note(state, WEIR_NOTE_BIT_REFUSED, charge->gpu, bytes);
    return rc ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
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
    CUresult result = known ? ask_for(charge, charge->bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (known && result != CUDA_SUCCESS)
        give_back(charge, 0, 1);
    return result;
}

// Makes more bytes owned for an allocation.
static CUresult get_more_credit(struct weir_charge *charge, uint64_t bytes) {
    struct weir_state *state = charge->state;
    if (weir_lock(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int taken = weir_credit_take(state, charge->gpu, bytes);
    weir_unlock(&state->lock);
    return taken ? CUDA_SUCCESS : ask_for(charge, bytes);
}

CUresult weir_charge_begin(struct weir_charge *charge, uint32_t kind, uint64_t bytes) {
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
    enum weir_mode mode = weir_enter(&charge->state);
    if (mode == WEIR_MODE_PASS) {
        charge->state = NULL;
        return CUDA_SUCCESS;
    }
    if (mode == WEIR_MODE_NEW || bytes > WEIR_ALLOCATION_BYTES_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (weir_gpu_know(charge->state, device) != 0) {
        weir_note(charge->state, WEIR_NOTE_BIT_UNKNOWN, 0, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    charge->gpu = (uint32_t)device;
    charge->kind = kind;
    charge->bytes = round_up(bytes);
    return get_credit(charge, (uint64_t)(uintptr_t)context);
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

// Gives back the charge of an entry that is in the table no more. Lock held.
static void give_back_entry(struct weir_state *state, const struct weir_entry *entry) {
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
            give_back_entry(state, &old);
        weir_unlock(&state->lock);
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
        CUresult result = get_more_credit(charge, bytes - charge->bytes);
        if (result != CUDA_SUCCESS)
            return result;
    } else if (bytes < charge->bytes) {
        give_back(charge, charge->bytes - bytes, 0);
    }
    charge->bytes = bytes;
    return CUDA_SUCCESS;
}

// Frees what could not be charged, without disturbing a stream capture of the program's.
static CUresult undo(CUdeviceptr pointer) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int exchanged = WEIR_REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
    CUresult result = WEIR_REAL(cuMemFree_v2)(pointer);
    if (exchanged)
        WEIR_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result;
}

CUresult weir_charge_end(struct weir_charge *charge, CUresult result, CUdeviceptr pointer,
                         uint64_t bytes) {
    struct weir_state *state = charge->state;
    if (!state)
        return result;
    if (result != CUDA_SUCCESS ||
        !pointer) {  // no address is no memory: nothing that could be freed
        give_back(charge, charge->bytes, 1);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, charge->gpu, charge->bytes);
        return result;
    }
    result = bytes <= WEIR_ALLOCATION_BYTES_MAX ? adjust(charge, round_up(bytes))
                                                : CUDA_ERROR_OUT_OF_MEMORY;
    struct weir_entry entry = {
        .pointer = pointer, .bytes = charge->bytes, .owner = (uint16_t)charge->owner};
    if (result == CUDA_SUCCESS && put(state, &entry) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        return result;
    // What the driver does not take back stays charged.
    if (undo(pointer) == CUDA_SUCCESS)
        give_back(charge, charge->bytes, 1);
    return result;
}

CUresult weir_discharge_begin(struct weir_discharge *discharge, CUdeviceptr pointer) {
    if (!weir_enforced(&discharge->state)) {
        discharge->state = NULL;
        return CUDA_SUCCESS;
    }
    weir_table_prefetch(&discharge->state->table, pointer);
    discharge->stamp = weir_table_stamp(&discharge->state->table);
    return weir_lock_is_mine(&discharge->state->lock) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

// The entry is taken out after the driver's call, so a free that fails has changed nothing. table.h
// says how it is told from that of another thread which was given the address meanwhile.
void weir_discharge_end(const struct weir_discharge *discharge, CUresult result,
                        CUdeviceptr pointer) {
    struct weir_state *state = discharge->state;
    struct weir_entry entry;
    if (!state || result != CUDA_SUCCESS || weir_lock(&state->lock))
        return;
    if (weir_table_take(&state->table, pointer, discharge->stamp, &entry) == 0)
        give_back_entry(state, &entry);
    weir_unlock(&state->lock);
}

uint32_t weir_context_retire(struct weir_state **state, uint64_t context) {
    if (!weir_enforced(state) || weir_lock(&(*state)->lock))
        return 0;
    uint32_t ticket = weir_owner_retire(&(*state)->owners, context);
    weir_unlock(&(*state)->lock);
    return ticket;
}

void weir_context_restore(struct weir_state *state, uint32_t ticket) {
    if (!ticket || weir_lock(&state->lock))
        return;
    weir_owner_restore(&state->owners, ticket);
    weir_unlock(&state->lock);
}

void weir_context_ended(struct weir_state *state, uint32_t ticket) {
    uint64_t cursor = 0;
    for (int more = ticket != 0; more;) {
        uint64_t freed_bytes[WEIR_ORDINALS_MAX] = {0};
        if (weir_lock(&state->lock))
            return;
        more = weir_table_sweep(&state->table, &cursor, &state->owners, ticket, freed_bytes);
        for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
            if (freed_bytes[i])
                weir_credit_give(state, i, freed_bytes[i]);
        weir_unlock(&state->lock);
    }
}
