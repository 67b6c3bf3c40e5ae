// report.c: see report.h. The agent writes cap and charges of a GPU under a sequence number that is
// odd meanwhile; a reader that meets it too often takes what it has: reports are advice, the credit
// is what holds.
#include "report.h"

#include "ask.h"
#include "convert.h"
#include "gpu.h"
#include "hooks.h"

#define READ_TRIES 64

struct control_words {
    uint64_t generation;
    uint32_t sequence;
    uint32_t holders;
    uint64_t cap_bytes;
    uint64_t charged_bytes;
    uint64_t swap_bytes;
    uint64_t movable_bytes;
};

// Reads the words of one GPU as they were at one moment. The generation tells a page from the one
// that a new connection puts in its place.
static void read_control(const struct weir_control_page *page, uint32_t index,
                         struct control_words *words) {
    const struct weir_gpu_control *gpu = &page->gpus[index];
    for (int i = 0; i < READ_TRIES; i++) {
        words->generation = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
        words->sequence = __atomic_load_n(&gpu->sequence, __ATOMIC_ACQUIRE);
        words->holders = __atomic_load_n(&gpu->holders, __ATOMIC_ACQUIRE);
        words->cap_bytes = __atomic_load_n(&gpu->cap_bytes, __ATOMIC_ACQUIRE);
        words->charged_bytes = __atomic_load_n(&gpu->charged_bytes, __ATOMIC_ACQUIRE);
        words->swap_bytes = __atomic_load_n(&gpu->swap_bytes, __ATOMIC_ACQUIRE);
        words->movable_bytes = __atomic_load_n(&gpu->movable_bytes, __ATOMIC_ACQUIRE);
        if (!(words->sequence & 1) &&
            __atomic_load_n(&gpu->sequence, __ATOMIC_RELAXED) == words->sequence &&
            __atomic_load_n(&page->generation, __ATOMIC_RELAXED) == words->generation)
            return;
        weir_sys_pause();
    }
}

// What such a process has freed the agent knows when it has read that: it is to be asked.
static int had_movable(struct weir_state *state) {
    const struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    return swap && __atomic_load_n(&swap->ids, __ATOMIC_RELAXED) != 0;
}

// What swap does to a report. Of a GPU that only NVML was asked about nothing is decided here.
static void add_swap(struct weir_state *state, uint32_t number, uint32_t index,
                     const struct control_words *words, struct weir_report *report) {
    const struct weir_gpu_control *page = &state->control->gpus[index];
    if (!words->swap_bytes)
        return;
    report->swap =
        number >= WEIR_ORDINALS_MAX || had_movable(state) || weir_convertible(state, number);
    report->is_virtual =
        report->swap && (__atomic_load_n(&page->flags, __ATOMIC_RELAXED) & WEIR_GPU_VIRTUAL);
    if (report->is_virtual && words->swap_bytes < WEIR_UNLIMITED - words->cap_bytes)
        report->cap_bytes += words->swap_bytes;
}

// What the page and this process's own credit say. Returns whether that is exact: nobody else in
// the container has credit that the agent could recall for us.
static int read_page(struct weir_state *state, uint32_t number, uint32_t index,
                     struct weir_report *report) {
    struct control_words words;
    read_control(state->control, index, &words);
    report->cap_bytes = report->free_bytes = words.cap_bytes;
    if (words.cap_bytes == WEIR_UNLIMITED)
        return 1;
    add_swap(state, number, index, &words, report);
    uint64_t credit = __atomic_load_n(&state->usage->gpus[index].credit_bytes, __ATOMIC_RELAXED);
    uint64_t owned = __atomic_load_n(&state->gpus[number].owned_bytes, __ATOMIC_RELAXED);
    uint64_t others = words.charged_bytes > credit ? words.charged_bytes - credit : 0;
    others += words.movable_bytes;
    report->free_bytes = report->cap_bytes > others ? report->cap_bytes - others : 0;
    if (had_movable(state))
        return 0;
    return words.holders == 0 || (words.holders == 1 && (credit || owned));
}

static void ask(struct weir_state *state, uint32_t number, struct weir_report *report) {
    struct weir_room room;
    if (weir_ask_room(state, number, &room) != 0)
        return;
    if (!report->is_virtual)
        report->cap_bytes = room.cap_bytes;
    report->free_bytes =
        report->cap_bytes > room.used_bytes ? report->cap_bytes - room.used_bytes : 0;
    if (report->cap_bytes == WEIR_UNLIMITED)
        report->free_bytes = WEIR_UNLIMITED;
}

// About a GPU by its number in the state.
static void read_report(struct weir_state *state, uint32_t number, int want_free,
                        struct weir_report *report) {
    uint32_t index = __atomic_load_n(&state->gpus[number].index, __ATOMIC_RELAXED);
    int up = (int)__atomic_load_n(&state->link_up, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&state->control, __ATOMIC_ACQUIRE) || index == WEIR_NO_INDEX) {
        if (!up)
            ask(state, number, report);
        return;
    }
    if (!read_page(state, number, index, report) && want_free && up)
        ask(state, number, report);
}

// Begins a report. Whether there is anything to find out.
static int begin(struct weir_state **state, struct weir_report *report) {
    *report = (struct weir_report){.cap_bytes = WEIR_UNLIMITED, .free_bytes = WEIR_UNLIMITED};
    enum weir_mode mode = weir_enter(state);
    if (mode == WEIR_MODE_PASS)
        return 0;
    report->free_bytes = 0;  // unless we learn better: what is not listed is refused
    return mode != WEIR_MODE_NEW;
}

void weir_report(CUdevice device, int want_free, struct weir_report *report) {
    struct weir_state *state;
    if (begin(&state, report) && weir_gpu_know(state, device) == 0)
        read_report(state, (uint32_t)device, want_free, report);
}

void weir_report_uuid(const uint8_t uuid[16], int want_free, struct weir_report *report) {
    struct weir_state *state;
    if (!begin(&state, report))
        return;
    uint32_t number = weir_gpu_number(state, uuid);
    if (number != WEIR_NO_INDEX)
        read_report(state, number, want_free, report);
}

void weir_report_lower(const struct weir_report *report, uint64_t *free_bytes,
                       uint64_t *total_bytes) {
    if (report->is_virtual || report->cap_bytes < *total_bytes)
        *total_bytes = report->cap_bytes;
    if (report->swap || report->free_bytes < *free_bytes)
        *free_bytes = report->free_bytes < *total_bytes ? report->free_bytes : *total_bytes;
}
