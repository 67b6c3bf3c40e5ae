// mover.c: see mover.h and moving.h.
#include "mover.h"

#include "capture.h"
#include "client.h"
#include "moving.h"

// How often a free looks for the end of moves, each time after LOOK_NS at least: some 2 s. Beyond
// it the driver is stuck, and stays so in the free. It is no time, which passes for a stopped
// process.
#define LEAVE_LOOKS_MAX 20000u
#define PR_SET_TIMERSLACK_KEY 29

static struct weir_mover *known_mover(struct weir_state *state) {
    struct weir_swap *swap = __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE);
    return swap ? __atomic_load_n(&swap->mover, __ATOMIC_ACQUIRE) : NULL;
}

// Only the helper makes it.
static struct weir_mover *make_mover(struct weir_swap *swap) {
    struct weir_mover *mover = weir_sys_map(sizeof(*mover));
    if (!mover)
        return NULL;
    weir_sys_madvise(mover, sizeof(*mover), WEIR_MADV_WIPEONFORK);
    weir_syscall(SYS_prctl, PR_SET_TIMERSLACK_KEY, 1, 0, 0, 0, 0);
    __atomic_store_n(&swap->mover, mover, __ATOMIC_RELEASE);
    return mover;
}

// ---- What the agent asks for. Lock held ----

static struct weir_moving *new_item(struct weir_mover *mover) {
    uint32_t i = 0;
    while (i < mover->items_used && mover->items[i].state != WEIR_MOVING_FREE)
        i++;
    if (i == WEIR_MOVINGS_MAX)
        return NULL;
    if (i == mover->items_used)
        __atomic_store_n(&mover->items_used, i + 1, __ATOMIC_RELEASE);
    mover->items[i] = (struct weir_moving){.order = ++mover->orders};
    __atomic_store_n(&mover->unfree, mover->unfree + 1, __ATOMIC_RELAXED);
    return &mover->items[i];
}

static void free_item(struct weir_mover *mover, struct weir_moving *item) {
    weir_moving_set(item, WEIR_MOVING_FREE);
    __atomic_store_n(&mover->unfree, mover->unfree - 1, __ATOMIC_RELAXED);
}

void weir_moving_end(struct weir_mover *mover, struct weir_moving *item, uint32_t result) {
    item->result = result;
    weir_moving_set(item, WEIR_MOVING_ENDED);
    if (item->lost)
        free_item(mover, item);
}

static void cancel(struct weir_mover *mover, uint64_t move) {
    for (uint32_t i = 0; i < mover->items_used; i++)
        if (mover->items[i].state == WEIR_MOVING_QUEUED && mover->items[i].move == move)
            weir_moving_end(mover, &mover->items[i], WEIR_MOVE_UNDONE);
}

// One entry of a MOVE. 0 or -EPROTO.
static int take_entry(struct weir_swap *swap, uint32_t index, const struct weir_move_entry *entry) {
    const uint32_t all = WEIR_MOVE_OUT | WEIR_MOVE_FRESH | WEIR_MOVE_CANCEL;
    if (!entry->move || (entry->flags & ~all))
        return -EPROTO;
    if (entry->flags & WEIR_MOVE_CANCEL) {
        cancel(swap->mover, entry->move);
        return 0;
    }
    uint32_t number = weir_movable_with(swap, entry->id);
    const struct weir_movable *movable = number ? weir_movable_at(swap, number) : NULL;
    if (movable && (!entry->bytes || entry->offset >= movable->bytes ||
                    entry->bytes > movable->bytes - entry->offset))
        return -EPROTO;
    struct weir_moving *item = new_item(swap->mover);
    if (!item)
        return -EPROTO;
    item->move = entry->move;
    item->index = index;
    item->number = number;
    item->context = movable ? movable->context : 0;
    item->offset = entry->offset;
    item->bytes = entry->bytes;
    item->flags = entry->flags;
    weir_moving_set(item, WEIR_MOVING_QUEUED);
    if (!movable || movable->state != WEIR_MOVABLE_LIVE || movable->ticket)
        weir_moving_end(swap->mover, item, WEIR_MOVE_UNDONE);
    return 0;
}

int weir_mover_take(struct weir_state *state, const struct weir_move *move) {
    struct weir_swap *swap = weir_swap_make(state);
    if (move->gpu >= state->gpu_count || move->count > WEIR_MOVES_MAX)
        return -EPROTO;
    if (!swap || (!swap->mover && !make_mover(swap)))
        return -ENOMEM;
    if (weir_lock(&state->lock))
        return -EDEADLK;
    int rc = 0;
    for (uint32_t i = 0; i < move->count && rc == 0; i++)
        rc = take_entry(swap, move->gpu, &move->entries[i]);
    weir_unlock(&state->lock);
    return rc;
}

void weir_mover_lost(struct weir_state *state) {
    struct weir_mover *mover = known_mover(state);
    if (!mover || weir_lock(&state->lock))
        return;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct weir_moving *item = &mover->items[i];
        item->lost = 1;
        if (item->state == WEIR_MOVING_QUEUED || item->state == WEIR_MOVING_ENDED)
            free_item(mover, item);
    }
    weir_unlock(&state->lock);
}

// ---- What the agent hears ----

// Those that have ended, of one GPU. How many.
static uint32_t gather(struct weir_mover *mover, struct weir_moved *moved) {
    *moved = (struct weir_moved){.header = {WEIR_MSG_MOVED, sizeof(*moved), 0}};
    for (uint32_t i = 0; i < mover->items_used && moved->count < WEIR_MOVED_MAX; i++) {
        const struct weir_moving *item = &mover->items[i];
        if (item->state != WEIR_MOVING_ENDED || (moved->count && item->index != moved->gpu))
            continue;
        moved->gpu = item->index;
        moved->entries[moved->count++] =
            (struct weir_moved_entry){item->move, item->result, item->ns};
    }
    return moved->count;
}

// They were said. Others may have ended since, but only the helper says it.
static void said(struct weir_mover *mover, const struct weir_moved *moved) {
    for (uint32_t i = 0, n = 0; i < mover->items_used && n < moved->count; i++) {
        struct weir_moving *item = &mover->items[i];
        if (item->state != WEIR_MOVING_ENDED || item->move != moved->entries[n].move)
            continue;
        free_item(mover, item);
        n++;
    }
}

// 0, or -errno where something is left to be said.
static int tell(struct weir_swap *swap) {
    struct weir_state *state = swap->state;
    struct weir_moved moved;
    for (int rc = 0;;) {
        if (weir_lock(&state->lock))
            return -EDEADLK;
        uint32_t count = state->link_up ? gather(swap->mover, &moved) : 0;
        int fd = state->fd;
        uint64_t cookie = state->cookie;
        weir_unlock(&state->lock);
        if (!count)
            return 0;
        rc = weir_client_send(fd, cookie, &moved);
        if (rc || weir_lock(&state->lock))
            return rc;
        said(swap->mover, &moved);
        weir_unlock(&state->lock);
    }
}

// When the next piece that the driver has is to be looked at.
static uint64_t next_due(const struct weir_mover *mover) {
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < mover->items_used; i++)
        if (weir_moving_state(&mover->items[i]) == WEIR_MOVING_GIVEN &&
            mover->items[i].due_ns < next_ns)
            next_ns = mover->items[i].due_ns;
    return next_ns;
}

uint64_t weir_mover_step(struct weir_state *state) {
    struct weir_mover *mover = known_mover(state);
    struct weir_swap *swap = state->swap;
    if (!mover || !__atomic_load_n(&mover->unfree, __ATOMIC_RELAXED))
        return UINT64_MAX;
    // Who frees memory, or ends a context, is in the driver with it: others' answers do not wait.
    if (!weir_lock_try(&mover->driving))
        return WEIR_MOVING_LOOK_NS;
    if (!mover->relaxed) {
        mover->relaxed = 1;
        weir_capture_relax();
    }
    uint64_t now_ns = weir_busy_clock();
    weir_moving_look(swap, now_ns);
    weir_moving_give(swap, now_ns);
    uint64_t next_ns = next_due(mover);
    weir_unlock(&mover->driving);
    int rc = tell(swap);
    now_ns = weir_busy_clock();
    uint64_t ns = next_ns == UINT64_MAX ? next_ns : next_ns > now_ns ? next_ns - now_ns : 0;
    return rc && ns > WEIR_MOVING_LOOK_NS * 10 ? WEIR_MOVING_LOOK_NS * 10 : ns;
}

// ---- Frees, and ends of contexts ----

// Takes back what is queued of an allocation. How many moves of it the driver has.
static uint32_t take_back(struct weir_swap *swap, uint32_t number) {
    struct weir_mover *mover = swap->mover;
    if (weir_lock(&swap->state->lock))
        return 0;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct weir_moving *item = &mover->items[i];
        if (item->state == WEIR_MOVING_QUEUED && item->number == number)
            weir_moving_end(mover, item, WEIR_MOVE_UNDONE);
    }
    uint32_t given = weir_movable_at(swap, number)->given;
    weir_unlock(&swap->state->lock);
    return given;
}

// The helper may be busy, or waiting for an agent: who waits looks itself.
void weir_mover_leave(struct weir_swap *swap, uint32_t number) {
    struct weir_mover *mover = known_mover(swap->state);
    if (!mover)
        return;
    uint32_t never = 0;
    for (uint32_t looks = 0; looks < LEAVE_LOOKS_MAX && take_back(swap, number); looks++) {
        int mode = weir_capture_relax();
        if (weir_lock(&mover->driving) == 0) {
            weir_moving_look(swap, weir_busy_clock());
            weir_unlock(&mover->driving);
        }
        weir_capture_restore(mode);
        weir_sys_futex_wait(&never, 0, WEIR_MOVING_LOOK_NS / 1000);
    }
}

// The same of all allocations of a context, which take no new ones by now.
static void take_back_all(struct weir_swap *swap, uint64_t context) {
    struct weir_mover *mover = swap->mover;
    if (weir_lock(&swap->state->lock))
        return;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct weir_moving *item = &mover->items[i];
        if (item->state == WEIR_MOVING_QUEUED &&
            weir_movable_at(swap, item->number)->context == context)
            weir_moving_end(mover, item, WEIR_MOVE_UNDONE);
    }
    weir_unlock(&swap->state->lock);
}

// The context may outlive this: most releases of a primary context are not the last one.
static void close_lane(struct weir_moving_lane *lane) {
    CUcontext context = (CUcontext)(uintptr_t)lane->context, before;
    int mode = weir_capture_relax();
    if (WEIR_REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
        weir_moving_close(lane);
        WEIR_REAL(cuCtxPopCurrent_v2)(&before);
    }
    weir_capture_restore(mode);
    *lane = (struct weir_moving_lane){.context = 0};
}

void weir_mover_context_ending(struct weir_state *state, uint64_t context) {
    struct weir_mover *mover = known_mover(state);
    if (!mover || weir_lock(&mover->driving))
        return;
    take_back_all(state->swap, context);
    for (uint32_t i = 0; i < WEIR_MOVING_LANES; i++) {
        if (mover->lanes[i].context != context)
            continue;
        for (uint32_t j = 0; j < mover->items_used; j++)
            if (weir_moving_state(&mover->items[j]) == WEIR_MOVING_GIVEN &&
                mover->items[j].lane == i)
                weir_moving_finish(state->swap, &mover->items[j], WEIR_MOVE_UNDONE);
        close_lane(&mover->lanes[i]);
    }
    weir_unlock(&mover->driving);
}
