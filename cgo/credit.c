// credit.c: see credit.h for the invariant and why it holds.
#include "credit.h"

#include <string.h>

#include "contexts.h"
#include "reserve.h"

static uint64_t *credit_word(struct weir_state *state, uint32_t index) {
    return &state->usage->gpus[index].credit_bytes;
}

// Whether there is credit to be taken: a page is open, and the container is not over its cap. Over
// it, which a cap is that was lowered below what is in use, unused credit is the agent's to recall:
// it must be asked.
static int can_take(const struct weir_state *state, const struct weir_gpu *gpu) {
    if (!state->page_open || !gpu->known || gpu->index == WEIR_NO_INDEX)
        return 0;
    const struct weir_gpu_control *page = &state->control->gpus[gpu->index];
    return __atomic_load_n(&page->charged_bytes, __ATOMIC_RELAXED) <=
           __atomic_load_n(&page->cap_bytes, __ATOMIC_RELAXED);
}

static void set_owned(struct weir_gpu *gpu, uint64_t bytes) {
    __atomic_store_n(&gpu->owned_bytes, bytes, __ATOMIC_RELAXED);
}

int weir_credit_take(struct weir_state *state, uint32_t number, uint64_t bytes) {
    struct weir_gpu *gpu = &state->gpus[number];
    if (!can_take(state, gpu))
        return 0;
    uint64_t *word = credit_word(state, gpu->index);
    uint64_t have = __atomic_load_n(word, __ATOMIC_RELAXED);
    do {
        if (have < bytes)
            return 0;
    } while (!__atomic_compare_exchange_n(word, &have, have - bytes, 0, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    set_owned(gpu, gpu->owned_bytes + bytes);
    return 1;
}

uint64_t weir_credit_at_hand(const struct weir_state *state, uint32_t number) {
    const struct weir_gpu *gpu = &state->gpus[number];
    if (!can_take(state, gpu))
        return 0;
    return __atomic_load_n(&state->usage->gpus[gpu->index].credit_bytes, __ATOMIC_RELAXED);
}

void weir_credit_grant(struct weir_state *state, uint32_t number, uint64_t bytes) {
    struct weir_gpu *gpu = &state->gpus[number];
    set_owned(gpu, gpu->owned_bytes + bytes);
}

void weir_credit_grant_late(struct weir_state *state, uint32_t index, uint64_t bytes) {
    if (state->page_open && index < state->gpu_count)
        __atomic_fetch_add(credit_word(state, index), bytes, __ATOMIC_ACQ_REL);
}

void weir_credit_move(struct weir_state *state, uint32_t number, uint64_t bytes) {
    struct weir_gpu *gpu = &state->gpus[number];
    set_owned(gpu, gpu->owned_bytes - bytes);
}

void weir_credit_give(struct weir_state *state, uint32_t number, uint64_t bytes) {
    struct weir_gpu *gpu = &state->gpus[number];
    set_owned(gpu, gpu->owned_bytes - bytes);
    if (state->page_open && gpu->index != WEIR_NO_INDEX)
        __atomic_fetch_add(credit_word(state, gpu->index), bytes, __ATOMIC_ACQ_REL);
    else
        gpu->pending_bytes += bytes;
}

// The entry of HELLO for a GPU. Two ordinals may be one GPU: the old form of the UUID call does not
// tell MIG instances apart.
static struct weir_held *held_entry(struct weir_hello *hello, const uint8_t uuid[16]) {
    for (uint32_t i = 0; i < hello->held_count; i++)
        if (memcmp(hello->held[i].uuid, uuid, 16) == 0)
            return &hello->held[i];
    struct weir_held *held = &hello->held[hello->held_count++];
    memcpy(held->uuid, uuid, 16);
    held->bytes = 0;
    return held;
}

void weir_credit_declare(struct weir_state *state, struct weir_hello *hello) {
    state->page_open = 0;
    hello->held_count = 0;
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX && i < state->gpus_used; i++) {
        struct weir_gpu *gpu = &state->gpus[i];
        if (!gpu->known)
            continue;
        gpu->pending_bytes = 0;
        if (gpu->owned_bytes || !state->session)
            held_entry(hello, gpu->uuid)->bytes += gpu->owned_bytes;
    }
}

uint32_t weir_credit_index(const struct weir_state *state, const uint8_t uuid[16]) {
    for (uint32_t i = 0; i < state->gpu_count; i++)
        if (memcmp(state->control->gpus[i].uuid, uuid, 16) == 0)
            return i;
    return WEIR_NO_INDEX;
}

void weir_credit_open(struct weir_state *state, uint32_t gpu_count) {
    __atomic_store_n(&state->gpu_count, gpu_count, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < state->gpus_used; i++) {
        struct weir_gpu *gpu = &state->gpus[i];
        if (!gpu->known)
            continue;
        uint32_t index = weir_credit_index(state, gpu->uuid);
        __atomic_store_n(&gpu->index, index, __ATOMIC_RELAXED);
        if (index == WEIR_NO_INDEX || !gpu->pending_bytes)
            continue;
        __atomic_fetch_add(credit_word(state, index), gpu->pending_bytes, __ATOMIC_ACQ_REL);
        gpu->pending_bytes = 0;
    }
    state->page_open = 1;
    weir_contexts_show(state);
    weir_reserves_show(state);
}
