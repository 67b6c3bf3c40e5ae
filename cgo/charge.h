// charge.h: one allocation's way through the books: credit is taken before the driver is called and
// settled after it. No lock is held during the driver's call.
#ifndef WEIR_CHARGE_H
#define WEIR_CHARGE_H

#include "cuda.h"
#include "state.h"

// The driver rounds plain, pitched and managed memory up to this.
#define WEIR_CHARGE_UNIT 512u
// More than any device can address: such a request is refused without asking, so that no sum of
// what sessions were granted overflows.
#define WEIR_ALLOCATION_BYTES_MAX ((uint64_t)1 << 48)

struct weir_charge {
    struct weir_state *state;  // NULL: calls pass through, nothing is charged
    uint32_t gpu;
    uint32_t kind;  // enum weir_kind
    uint32_t owner;
    uint64_t bytes;  // owned for this allocation
};

// Gets credit for `bytes` on the current context's device. CUDA_SUCCESS: the driver may be called,
// and weir_charge_end must be. Else the code for the program: the driver's own where it has no
// current context, CUDA_ERROR_OUT_OF_MEMORY where the allocation is refused.
CUresult weir_charge_begin(struct weir_charge *charge, uint32_t kind, uint64_t bytes);

// Settles with what the driver answered: `result`, and for CUDA_SUCCESS the allocation, which takes
// `bytes` (more than was asked for: the difference is asked for now; less: it is given back).
// Returns the code for the program; where that is an error, the allocation has been freed.
CUresult weir_charge_end(struct weir_charge *charge, CUresult result, CUdeviceptr pointer,
                         uint64_t bytes);

// What was allocated when a free began: the pointer may be someone else's by the time that it ends.
struct weir_discharge {
    struct weir_state *state;  // NULL: nothing can be given back
    uint64_t stamp;
};

// Before the driver is called to free. CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY in a signal
// handler that interrupted this thread at its books.
CUresult weir_discharge_begin(struct weir_discharge *discharge, CUdeviceptr pointer);

// Gives the charge of an allocation back if the driver has freed it; one that is not known has
// none.
void weir_discharge_end(const struct weir_discharge *discharge, CUresult result,
                        CUdeviceptr pointer);

// Before the driver is called to end a context: retires its owners. A ticket for the two below; 0
// where nothing can have been charged.
uint32_t weir_context_retire(struct weir_state **state, uint64_t context);

// The context goes on.
void weir_context_restore(struct weir_state *state, uint32_t ticket);

// The context has ended: gives back what it was still charged.
void weir_context_ended(struct weir_state *state, uint32_t ticket);

#endif
