// trail.h: events behind the launches of a lane, by which the helper knows that a drain is over,
// and a thread that there is room in its window.
//
// Two writers, each of events of its own: the lane's thread records within its own launch, in turn;
// the helper records one behind the last launch, where none is under way. A launch is counted after
// its thread has gone inside, and its thread is outside again once the driver has it: so who sees
// the count, and then the thread outside, may record behind it. Invariants:
//   - the helper calls the driver under `driving` only, after it has seen that the context is not
//     ending, the stream not gone, and nothing captured: whoever changes these takes that lock
//     first;
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
uint32_t weir_trail_left(struct weir_busy *busy, struct weir_busy_lane *lane);

// The helper: whether all that a lane has launched is done. Where no event tells and `record`,
// which means that no launch is under way, one is recorded.
int weir_trail_look(struct weir_busy *busy, struct weir_busy_lane *lane, int record);

// Whether the helper can learn what a lane has done: else it goes by expectation.
int weir_trail_can(const struct weir_busy *busy, const struct weir_busy_lane *lane);

#endif
