// making.c: see making.h.
#include "making.h"

#include "ask.h"
#include "code.h"
#include "gpu.h"
#include "helper.h"
#include "hooks.h"
#include "mover.h"
#include "note.h"
#include "reserve.h"

// How long a thread waits for another one that makes a context, which takes a driver 0.1 to 0.3 s.
#define TURN_WAIT_MS 10000u

void weir_turn_take(struct weir_state *state, uint32_t gpu) {
    uint32_t *turn = &state->gpus[gpu].turn;
    for (uint32_t left_ms = TURN_WAIT_MS; left_ms; left_ms--) {
        if (!__atomic_exchange_n(turn, 1, __ATOMIC_ACQ_REL))
            return;
        weir_sys_sleep_ms(1);
    }
}

void weir_turn_end(struct weir_state *state, uint32_t gpu) {
    __atomic_store_n(&state->gpus[gpu].turn, 0, __ATOMIC_RELEASE);
}

static void take_turn(struct weir_making *making) {
    if (!making->in_turn)
        weir_turn_take(making->state, making->gpu);
    making->in_turn = 1;
}

static void end_turn(struct weir_making *making) {
    if (making->in_turn)
        weir_turn_end(making->state, making->gpu);
    making->in_turn = 0;
}

// Obtains what the context will take, and what the code of libraries in it will.
static CUresult obtain(struct weir_making *making) {
    struct weir_state *state = making->state;
    uint64_t bytes = making->terms.counted ? making->terms.context_bytes : 0;
    struct weir_context context = {
        .gpu = making->gpu, .counted = making->terms.counted, .making = 1};
    CUresult result = weir_obtain(state, making->gpu, WEIR_KIND_CONTEXT, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    context.bytes[WEIR_PART_CONTEXT] = bytes;
    if (weir_contexts_enter(state, &context, &making->place) != 0) {
        weir_give_back(state, making->gpu, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = weir_libraries_balance(state);
    if (result != CUDA_SUCCESS)
        weir_contexts_drop(state, making->place);
    return result;
}

// Whether the primary context is in the books, and is not being ended.
static int primary_is_known(struct weir_state *state, uint32_t gpu) {
    struct weir_context context;
    uint64_t handle = __atomic_load_n(&state->gpus[gpu].primary, __ATOMIC_RELAXED);
    unsigned flags;
    int active;
    return weir_contexts_look(state, handle, &context) == 0 && !context.ticket &&
           WEIR_REAL(cuDevicePrimaryCtxGetState)((CUdevice)gpu, &flags, &active) == CUDA_SUCCESS &&
           active;
}

// Finds what is known and, while what a context takes is not, has one thread make one at a time, so
// that what the process gains by it is one context's.
static CUresult begin(struct weir_making *making, int primary) {
    struct weir_state *state = making->state;
    if (primary) {
        take_turn(making);
        making->known = primary_is_known(state, making->gpu) != 0;
        if (making->known)
            return CUDA_SUCCESS;
    }
    CUresult result = weir_terms_read(state, making->gpu, &making->terms);
    if (result == CUDA_SUCCESS && making->terms.counted && !making->terms.context_bytes) {
        take_turn(making);
        result = weir_terms_read(state, making->gpu, &making->terms);
        if (making->terms.context_bytes && !primary)
            end_turn(making);
    }
    return result == CUDA_SUCCESS ? obtain(making) : result;
}

static CUresult begin_on(struct weir_making *making, CUdevice device, int primary) {
    struct weir_state *state;
    *making = (struct weir_making){.state = NULL};
    if (weir_passing())
        return CUDA_SUCCESS;
    enum weir_mode mode = weir_enter(&state);
    if (mode == WEIR_MODE_PASS)
        return CUDA_SUCCESS;
    if (mode == WEIR_MODE_NEW || weir_lock_is_mine(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (weir_gpu_know(state, device) != 0)
        return CUDA_SUCCESS;
    *making = (struct weir_making){.state = state, .gpu = (uint32_t)device};
    CUresult result = begin(making, primary);
    if (result == CUDA_SUCCESS)
        return result;
    end_turn(making);
    making->state = NULL;
    // The wait for the agent may have brought its word that this process is to run without caps.
    return weir_passing() ? CUDA_SUCCESS : result;
}

CUresult weir_making_begin(struct weir_making *making, CUdevice device) {
    return begin_on(making, device, 0);
}

CUresult weir_making_begin_primary(struct weir_making *making, CUdevice device) {
    return begin_on(making, device, 1);
}

// Learns what the context takes that has just been made, and obtains it.
static CUresult measure(struct weir_making *making, uint64_t *context_bytes) {
    struct weir_state *state = making->state;
    uint64_t counted_bytes;
    uint32_t contexts = weir_contexts_count(state, making->gpu, &counted_bytes);
    uint64_t owned = __atomic_load_n(&state->gpus[making->gpu].owned_bytes, __ATOMIC_RELAXED);
    uint64_t other_bytes = owned > counted_bytes ? owned - counted_bytes : 0;
    int rc = weir_ask_measure(state, making->gpu, contexts, other_bytes, context_bytes);
    if (rc != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return weir_obtain(state, making->gpu, WEIR_KIND_CONTEXT, *context_bytes);
}

// Takes back a context that is not to be had after all. What the driver does not take back stays
// charged.
static void take_back(struct weir_making *making, uint64_t handle, weir_undo_fn *undo,
                      uint64_t undone) {
    struct weir_state *state = making->state;
    uint32_t ticket = weir_ending_begin(&state, handle);
    int ended = weir_take_back(undo, undone) == CUDA_SUCCESS;
    weir_ending_end(state, ticket, ended);
    if (ended)
        weir_contexts_drop(state, making->place);
    else
        weir_contexts_name(state, making->place, handle, 0);
}

CUresult weir_making_end(struct weir_making *making, CUresult result, uint64_t handle,
                         weir_undo_fn *undo, uint64_t undone) {
    struct weir_state *state = making->state;
    // What is not counted is shown: it is the same figure, if it is known.
    uint64_t bytes = making->terms.counted ? 0 : making->terms.context_bytes;
    if (!state)
        return result;
    weir_helper_start(state);
    if (making->known) {
        end_turn(making);
        return result;
    }
    if (result != CUDA_SUCCESS) {
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            weir_note(state, WEIR_NOTE_BIT_DRIVER_OOM, making->gpu, making->terms.context_bytes);
        weir_contexts_drop(state, making->place);
        end_turn(making);
        return result;
    }
    if (making->terms.counted && !making->terms.context_bytes)
        result = measure(making, &bytes);
    if (result == CUDA_SUCCESS || weir_passing()) {
        weir_contexts_name(state, making->place, handle, bytes);
        result = CUDA_SUCCESS;
    } else {
        take_back(making, handle, undo, undone);
    }
    end_turn(making);
    return result;
}

uint32_t weir_ending_begin(struct weir_state **state, uint64_t handle) {
    uint32_t ticket = handle ? weir_context_retire(state, handle) : 0;
    if (ticket) {
        weir_contexts_retire(*state, handle, ticket);
        weir_mover_context_ending(*state, handle);
    }
    return ticket;
}

void weir_ending_end(struct weir_state *state, uint32_t ticket, int ended) {
    if (!ticket)
        return;
    if (ended) {
        weir_context_ended(state, ticket);
        weir_codes_ended(state, ticket);
        weir_contexts_ended(state, ticket);
        // The driver has waited for its work, and may have looked at its pools.
        weir_settle_if_loose();
    } else {
        weir_context_restore(state, ticket);
        weir_contexts_restore(state, ticket);
    }
}

void weir_ending_emptied(struct weir_state *state, uint32_t ticket) {
    weir_context_ended(state, ticket);
    weir_codes_ended(state, ticket);
    weir_contexts_emptied(state, ticket);
    weir_settle_if_loose();
}
