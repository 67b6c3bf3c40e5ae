// obtain.h: how any charge gets its bytes and gives them back, whatever it is for: an allocation
// (charge.h), what pools have reserved (reserve.h), a context, an import.
//
// Bytes that were obtained are owned (credit.h) and in the hand of the thread that asked, until it
// has put them into a book or given them back. No lock is held here on entry.
#ifndef WEIR_OBTAIN_H
#define WEIR_OBTAIN_H

#include "cuda.h"
#include "state.h"

// More than any device can address: such a request is refused without asking, so that no sum of
// what sessions were granted overflows.
#define WEIR_ALLOCATION_BYTES_MAX ((uint64_t)1 << 48)

// The driver rounds plain, pitched and managed memory and arrays up to this, and nothing is charged
// in smaller units.
#define WEIR_CHARGE_UNIT 512u

static inline uint64_t weir_charge_round(uint64_t bytes) {
    return (bytes + WEIR_CHARGE_UNIT - 1) & ~(uint64_t)(WEIR_CHARGE_UNIT - 1);
}

// Whether memory on a device is charged. CUDA_SUCCESS and *state (NULL: calls pass through, nothing
// is charged), and gpus[device] is known; else the code for the program: where nothing can be
// charged, or the agent does not list the GPU, which is noted.
CUresult weir_obtain_enter(struct weir_state **state, CUdevice device);

// Makes `bytes` of credit on a GPU, by ordinal, owned: out of the credit word, or by asking the
// agent. CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY where they are refused. 0 bytes are always had.
CUresult weir_obtain(struct weir_state *state, uint32_t gpu, enum weir_kind kind, uint64_t bytes);

// The same, out of the credit word only. Whether they were there.
int weir_obtain_at_hand(struct weir_state *state, uint32_t gpu, uint64_t bytes);

// How much could be had on a GPU at this moment. Asks the agent only where that is less than
// `enough`, as far as is known without; what is told then may be less than the truth. 0 where
// nothing is known.
uint64_t weir_obtainable(struct weir_state *state, uint32_t gpu, uint64_t enough);

// Gives back what was owned.
void weir_give_back(struct weir_state *state, uint32_t gpu, uint64_t bytes);

#endif
