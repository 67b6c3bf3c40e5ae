// busytake.c: lanes of busy.h that are taken again, so that there are enough of them for a program
// that uses streams once, or whose threads come and go.
//
// Invariants: who takes holds `driving`, so the helper is at no lane; a lane is taken at rest only:
// all that was launched in it is done. Nobody may be about to count in it:
// its stream is gone, or its thread has ended, or is the one that takes and is at work in another.
#include "busy.h"
#include "gate.h"

// Of so many lanes it is asked whether their threads have ended, which is a system call; while
// there are free ones of fewer.
#define ENDED_LOOKS 32u
#define ENDED_LOOKS_FEW 8u
// A lane that comes into another context leaves its events behind, for so often.
#define MOVES_MAX 4096u

static int is_done(const struct weir_busy_lane *lane) {
    uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&lane->done, __ATOMIC_RELAXED) >= launches;
}

static int seen_all(const struct weir_busy_lane *lane) {
    return __atomic_load_n(&lane->tail, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&lane->head, __ATOMIC_ACQUIRE);
}

// Whether the calling thread may be in the middle of a launch: then this is a signal's handler.
static int is_inside(void) {
    const struct weir_gate_word *word = weir_gate_mine;
    return word && weir_gate_is_inside(__atomic_load_n(&word->state, __ATOMIC_RELAXED));
}

static int is_last(const struct weir_busy_lane *lane) {
    const struct weir_gate_word *word = weir_gate_mine;
    return word && WEIR_GET(word->last) == lane;
}

// `own`: the calling thread's lanes are to be had. *looks: so often it may be asked for threads.
static int can_take(const struct weir_busy_lane *lane, int own, uint32_t *looks) {
    uint32_t tid = WEIR_GET(lane->tid);
    if (WEIR_GET(lane->ended))
        return 1;
    if (lane->thread == weir_sys_self())
        return own && !is_last(lane);
    if (!tid || !*looks)
        return 0;
    *looks -= 1;
    return weir_gate_has_ended(tid);
}

// Gives up marks that are not seen yet, of which there may be more than the helper may ask for. As
// in the end of a context, it passes lanes that are dead; whether it is not at this one.
static int drop_marks(struct weir_busy *busy, struct weir_busy_lane *lane) {
    __atomic_store_n(&lane->dead, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&busy->polling, __ATOMIC_SEQ_CST)) {
        WEIR_PUT(lane->dead, 0);
        return 0;
    }
    weir_busy_drop_marks(lane);
    return 1;
}

// Its counters go on, and so do the calls that it owes.
static void reset(struct weir_busy_lane *lane, int moves) {
    const uint64_t *entry = WEIR_GET(lane->entry);
    if (entry)  // what its thread wrote before it left the gate is seen from here on
        (void)__atomic_load_n(entry, __ATOMIC_ACQUIRE);
    WEIR_PUT(lane->thread, 0);
    WEIR_PUT(lane->done_work_ns, lane->work_ns);
    WEIR_PUT(lane->choose_at, 0);
    weir_busy_sample_at(lane, 0);
    WEIR_PUT(lane->trail.refused, 0);
    lane->trail.tail = lane->trail.head;
    if (moves)
        weir_busy_leave_events(lane);
}

struct weir_busy_lane *weir_busy_take(struct weir_busy *busy, uint32_t place) {
    uint32_t used = busy->lanes_used;
    int full = used == WEIR_BUSY_LANES;
    uint32_t looks = full ? ENDED_LOOKS : ENDED_LOOKS_FEW;
    int own = full && !is_inside();
    for (uint32_t i = 0; i < used; i++) {
        uint32_t number = (busy->taking + i) % used;
        struct weir_busy_lane *lane = &busy->lanes[number];
        int moves = lane->place != place;
        if (!lane->thread || WEIR_GET(lane->dead) ||
            (moves && (!full || busy->moved == MOVES_MAX)) || !is_done(lane) ||
            (!full && !seen_all(lane)) || !can_take(lane, own, &looks) ||
            (!seen_all(lane) && !drop_marks(busy, lane)))
            continue;
        busy->moved += moves;
        busy->taking = number + 1;
        reset(lane, moves);
        return lane;
    }
    busy->taking += ENDED_LOOKS;
    return NULL;
}
