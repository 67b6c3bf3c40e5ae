// attend.h: what the helper does for GPU time. It attends to a GPU from the agent's LOOK on: polls
// what is outstanding, writes the words of the usage page, and says PROGRESS, DRAINED and, in the
// end, IDLE (docs/decisions/0012).
//
// Invariants:
//   - all here but weir_attend_agent_alive, weir_attend_want and weir_time_make is the helper's,
//   which
//     never waits for the device: a call that did could wait for work that the gate holds back;
//   - DRAINED is said of a lease that is closed and of which no launch is under way, once all that
//     was submitted by then is done;
//   - `active` is cleared before IDLE, and all counters are looked at again after the gate has
//     settled: no launch between is overlooked.
#ifndef WEIR_ATTEND_H
#define WEIR_ATTEND_H

#include "timed.h"

// Makes the process's books of GPU time. NULL where there is no memory.
struct weir_time *weir_time_make(struct weir_state *state);

// Gives GPUs their numbers of the control page, and has the gate find their leases there.
void weir_time_bind(struct weir_state *state);

// There is, or will be, more than one context, or the one there was has ended.
void weir_time_several(struct weir_state *state);

// All zeros again: this is a forked child, on a kernel that does not wipe.
void weir_time_wipe(struct weir_time *time);

// For the gate (gate.h): whether anybody is there who will open it; that a thread is going to wait.
int weir_attend_agent_alive(void *time);
uint64_t weir_attend_want(void *time, uint32_t gpu, uint32_t lease);

// A LOOK of the agent's. 0, or -EPROTO for a GPU that is none.
int weir_attend_look(struct weir_state *state, const struct weir_turn *turn);

// A connection is up, with pages of its own; it has ended.
void weir_attend_begin(struct weir_state *state);
void weir_attend_end(struct weir_state *state);

// Does what is due. In how many ns it is to be called again; UINT64_MAX: when LOOK was said.
uint64_t weir_attend(struct weir_state *state);

#endif
