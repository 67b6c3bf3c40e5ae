// window.c: how much expected work one thread may have in flight in a stream while others want the
// GPU, so that little is left to drain when the gate closes.
//
// The helper says how much (attend.c): `room_ns` in all, an event every `step_ns`. A thread that
// has more in flight waits for its oldest event, before it is inside the gate and holding nothing.
// One operation is always allowed. The wait is bounded: what is in flight may wait for work that
// this very thread has still to launch.
#include "timed.h"
#include "trail.h"

// A thread waits twice as long as its work in flight should take, and this, at most.
#define PATIENCE_NS 5000000u
#define DOZE_US_MIN 30u
#define DOZE_US_MAX 1000u

// Of work of which nothing is known so many may be in flight in a lane.
#define BLIND_MAX 4u
// Events in a window's length; and without a window, for a drain that may come, one for so much
// work.
#define STEPS 4u
#define STEP_ALONE_NS 50000000u
// Without a window, none behind so many launches: each takes a place in the driver's queue.
#define DEEP 512u
#define OPEN_NS 20000000u
#define RIVALS_STAY_NS 1000000000u
// A lane is allowed so much in any case: below that its thread would be asleep when the GPU runs
// dry.
#define ROOM_NS_MIN 250000u
#define WHOLE 256u        // parts of a window
#define LEAST 32u         // as small as it becomes
#define GROWS_BY 16u      // with each drain that was short
#define SLACK_NS 500000u  // a drain is not long that is longer by so much

static void doze(uint64_t ns) {
    static const uint32_t never = 0;
    uint64_t us = ns / 1000;
    us = us < DOZE_US_MIN ? DOZE_US_MIN : us > DOZE_US_MAX ? DOZE_US_MAX : us;
    weir_sys_futex_wait(&never, 0, us);
}

static uint64_t in_flight(const struct weir_busy_lane *lane) {
    uint64_t done_ns = __atomic_load_n(&lane->done_work_ns, __ATOMIC_RELAXED);
    return lane->work_ns > done_ns ? lane->work_ns - done_ns : 0;
}

static int is_closed(struct weir_time *time, uint32_t gpu) {
    return weir_gate_lease(&time->gate, gpu) & WEIR_LEASE_CLOSED;
}

// Waits until there is room. At a closed gate it is waited for there.
static void wait_for_room(struct weir_time *time, uint32_t gpu, struct weir_busy_lane *lane,
                          uint64_t room_ns) {
    uint64_t until_ns = 0;
    for (;;) {
        uint32_t left = weir_trail_left(&time->busy, lane);
        uint64_t flight_ns = in_flight(lane);
        if (!left && flight_ns > room_ns) {
            weir_trail_ask(&time->busy, lane);  // what was launched without a window has no events
            flight_ns = in_flight(lane);
        }
        if ((flight_ns <= room_ns && left < BLIND_MAX + 1) || is_closed(time, gpu))
            return;
        uint64_t now_ns = weir_busy_clock();
        if (!until_ns)
            until_ns = now_ns + 2 * flight_ns + PATIENCE_NS;
        if (now_ns >= until_ns) {
            lane->trail.tail = lane->trail.head;
            return;
        }
        doze(flight_ns > room_ns ? (flight_ns - room_ns) / 2 : room_ns / STEPS / 2);
    }
}

// Of a thread's own stream only the thread can record an event; of work of which nothing is known
// each may be long; and while something is captured the helper asks no stream.
static int needs_each(const struct weir_busy *busy, const struct weir_busy_lane *lane) {
    return (uintptr_t)lane->stream == CU_STREAM_PER_THREAD || !lane->last ||
           (!WEIR_GET(lane->last->expected_ns) && lane->blind == lane->launches) ||
           WEIR_GET(busy->captures);
}

// The window that the agent has set; with rivals and gates that are open, so much that a gate which
// then closes has no backlog of a driver's whole queue behind it. 0: there is none.
static uint64_t window_of(struct weir_time *time, uint32_t gpu) {
    const struct weir_gpu_control *page = &time->state->control->gpus[gpu];
    uint64_t window_ns = 1000u * (uint64_t)WEIR_GET(page->window_us);
    return window_ns || WEIR_GET(page->turns) == WEIR_TURNS_ALONE ? window_ns : OPEN_NS;
}

// What a lane may have in flight now; 0: there is no window. The helper may not have looked yet at
// one that has just come.
static uint64_t room_of(struct weir_time *time, uint32_t gpu) {
    uint64_t room_ns = WEIR_GET(time->gpus[gpu].room_ns);
    return room_ns ? room_ns : window_of(time, gpu);
}

uint32_t weir_window_enter(struct weir_time *time, uint32_t gpu, struct weir_busy_lane *lane) {
    uint64_t room_ns = room_of(time, gpu);
    if (room_ns)
        wait_for_room(time, gpu, lane, room_ns);
    int each = (room_ns || WEIR_GET(time->busy.captures)) && needs_each(&time->busy, lane);
    uint64_t step_ns = room_ns ? room_ns / STEPS : STEP_ALONE_NS;
    WEIR_PUT(lane->mark_at_ns, each ? 0 : lane->work_ns + step_ns);
    return room_ns || each || lane->launches - WEIR_GET(lane->done) < DEEP;
}

// Of work that has no lane it is only known by the time when it is done, so it is waited for that
// which all threads have in flight together.
void weir_window_enter_loose(struct weir_time *time, uint32_t gpu, uint32_t ordinal) {
    const struct weir_busy_gpu *books = &time->busy.gpus[ordinal];
    if (!room_of(time, gpu))
        return;
    for (uint64_t until_ns = 0;;) {
        uint64_t work_ns = __atomic_load_n(&books->loose_work_ns, __ATOMIC_RELAXED);
        uint64_t flight_ns = work_ns - WEIR_GET(books->loose_done_ns);
        uint64_t room_ns = room_of(time, gpu);
        uint64_t now_ns = weir_busy_clock();
        if (!until_ns)
            until_ns = now_ns + 2 * flight_ns + PATIENCE_NS;
        if (flight_ns <= room_ns || now_ns >= until_ns || is_closed(time, gpu))
            return;
        doze((flight_ns - room_ns) / 2);
    }
}

void weir_window_waited(void) {
    struct weir_busy_lane *lane = weir_gate_mine ? WEIR_GET(weir_gate_mine->last) : NULL;
    if (lane)
        WEIR_PUT(lane->mark_at_ns, 0);
}

void weir_window_set(struct weir_time *time, uint32_t gpu, uint32_t lanes, uint64_t now_ns) {
    struct weir_busy *busy = &time->busy;
    struct weir_attended *a = &time->attended[gpu];
    uint64_t room_ns = window_of(time, gpu);
    // Rivals come back where they have just been.
    if (room_ns)
        a->rivals_ns = now_ns;
    else if (a->rivals_ns && now_ns - a->rivals_ns < RIVALS_STAY_NS)
        room_ns = OPEN_NS;
    uint64_t least_ns = room_ns < ROOM_NS_MIN ? room_ns : ROOM_NS_MIN;
    room_ns = room_ns * (WHOLE - a->less) / WHOLE / (lanes ? lanes : 1);
    room_ns = room_ns < least_ns ? least_ns : room_ns;
    uint64_t before_ns = WEIR_GET(time->gpus[gpu].room_ns);
    WEIR_PUT(time->gpus[gpu].room_ns, room_ns);
    if (!room_ns || before_ns)
        return;
    // Lanes look at the window that there is now.
    uint32_t used = __atomic_load_n(&busy->lanes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++)
        WEIR_PUT(busy->lanes[i].mark_at_ns, 0);
}

// What launches take is expectation, and so the window becomes smaller where drains turn out to be
// longer, and slowly as large again where they do not.
void weir_window_drained(struct weir_time *time, uint32_t gpu, uint64_t took_ns) {
    struct weir_attended *a = &time->attended[gpu];
    uint64_t window_ns = window_of(time, gpu);
    uint32_t used = WHOLE - a->less;
    if (took_ns > window_ns + window_ns / 4 + SLACK_NS)
        used = used / 2 > LEAST ? used / 2 : LEAST;
    else if (took_ns < window_ns)
        used = used + GROWS_BY < WHOLE ? used + GROWS_BY : WHOLE;
    a->less = WHOLE - used;
}
