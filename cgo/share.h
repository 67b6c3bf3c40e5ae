// share.h: what this process and the agent tell each other about shared memory (piece.h).
//
// An export is told before the program gets the handle, an import before the driver is called, so
// that the agent knows of a piece before anybody else can have it. A piece's end is told before the
// call that ended it returns, so that what it was charged is free by then for other processes too.
// None of this is waited for longer than for credit; where no agent answers, an export goes on
// untold (whoever imports it is charged too) and an import is charged here.
//
// After a reconnect everything that is had is declared anew. Anything that ended meanwhile is left
// out, and the agent, told that this was all, lets go of it.
//
// But for the helper's part, no lock is held here on entry.
#ifndef WEIR_SHARE_H
#define WEIR_SHARE_H

#include "obtain.h"
#include "piece.h"

// A piece of an allocation that is exported, with a use for the allocation and one for
// weir_share_export. It takes over the `bytes` that are owned for it. WEIR_NO_PIECE where there are
// too many, or the key names a piece already. Lock held.
uint32_t weir_share_take(struct weir_state *state, const struct weir_share_key *key, uint32_t gpu,
                         uint64_t bytes);

// The allocation keeps its bytes, and the piece was not needed. Lock held.
void weir_share_untake(struct weir_state *state, uint32_t piece);

// Tells the agent of a piece that was just exported.
void weir_share_export(struct weir_state *state, uint32_t piece);

// The piece that is about to be imported, with a use for the caller; `key` may be NULL.
// WEIR_NO_PIECE where there are too many.
uint32_t weir_share_import(struct weir_state *state, const struct weir_share_key *key);

// Charges a piece of unknown origin, of which at least `bytes` were found to be on a GPU, unless
// that is done already. CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY.
CUresult weir_share_charge(struct weir_state *state, uint32_t piece, uint32_t gpu, uint64_t bytes);

// Ends a use of a piece.
void weir_share_release(struct weir_state *state, uint32_t piece);

// Tells the agent of all pieces that have ended, and waits until it has heard. Costs one look while
// there are none.
void weir_share_settle_slow(struct weir_state *state);
static inline void weir_share_settle(struct weir_state *state) {
    if (__builtin_expect(__atomic_load_n(&state->pieces_ending, __ATOMIC_RELAXED) != 0, 0))
        weir_share_settle_slow(state);
}

// For questions (ask.h), with the lock held: that one was put, and how it reads.
void weir_share_asked(struct weir_state *state, uint32_t piece, enum weir_msg_type type,
                      uint32_t seq);
void weir_share_write(const struct weir_state *state, uint32_t piece, enum weir_msg_type type,
                      uint32_t seq, struct weir_share *message);

// For the helper: declares all that is had to a new connection. 0 or -errno.
int weir_share_declare(struct weir_state *state, int fd, uint64_t cookie);

// For the helper: tells of pieces that have ended where their threads could not.
void weir_share_flush(struct weir_state *state);

#endif
