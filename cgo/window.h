// window.h: how much may be in flight while others want the GPU; see window.c. What is here is for
// launching threads but where it says otherwise.
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#include "busy.h"
#include "gate.h"

struct weir_time;

// Waits for room in the window and for the gate to be open, and goes through it. `marked`: an event
// is to be recorded behind the launch.
struct weir_window_pass {
    struct weir_pass pass;
    uint32_t marked;
};
struct weir_window_pass weir_window_enter(struct weir_time *time, uint32_t gpu,
                                          struct weir_busy_lane *lane) WEIR_RARE;

// The same for a launch that has no lane, nor an event.
struct weir_pass weir_window_enter_loose(struct weir_time *time, uint32_t gpu,
                                         uint32_t ordinal) WEIR_RARE;

// This thread waits at the gate: its next launch looks at the window that there is then.
void weir_window_waited(void);

// The helper: how much lanes may have in flight now, of which so many are at work; and a drain took
// so long, which is to be as the window is.
void weir_window_set(struct weir_time *time, uint32_t gpu, uint32_t lanes, uint64_t now_ns);
void weir_window_drained(struct weir_time *time, uint32_t gpu, uint64_t took_ns);

// ---- Among the files window*.c ----

// A thread waits twice as long as work in flight should take, and this, at most.
#define WEIR_WINDOW_PATIENCE_NS 5000000u
// Of work of which nothing is known so many may be in flight.
#define WEIR_WINDOW_BLIND 4u
// Events in a window's length.
#define WEIR_WINDOW_STEPS 4u
// The window with rivals and gates that are open.
#define WEIR_WINDOW_OPEN_NS 20000000u
// All lanes together may have so much in flight, in 1/16 of a window, at first: more than one where
// kernels of several streams run beside each other, so that drains are short all the same.
#define WEIR_WINDOW_ALL_PARTS 16
#define WEIR_WINDOW_ALL_FIRST 64

// The window of a GPU, and a lane's part of it; 0: there is none.
uint64_t weir_window_of(struct weir_time *time, uint32_t gpu);
uint64_t weir_window_room(struct weir_time *time, uint32_t gpu);

// What a lane has in flight, as far as something was expected.
static inline uint64_t weir_window_in_flight(const struct weir_busy_lane *lane) {
    uint64_t work_ns = WEIR_GET(lane->work_ns), done_ns = WEIR_GET(lane->done_work_ns);
    return work_ns > done_ns ? work_ns - done_ns : 0;
}

// How much of that its thread takes to be done by now, of the oldest operation, if that is a long
// one and no other lane's: for so long it has been at work.
uint64_t weir_window_passed(struct weir_time *time, uint32_t gpu,
                            const struct weir_busy_lane *lane);

int weir_window_is_closed(struct weir_time *time, uint32_t gpu);

// Whether a lane is one of a GPU's.
int weir_window_is_on(const struct weir_time *time, const struct weir_busy_lane *lane,
                      uint32_t gpu);

// Sleeps for about so long, as far as a thread that waits for room should.
void weir_window_doze(uint64_t ns);

// How long a thread waits for what is in flight: as long as that goes on, until `last_ns` at most.
struct weir_hope {
    uint64_t done, until_ns, last_ns;
    int over;  // it goes without a place
};

// Waits until all lanes together have room, or not at all at a closed gate. `lane` is the thread's,
// or NULL.
void weir_window_wait(struct weir_time *time, uint32_t gpu, const struct weir_busy_lane *lane,
                      struct weir_hope *hope);

// Takes a place for so much work, if there is one or none is needed now.
int weir_window_take(struct weir_time *time, uint32_t gpu, uint64_t ns);

// What a launch is taken to take after one of such a key, which may be NULL.
uint64_t weir_window_guess(struct weir_time *time, uint32_t gpu, const struct weir_busy_key *last);

#endif
