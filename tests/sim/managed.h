// managed.h: managed memory of the simulated machine, which moves between cards and host by pages.
//
// What is modelled:
//   - each process has one range of managed addresses, cut into pages of `page_bytes` (of the first
//     GPU of the machine file); allocations that share a page share its fate;
//   - a page lies on the host, on a card, or nowhere yet (never touched); with the advice
//     read-mostly in several places at once. What lies on a card counts as the card's memory;
//   - an operation touches its pages when its engine begins it: those that are not there come in
//     batches of faults, and the operation stands still meanwhile. Its time is batches times
//     `fault_batch_ns`, plus what comes over the link, plus what has to go, one after the other;
//   - a prefetch is an operation of a copy engine, beside kernels; what it displaces goes the other
//     way over the link meanwhile. A kernel that touches pages under way waits for them;
//   - where a card is full, the pages of whichever process that came or were prefetched longest ago
//     go to the host, however often they have been used since: the driver does not see uses that do
//     not fault (residency.c names its sources). Plain memory never goes, and never waits for
//     managed memory: it takes the place of pages;
//   - a card without concurrent managed access has no page faults: all managed memory of a process
//     comes over the link before each of its kernels there. It is no more than the card has, and
//     can neither be prefetched nor advised to go there.
// What is not: the host's own loads and stores (only a first touch of a page before the GPU's is
// seen; after that the host reads and writes a page where it lies, at no cost); sharing of the link
// between faults, evictions and copies; what a pre-empted kernel loses while others run (the next
// kernel pays for it); that the host must not touch managed memory while a kernel runs on a card
// without concurrent access (there it is killed for it); attachment to streams; whether a kernel
// reads or writes (with read-mostly it only reads). Only the books and the times move, unless the
// machine file says `managed_data`: then each process has copies of its data by place
// (driver/managed_data.c).
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

#include <stdint.h>

#define SIM_MANAGED_PAGES_MAX (1u << 20)  // of one process's range of addresses
#define SIM_TOUCHES_MAX 4u                // stretches of pages that one operation touches
#define SIM_AT_HOST 31u                   // beside the columns, a place where a page may lie

enum sim_touch_kind {
    SIM_TOUCH_NONE,
    SIM_TOUCH_USE,       // by an engine
    SIM_TOUCH_PREFETCH,  // to the place `to`
};

enum sim_touch_flags {
    SIM_TOUCH_SHARES = 1 << 0,   // read-mostly: copies in other places stay
    SIM_TOUCH_AT_HOST = 1 << 1,  // a page that lies nowhere is made on the host
};

// Pages that an operation touches.
struct sim_touch {
    uint32_t first, count;
    uint8_t kind;
    uint8_t flags;
    uint16_t to;     // a column or SIM_AT_HOST
    uint32_t stays;  // bits of places: a page that lies there is used from there, over the link
};

// What one process did with managed memory on one GPU. All but the first two only grow.
struct sim_managed {
    uint64_t allocated_bytes;  // in contexts of the GPU, wherever it lies
    uint64_t resident_bytes;   // on the GPU
    uint64_t fault_batches;
    uint64_t fault_ns;            // operations stood still for pages
    uint64_t fault_in_bytes;      // moved to the GPU by faults
    uint64_t populated_bytes;     // came to be there, without a move
    uint64_t prefetch_in_bytes;   // moved to the GPU ahead of use
    uint64_t prefetch_out_bytes;  // moved from the GPU to the host on demand
    uint64_t evicted_bytes;       // moved to the host to make room
    uint64_t peer_out_bytes;      // moved to another GPU, by fault or prefetch
    uint64_t remote_bytes;        // used by the GPU where they lay, over the link
};

struct sim_machine;

// ---- Of this process; one thread at a time. 0 or an errno value ----

// Begins the life of pages that had none, for `bytes` allocated in a context of `gpu`. ENOMEM: more
// managed memory than the host has memory for, or too many pages.
int sim_managed_take(struct sim_machine *machine, unsigned gpu, uint64_t bytes, uint32_t first,
                     uint32_t count);
// Ends it.
void sim_managed_give(struct sim_machine *machine, unsigned gpu, uint64_t bytes, uint32_t first,
                      uint32_t count);

// The host has touched pages: those that lay nowhere lie on the host now.
void sim_managed_host(struct sim_machine *machine, uint32_t first, uint32_t count);

// Pages with copies keep one: the one at `place`, else the host's, else any.
void sim_managed_collapse(struct sim_machine *machine, uint32_t first, uint32_t count,
                          unsigned place);

// Where a page lies: bits of places. And of several that follow each other, at one moment.
uint32_t sim_managed_where(struct sim_machine *machine, uint32_t page);
void sim_managed_places(struct sim_machine *machine, uint32_t first, uint32_t count,
                        uint32_t *places);

// ---- Of a GPU ----

// Takes from managed pages what plain memory has just taken.
void sim_managed_yield(struct sim_machine *machine);

// How long until the pages that had to make room are gone, in ns.
uint64_t sim_managed_wait_ns(struct sim_machine *machine, unsigned gpu);

// Bytes of managed memory of all live processes that lie on the GPU.
uint64_t sim_managed_resident(struct sim_machine *machine, unsigned gpu);

#endif
