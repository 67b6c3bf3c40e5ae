// used.c: see used.h.
#include "used.h"

#include <string.h>

#include "capture.h"
#include "client.h"
#include "graphused.h"

// A launch is looked at about so often; so many looks may be saved up, for launches that come in
// bursts. Without any the next one comes after some launches.
#define LOOK_NS 200000u
#define SAVED_MAX 64u
#define STEP_LEAST 61u
#define STEP_CHANCE 7u
// More parameters than any kernel has.
#define PARAMS_MAX 4096u
// How often the agent is told while others want the GPU, or something was used lately, and else;
// and of what is used on and on.
#define TELL_NS 10000000u
#define TELL_ALONE_NS 100000000u
#define LATELY_NS 1000000000u
#define AGAIN_NS 100000000u
// What ends `extra`, and what in it names the parameters and their length.
enum { EXTRA_END = 0, EXTRA_BUFFER = 1, EXTRA_BYTES = 2 };

// ---- What is used. Any thread ----

// Lock held.
static void mark(struct weir_swap *swap, uint64_t address) {
    uint32_t number = weir_movable_holding(swap, address);
    if (!number)
        return;
    struct weir_movable *movable = weir_movable_at(swap, number);
    movable->used = movable->named = 1;
    __atomic_fetch_or(&swap->used_some, 1ull << movable->gpu, __ATOMIC_RELAXED);
}

void weir_used_addresses_slow(struct weir_swap *swap, uint64_t a, uint64_t b) {
    if (weir_lock(&swap->state->lock))
        return;
    mark(swap, a);
    mark(swap, b);
    weir_unlock(&swap->state->lock);
}

// Each aligned word of some bytes of parameters. Lock held.
static void each_word(const struct weir_used_words *words, const void *bytes, size_t count) {
    for (size_t at = 0; at + sizeof(uint64_t) <= count; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)bytes + at, sizeof(word));
        words->each(words->swap, word, words->context);
    }
}

// The parameters in one piece. Whether that is how they are given.
static int look_at_extra(const struct weir_used_words *words, void **extra) {
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; extra && (uintptr_t)extra[0] != EXTRA_END; extra += 2) {
        if ((uintptr_t)extra[0] == EXTRA_BUFFER)
            buffer = extra[1];
        else if ((uintptr_t)extra[0] == EXTRA_BYTES && extra[1])
            bytes = *(const size_t *)extra[1];
        else
            return 0;
    }
    if (!buffer || weir_lock(&words->swap->state->lock))
        return 0;
    each_word(words, buffer, bytes);
    weir_unlock(&words->swap->state->lock);
    return 1;
}

// How long a parameter is, by the function's or the kernel's handle. Whether there is one.
static int param_bytes(cuFuncGetParamInfo_fn *info, CUfunction function, size_t index,
                       size_t *bytes) {
    size_t offset;
    return info(function, index, &offset, bytes) == CUDA_SUCCESS;
}

// The parameters one by one; how long each is, only the driver knows. 0 where that does not tell.
static int look_at_params(const struct weir_used_words *words, CUfunction function, void **params) {
    struct weir_lock *lock = &words->swap->state->lock;
    cuFuncGetParamInfo_fn *info = WEIR_REAL(cuFuncGetParamInfo);
    size_t bytes, index = 0;
    int mode = weir_capture_relax();
    if (!param_bytes(info, function, 0, &bytes))
        info = WEIR_REAL(cuKernelGetParamInfo);
    for (; index < PARAMS_MAX && param_bytes(info, function, index, &bytes); index++) {
        if (!params[index] || weir_lock(lock))
            break;
        each_word(words, params[index], bytes);
        weir_unlock(lock);
    }
    weir_capture_restore(mode);
    return index > 0;
}

int weir_used_words(const struct weir_used_words *words, CUfunction function, void **params,
                    void **extra) {
    return extra ? look_at_extra(words, extra) : params && look_at_params(words, function, params);
}

static void mark_word(struct weir_swap *swap, uint64_t word, void *context) {
    (void)context;
    mark(swap, word);
    __atomic_store_n(&swap->launched, UINT64_MAX, __ATOMIC_RELAXED);
}

// Whether a launch in this lane, which counts it already, is to be looked at; if so, when the next
// one is.
static int is_due(struct weir_busy_lane *lane) {
    uint64_t launches = lane->launches, step = 1;
    if (launches < WEIR_GET(lane->used_at))
        return 0;
    uint64_t now_ns = weir_busy_clock();
    if (now_ns - lane->used_ns > SAVED_MAX * LOOK_NS)
        lane->used_ns = now_ns - SAVED_MAX * LOOK_NS;
    lane->used_ns += LOOK_NS;
    if (lane->used_ns > now_ns) {
        lane->used_ns = now_ns;
        step = STEP_LEAST + (now_ns >> 4) % STEP_CHANCE;
    }
    WEIR_PUT(lane->used_at, launches + step - 1);
    weir_busy_sample_at(lane, WEIR_GET(lane->sample_at));
    return 1;
}

void weir_used_kernel_slow(struct weir_swap *swap, struct weir_busy_lane *lane, CUfunction function,
                           void **params, void **extra) {
    if (lane && !is_due(lane))
        return;
    const struct weir_used_words words = {swap, mark_word, NULL};
    if (weir_used_words(&words, function, params, extra))
        return;
    __atomic_store_n(&swap->used_all, UINT64_MAX, __ATOMIC_RELAXED);
}

void weir_used_graph_slow(struct weir_swap *swap, struct weir_busy_lane *lane, CUgraphExec exec) {
    if ((lane && !is_due(lane)) || weir_lock(&swap->state->lock))
        return;
    const struct weir_graph_used *list = weir_graph_used_of(swap, exec);
    int known = list && !list->unknown;
    if (known)
        __atomic_store_n(&swap->launched, UINT64_MAX, __ATOMIC_RELAXED);
    for (uint32_t i = 0; known && i < list->count; i++)
        mark_word(swap, list->at[i], NULL);
    weir_unlock(&swap->state->lock);
    if (!known)
        __atomic_store_n(&swap->used_all, UINT64_MAX, __ATOMIC_RELAXED);
}

// ---- What the agent hears. The helper ----

// Whether a use is to be told. What was told of on this lease is due anew after some time. What
// nothing has ever named launches may reach, copies and sets do not.
static int is_new(const struct weir_movable *movable, uint32_t lease, int launched,
                  uint64_t now_ns) {
    if (!movable->told_ns || movable->told_lease != lease)
        return movable->used || (launched && !movable->named);
    return movable->used && now_ns - movable->told_ns >= AGAIN_NS;
}

// In what is told: whether the lease has drained, its number, and whether anything was launched.
struct telling {
    int drained, launched;
    uint32_t lease;
};

// Writes what is new from a place on into a message. The place to go on from, and whether there are
// uses that are not due yet.
static uint32_t gather(struct weir_swap *swap, uint32_t at, struct telling telling,
                       struct weir_named *named, int *left) {
    uint64_t now_ns = weir_busy_clock();
    for (; at < swap->places_used && named->count < WEIR_NAMED_MAX; at++) {
        struct weir_movable *movable = weir_movable_at(swap, (uint32_t)swap->places[at].number);
        if (swap->state->gpus[movable->gpu].index != named->gpu ||
            movable->connection != swap->connection)
            continue;
        if (is_new(movable, telling.lease, telling.launched, now_ns)) {
            named->ids[named->count++] = movable->id;
            movable->told_ns = now_ns;
            movable->told_lease = telling.lease;
            movable->used = 0;
        }
        movable->used &= !telling.drained;
        *left |= movable->used;
    }
    return at;
}

static int say(struct weir_state *state, const struct weir_named *named) {
    if (weir_lock(&state->lock))
        return -EDEADLK;
    int up = (int)state->link_up, fd = state->fd;
    uint64_t cookie = state->cookie;
    weir_unlock(&state->lock);
    return up ? weir_client_send(fd, cookie, named) : -ENOTCONN;
}

// Takes the mark of one GPU.
static int take_mark(uint64_t *marks, uint32_t ordinal) {
    uint64_t bit = 1ull << ordinal;
    return (__atomic_load_n(marks, __ATOMIC_RELAXED) & bit) &&
           (__atomic_fetch_and(marks, ~bit, __ATOMIC_ACQ_REL) & bit);
}

// Tells of what was used on a GPU, by ordinal, since that was last asked.
static void tell(struct weir_swap *swap, uint32_t ordinal, uint32_t gpu, int drained) {
    struct weir_state *state = swap->state;
    const struct weir_control_page *page = __atomic_load_n(&state->control, __ATOMIC_ACQUIRE);
    struct weir_named named;
    struct telling telling = {
        .drained = drained,
        .lease = __atomic_load_n(&page->gpus[gpu].lease, __ATOMIC_RELAXED) >> 1,
    };
    int all = take_mark(&swap->used_all, ordinal), more = 1, rc = 0, left = 0;
    uint32_t at = 0;
    if (!take_mark(&swap->used_some, ordinal) && !all)
        return;
    telling.launched = take_mark(&swap->launched, ordinal);
    swap->busy_ns = weir_busy_clock();
    while (more && rc == 0) {
        named = (struct weir_named){.header = {WEIR_MSG_USED, sizeof(named), 0}, .gpu = gpu};
        if (weir_lock(&state->lock))
            return;
        at = gather(swap, at, telling, &named, &left);
        more = at < swap->places_used;
        weir_unlock(&state->lock);
        rc = named.count ? say(state, &named) : 0;
    }
    if (rc == 0 && all) {
        named = (struct weir_named){.header = {WEIR_MSG_USED, sizeof(named), 0}, .gpu = gpu};
        rc = say(state, &named);
    }
    if (left)  // the program may use nothing more that would have them told
        __atomic_fetch_or(&swap->used_some, 1ull << ordinal, __ATOMIC_RELAXED);
    if (rc == -EAGAIN)  // what was not heard is lost, so it is not known what was used
        __atomic_fetch_or(&swap->used_all, 1ull << ordinal, __ATOMIC_RELAXED);
}

// The number in the control page of a GPU on which there ever was movable memory, or WEIR_NO_INDEX.
static uint32_t number_of(const struct weir_swap *swap, uint32_t ordinal) {
    uint64_t used = __atomic_load_n(&swap->gpus_used, __ATOMIC_RELAXED);
    return used >> ordinal & 1
               ? __atomic_load_n(&swap->state->gpus[ordinal].index, __ATOMIC_RELAXED)
               : WEIR_NO_INDEX;
}

void weir_used_tell(struct weir_state *state, uint32_t gpu, int drained) {
    struct weir_swap *swap = weir_swap_live(state);
    for (uint32_t i = 0; swap && i < WEIR_ORDINALS_MAX; i++)
        if (number_of(swap, i) == gpu)
            tell(swap, i, gpu, drained);
}

// Whether others want a GPU on which there is movable memory.
static int has_rivals(const struct weir_swap *swap) {
    const struct weir_control_page *page = __atomic_load_n(&swap->state->control, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; page && i < WEIR_ORDINALS_MAX; i++) {
        uint32_t index = number_of(swap, i);
        if (index < WEIR_GPUS_MAX &&
            __atomic_load_n(&page->gpus[index].turns, __ATOMIC_RELAXED) != WEIR_TURNS_ALONE)
            return 1;
    }
    return 0;
}

uint64_t weir_used_step(struct weir_state *state) {
    struct weir_swap *swap = weir_swap_live(state);
    if (!swap)
        return UINT64_MAX;
    uint64_t now_ns = weir_busy_clock();
    int soon = now_ns - swap->busy_ns < LATELY_NS || has_rivals(swap);
    uint64_t every_ns = soon ? TELL_NS : TELL_ALONE_NS;
    if (now_ns - swap->used_ns < every_ns)
        return every_ns - (now_ns - swap->used_ns);
    swap->used_ns = now_ns;
    for (uint32_t i = 0; i < WEIR_ORDINALS_MAX; i++)
        if (number_of(swap, i) < WEIR_GPUS_MAX)
            tell(swap, i, number_of(swap, i), 0);
    return every_ns;
}
