// obtain.c: see obtain.h, and credit.h for the books.
#include "obtain.h"

#include "ask.h"
#include "credit.h"
#include "gpu.h"
#include "note.h"
#include "reserve.h"

CUresult weir_obtain_enter(struct weir_state **state, CUdevice device) {
    enum weir_mode mode = weir_enter(state);
    if (mode == WEIR_MODE_PASS) {
        *state = NULL;
        return CUDA_SUCCESS;
    }
    if (mode == WEIR_MODE_NEW)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (weir_gpu_know(*state, device) != 0) {
        weir_note(*state, WEIR_NOTE_BIT_UNKNOWN, 0, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

int weir_obtain_at_hand(struct weir_state *state, uint32_t gpu, uint64_t bytes) {
    if (weir_lock(&state->lock))
        return 0;
    int taken = weir_credit_take(state, gpu, bytes);
    weir_unlock(&state->lock);
    return taken;
}

// What is surely free: the agent counts unused credit as charged, and may yet recall that of
// others.
static uint64_t surely_free(const struct weir_state *state, uint32_t gpu) {
    uint32_t index = __atomic_load_n(&state->gpus[gpu].index, __ATOMIC_RELAXED);
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_ACQUIRE);
    if (!page || index >= WEIR_GPUS_MAX)
        return 0;
    uint64_t cap_bytes = __atomic_load_n(&page->gpus[index].cap_bytes, __ATOMIC_RELAXED);
    uint64_t charged_bytes = __atomic_load_n(&page->gpus[index].charged_bytes, __ATOMIC_RELAXED);
    return cap_bytes > charged_bytes ? cap_bytes - charged_bytes : 0;
}

uint64_t weir_obtainable(struct weir_state *state, uint32_t gpu, uint64_t enough) {
    struct weir_room room;
    if (weir_lock(&state->lock))
        return 0;
    uint64_t free_bytes = weir_credit_at_hand(state, gpu);
    weir_unlock(&state->lock);
    free_bytes += surely_free(state, gpu);
    if (free_bytes >= enough)
        return free_bytes;
    return weir_ask_room(state, gpu, &room) == 0 ? room.free_bytes : 0;
}

// Asks the agent for what is not in the credit word.
static CUresult ask_for(struct weir_state *state, uint32_t gpu, enum weir_kind kind,
                        uint64_t bytes) {
    int rc = weir_ask_credit(state, gpu, kind, bytes);
    if (rc == ENODEV)
        weir_note(state, WEIR_NOTE_BIT_UNKNOWN, gpu, 0);
    else if (rc != 0 && rc != EDQUOT)
        weir_note(state, WEIR_NOTE_BIT_REFUSED, gpu, bytes);
    return rc ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult weir_obtain(struct weir_state *state, uint32_t gpu, enum weir_kind kind, uint64_t bytes) {
    if (!bytes)
        return CUDA_SUCCESS;
    if (bytes > WEIR_ALLOCATION_BYTES_MAX)
        weir_note_bound(state, WEIR_BOUND_BYTES, WEIR_ALLOCATION_BYTES_MAX);
    if (bytes > WEIR_ALLOCATION_BYTES_MAX || weir_lock_is_mine(&state->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (weir_obtain_at_hand(state, gpu, bytes))
        return CUDA_SUCCESS;
    weir_reserves_make_room(state, gpu, bytes);
    if (weir_obtain_at_hand(state, gpu, bytes))
        return CUDA_SUCCESS;
    return ask_for(state, gpu, kind, bytes);
}

void weir_give_back(struct weir_state *state, uint32_t gpu, uint64_t bytes) {
    if (!bytes || weir_lock(&state->lock))
        return;
    weir_credit_give(state, gpu, bytes);
    weir_unlock(&state->lock);
}
