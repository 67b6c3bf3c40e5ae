// making.h: the way of a context into the books: charged before the driver makes it, entered once
// it has a handle, undone where it turns out not to fit.
//
// What a context takes is no argument of a call. The agent knows it for each kind of GPU; where it
// does not yet, the first context is made uncharged, the agent asks NVML what the process has
// gained, and only then it is charged.
#ifndef WEIR_MAKING_H
#define WEIR_MAKING_H

#include "charge.h"
#include "contexts.h"

struct weir_making {
    struct weir_state *state;  // NULL: calls pass through, nothing is charged
    uint32_t gpu;
    uint32_t in_turn;  // other threads wait
    uint32_t known;    // it is in the books already
    uint32_t place;    // of its record
    struct weir_terms terms;
};

// Gets what a context on a device will take. CUDA_SUCCESS: the driver may be called, and
// weir_making_end must be. Else CUDA_ERROR_OUT_OF_MEMORY. A device that the driver does not know
// passes: its own answer is the right one.
CUresult weir_making_begin(struct weir_making *making, CUdevice device);

// The same for the primary context of a device, which many threads retain and release: one at a
// time, so that each knows whether it makes it or finds it made.
CUresult weir_making_begin_primary(struct weir_making *making, CUdevice device);

// Settles with what the driver answered: `result`, and for CUDA_SUCCESS the context's handle. A
// context that is in the books already is not charged again. Returns the code for the program;
// where that is an error, `undo` was called with `undone`. Its answer is CUDA_SUCCESS if the
// context is no more.
CUresult weir_making_end(struct weir_making *making, CUresult result, uint64_t handle,
                         weir_undo_fn *undo, uint64_t undone);

// One thread at a time: waits for the others; at the latest until one of them must have got lost.
void weir_turn_take(struct weir_state *state, uint32_t gpu);
void weir_turn_end(struct weir_state *state, uint32_t gpu);

// Before the driver is called to end a context, by its handle (0: there is none). A ticket for the
// one below; 0 where there is nothing in the books.
uint32_t weir_ending_begin(struct weir_state **state, uint64_t handle);

// Afterwards: gives back what was charged for and in it if it has ended, else all stands.
void weir_ending_end(struct weir_state *state, uint32_t ticket, int ended);

// Afterwards, of a context that goes on without anything in it.
void weir_ending_emptied(struct weir_state *state, uint32_t ticket);

#endif
