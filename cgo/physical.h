// physical.h: physical memory that a program creates and maps by itself (cuMemCreate, cuMemMap), as
// this process has it: by its handles, and by the addresses where it is mapped.
//
// The driver keeps such memory while there is a reference to its handle or a mapping of it, and so
// long it stays charged. Handles are numbers that may equal anything and are given out anew;
// whoever ends a reference gets hold of the handle before the driver is called, so that a new one
// of the same number is not taken for it. A mapping is counted before it is made.
//
// Memory that is shared is charged by its piece (piece.h) instead, of which it has one use.
//
// What is not known here (host memory, what was refused a place) passes. No lock is held on entry.
#ifndef WEIR_PHYSICAL_H
#define WEIR_PHYSICAL_H

#include "cuda.h"
#include "piece.h"

// Handles, and mappings, that a process may have at the same time: beyond that memory is refused.
#define WEIR_HANDLES_MAX (1u << 20)

// A handle's memory at one moment; `number` is 0 where it is not known.
struct weir_physical {
    uint32_t number;
    uint64_t stamp;
};

// Makes room for records. 0, or ENOMEM: then nothing can be charged.
int weir_physical_ready(struct weir_state *state);

// Memory of `bytes`, which are owned for it, was created under a handle. 0, or ENOSPC, EDEADLK:
// then the bytes are the caller's.
int weir_physical_created(struct weir_state *state, uint64_t handle, uint32_t gpu, uint64_t bytes);

// A handle was imported, of which the caller had a use, which it now has. 0, or an error as above.
int weir_physical_imported(struct weir_state *state, uint64_t handle, uint32_t gpu, uint32_t piece);

// A reference to a handle was added by the driver.
void weir_physical_retained(struct weir_state *state, uint64_t handle);

// Gets hold of what is known of a handle.
struct weir_physical weir_physical_find(struct weir_state *state, uint64_t handle);

// The driver has let go of a reference to it.
void weir_physical_released(struct weir_state *state, struct weir_physical physical);

// Before the driver maps the first `bytes` of it (offset included): counts the mapping, and charges
// what was imported from who knows where. CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY.
CUresult weir_physical_pin(struct weir_state *state, struct weir_physical physical, uint64_t bytes);

// The driver has mapped it at an address. 0, or ENOSPC: then it is to be unmapped and unpinned.
int weir_physical_mapped(struct weir_state *state, struct weir_physical physical, uint64_t address,
                         uint64_t bytes);

// It was not mapped after all.
void weir_physical_unpin(struct weir_state *state, struct weir_physical physical);

// The driver has ended the mappings in a range of addresses.
void weir_physical_unmapped(struct weir_state *state, uint64_t address, uint64_t bytes);

// What is mapped at an address is known by this.
struct weir_physical weir_physical_mapped_at(struct weir_state *state, uint64_t address);

// It was exported under a key: its charge goes to a piece, and the agent is told, unless that has
// been done before. Waits for the agent, as share.h says.
void weir_physical_exported(struct weir_state *state, struct weir_physical physical,
                            const struct weir_share_key *key);

#endif
