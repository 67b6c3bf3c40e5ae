// ask.h: questions to the agent that a thread waits for: more credit, what is still to be had, what
// a context takes, what is to be said of shared memory.
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

// Asks for a movable allocation by its number (movable.h), ASKED before, and waits as for credit.
// 0: it is GRANTED. Else an error as above, and it is in the book no more.
int weir_ask_movable(struct weir_state *state, uint32_t number);

// What the agent says of a GPU's memory; see struct weir_answer.
struct weir_room {
    uint64_t free_bytes, cap_bytes, used_bytes;
};

// Asks for that. Waits long only where this process has never been told anything. 0, or an error as
// above.
int weir_ask_room(struct weir_state *state, uint32_t gpu, struct weir_room *room);

// Waits, as for credit, until an agent has said that it lists a GPU. 0, or an error as above.
int weir_ask_listed(struct weir_state *state, uint32_t gpu);

// Asks how much one of the `contexts` of this process on a GPU takes, where it holds `other_bytes`
// beside them; waits as for credit. 0 and *context_bytes (0: not to be found out), or an error as
// above.
int weir_ask_measure(struct weir_state *state, uint32_t gpu, uint32_t contexts,
                     uint64_t other_bytes, uint64_t *context_bytes);

// Tells the agent of a piece of shared memory (piece.h): EXPORT, IMPORT or DROP. Waits as for
// credit, or, for a DROP, until the connection ends. 0: its answer is in the piece; or an error as
// above.
int weir_ask_piece(struct weir_state *state, uint32_t piece, enum weir_msg_type type);

// For the helper: the outcome of a question, for the thread that waits for it, if one still does. A
// grant that comes too late goes into the credit word. 0, or EPROTO where it does not answer its
// question.
int weir_ask_verdict(struct weir_state *state, const struct weir_verdict *verdict);
int weir_ask_answer(struct weir_state *state, const struct weir_answer *answer);
int weir_ask_measured(struct weir_state *state, const struct weir_measured *measured);
int weir_ask_shared(struct weir_state *state, const struct weir_shared *shared);

// Whether a thread waits for an answer.
int weir_ask_waits(struct weir_state *state);

// For the helper: sends what is unanswered, after a connection has come up.
void weir_ask_send_all(struct weir_state *state);

// How a connection has ended.
enum weir_loss {
    WEIR_LOSS_FOR_NOW,
    WEIR_LOSS_FOR_GOOD,  // the agent will have nothing more to do with this process
    WEIR_LOSS_RELEASED,  // and it is to go on without caps: what threads wait for, they get
};

// For the helper: the connection has ended.
void weir_ask_lost(struct weir_state *state, enum weir_loss loss);

// For the helper: a question has been sent on the present connection. Lock held.
void weir_ask_sent(struct weir_state *state, uint32_t seq);

// A number for a question whose answer no place waits for. Lock held.
uint32_t weir_ask_number(struct weir_state *state);

#endif
