// reserve.h: what pools and the graphs of a device have reserved, and how that is charged.
//
// A pool takes device memory in chunks of its own choosing and gives it back when it likes, so its
// charge follows what the driver says that it has reserved (a reserve, here). Only calls of ours
// make it grow; it shrinks in calls that the program makes for other reasons, too. Invariants:
//   - charged_bytes are owned (credit.h), and no less than is reserved but inside a call that makes
//     it grow, or while memory that was refused cannot be given back yet: then `loose` is set;
//   - they are lowered only to a figure that was read while no such call was going on;
//   - what may be lower than charged is found at the next call that makes the driver look at its
//     pools (synchronize), needs memory, or has to do with pools; `loose` says that one has to
//     look;
//   - no driver call is made with the lock held.
#ifndef WEIR_RESERVE_H
#define WEIR_RESERVE_H

#include "obtain.h"

#define WEIR_NO_RESERVE UINT32_MAX

// Makes a reserve known: of a pool, by its handle, or of all graphs of a device, by its ordinal.
// `gpu`: the ordinal, or WEIR_NO_INDEX for what is not to be charged. 0; ENOSPC where there are
// WEIR_RESERVES_MAX, or EDEADLK.
int weir_reserve_add(struct weir_state *state, enum weir_kind kind, uint64_t handle, uint32_t gpu);

// The number of a reserve that is known, and *gpu as it was given; or WEIR_NO_RESERVE.
uint32_t weir_reserve_find(struct weir_state *state, enum weir_kind kind, uint64_t handle,
                           uint32_t *gpu);

// One call that may make a reserve grow.
struct weir_growth {
    struct weir_state *state;  // NULL: nothing is charged
    uint32_t reserve;
    uint32_t gpu;
    enum weir_kind kind;
    uint32_t moves;
    uint64_t handle;
    uint64_t held_bytes;  // obtained in advance
    int alone;            // no other was going on when it began
    int exclusive;        // and none begins before it ends
    int fits;             // there is room for it, as far as is known
};

// Of a growth that is to be alone, whatever credit there is.
#define WEIR_GROWTH_ALONE UINT64_MAX

// Begins a growth by a request of so many bytes. Where there is credit for it at hand, others may
// go on at the same time; otherwise it is alone, so that what is found afterwards is its own doing:
// that may mean to wait. CUDA_SUCCESS; CUDA_ERROR_NOT_FOUND where the reserve is not known;
// CUDA_ERROR_INVALID_VALUE for a pool that the program has destroyed; CUDA_ERROR_OUT_OF_MEMORY in a
// signal handler that interrupted this thread at its books.
CUresult weir_growth_begin(struct weir_growth *growth, struct weir_state *state,
                           enum weir_kind kind, uint64_t handle, uint64_t bytes);

// Where it does not fit: obtains what a request of `bytes` makes the reserve grow by at least.
// CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY: then the request is refused and the growth has ended.
CUresult weir_growth_prepare(struct weir_growth *growth, uint64_t bytes);

// After a call of the driver's: brings the charge to what is reserved now, and goes on.
// CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY: it is refused; the caller undoes what it has done,
// then calls weir_growth_undone. Unless `finally`, CUDA_ERROR_NOT_READY where there is no room:
// nothing was asked for; the caller does the same and may try again, with more room.
CUresult weir_growth_cover(struct weir_growth *growth, int finally);

// The same, finally, and ends the growth unless it is refused.
CUresult weir_growth_end(struct weir_growth *growth);

// Notes how what a pool said was in use has changed as memory was freed on a stream that had not
// yet come to that.
void weir_growth_learn(const struct weir_growth *growth, uint64_t before_bytes,
                       uint64_t after_bytes);

// Ends a growth that was refused: has the driver give back what is not charged. What it cannot yet
// is given back at the next occasion.
void weir_growth_undone(struct weir_growth *growth);

// Says that a reserve may hold less than it is charged, if any reserve is known.
void weir_loosen(struct weir_state *state);

// Shows what shared pools have reserved on a new usage page. Lock held.
void weir_reserves_show(struct weir_state *state);

// Looks at all reserves and brings the charges to what they hold.
void weir_reserves_settle(struct weir_state *state);

// The same where one may hold less: after a call in which the driver may have looked at its pools.
static inline void weir_settle_if_loose(void) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    if (state && __builtin_expect(__atomic_load_n(&state->loose, __ATOMIC_RELAXED) != 0, 0) &&
        weir_enforced(&state))
        weir_reserves_settle(state);
}

// The same for one.
void weir_reserve_settle(struct weir_state *state, uint32_t reserve);

// Makes room for `bytes` on a GPU, if this process's own reserves have something to give: settles
// them and, where what the agent could still grant is not enough, has them give back unused memory.
void weir_reserves_make_room(struct weir_state *state, uint32_t gpu, uint64_t bytes);

// A pool keeps so much unused memory at a synchronization.
void weir_reserve_keep(struct weir_state *state, uint32_t reserve, uint64_t handle,
                       uint64_t keep_bytes);

// The program has destroyed a pool: the driver is asked to destroy it once none of its memory is in
// use, which is looked at whenever it is settled. Whether it was none before; then it is pinned,
// and the driver's handle valid, until weir_reserve_orphaned.
int weir_reserve_orphan(struct weir_state *state, uint32_t reserve, uint64_t handle);
void weir_reserve_orphaned(struct weir_state *state, uint32_t reserve);

// Others may import a pool from now on: what it has reserved is shown to the agent, and its tie
// (tie.h) ends when the driver has destroyed it. Lock held.
void weir_reserve_share(struct weir_state *state, uint32_t reserve);

// Forgets a pool and gives back its charge. Whether it was there, and nothing was going on.
int weir_reserve_remove(struct weir_state *state, uint32_t reserve, uint64_t handle);

// ---- Between reserve.c and growth.c ----

// What the driver says that is reserved, and used, in all.
CUresult weir_reserved(enum weir_kind kind, uint64_t handle, uint64_t *bytes);
uint64_t weir_reserve_used(enum weir_kind kind, uint64_t handle);

// Has the driver give back unused memory down to `keep_bytes` (graphs: all of it). The caller pins
// the reserve or is in a growth of it.
void weir_reserve_trim(struct weir_state *state, uint32_t reserve, uint64_t keep_bytes);

// These with the lock held. Finds one; changes the charge; the caller has taken or given the
// difference.
uint32_t weir_reserve_number(struct weir_state *state, enum weir_kind kind, uint64_t handle);
void weir_reserve_charge(struct weir_state *state, struct weir_reserve *reserve, uint64_t bytes);
uint32_t weir_reserve_move(struct weir_reserve *reserve);

#endif
