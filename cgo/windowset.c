// windowset.c: the helper's part of window.c: how much may be in flight.
#include "timed.h"

#define RIVALS_STAY_NS 1000000000u
// A lane is allowed so much in any case: below that its thread would be asleep when the GPU runs
// dry.
#define ROOM_NS_MIN 250000u
#define WHOLE 256u        // parts of a window
#define LEAST 32u         // as small as it becomes
#define GROWS_BY 16u      // with each drain that was short
#define SLACK_NS 500000u  // a drain is not long that is longer by so much
// Lanes that have launched within so long share the events in a window's length. Of so many that
// are at rest each look asks whether their threads have ended, which is a system call.
#define LATELY_NS 50000000u
#define ENDED_LOOKS 8u
// All lanes together have so much at most, in the parts of WEIR_WINDOW_ALL_PARTS.
#define ALL_MOST 256

static int is_at_rest(const struct weir_busy_lane *lane) {
    uint64_t launches = __atomic_load_n(&lane->launches, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&lane->done, __ATOMIC_RELAXED) >= launches;
}

// Whether nobody will launch in a lane any more, as far as that may be asked.
static int is_left(const struct weir_busy_lane *lane, uint32_t *looks) {
    uint32_t tid = WEIR_GET(lane->tid);
    if (!is_at_rest(lane))
        return 0;
    if (WEIR_GET(lane->ended))
        return 1;
    if (!tid || !*looks)
        return 0;
    *looks -= 1;
    return weir_gate_has_ended(tid);
}

// Lanes of a GPU that have launched lately, and may do so again: those that were left have no part
// of the window any more.
static uint32_t lanes_lately(struct weir_time *time, uint32_t gpu, uint64_t now_ns) {
    struct weir_busy *busy = &time->busy;
    struct weir_attended *a = &time->attended[gpu];
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE), lanes = 0;
    uint32_t looks = ENDED_LOOKS, at = a->asked;
    for (uint32_t i = 0; i < used; i++) {
        at = at + 1 < used ? at + 1 : 0;
        struct weir_busy_lane *lane = &busy->lanes[at];
        if (!weir_window_is_on(time, lane, gpu) ||
            now_ns - WEIR_GET(lane->trail.still_ns) >= LATELY_NS)
            continue;
        a->asked = looks ? at : a->asked;
        if (is_left(lane, &looks))
            WEIR_PUT(lane->trail.still_ns, 0);
        else
            lanes++;
    }
    return lanes;
}

static void set_all(struct weir_time *time, uint32_t gpu, uint64_t window_ns, uint64_t room_ns,
                    uint64_t now_ns) {
    struct weir_time_gpu *g = &time->gpus[gpu];
    uint64_t parts = (uint64_t)(WEIR_WINDOW_ALL_FIRST + time->attended[gpu].more);
    uint32_t lanes = lanes_lately(time, gpu, now_ns);
    uint64_t part_ns = window_ns / (lanes ? lanes : 1);
    WEIR_PUT(g->room_all_ns, window_ns * parts / WEIR_WINDOW_ALL_PARTS);
    WEIR_PUT(g->step_ns, (part_ns < room_ns ? part_ns : room_ns) / WEIR_WINDOW_STEPS);
}

void weir_window_set(struct weir_time *time, uint32_t gpu, uint32_t lanes, uint64_t now_ns) {
    struct weir_busy *busy = &time->busy;
    struct weir_attended *a = &time->attended[gpu];
    uint64_t window_ns = weir_window_of(time, gpu);
    // Rivals come back where they have just been.
    if (window_ns)
        a->rivals_ns = now_ns;
    else if (a->rivals_ns && now_ns - a->rivals_ns < RIVALS_STAY_NS)
        window_ns = WEIR_WINDOW_OPEN_NS;
    uint64_t least_ns = window_ns < ROOM_NS_MIN ? window_ns : ROOM_NS_MIN;
    uint64_t room_ns = window_ns * (WHOLE - a->less) / WHOLE / (lanes ? lanes : 1);
    room_ns = room_ns < least_ns ? least_ns : room_ns;
    uint64_t before_ns = WEIR_GET(time->gpus[gpu].room_ns);
    if (room_ns)
        set_all(time, gpu, window_ns, room_ns, now_ns);
    WEIR_PUT(time->gpus[gpu].lanes, lanes);
    WEIR_PUT(time->gpus[gpu].room_ns, room_ns);
    if (!room_ns || before_ns)
        return;
    // Lanes look at the window that there is now.
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        WEIR_PUT(busy->lanes[i].mark_at_ns, 0);
}

// What launches take is expectation, and whether those of several streams take it beside each other
// is not known. So the window becomes smaller where drains turn out to be longer, that of all lanes
// first, and slowly as large again where they do not.
void weir_window_drained(struct weir_time *time, uint32_t gpu, uint64_t took_ns) {
    struct weir_attended *a = &time->attended[gpu];
    uint64_t window_ns = weir_window_of(time, gpu);
    uint32_t used = WHOLE - a->less;
    int32_t parts = WEIR_WINDOW_ALL_FIRST + a->more;
    int met = (int)__atomic_exchange_n(&time->gpus[gpu].met, 0, __ATOMIC_RELAXED);
    if (took_ns > window_ns + window_ns / 4 + SLACK_NS) {
        if (parts > WEIR_WINDOW_ALL_PARTS)
            parts = parts / 2 > WEIR_WINDOW_ALL_PARTS ? parts / 2 : WEIR_WINDOW_ALL_PARTS;
        else
            used = used / 2 > LEAST ? used / 2 : LEAST;
    } else if (took_ns < window_ns) {
        if (used == WHOLE && met && parts < ALL_MOST)
            parts++;
        used = used + GROWS_BY < WHOLE ? used + GROWS_BY : WHOLE;
    }
    a->less = WHOLE - used;
    a->more = parts - WEIR_WINDOW_ALL_FIRST;
}
