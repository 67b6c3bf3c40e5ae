// window.c: how much expected work a program may have in flight while others want the GPU, so that
// little is left to drain when the gate closes: in one lane, and in all lanes of a GPU together
// (windowall.c). The helper says how much (windowset.c).
//
// A thread that has more in flight in its lane than that lane's part waits for its oldest event;
// then it waits until all lanes together have room; then it goes through the gate, and takes a
// place: who finds none inside goes out again. So nobody waits inside, and of many threads that a
// gate has let go only as many launch as there is room for. One operation is always allowed. Waits
// are bounded: what is in flight may wait for work that this very thread has still to launch.
//
// Where operations are long, the next one is let through shortly before the one at work should end,
// as far as that is known, lest the GPU stand still between the two.
#include "timed.h"
#include "trail.h"

#define DOZE_US_MIN 30u
#define DOZE_US_MAX 1000u
// Without a window, a lane has an event behind so much work, for a drain that may come;
#define STEP_ALONE_NS 50000000u
// and none behind so many launches: each takes a place in the driver's queue.
#define DEEP 512u
// An operation at work may be done sooner than expected, by such a part of what has passed.
#define SOONER_PART 7u

void weir_window_doze(uint64_t ns) {
    static const uint32_t never = 0;
    uint64_t us = ns / 1000;
    us = us < DOZE_US_MIN ? DOZE_US_MIN : us > DOZE_US_MAX ? DOZE_US_MAX : us;
    weir_sys_futex_wait(&never, 0, us);
}

// The window that the agent has set; with rivals and gates that are open, so much that a gate which
// then closes has no backlog of a driver's whole queue behind it. 0: there is none.
uint64_t weir_window_of(struct weir_time *time, uint32_t gpu) {
    const struct weir_gpu_control *page = &time->state->control->gpus[gpu];
    uint64_t window_ns = 1000u * (uint64_t)WEIR_GET(page->window_us);
    return window_ns || WEIR_GET(page->turns) == WEIR_TURNS_ALONE ? window_ns : WEIR_WINDOW_OPEN_NS;
}

// What a lane may have in flight now; 0: there is no window. The helper may not have looked yet at
// one that has just come.
uint64_t weir_window_room(struct weir_time *time, uint32_t gpu) {
    uint64_t room_ns = WEIR_GET(time->gpus[gpu].room_ns);
    return room_ns ? room_ns : weir_window_of(time, gpu);
}

int weir_window_is_closed(struct weir_time *time, uint32_t gpu) {
    return weir_gate_lease(&time->gate, gpu) & WEIR_LEASE_CLOSED;
}

// Whether operations as the lane's last one are so long that few fit into the room: to wait for the
// end of one would leave the GPU idle until that is seen and the next one is launched.
static int is_long(const struct weir_busy_lane *lane, uint64_t room_ns) {
    return lane->last && 2 * WEIR_GET(lane->last->expected_ns) > room_ns;
}

// What is next in a lane is at work since its thread saw the last done, or launched it with none
// before it.
static void note_begun(struct weir_busy_lane *lane) {
    lane->begun_done = WEIR_GET(lane->done);
    lane->begun_ns = weir_busy_clock();
}

// For how long the oldest of what is in flight has been at work; 0: that is not known.
static uint64_t at_work_for(struct weir_time *time, uint32_t gpu,
                            const struct weir_busy_lane *lane) {
    return lane->begun_done != WEIR_GET(lane->done) || WEIR_GET(time->gpus[gpu].lanes) > 1 ||
                   !is_long(lane, weir_window_room(time, gpu))
               ? 0
               : weir_busy_clock() - lane->begun_ns;
}

uint64_t weir_window_passed(struct weir_time *time, uint32_t gpu,
                            const struct weir_busy_lane *lane) {
    uint64_t worked_ns = at_work_for(time, gpu, lane);
    uint64_t expected_ns = worked_ns ? WEIR_GET(lane->last->expected_ns) : 0;
    worked_ns += worked_ns / SOONER_PART;
    return worked_ns < expected_ns ? worked_ns : expected_ns;
}

// What this thread's lane still has to do, as far as is known.
static uint64_t left_of(struct weir_time *time, uint32_t gpu, struct weir_busy_lane *lane,
                        uint64_t room_ns) {
    uint64_t flight_ns = weir_window_in_flight(lane), done = WEIR_GET(lane->done);
    if (flight_ns <= room_ns)
        return flight_ns;
    if (lane->begun_done != done && done < lane->launches && is_long(lane, room_ns))
        note_begun(lane);
    uint64_t passed_ns = weir_window_passed(time, gpu, lane);
    return flight_ns > passed_ns ? flight_ns - passed_ns : 0;
}

// How long a thread sleeps whose lane has so much left. It looks more and more often as the end of
// a long operation comes near, from which that of the next one is reckoned.
static uint64_t pause_of(struct weir_time *time, uint32_t gpu, const struct weir_busy_lane *lane,
                         uint64_t left_ns, uint64_t room_ns) {
    uint64_t pause_ns =
        left_ns > room_ns ? (left_ns - room_ns) / 2 : room_ns / WEIR_WINDOW_STEPS / 2;
    uint64_t worked_ns = at_work_for(time, gpu, lane);
    if (!worked_ns)
        return pause_ns;
    uint64_t expected_ns = WEIR_GET(lane->last->expected_ns);
    uint64_t off_ns = worked_ns < expected_ns ? expected_ns - worked_ns : worked_ns - expected_ns;
    return off_ns / 2 < pause_ns ? off_ns / 2 : pause_ns;
}

// Waits until there is room. At a closed gate it is waited for there.
static void wait_for_room(struct weir_time *time, uint32_t gpu, struct weir_busy_lane *lane,
                          uint64_t room_ns) {
    uint64_t until_ns = 0;
    for (;;) {
        uint32_t left = lane->trail.head - lane->trail.tail;
        uint64_t flight_ns = weir_window_in_flight(lane);
        if (flight_ns > room_ns || left > WEIR_WINDOW_BLIND) {  // as far as was asked
            left = weir_trail_left(lane);
            flight_ns = left_of(time, gpu, lane, room_ns);
        }
        if (!left && flight_ns > room_ns) {
            weir_trail_ask(&time->busy, lane);  // what was launched without a window has no events
            flight_ns = left_of(time, gpu, lane, room_ns);
        }
        if ((flight_ns <= room_ns && left < WEIR_WINDOW_BLIND + 1) ||
            weir_window_is_closed(time, gpu))
            return;
        uint64_t now_ns = weir_busy_clock();
        if (!until_ns)
            until_ns = now_ns + 2 * flight_ns + WEIR_WINDOW_PATIENCE_NS;
        if (now_ns >= until_ns) {
            lane->trail.tail = lane->trail.head;
            return;
        }
        weir_window_doze(pause_of(time, gpu, lane, flight_ns, room_ns));
    }
}

// Of a thread's own stream only the thread can record an event; of work of which nothing is known
// each may be long; and while something is captured the helper asks no stream.
static int needs_each(const struct weir_busy *busy, const struct weir_busy_lane *lane) {
    return (uintptr_t)lane->stream == CU_STREAM_PER_THREAD || !lane->last ||
           (!WEIR_GET(lane->last->expected_ns) && lane->blind == lane->launches) ||
           WEIR_GET(busy->captures);
}

// Whether this thread is in the middle of a launch, which a signal has interrupted: what the gate
// waits for does not wait for room.
static int is_inside(void) {
    const struct weir_gate_word *word = weir_gate_mine;
    return word && weir_gate_is_inside(WEIR_GET(word->state));
}

// Through the gate, with a place for so much work: one that the lane has taken in advance, or a new
// one. A lane takes as much as it does between two looks, so that short launches meet in a word
// that all write only now and then, and all lanes together a part of a window too much at most.
static int goes(struct weir_time *time, uint32_t gpu, uint64_t ns, struct weir_busy_lane *lane,
                const struct weir_hope *hope, struct weir_pass *pass) {
    *pass = weir_gate_enter(&time->gate, gpu);
    if (!weir_window_room(time, gpu) || (pass->lease & WEIR_LEASE_CLOSED) ||
        (!pass->word && pass->wordless == WEIR_GATE_NESTED) || hope->over)
        return 1;
    if (lane && lane->place_ns >= ns) {
        lane->place_ns -= ns;
        return 1;
    }
    uint64_t step_ns = WEIR_GET(time->gpus[gpu].step_ns),
             take_ns = lane && step_ns > ns ? step_ns : ns;
    if (weir_window_take(time, gpu, take_ns)) {
        if (lane)
            lane->place_ns += take_ns - ns;
        return 1;
    }
    weir_gate_leave(&time->gate, gpu, *pass);
    return 0;
}

struct weir_window_pass weir_window_enter(struct weir_time *time, uint32_t gpu,
                                          struct weir_busy_lane *lane) {
    struct weir_window_pass to = {.marked = 0};
    struct weir_hope hope = {.done = 0};
    uint64_t room_ns, guess_ns = weir_window_guess(time, gpu, lane->last);
    do {
        room_ns = weir_window_room(time, gpu);
        if (room_ns && !is_inside()) {
            wait_for_room(time, gpu, lane, room_ns);
            if (lane->place_ns < guess_ns)
                weir_window_wait(time, gpu, lane, &hope);
        }
        if (weir_window_is_closed(time, gpu))
            hope = (struct weir_hope){.done = 0};
    } while (!goes(time, gpu, guess_ns, lane, &hope, &to.pass));
    if (WEIR_GET(lane->done) >= lane->launches && is_long(lane, room_ns))
        note_begun(lane);
    int each = (room_ns || WEIR_GET(time->busy.captures)) && needs_each(&time->busy, lane);
    uint64_t step_ns = WEIR_GET(time->gpus[gpu].step_ns);
    step_ns = !room_ns ? STEP_ALONE_NS : step_ns ? step_ns : room_ns / WEIR_WINDOW_STEPS;
    WEIR_PUT(lane->mark_at_ns, each ? 0 : lane->work_ns + step_ns);
    to.marked = room_ns || each || (lane->launches && lane->launches - WEIR_GET(lane->done) < DEEP);
    return to;
}

struct weir_pass weir_window_enter_loose(struct weir_time *time, uint32_t gpu, uint32_t ordinal) {
    struct weir_pass pass;
    struct weir_hope hope = {.done = 0};
    uint64_t mean_ns = WEIR_GET(time->busy.gpus[ordinal].mean_ns);
    do {
        if (weir_window_room(time, gpu) && !is_inside())
            weir_window_wait(time, gpu, NULL, &hope);
        if (weir_window_is_closed(time, gpu))
            hope = (struct weir_hope){.done = 0};
    } while (!goes(time, gpu, mean_ns ? mean_ns : weir_window_guess(time, gpu, NULL), NULL, &hope,
                   &pass));
    return pass;
}

void weir_window_waited(void) {
    struct weir_busy_lane *lane = weir_gate_mine ? WEIR_GET(weir_gate_mine->last) : NULL;
    if (lane)
        WEIR_PUT(lane->mark_at_ns, 0);
}
