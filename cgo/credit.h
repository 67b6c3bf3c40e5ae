// credit.h: what this process has been granted, and where it lies.
//
// The agent's book says G for this session and GPU. The library keeps, whenever a usage page is
// open,
//
//     G = U + owned + (grants that are on their way)                                          (1)
//
// U is the credit word of the usage page; `owned` is what the process answers for itself: live
// allocations, and what a thread is allocating or freeing at this moment. The argument, for every
// interleaving:
//
//   - Taking moves n from U to owned, giving back moves it from owned to U, a verdict raises owned
//     (or U, where nobody waits for it any more) by what the agent raised G by. Each is done in one
//     critical section, so each keeps (1). The agent moves U and G together (recall, spare).
//   - A process that dies at any point of this leaves U at most too low, never too high, and its G
//     ends as a whole.
//   - A new connection: in one critical section the page is closed and `owned` is copied into HELLO
//     as D. From then on nobody takes (the page is closed), no verdict comes (the old connection is
//     not read any more, the new one has no request yet), and giving back moves n from owned to
//     `pending`. So D = owned + pending all the while. The agent sets G := D and makes a page with
//     U = 0, or U = s and G := D + s. Opening that page moves pending into it: G = s + pending +
//     owned, which is (1). What was in the old page's U is void, also where the agent never came to
//     read HELLO: a page, once closed, is not opened again, since it cannot be known whether it
//     did. If HELLO is sent anew, D is copied anew and pending starts from 0, for the earlier D is
//     void as well.
//   - Grants on their way when a connection ends: those that lie in the socket are read before the
//     end of it is seen, and count; those that were lost with it are not in owned, hence not in D,
//     and the agent's G := D drops them; whoever waits for one asks again on the new connection.
//   - A thread inside the driver during all this: what it allocates is in owned since before the
//     call, what it frees is in owned until after it, and it looks at no page meanwhile.
//
// All functions here want the lock held.
#ifndef WEIR_CREDIT_H
#define WEIR_CREDIT_H

#include "state.h"

// Takes `bytes` out of the credit word. 1, or 0 where there is not so much, no page is open, or the
// container is over its cap.
int weir_credit_take(struct weir_state *state, uint32_t gpu, uint64_t bytes);

// How much there is to be taken.
uint64_t weir_credit_at_hand(const struct weir_state *state, uint32_t gpu);

// Counts a grant that goes to a thread which waits for it.
void weir_credit_grant(struct weir_state *state, uint32_t gpu, uint64_t bytes);

// Counts a grant that came too late for the thread that asked. `index` is that of the control page.
void weir_credit_grant_late(struct weir_state *state, uint32_t index, uint64_t bytes);

// What was owned is charged to the container by the agent, which has lowered what it granted by as
// much: an export was acknowledged.
void weir_credit_move(struct weir_state *state, uint32_t gpu, uint64_t bytes);

// Gives back what was owned: freed, or not allocated after all.
void weir_credit_give(struct weir_state *state, uint32_t gpu, uint64_t bytes);

// Closes the page and fills in what HELLO declares.
void weir_credit_declare(struct weir_state *state, struct weir_hello *hello);

// Opens the pages of a new connection, which are mapped already: finds each known GPU in the
// control page and moves what was freed meanwhile into its credit word.
void weir_credit_open(struct weir_state *state, uint32_t gpu_count);

// The place of a GPU in the control page, or WEIR_NO_INDEX.
uint32_t weir_credit_index(const struct weir_state *state, const uint8_t uuid[16]);

#endif
