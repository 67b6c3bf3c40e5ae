// charge.h: one allocation's way through the books: credit is taken before the driver is called and
// settled after it. No lock is held during the driver's call.
#ifndef WEIR_CHARGE_H
#define WEIR_CHARGE_H

#include "obtain.h"

// What the table knows an allocation by. A device pointer is its own key; handles of the driver's,
// which are addresses of another kind, are told apart by bits that no address uses.
enum weir_key_space {
    WEIR_KEY_POINTER = 0,
    WEIR_KEY_ARRAY = 1,
    WEIR_KEY_MIPMAP = 2,
    WEIR_KEY_CREATED = 3,  // handles of cuMemCreate
};

static inline uint64_t weir_key(enum weir_key_space space, uint64_t handle) {
    return handle ^ (uint64_t)space << 57;
}

// Takes an allocation back that could not be charged; gets what the driver knows it by.
typedef CUresult weir_undo_fn(uint64_t handle);

// Calls that without disturbing a stream capture of the program's. What the driver answered.
CUresult weir_take_back(weir_undo_fn *undo, uint64_t handle);

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
CUresult weir_charge_begin(struct weir_charge *charge, enum weir_kind kind, uint64_t bytes);

// The same on any device, for an allocation that ends with `context`, or (0) with no context.
CUresult weir_charge_begin_on(struct weir_charge *charge, enum weir_kind kind, CUdevice device,
                              uint64_t context, uint64_t bytes);

// Settles with what the driver answered: `result`, and for CUDA_SUCCESS the allocation, which takes
// `bytes` (more than was asked for: the difference is asked for now; less: it is given back).
// Returns the code for the program; where that is an error, the allocation has been freed.
CUresult weir_charge_end(struct weir_charge *charge, CUresult result, CUdeviceptr pointer,
                         uint64_t bytes);

// The same for what is not known by a device pointer; 0 is no handle.
CUresult weir_charge_end_as(struct weir_charge *charge, CUresult result, enum weir_key_space space,
                            uint64_t handle, uint64_t bytes, weir_undo_fn *undo);

// What was allocated when a free began: the key may be someone else's by the time that it ends.
struct weir_discharge {
    struct weir_state *state;  // NULL: nothing can be given back
    struct weir_free_token free;
};

// Before the driver is called to free what has a key. CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY in
// a signal handler that interrupted this thread at its books.
CUresult weir_discharge_begin(struct weir_discharge *discharge, uint64_t key);

// Gives the charge of an allocation back if the driver has freed it; one that is not known has
// none. Returns whether it was known.
int weir_discharge_end(const struct weir_discharge *discharge, CUresult result, uint64_t key);

// Before the driver is called to end a context: retires its owners. A ticket for the two below; 0
// where nothing can have been charged.
uint32_t weir_context_retire(struct weir_state **state, uint64_t context);

// The context goes on.
void weir_context_restore(struct weir_state *state, uint32_t ticket);

// The context has ended: gives back what it was still charged, and what stood for it.
void weir_context_ended(struct weir_state *state, uint32_t ticket);

#endif
