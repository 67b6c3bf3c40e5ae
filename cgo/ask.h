// ask.h: questions to the agent that a thread waits for: more credit, or what is still to be had.
//
// A thread puts its question into one of the state's places and sends it; the helper finds the
// place by the answer's sequence number and wakes the thread. Places are in the state, not on
// stacks, so a thread that leaves its wait by a jump out of a signal handler loses a place, not the
// process. What is unanswered when a connection ends is sent again on the next one.
//
// A place changes under the lock only: FREE -> WAITING (its thread) -> an outcome (the helper, or
// its thread at the deadline) -> FREE (its thread).
#ifndef WEIR_ASK_H
#define WEIR_ASK_H

#include "state.h"

// Asks for `bytes` of credit on a GPU, by ordinal, and waits at most agent_wait. 0: the bytes are
// owned. Else EDQUOT (refused by the agent), EHOSTUNREACH (no answer in time), ENODEV (the agent
// does not know the GPU), EAGAIN (too many threads wait) or EDEADLK.
int weir_ask_credit(struct weir_state *state, uint32_t gpu, uint32_t kind, uint64_t bytes);

// Asks how much could still be allocated on a GPU and what the cap is. Waits long only where this
// process has never been told anything. 0, or an error as above.
int weir_ask_room(struct weir_state *state, uint32_t gpu, uint64_t *free_bytes,
                  uint64_t *cap_bytes);

// For the helper: the outcome of a question, for the thread that waits for it, if one still does. A
// grant that comes too late goes into the credit word. 0, or EPROTO where it does not answer its
// question.
int weir_ask_verdict(struct weir_state *state, const struct weir_verdict *verdict);
int weir_ask_answer(struct weir_state *state, const struct weir_answer *answer);

// For the helper: sends what is unanswered, after a connection has come up.
void weir_ask_send_all(struct weir_state *state);

// For the helper: the connection has ended (`refusing`: for good).
void weir_ask_lost(struct weir_state *state, int refusing);

#endif
