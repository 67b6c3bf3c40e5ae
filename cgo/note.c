// note.c: see note.h. Notes need no answer; their sequence number is any but 0. One that finds no
// room in the socket is said again later.
#include "note.h"

#include "client.h"
#include "helper.h"
#include "movable.h"

#define NOTE_INTERVAL_MS 1000u
#define NOTE_SEQ 1u
// Of what is said once a process of movable memory.
#define NOTED_PLAIN 1u
#define NOTED_EXPORTED 2u

// Whether it is to be said again, since there was no room for it.
static int send_note(int fd, uint64_t cookie, uint32_t code, uint32_t a, uint64_t b) {
    struct weir_note note = {{WEIR_MSG_NOTE, sizeof(note), NOTE_SEQ}, code, a, b};
    return weir_client_send(fd, cookie, &note) == -EAGAIN;
}

void weir_note(struct weir_state *state, enum weir_note_bit note, uint32_t number, uint64_t bytes) {
    if (weir_lock(&state->lock))
        return;
    struct weir_gpu *gpu = &state->gpus[number];
    __atomic_store_n(&gpu->notes, gpu->notes | (uint32_t)note, __ATOMIC_RELAXED);
    if (note == WEIR_NOTE_BIT_REFUSED)
        gpu->refused_bytes = bytes;
    if (note == WEIR_NOTE_BIT_DRIVER_OOM)
        gpu->oom_bytes = bytes;
    weir_unlock(&state->lock);
    weir_helper_start(state);
    weir_notes_send(state);
}

static void send_gpu_notes(struct weir_state *state, uint32_t number, uint64_t now) {
    if (weir_lock(&state->lock))
        return;
    struct weir_gpu *gpu = &state->gpus[number];
    struct weir_gpu said = *gpu;
    int fd = state->fd;
    uint64_t cookie = state->cookie;
    int due = state->link_up && (!gpu->noted_ms || now - gpu->noted_ms >= NOTE_INTERVAL_MS);
    if (due) {
        __atomic_store_n(&gpu->notes, 0, __ATOMIC_RELAXED);
        gpu->noted_ms = now;
    }
    weir_unlock(&state->lock);
    if (!due)
        return;
    // A GPU that is not listed has no index by which something else could be said of it.
    int listed = said.known && said.index != WEIR_NO_INDEX;
    uint32_t left = 0;
    if (listed && (said.notes & WEIR_NOTE_BIT_REFUSED) &&
        send_note(fd, cookie, WEIR_NOTE_REFUSED, said.index, said.refused_bytes))
        left |= WEIR_NOTE_BIT_REFUSED;
    if (listed && (said.notes & WEIR_NOTE_BIT_DRIVER_OOM) &&
        send_note(fd, cookie, WEIR_NOTE_DRIVER_OOM, said.index, said.oom_bytes))
        left |= WEIR_NOTE_BIT_DRIVER_OOM;
    if (!listed && send_note(fd, cookie, WEIR_NOTE_UNKNOWN_GPU, number, 0))
        left = said.notes;
    if (!left || weir_lock(&state->lock))
        return;
    __atomic_store_n(&gpu->notes, gpu->notes | left, __ATOMIC_RELAXED);
    weir_unlock(&state->lock);
}

void weir_note_bound(struct weir_state *state, enum weir_bound bound, uint64_t value) {
    __atomic_store_n(&state->bounds_met[bound], value, __ATOMIC_RELAXED);
    __atomic_store_n(&state->bounds_wait, 1, __ATOMIC_RELEASE);
    if (weir_lock_is_mine(&state->lock))
        return;
    weir_helper_start(state);
    weir_notes_send(state);
}

static void send_bounds(struct weir_state *state, uint64_t now) {
    if (weir_lock(&state->lock))
        return;
    uint64_t last = state->bounds_noted_ms;
    int due = state->link_up && (!last || now - last >= NOTE_INTERVAL_MS);
    if (due) {
        state->bounds_noted_ms = now;
        __atomic_exchange_n(&state->bounds_wait, 0, __ATOMIC_ACQ_REL);
    }
    int fd = state->fd;
    uint64_t cookie = state->cookie;
    weir_unlock(&state->lock);
    for (uint32_t bound = 0; due && bound < WEIR_BOUNDS; bound++) {
        uint64_t value = __atomic_exchange_n(&state->bounds_met[bound], 0, __ATOMIC_RELAXED);
        uint64_t none = 0;
        if (!value || !send_note(fd, cookie, WEIR_NOTE_BOUND, bound, value))
            continue;
        __atomic_compare_exchange_n(&state->bounds_met[bound], &none, value, 0, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
        __atomic_store_n(&state->bounds_wait, 1, __ATOMIC_RELEASE);
    }
}

void weir_note_swap(struct weir_state *state) {
    weir_helper_start(state);
    weir_notes_send(state);
}

static void send_swap(struct weir_state *state, struct weir_swap *swap) {
    if (weir_lock(&state->lock))
        return;
    uint32_t exported = __atomic_load_n(&swap->exported, __ATOMIC_RELAXED);
    uint32_t plain = __atomic_load_n(&swap->plain, __ATOMIC_RELAXED);
    int unconverted = state->link_up && plain > 1 && !exported && !(swap->noted & NOTED_PLAIN);
    int tried = state->link_up && exported && !(swap->noted & NOTED_EXPORTED);
    swap->noted |= (unconverted ? NOTED_PLAIN : 0) | (tried ? NOTED_EXPORTED : 0);
    int fd = state->fd;
    uint64_t cookie = state->cookie;
    weir_unlock(&state->lock);
    uint32_t left = 0;
    if (unconverted && send_note(fd, cookie, WEIR_NOTE_UNCONVERTED, plain - 1,
                                 __atomic_load_n(&swap->exporter, __ATOMIC_RELAXED)))
        left |= NOTED_PLAIN;
    if (tried && send_note(fd, cookie, WEIR_NOTE_EXPORTED, exported, 0))
        left |= NOTED_EXPORTED;
    if (!left || weir_lock(&state->lock))
        return;
    swap->noted &= ~left;
    weir_unlock(&state->lock);
}

void weir_notes_send(struct weir_state *state) {
    struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    uint64_t now = weir_sys_now_ms();
    if (swap && __atomic_load_n(&swap->plain, __ATOMIC_RELAXED) > 1)
        send_swap(state, swap);
    if (__atomic_load_n(&state->bounds_wait, __ATOMIC_RELAXED))
        send_bounds(state, now);
    // What is said of a device that is not known is kept in the first place.
    uint32_t used = __atomic_load_n(&state->gpus_used, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX && (i == 0 || i < used); i++)
        if (__atomic_load_n(&state->gpus[i].notes, __ATOMIC_RELAXED))
            send_gpu_notes(state, i, now);
    if (!__atomic_load_n(&state->note_forked, __ATOMIC_RELAXED) || weir_lock(&state->lock))
        return;
    int due = state->link_up && state->note_forked;
    if (due)
        __atomic_store_n(&state->note_forked, 0, __ATOMIC_RELAXED);
    int fd = state->fd;
    uint64_t cookie = state->cookie;
    weir_unlock(&state->lock);
    if (due && send_note(fd, cookie, WEIR_NOTE_FORKED, 0, 0))
        __atomic_store_n(&state->note_forked, 1, __ATOMIC_RELAXED);
}

void weir_note_bad_page(struct weir_state *state, int fd, uint64_t cookie) {
    if (!state->bad_page_noted)
        state->bad_page_noted =
            !send_note(fd, cookie, WEIR_NOTE_BAD_PAGE, state->bad_page, state->bad_page_abi);
}
