// trail.h: events behind the launches of a lane, by which the helper knows that a drain is over,
// and a thread that there is room in its window.
//
// The lane's thread records them within its own launches, in turn. What lies behind the last one
// the helper learns by asking the stream whether it has come to its end. A launch is counted after
// its thread has gone inside, and its thread is outside again once the driver has it: so who sees
// the count, and then the thread outside, asks behind it. Invariants:
//   - nothing of the helper's waits for the device, or for a place in the driver's queue, and
//   nothing
//     adds an order between streams: it records nothing;
//   - the helper calls the driver under `driving` only, after it has seen that the context is not
//     ending, the stream not gone, and nothing captured: whoever changes these takes that lock
//     first, or has waited for it as long as is good;
//   - `launches` of an event is written after the event was recorded: who reads it and then asks
//   for
//     the event is never told too much;
//   - an event that the driver will not answer for any more counts as one that has come.
#ifndef WEIR_TRAIL_H
#define WEIR_TRAIL_H

#include "busy.h"

// The lane's thread, within its launch: records an event behind it.
void weir_trail_mark(struct weir_busy *busy, struct weir_busy_lane *lane);

// The lane's thread: forgets its events that have come. How many are left.
uint32_t weir_trail_left(struct weir_busy_lane *lane);

// The lane's thread: asks its stream whether all is done.
void weir_trail_ask(struct weir_busy *busy, struct weir_busy_lane *lane);

// Any thread of the program, in relaxed capture mode: looks how far a lane is, of which a thread
// that waits for room needs to know. Nobody is waited for: where the helper, or another thread, is
// at events, they look.
void weir_trail_see(struct weir_busy *busy, struct weir_busy_lane *lane);

// The helper: whether all that a lane has launched is done. Where no event tells, and `ask`, the
// stream is asked, unless a launch is under way.
int weir_trail_look(struct weir_busy *busy, struct weir_busy_lane *lane, int ask);

// Whether the helper can learn what a lane has done: else it goes by expectation.
int weir_trail_can(const struct weir_busy *busy, const struct weir_busy_lane *lane);

#endif
