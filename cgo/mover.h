// mover.h: moves of movable memory between card and host, as the agent asks for them (MOVE): by
// prefetches on two streams of each context, one each way, that do not block and have the least
// priority, so that the program's own streams see nothing of them.
//
// The helper gives the driver a few pieces each way at a time: so much a plan that changes cannot
// take back. It looks for their ends where they are expected, and says MOVED. Invariants:
//   - each move of a connection is answered once on it, and none of an earlier one;
//   - the driver is called with `driving` held, which whoever ends a context takes first: nothing
//   is
//     asked of a stream or event whose context is gone;
//   - a move that the driver has counts in its allocation (`given`), which is freed after it.
#ifndef WEIR_MOVER_H
#define WEIR_MOVER_H

#include "cuda.h"
#include "movable.h"

// For the helper: takes a MOVE. 0, or -EPROTO.
int weir_mover_take(struct weir_state *state, const struct weir_move *move);

// For the helper: goes on with what is under way and says what has ended. In how many ns it is to
// be called again; UINT64_MAX: once there is more.
uint64_t weir_mover_step(struct weir_state *state);

// For the helper: the connection has ended. What the driver has is finished.
void weir_mover_lost(struct weir_state *state);

// An allocation that is found no more is about to be freed: takes back its moves, and waits for
// those that the driver has. No lock is held on entry.
void weir_mover_leave(struct weir_swap *swap, uint32_t number);

// Before the driver's call that ends a context. No lock is held on entry.
void weir_mover_context_ending(struct weir_state *state, uint64_t context);

#endif
