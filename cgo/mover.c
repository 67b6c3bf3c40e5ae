// mover.c: see mover.h. A move is QUEUED, GIVEN to the driver, ENDED, and its place FREE again once
// that was said. QUEUED and ENDED change under the state's lock; to and from GIVEN also `driving`
// is held.
#include "mover.h"

#include <string.h>

#include "busy.h"
#include "capture.h"
#include "client.h"

// More than the agent has under way at a time, cancelled ones included.
#define ITEMS_MAX 512u
#define LANES_MAX 16u
// Pieces of one way that the driver has at a time, in a context.
#define AHEAD 2u
// How often to look where nothing is known of a piece's time, or it is late.
#define LOOK_NS 100000u
#define LATE_PART 8u
// The longest that a free waits for a move. Beyond it the driver is stuck, and stays so in the
// free.
#define LEAVE_MS_MAX 2000u
#define PR_SET_TIMERSLACK_KEY 29

enum item_state { FREE = 0, QUEUED = 1, GIVEN = 2, ENDED = 3 };

struct item {
    uint64_t move;
    uint64_t order;  // in which they came
    uint64_t offset, bytes;
    uint64_t given_ns, due_ns;  // GIVEN: since when, and when to look at it
    uint32_t state;             // enum item_state
    uint32_t number;            // of the allocation
    uint32_t index;             // of the GPU in the control page
    uint32_t flags;             // enum weir_move_flag
    uint32_t result, ns;
    uint32_t lost;  // its connection has ended: nobody is to hear of it
    uint32_t lane, slot;
};

// What the driver has of one piece.
struct slot {
    CUevent begin, end;
    uint32_t taken;
};

// The streams of a context: [0] in, [1] out.
struct lane {
    uint64_t context;  // 0: free
    CUstream streams[2];
    struct slot slots[2][AHEAD];
};

struct weir_mover {
    struct weir_lock driving;
    uint32_t relaxed;
    uint32_t items_used;  // places that ever were in use; also read without the lock
    uint32_t unfree;      // items that are not FREE; also read without the lock
    uint64_t orders;
    uint64_t ns_per_mib[2];  // what a piece has taken lately, each way
    struct item items[ITEMS_MAX];
    struct lane lanes[LANES_MAX];
};

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

// Without the lock: what is QUEUED another thread may end meanwhile.
static uint32_t state_of(const struct item *item) {
    return __atomic_load_n(&item->state, __ATOMIC_RELAXED);
}

static void set_state(struct item *item, uint32_t state) {
    __atomic_store_n(&item->state, state, __ATOMIC_RELAXED);
}

static int way_of(const struct item *item) {
    return (item->flags & WEIR_MOVE_OUT) != 0;
}

// ---- What the agent asks for. Lock held ----

static struct item *new_item(struct weir_mover *mover) {
    uint32_t i = 0;
    while (i < mover->items_used && mover->items[i].state != FREE)
        i++;
    if (i == ITEMS_MAX)
        return NULL;
    if (i == mover->items_used)
        __atomic_store_n(&mover->items_used, i + 1, __ATOMIC_RELEASE);
    mover->items[i] = (struct item){.order = ++mover->orders};
    __atomic_store_n(&mover->unfree, mover->unfree + 1, __ATOMIC_RELAXED);
    return &mover->items[i];
}

static void free_item(struct weir_mover *mover, struct item *item) {
    set_state(item, FREE);
    __atomic_store_n(&mover->unfree, mover->unfree - 1, __ATOMIC_RELAXED);
}

static void end_item(struct weir_mover *mover, struct item *item, uint32_t result) {
    item->result = result;
    set_state(item, ENDED);
    if (item->lost)
        free_item(mover, item);
}

static void cancel(struct weir_mover *mover, uint64_t move) {
    for (uint32_t i = 0; i < mover->items_used; i++)
        if (mover->items[i].state == QUEUED && mover->items[i].move == move)
            end_item(mover, &mover->items[i], WEIR_MOVE_UNDONE);
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
    struct item *item = new_item(swap->mover);
    if (!item)
        return -EPROTO;
    item->move = entry->move;
    item->index = index;
    item->number = number;
    item->offset = entry->offset;
    item->bytes = entry->bytes;
    item->flags = entry->flags;
    set_state(item, QUEUED);
    if (!movable || movable->state != WEIR_MOVABLE_LIVE || movable->ticket)
        end_item(swap->mover, item, WEIR_MOVE_UNDONE);
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
        struct item *item = &mover->items[i];
        item->lost = 1;
        if (item->state == QUEUED || item->state == ENDED)
            free_item(mover, item);
    }
    weir_unlock(&state->lock);
}

// ---- The driver. Driving ----

static int make_slots(struct lane *lane, int way) {
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < AHEAD && result == CUDA_SUCCESS; i++) {
        struct slot *slot = &lane->slots[way][i];
        result = WEIR_REAL(cuEventCreate)(&slot->begin, 0);
        if (result == CUDA_SUCCESS)
            result = WEIR_REAL(cuEventCreate)(&slot->end, 0);
    }
    return result == CUDA_SUCCESS;
}

// Makes the streams of the current context.
static int make_streams(struct lane *lane) {
    int least = 0, greatest = 0, made = 1;
    WEIR_REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);
    for (int way = 0; way < 2 && made; way++)
        made = WEIR_REAL(cuStreamCreateWithPriority)(&lane->streams[way], CU_STREAM_NON_BLOCKING,
                                                     least) == CUDA_SUCCESS &&
               make_slots(lane, way);
    return made;
}

// The lane of a context, which is current; NULL where there can be none.
static struct lane *lane_of(struct weir_mover *mover, uint64_t context) {
    struct lane *room = NULL;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &mover->lanes[i];
        if (lane->context == context)
            return lane->slots[1][AHEAD - 1].end ? lane : NULL;
        if (!lane->context && !room)
            room = lane;
    }
    if (!room)
        return NULL;
    memset(room, 0, sizeof(*room));
    room->context = context;
    return make_streams(room) ? room : NULL;
}

static struct slot *free_slot(struct lane *lane, int way) {
    for (uint32_t i = 0; i < AHEAD; i++)
        if (!lane->slots[way][i].taken)
            return &lane->slots[way][i];
    return NULL;
}

// So long a piece is expected to take; 0: not known.
static uint64_t expected_ns(const struct weir_mover *mover, const struct item *item) {
    return mover->ns_per_mib[way_of(item)] * (item->bytes >> 10) >> 10;
}

// What of an allocation is on the card, now that a piece has moved. Lock held.
static void moved(struct weir_swap *swap, const struct item *item) {
    struct weir_movable *movable = weir_movable_at(swap, item->number);
    uint64_t end = item->offset + item->bytes;
    if (way_of(item) && movable->here_bytes > item->offset)
        movable->here_bytes = item->offset;
    else if (!way_of(item) && item->offset <= movable->here_bytes && movable->here_bytes < end)
        movable->here_bytes = end;
}

// The driver has done with a piece, or refused it.
static void finish(struct weir_swap *swap, struct item *item, uint32_t result) {
    struct weir_mover *mover = swap->mover;
    if (weir_lock(&swap->state->lock))
        return;
    if (result == WEIR_MOVE_DONE)
        moved(swap, item);
    weir_movable_at(swap, item->number)->given--;
    end_item(mover, item, result);
    weir_unlock(&swap->state->lock);
}

// It took no longer than since it was given, whatever the driver's events say.
static void learn(struct weir_mover *mover, struct item *item, uint64_t ns, uint64_t now_ns) {
    ns = ns < now_ns - item->given_ns ? ns : now_ns - item->given_ns;
    uint64_t mib = item->bytes >> 20, *known = &mover->ns_per_mib[way_of(item)];
    item->ns = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    if (mib)
        *known = *known ? (*known * 3 + ns / mib) / 4 : ns / mib;
}

// Looks at what the driver has.
static void look(struct weir_swap *swap, struct item *item, uint64_t now_ns) {
    struct weir_mover *mover = swap->mover;
    struct slot *slot = &mover->lanes[item->lane].slots[way_of(item)][item->slot];
    CUresult result = WEIR_REAL(cuEventQuery)(slot->end);
    if (result == CUDA_ERROR_NOT_READY) {
        uint64_t late_ns = expected_ns(mover, item) / LATE_PART;
        item->due_ns = now_ns + (late_ns > LOOK_NS ? late_ns : LOOK_NS);
        return;
    }
    float ms = 0;
    if (result == CUDA_SUCCESS &&
        WEIR_REAL(cuEventElapsedTime)(&ms, slot->begin, slot->end) == CUDA_SUCCESS && ms > 0)
        learn(mover, item, (uint64_t)((double)ms * 1e6), now_ns);
    slot->taken = 0;
    finish(swap, item, result == CUDA_SUCCESS ? WEIR_MOVE_DONE : WEIR_MOVE_FAILED);
}

static CUresult submit(struct lane *lane, const struct slot *slot, const struct item *item,
                       const struct weir_movable *movable) {
    CUstream stream = lane->streams[way_of(item)];
    CUdevice to = way_of(item) ? CU_DEVICE_CPU : (CUdevice)movable->gpu;
    CUresult result = WEIR_REAL(cuEventRecord)(slot->begin, stream);
    if (result == CUDA_SUCCESS)
        result =
            WEIR_REAL(cuMemPrefetchAsync)(movable->pointer + item->offset, item->bytes, to, stream);
    return result == CUDA_SUCCESS ? WEIR_REAL(cuEventRecord)(slot->end, stream) : result;
}

// Marks a queued move as the driver's, and copies its allocation. Whether it is still wanted.
static int claim(struct weir_swap *swap, struct item *item, struct weir_movable *movable) {
    if (weir_lock(&swap->state->lock))
        return 0;
    int wanted = item->state == QUEUED;
    if (wanted) {
        struct weir_movable *record = weir_movable_at(swap, item->number);
        record->given++;
        set_state(item, GIVEN);
        *movable = *record;
    }
    weir_unlock(&swap->state->lock);
    return wanted;
}

// Gives the driver a move in the lane of its context, which is current (NULL: there can be none). 0
// where that has as many as it is to have.
static int give_in(struct weir_swap *swap, struct item *item, struct lane *lane, uint64_t now_ns) {
    struct weir_mover *mover = swap->mover;
    struct weir_movable movable = {.pointer = 0};
    struct slot *slot = lane ? free_slot(lane, way_of(item)) : NULL;
    if (lane && !slot)
        return 0;
    if (!claim(swap, item, &movable))
        return 1;
    if (!lane || submit(lane, slot, item, &movable) != CUDA_SUCCESS) {
        finish(swap, item, WEIR_MOVE_FAILED);
        return 1;
    }
    slot->taken = 1;
    item->lane = (uint32_t)(lane - mover->lanes);
    item->slot = (uint32_t)(slot - lane->slots[way_of(item)]);
    uint64_t ns = expected_ns(mover, item);
    item->given_ns = now_ns;
    item->due_ns = now_ns + (ns ? ns : LOOK_NS);
    return 1;
}

// The same, whatever context is current.
static int give(struct weir_swap *swap, struct item *item, uint64_t now_ns) {
    if (weir_lock(&swap->state->lock))
        return 0;
    int wanted = item->state == QUEUED;
    uint64_t context = wanted ? weir_movable_at(swap, item->number)->context : 0;
    weir_unlock(&swap->state->lock);
    if (!wanted)
        return 1;
    CUcontext before;
    int pushed = WEIR_REAL(cuCtxPushCurrent_v2)((CUcontext)(uintptr_t)context) == CUDA_SUCCESS;
    int given = give_in(swap, item, pushed ? lane_of(swap->mover, context) : NULL, now_ns);
    if (pushed)
        WEIR_REAL(cuCtxPopCurrent_v2)(&before);
    return given;
}

// The queued move of one way that came first, or NULL. Another thread can only end it meanwhile.
static struct item *first_queued(struct weir_mover *mover, int way) {
    struct item *first = NULL;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct item *item = &mover->items[i];
        if (state_of(item) == QUEUED && way_of(item) == way &&
            (!first || item->order < first->order))
            first = item;
    }
    return first;
}

static void look_at_all(struct weir_swap *swap, uint64_t now_ns) {
    struct weir_mover *mover = swap->mover;
    uint32_t used = __atomic_load_n(&mover->items_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (state_of(&mover->items[i]) == GIVEN && now_ns >= mover->items[i].due_ns)
            look(swap, &mover->items[i], now_ns);
}

// ---- What the agent hears ----

// Those that have ended, of one GPU. How many.
static uint32_t gather(struct weir_mover *mover, struct weir_moved *moved) {
    *moved = (struct weir_moved){.header = {WEIR_MSG_MOVED, sizeof(*moved), 0}};
    for (uint32_t i = 0; i < mover->items_used && moved->count < WEIR_MOVED_MAX; i++) {
        const struct item *item = &mover->items[i];
        if (item->state != ENDED || (moved->count && item->index != moved->gpu))
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
        struct item *item = &mover->items[i];
        if (item->state != ENDED || item->move != moved->entries[n].move)
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
        if (state_of(&mover->items[i]) == GIVEN && mover->items[i].due_ns < next_ns)
            next_ns = mover->items[i].due_ns;
    return next_ns;
}

uint64_t weir_mover_step(struct weir_state *state) {
    struct weir_mover *mover = known_mover(state);
    struct weir_swap *swap = state->swap;
    if (!mover || !__atomic_load_n(&mover->unfree, __ATOMIC_RELAXED) || weir_lock(&mover->driving))
        return UINT64_MAX;
    if (!mover->relaxed) {
        mover->relaxed = 1;
        weir_capture_relax();
    }
    uint64_t now_ns = weir_busy_clock();
    look_at_all(swap, now_ns);
    for (int way = 0; way < 2; way++)
        for (struct item *item; (item = first_queued(mover, way)) && give(swap, item, now_ns);)
            continue;
    uint64_t next_ns = next_due(mover);
    weir_unlock(&mover->driving);
    int rc = tell(swap);
    now_ns = weir_busy_clock();
    uint64_t ns = next_ns == UINT64_MAX ? next_ns : next_ns > now_ns ? next_ns - now_ns : 0;
    return rc && ns > LOOK_NS * 10 ? LOOK_NS * 10 : ns;
}

// ---- Frees, and ends of contexts ----

// Takes back what is queued of an allocation. How many moves of it the driver has.
static uint32_t take_back(struct weir_swap *swap, uint32_t number) {
    struct weir_mover *mover = swap->mover;
    if (weir_lock(&swap->state->lock))
        return 0;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct item *item = &mover->items[i];
        if (item->state == QUEUED && item->number == number)
            end_item(mover, item, WEIR_MOVE_UNDONE);
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
    uint64_t began_ms = weir_sys_now_ms();
    uint32_t never = 0;
    while (take_back(swap, number) && weir_sys_now_ms() - began_ms < LEAVE_MS_MAX) {
        int mode = weir_capture_relax();
        if (weir_lock(&mover->driving) == 0) {
            look_at_all(swap, weir_busy_clock());
            weir_unlock(&mover->driving);
        }
        weir_capture_restore(mode);
        weir_sys_futex_wait(&never, 0, LOOK_NS / 1000);
    }
}

// The same of all allocations of a context, which take no new ones by now.
static void take_back_all(struct weir_swap *swap, uint64_t context) {
    struct weir_mover *mover = swap->mover;
    if (weir_lock(&swap->state->lock))
        return;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct item *item = &mover->items[i];
        if (item->state == QUEUED && weir_movable_at(swap, item->number)->context == context)
            end_item(mover, item, WEIR_MOVE_UNDONE);
    }
    weir_unlock(&swap->state->lock);
}

void weir_mover_context_ending(struct weir_state *state, uint64_t context) {
    struct weir_mover *mover = known_mover(state);
    if (!mover || weir_lock(&mover->driving))
        return;
    take_back_all(state->swap, context);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        if (mover->lanes[i].context != context)
            continue;
        for (uint32_t j = 0; j < mover->items_used; j++)
            if (state_of(&mover->items[j]) == GIVEN && mover->items[j].lane == i)
                finish(state->swap, &mover->items[j], WEIR_MOVE_UNDONE);
        mover->lanes[i].context = 0;
    }
    weir_unlock(&mover->driving);
}
