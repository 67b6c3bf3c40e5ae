// residency.h: where the pages of managed memory lie, pure: no clock, no file, no other process.
//
// The facts are bits: for each page of a process whether it is live, whether the host has its data,
// and for each GPU whether it lies there. Pages of one process and GPU that follow each other and
// came together are a *run*; the runs of a card (or of a GPU instance) are in the order in which
// they came or were prefetched last, and the oldest goes first, from its front. So work takes as
// long as there are runs and words of 64 pages to be looked at, and a touch of an allocation that
// is all there, and came as a whole, takes constant time.
//
// Invariants: a page that lies on a GPU is in exactly one run there; runs of a card are in order of
// their stamps, no two of which are equal within one run's length; no card holds more pages than it
// has room for; a page with data never loses its last place. All but bits and stamps is derived: a
// holder that was cut off half-way leaves bits that are true, and sim_residency_rebuild does the
// rest. A move that was cut off may be missing in the counters.
#ifndef SIM_RESIDENCY_H
#define SIM_RESIDENCY_H

#include "machine.h"

#define SIM_BLOCK_PAGES 64u
#define SIM_BLOCKS_MAX 8192u  // of all processes together
#define SIM_PROCESS_BLOCKS (SIM_MANAGED_PAGES_MAX / SIM_BLOCK_PAGES)

// Runs are linked by numbers: ((block - 1) * SIM_COLUMNS + column) * SIM_BLOCK_PAGES + page + 1.
struct sim_run {
    uint64_t stamp;     // of the touch that brought it, or of a prefetch since
    uint64_t ready_ns;  // when its pages have arrived
    uint32_t count;     // pages
    uint32_t older, newer;
    uint32_t reserved;
};

// Some pages of one process.
struct sim_block {
    uint32_t slot;
    uint32_t index;  // in the process's directory; of the next free block where this one is free
    uint64_t live;
    uint64_t host;
    uint64_t here[SIM_COLUMNS];
    uint64_t starts[SIM_COLUMNS];  // of runs
    struct sim_run runs[SIM_COLUMNS][SIM_BLOCK_PAGES];
};

struct sim_owner {
    uint64_t serial;  // of the process; 0: nobody has managed memory here
    uint32_t memory;  // the GPU instance behind its last column
    uint32_t directory_used;
    uint32_t copies;  // pages may lie in several places
    uint32_t reserved;
    struct sim_managed books[SIM_COLUMNS];
    uint32_t directory[SIM_PROCESS_BLOCKS];  // of those used: numbers of blocks, from 1; 0: none
};

// The pages on a card, or in a GPU instance.
struct sim_lru {
    uint32_t oldest, newest;  // runs
    uint64_t pages;
    uint64_t room;  // most pages, what plain memory leaves
};

struct sim_residency {
    uint64_t page_bytes;
    uint64_t stamp;  // the last one given
    uint32_t owners_used;
    uint32_t blocks_used;
    uint32_t free_block;
    uint32_t reserved;
    struct sim_lru lrus[SIM_UNITS_MAX];
    struct sim_owner owners[SIM_PROCESSES_MAX];
    struct sim_block blocks[SIM_BLOCKS_MAX];
};

// What a touch moved, in pages.
struct sim_moved {
    uint64_t in;         // to the GPU, from the host or another GPU
    uint64_t populated;  // came to be there
    uint64_t out;        // to the host, of this process or of others
    uint64_t remote;     // used where they lay
    uint64_t ready_ns;   // when those under way that it touched have arrived
};

// Makes a process the owner of pages, its books begun anew.
void sim_residency_own(struct sim_residency *r, uint32_t slot, uint64_t serial, uint32_t memory);
// Forgets all pages of a process; its books stay readable until the place is vacated.
void sim_residency_disown(struct sim_residency *r, uint32_t slot);
void sim_residency_vacate(struct sim_residency *r, uint32_t slot);

// Pages come to life. ENOMEM: no blocks are left; none has then.
int sim_residency_begin(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count);
void sim_residency_end(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count);

// An operation on the GPU of a column touches pages; what is not live is passed over. *moved is
// added to. It brings all but those that may be used where they lie; of them the first may have to
// go again for the last.
void sim_residency_touch(struct sim_residency *r, uint32_t slot, unsigned column,
                         const struct sim_touch *touch, struct sim_moved *moved);

// Pages that a prefetch has brought to a column are under way until then.
void sim_residency_arrive(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                          uint32_t count, uint64_t ready_ns);

// See sim_managed_host, sim_managed_collapse and sim_managed_where.
void sim_residency_host(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count);
void sim_residency_collapse(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count,
                            unsigned place);
uint32_t sim_residency_where(const struct sim_residency *r, uint32_t slot, uint32_t page);

// Sends pages to the host until no more than `room` are left. Returns how many had to move.
uint64_t sim_residency_shrink(struct sim_residency *r, unsigned memory, uint64_t room);

// Copies what may be changing meanwhile; the copy must be rebuilt. And derives all that is derived.
void sim_residency_copy(struct sim_residency *to, const struct sim_residency *from);
void sim_residency_rebuild(struct sim_residency *r);

#endif
