// contexts.h: the contexts of this process, and what each takes of its device by itself: for being
// there, for code, for limits. Allocations made in a context are in other books (owner.h).
//
// These bytes count against the cap like allocations, where the agent's configuration does not say
// otherwise (then they are only shown). Which it is, is settled when a context is made, and holds
// for all that it takes later. Invariants:
//   - the bytes of a counted context are owned (credit.h), each in one part of one context;
//   - all changes are made under the lock, each in one step;
//   - a context has its place before the driver is asked to make it, so what is loaded into all
//     contexts meanwhile (libraries) is charged for it too; it is named once it has a handle;
//   - a context that is being ended keeps its place, under a ticket, until the driver has answered:
//     what it takes is given back if it has ended, and stands if not.
#ifndef WEIR_CONTEXTS_H
#define WEIR_CONTEXTS_H

#include "obtain.h"

// What the agent says of contexts on a GPU.
struct weir_terms {
    uint64_t context_bytes;  // of one; 0: not known
    uint32_t counted;
};

// Finds that out; waits for the agent where this process has not heard of it yet. CUDA_SUCCESS; or
// CUDA_ERROR_OUT_OF_MEMORY where the GPU is not listed, or no agent is there, which is noted.
CUresult weir_terms_read(struct weir_state *state, uint32_t gpu, struct weir_terms *terms);

// Enters a context, all of whose bytes the caller has obtained, if they are counted; with a handle,
// or `making`. 0 and its place; EEXIST where it is there already, ENOSPC, EDEADLK: then the bytes
// are still the caller's.
int weir_contexts_enter(struct weir_state *state, const struct weir_context *context,
                        uint32_t *place);

// Names a context that has been made, and adds what was obtained or is to be shown for its being
// there. A context that is in the books under the same handle already is not charged again: the
// place is given up with all that was charged.
void weir_contexts_name(struct weir_state *state, uint32_t place, uint64_t handle, uint64_t bytes);

// Gives up the place of a context that was not made, and gives back what was charged.
void weir_contexts_drop(struct weir_state *state, uint32_t place);

// Copies a context's record, by either of its handles. 0, or ENOENT.
int weir_contexts_look(struct weir_state *state, uint64_t handle, struct weir_context *out);

// Adds bytes that the caller has obtained (if the context's are counted) to a part. 0, or ENOENT
// where the context is gone: then they are still the caller's.
int weir_contexts_add(struct weir_state *state, uint64_t handle, enum weir_part part,
                      uint64_t bytes);

// How many contexts there are on a GPU, those included that are being made, and what the counted
// ones are charged for being there.
uint32_t weir_contexts_count(struct weir_state *state, uint32_t gpu, uint64_t *bytes);

// The end of a context, by the ticket of weir_context_retire (charge.h).
void weir_contexts_retire(struct weir_state *state, uint64_t handle, uint32_t ticket);
void weir_contexts_restore(struct weir_state *state, uint32_t ticket);
void weir_contexts_ended(struct weir_state *state, uint32_t ticket);

// The context itself has outlived its end, as the primary one outlives a reset: what was loaded
// into it, and its limits, are gone.
void weir_contexts_emptied(struct weir_state *state, uint32_t ticket);

// ---- Lock held ----

// The record of a context, by either of its handles: one that is not being ended before one that
// is. NULL where there is none.
struct weir_context *weir_contexts_find(struct weir_state *state, uint64_t handle);

// Gives back at most so many bytes of a part.
void weir_contexts_give(struct weir_state *state, struct weir_context *context, enum weir_part part,
                        uint64_t bytes);

// Writes what contexts take into the usage page, for operators to see.
void weir_contexts_show(struct weir_state *state);

#endif
