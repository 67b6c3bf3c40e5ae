// busytime.h: how long one process has kept one GPU busy, from what is known of its work. Pure:
// times are arguments, in ns of CLOCK_MONOTONIC; nothing here calls, locks or looks at a clock.
//
// Two things are known, neither of them enough. The *work* that was launched, in ns that it is
// expected to take: right whatever gaps there are between launches, as far as the expectations are.
// The *cover*: stretches in which some operation was surely outstanding, because an event behind it
// had not come, right whatever was expected, but few. So time goes on in steps, and in each the GPU
// was busy for as long as there was work for it: not less than the cover, not longer than the step;
// what is left of the work is ahead of it in the next step. Invariants:
//   - busy time never shrinks, and is never more than the time that passed;
//   - what is ahead is never more than what can still be outstanding, so that expectations that are
//     too high end with the work itself.
#ifndef WEIR_BUSYTIME_H
#define WEIR_BUSYTIME_H

#include <stdint.h>

struct weir_busytime {
    uint64_t busy_ns;          // so far
    uint64_t covered_ns;       // of the time so far, so much was covered
    uint64_t now_ns;           // the end of the last step; 0: none was made
    uint64_t work_ns;          // launched by then
    uint64_t ahead_ns;         // of it, not done by then
    uint64_t cover_end_ns;     // no later time is covered so far
    uint64_t step_covered_ns;  // of the step that is to end next
    uint64_t idle_ns;          // of the time so far, so much was not busy
    uint64_t surplus_ns;       // of the busy time, so much was covered and had not been expected
};

// Some operation was outstanding from one time to another. Those of one step come in any order; of
// stretches that overlap some may be lost, never counted twice.
static inline void weir_busytime_cover(struct weir_busytime *t, uint64_t from_ns, uint64_t to_ns) {
    uint64_t from = from_ns > t->cover_end_ns ? from_ns : t->cover_end_ns;
    if (from < t->now_ns)
        from = t->now_ns;  // that step is settled
    if (to_ns <= from)
        return;
    t->step_covered_ns += to_ns - from;
    t->cover_end_ns = to_ns;
}

// Ends a step. `work_ns`: all that was ever launched, expected; it may shrink where a launch
// failed. `outstanding_ns`: the most of it that may still be to do.
static inline void weir_busytime_step(struct weir_busytime *t, uint64_t now_ns, uint64_t work_ns,
                                      uint64_t outstanding_ns) {
    uint64_t passed = t->now_ns && now_ns > t->now_ns ? now_ns - t->now_ns : 0;
    uint64_t work = t->ahead_ns + work_ns;
    work = work > t->work_ns ? work - t->work_ns : 0;
    uint64_t least = t->step_covered_ns < passed ? t->step_covered_ns : passed;
    uint64_t busy = work < least ? least : work < passed ? work : passed;
    t->busy_ns += busy;
    t->covered_ns += least;
    t->idle_ns += passed - busy;
    t->surplus_ns += busy > work ? busy - work : 0;
    t->ahead_ns = work > busy ? work - busy : 0;
    if (t->ahead_ns > outstanding_ns)
        t->ahead_ns = outstanding_ns;
    t->work_ns = work_ns;
    t->now_ns = now_ns > t->now_ns ? now_ns : t->now_ns;
    t->step_covered_ns = 0;
}

// Work of past steps that nobody had expected is known now.
static inline void weir_busytime_late(struct weir_busytime *t, uint64_t ns) {
    uint64_t busy = ns < t->idle_ns ? ns : t->idle_ns;
    t->busy_ns += busy;
    t->idle_ns -= busy;
}

#endif
