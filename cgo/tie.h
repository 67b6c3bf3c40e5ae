// tie.h: the names by which a program ends its use of a piece (piece.h): the address of an
// allocation that it has exported, an address that it has opened, the handle of imported external
// memory.
//
// A tie holds one use of its piece, however often it was made. It ends with its last release, or
// with its context. The driver may give out a name anew as soon as it has let go of it, so that a
// new tie is made while the old one is not ended yet: whoever ends one gets hold of it before the
// driver is called.
//
// The functions here want the lock held, but weir_ties_ready and weir_untie.
#ifndef WEIR_TIE_H
#define WEIR_TIE_H

#include "cuda.h"
#include "state.h"

enum weir_tie_kind {
    // The key of an allocation in the table (table.h): exported, or imported out of a pool.
    WEIR_TIE_EXPORTED = 1,
    WEIR_TIE_OPENED = 2,    // a device pointer: memory opened by its IPC handle
    WEIR_TIE_EXTERNAL = 3,  // a CUexternalMemory
    WEIR_TIE_POOL = 4,      // a CUmemoryPool: imported, or exported
};

// A tie at one moment; `number` is 0 where there is none.
struct weir_tie_hold {
    uint32_t number;
    uint64_t stamp;
};

int weir_ties_ready(struct weir_state *state);

// Ties a name to a piece; where it is tied to that piece already, the use is counted once more and
// the caller's use of the piece ends. The owner may be WEIR_NO_OWNER. The caller's uses of piece
// and owner are the tie's from then on. 0, or ENOSPC: then they are still the caller's.
int weir_tie_make(struct weir_state *state, enum weir_tie_kind kind, uint64_t name, uint32_t piece,
                  uint32_t owner);

// Gets hold of the newest tie of a name.
struct weir_tie_hold weir_tie_find(const struct weir_state *state, enum weir_tie_kind kind,
                                   uint64_t name);

// The piece that it is tied to.
uint32_t weir_tie_piece(const struct weir_state *state, struct weir_tie_hold hold);

// Ends one use of a tie that is still the one that was found. What the agent is to hear of it then
// waits for weir_share_settle, as for the next two.
void weir_tie_release(struct weir_state *state, struct weir_tie_hold hold);

// An allocation is in the table no more: its export ends, if it was made before the table had got
// past `stamp` (one made later is of another allocation at the same address). Costs a look while
// nothing is exported.
void weir_tie_gone_slow(struct weir_state *state, uint64_t key, uint64_t stamp);
static inline void weir_tie_gone(struct weir_state *state, uint64_t key, uint64_t stamp) {
    if (state->ties.live)
        weir_tie_gone_slow(state, key, stamp);
}

// One end of a use: before the driver is called, and after it. No lock is held on entry.
// CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY in a signal handler that interrupted this thread at its
// books.
struct weir_untie {
    struct weir_state *state;  // NULL: nothing can be tied
    struct weir_tie_hold hold;
};
CUresult weir_untie_begin(struct weir_untie *untie, enum weir_tie_kind kind, uint64_t name);
void weir_untie_end(const struct weir_untie *untie, CUresult result);

// The contexts retired with a ticket have ended, and their owners are still to be told by it.
void weir_ties_end(struct weir_state *state, uint32_t ticket);

#endif
