// moving.c: see moving.h. A piece is a prefetch between two events, in the stream of its way.
#include "moving.h"

#include <string.h>

#include "hooks.h"

// What is late is looked at each such part of its time.
#define LATE_PART 8u

static int make_slots(struct weir_moving_lane *lane, int way) {
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < WEIR_MOVING_AHEAD && result == CUDA_SUCCESS; i++) {
        struct weir_moving_slot *slot = &lane->slots[way][i];
        result = WEIR_REAL(cuEventCreate)(&slot->begin, 0);
        if (result == CUDA_SUCCESS)
            result = WEIR_REAL(cuEventCreate)(&slot->end, 0);
    }
    return result == CUDA_SUCCESS;
}

// Makes the streams of the current context.
static int make_streams(struct weir_moving_lane *lane) {
    int least = 0, greatest = 0, made = 1;
    WEIR_REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);
    for (int way = 0; way < 2 && made; way++)
        made = WEIR_REAL(cuStreamCreateWithPriority)(&lane->streams[way], CU_STREAM_NON_BLOCKING,
                                                     least) == CUDA_SUCCESS &&
               make_slots(lane, way);
    return made;
}

void weir_moving_close(struct weir_moving_lane *lane) {
    for (int way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < WEIR_MOVING_AHEAD; i++) {
            const struct weir_moving_slot *slot = &lane->slots[way][i];
            if (slot->begin)
                WEIR_REAL(cuEventDestroy_v2)(slot->begin);
            if (slot->end)
                WEIR_REAL(cuEventDestroy_v2)(slot->end);
        }
        if (lane->streams[way])
            WEIR_REAL(cuStreamDestroy_v2)(lane->streams[way]);
    }
    memset(lane, 0, sizeof(*lane));
}

// The lane of a context, which is current; NULL where there can be none now.
static struct weir_moving_lane *lane_of(struct weir_mover *mover, uint64_t context) {
    struct weir_moving_lane *room = NULL;
    for (uint32_t i = 0; i < WEIR_MOVING_LANES; i++) {
        struct weir_moving_lane *lane = &mover->lanes[i];
        if (lane->context == context)
            return lane;
        if (!lane->context && !room)
            room = lane;
    }
    if (!room)
        return NULL;
    if (!make_streams(room)) {
        weir_moving_close(room);
        return NULL;
    }
    room->context = context;
    return room;
}

static struct weir_moving_slot *free_slot(struct weir_moving_lane *lane, int way) {
    for (uint32_t i = 0; i < WEIR_MOVING_AHEAD; i++)
        if (!lane->slots[way][i].taken)
            return &lane->slots[way][i];
    return NULL;
}

// So long a piece is expected to take; 0: not known.
static uint64_t expected_ns(const struct weir_mover *mover, const struct weir_moving *item) {
    return mover->ns_per_mib[weir_moving_way(item)] * (item->bytes >> 10) >> 10;
}

// A piece has gone, so the next use of its allocation is new: it brings that back. So may one have
// that was told since the piece was given, and is told again once the agent knows that it went.
// Lock held.
static void gone(struct weir_swap *swap, struct weir_movable *movable,
                 const struct weir_moving *item) {
    movable->used |= movable->told_ns >= item->given_ns;
    if (movable->used)
        __atomic_fetch_or(&swap->used_some, 1ull << movable->gpu, __ATOMIC_RELAXED);
    if (movable->named)
        movable->told_ns = 0;
}

// What of an allocation is on the card, now that a piece has moved. Lock held.
static void moved(struct weir_swap *swap, const struct weir_moving *item) {
    struct weir_movable *movable = weir_movable_at(swap, item->number);
    uint64_t end = item->offset + item->bytes;
    if (weir_moving_way(item))
        gone(swap, movable, item);
    if (weir_moving_way(item) && movable->here_bytes > item->offset)
        movable->here_bytes = item->offset;
    else if (!weir_moving_way(item) && item->offset <= movable->here_bytes &&
             movable->here_bytes < end)
        movable->here_bytes = end;
}

// The driver has done with a piece, or refused it.
void weir_moving_finish(struct weir_swap *swap, struct weir_moving *item, uint32_t result) {
    struct weir_mover *mover = swap->mover;
    if (weir_lock(&swap->state->lock))
        return;
    if (result == WEIR_MOVE_DONE)
        moved(swap, item);
    weir_movable_at(swap, item->number)->given--;
    weir_moving_end(mover, item, result);
    weir_unlock(&swap->state->lock);
}

// It took no longer than since it was given, whatever the driver's events say.
static void learn(struct weir_mover *mover, struct weir_moving *item, uint64_t ns,
                  uint64_t now_ns) {
    ns = ns < now_ns - item->given_ns ? ns : now_ns - item->given_ns;
    uint64_t mib = item->bytes >> 20, *known = &mover->ns_per_mib[weir_moving_way(item)];
    item->ns = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    if (mib)
        *known = *known ? (*known * 3 + ns / mib) / 4 : ns / mib;
}

// Looks at what the driver has.
static void look_at(struct weir_swap *swap, struct weir_moving *item, uint64_t now_ns) {
    struct weir_mover *mover = swap->mover;
    struct weir_moving_slot *slot =
        &mover->lanes[item->lane].slots[weir_moving_way(item)][item->slot];
    CUresult result = WEIR_REAL(cuEventQuery)(slot->end);
    if (result == CUDA_ERROR_NOT_READY) {
        uint64_t late_ns = expected_ns(mover, item) / LATE_PART;
        item->due_ns = now_ns + (late_ns > WEIR_MOVING_LOOK_NS ? late_ns : WEIR_MOVING_LOOK_NS);
        return;
    }
    float ms = 0;
    if (result == CUDA_SUCCESS &&
        WEIR_REAL(cuEventElapsedTime)(&ms, slot->begin, slot->end) == CUDA_SUCCESS && ms > 0)
        learn(mover, item, (uint64_t)((double)ms * 1e6), now_ns);
    slot->taken = 0;
    weir_moving_finish(swap, item, result == CUDA_SUCCESS ? WEIR_MOVE_DONE : WEIR_MOVE_FAILED);
}

static CUresult submit(struct weir_moving_lane *lane, const struct weir_moving_slot *slot,
                       const struct weir_moving *item, const struct weir_movable *movable) {
    CUstream stream = lane->streams[weir_moving_way(item)];
    CUdevice to = weir_moving_way(item) ? CU_DEVICE_CPU : (CUdevice)movable->gpu;
    CUresult result = WEIR_REAL(cuEventRecord)(slot->begin, stream);
    if (result == CUDA_SUCCESS)
        result =
            WEIR_REAL(cuMemPrefetchAsync)(movable->pointer + item->offset, item->bytes, to, stream);
    return result == CUDA_SUCCESS ? WEIR_REAL(cuEventRecord)(slot->end, stream) : result;
}

// Marks a queued move as the driver's, and copies its allocation. Whether it is still wanted.
static int claim(struct weir_swap *swap, struct weir_moving *item, struct weir_movable *movable) {
    if (weir_lock(&swap->state->lock))
        return 0;
    int wanted = item->state == WEIR_MOVING_QUEUED;
    if (wanted) {
        struct weir_movable *record = weir_movable_at(swap, item->number);
        record->given++;
        if (weir_moving_way(item) && record->told_ns)
            record->used = 0;  // before it goes, and told already: nothing that brings it back
        weir_moving_set(item, WEIR_MOVING_GIVEN);
        *movable = *record;
    }
    weir_unlock(&swap->state->lock);
    return wanted;
}

// Gives the driver a move in the lane of its context, which is current (NULL: there can be none). 0
// where that has as many as it is to have.
static int give_in(struct weir_swap *swap, struct weir_moving *item, struct weir_moving_lane *lane,
                   uint64_t now_ns) {
    struct weir_mover *mover = swap->mover;
    struct weir_movable movable = {.pointer = 0};
    struct weir_moving_slot *slot = lane ? free_slot(lane, weir_moving_way(item)) : NULL;
    if (lane && !slot)
        return 0;
    if (!claim(swap, item, &movable))
        return 1;
    if (!lane || submit(lane, slot, item, &movable) != CUDA_SUCCESS) {
        weir_moving_finish(swap, item, WEIR_MOVE_FAILED);
        return 1;
    }
    slot->taken = 1;
    item->lane = (uint32_t)(lane - mover->lanes);
    item->slot = (uint32_t)(slot - lane->slots[weir_moving_way(item)]);
    uint64_t ns = expected_ns(mover, item);
    item->given_ns = now_ns;
    item->due_ns = now_ns + (ns ? ns : WEIR_MOVING_LOOK_NS);
    return 1;
}

// The same, whatever context is current.
static int give(struct weir_swap *swap, struct weir_moving *item, uint64_t now_ns) {
    CUcontext before;
    int pushed =
        WEIR_REAL(cuCtxPushCurrent_v2)((CUcontext)(uintptr_t)item->context) == CUDA_SUCCESS;
    int given = give_in(swap, item, pushed ? lane_of(swap->mover, item->context) : NULL, now_ns);
    if (pushed)
        WEIR_REAL(cuCtxPopCurrent_v2)(&before);
    return given;
}

// Whether the driver may have one more of a context, one way.
static int has_room(struct weir_mover *mover, uint64_t context, int way) {
    for (uint32_t i = 0; i < WEIR_MOVING_LANES; i++)
        if (mover->lanes[i].context == context)
            return free_slot(&mover->lanes[i], way) != NULL;
    return 1;
}

// The queued move of one way that came first, of those for whose context there is room, or NULL:
// cards, and contexts, do not wait for each other. Another thread can only end it meanwhile.
static struct weir_moving *first_queued(struct weir_mover *mover, int way) {
    struct weir_moving *first = NULL;
    for (uint32_t i = 0; i < mover->items_used; i++) {
        struct weir_moving *item = &mover->items[i];
        if (weir_moving_state(item) == WEIR_MOVING_QUEUED && weir_moving_way(item) == way &&
            (!first || item->order < first->order) && has_room(mover, item->context, way))
            first = item;
    }
    return first;
}

void weir_moving_look(struct weir_swap *swap, uint64_t now_ns) {
    struct weir_mover *mover = swap->mover;
    uint32_t used = __atomic_load_n(&mover->items_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        if (weir_moving_state(&mover->items[i]) == WEIR_MOVING_GIVEN &&
            now_ns >= mover->items[i].due_ns)
            look_at(swap, &mover->items[i], now_ns);
}

void weir_moving_give(struct weir_swap *swap, uint64_t now_ns) {
    struct weir_moving *item;
    for (int way = 0; way < 2; way++)
        while ((item = first_queued(swap->mover, way)) && give(swap, item, now_ns))
            continue;
}
