// movable.h: the book of movable memory: allocations that the program takes for plain and that are
// managed, so that they can be swapped out (docs/decisions/0015).
//
// Each has a number (its place in the book) and an id, by which the agent knows it; ids are counted
// up, so none is used twice. Its way: ASKED (the agent), GRANTED, LIVE (the driver has made it),
// FREEING, and GONE until the agent has heard of it, or the connection that knew of it has ended.
// Invariants:
//   - what the agent has granted is in the book from then on until it has been told FREED: a new
//     connection declares all from GRANTED to FREEING, and nothing else is named on it;
//   - an allocation is found by an address only while it is LIVE; who frees it has taken it out
//     before the driver is called, so another at the same address is never mistaken for it;
//   - while the driver has a move of it (`given`), it is not freed;
//   - it is not charged as other memory is (credit.h): the agent keeps what it was granted.
//
// There is no book in a process without swap, which a look at one word tells. Functions want the
// state's lock held unless they say otherwise.
#ifndef WEIR_MOVABLE_H
#define WEIR_MOVABLE_H

#include "slab.h"
#include "state.h"

enum weir_movable_state {
    WEIR_MOVABLE_ASKED = 1,
    WEIR_MOVABLE_GRANTED = 2,
    WEIR_MOVABLE_LIVE = 3,
    WEIR_MOVABLE_FREEING = 4,
    WEIR_MOVABLE_GONE = 5,
};

struct weir_movable {
    uint32_t link;   // the slab's
    uint32_t state;  // enum weir_movable_state
    uint64_t id;
    uint64_t pointer;
    uint64_t asked_bytes;  // as the program has asked
    uint64_t bytes;        // as granted: a multiple of WEIR_MOVABLE_UNIT
    uint64_t here_bytes;   // so much from its beginning is on the card, by our moves
    uint64_t context;      // with which it ends
    uint64_t connection;   // the one on which the agent knows of it
    uint64_t told_ns;      // when its use was last told; 0: none since it, or a part, last went
    uint32_t told_lease;   // and on which lease
    uint32_t gpu;          // ordinal
    uint32_t ticket;       // of the call that ends its context; 0: none does
    uint32_t given;        // moves that the driver has
    uint32_t next;         // of those that are gone
    uint8_t used;          // since that was last told
    uint8_t named;         // a launch, copy or set has ever named it
    uint16_t padding;
};

// Where a live one lies; in the order of addresses.
struct weir_movable_place {
    uint64_t pointer;
    uint64_t number;
};

struct weir_mover;

struct weir_swap {
    struct weir_state *state;
    struct weir_slab movables;
    struct weir_slab graphs;  // what executable graphs use; see graphused.h
    uint32_t places_used;     // live ones; also read without the lock
    uint32_t gone;            // the first of those that are gone
    uint32_t telling;         // a thread is telling of them
    struct weir_named told;   // the last message of that; without any ids once it is sent
    uint64_t told_on;         // its connection
    uint64_t used_all;   // bits of ordinals: something was used, and it is not known what; no lock
    uint64_t used_some;  // the same: some are marked as used; no lock
    uint64_t launched;   // the same: some were marked by launches; no lock
    uint64_t gpus_used;  // the same: there ever were some; also read without the lock
    uint64_t ids;
    uint64_t connection;  // counts connections
    uint32_t plain;       // enum weir_plain_reason, plus 1; 1: convertible, 0: not decided; no lock
    uint32_t exporter;    // enum weir_exporter
    uint32_t exported;    // enum weir_exported: what was tried first; no lock
    uint32_t noted;       // what of these the agent was told (note.c)
    uint64_t used_ns;     // when uses were last told; the helper's
    uint64_t busy_ns;     // when there last were any; the helper's
    struct weir_mover *mover;
    struct weir_movable_place places[WEIR_MOVABLES_MAX];
};

// This process's book, made if need be; NULL where there is no memory. Takes the lock.
struct weir_swap *weir_swap_make(struct weir_state *state);

// The same for those who look only, if anything is live. No lock.
struct weir_swap *weir_swap_live(struct weir_state *state);
static inline struct weir_swap *weir_swap_known(void) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!state || !__atomic_load_n(&state->swap, __ATOMIC_ACQUIRE), 1))
        return NULL;
    return weir_swap_live(state);
}

struct weir_movable *weir_movable_at(const struct weir_swap *swap, uint32_t number);

// A new one, ASKED. Its number, or 0 where there are too many.
uint32_t weir_movable_new(struct weir_swap *swap, uint32_t gpu, uint64_t context, uint64_t asked);

// The agent has granted it; nobody wants it any more, granted or not.
void weir_movable_granted(struct weir_swap *swap, uint32_t number);
void weir_movable_unwanted(struct weir_swap *swap, uint32_t number);

// The driver has made it, at this address.
void weir_movable_made(struct weir_swap *swap, uint32_t number, uint64_t pointer);

// The live one that holds an address, or begins there; 0 where there is none.
uint32_t weir_movable_holding(const struct weir_swap *swap, uint64_t address);
uint32_t weir_movable_beginning(const struct weir_swap *swap, uint64_t address);

// The one with an id that the agent knows of, live or being freed; 0 where there is none.
uint32_t weir_movable_with(const struct weir_swap *swap, uint64_t id);

// It is about to be freed: found no more. It was not freed; it was.
void weir_movable_freeing(struct weir_swap *swap, uint32_t number);
void weir_movable_kept(struct weir_swap *swap, uint32_t number);
void weir_movable_freed(struct weir_swap *swap, uint32_t number);

// Contexts end with a ticket (charge.h): all in this one; it goes on after all; it has ended.
void weir_movables_retire(struct weir_state *state, uint64_t context, uint32_t ticket);
void weir_movables_restore(struct weir_state *state, uint32_t ticket);
void weir_movables_ended(struct weir_state *state, uint32_t ticket);

// Tells the agent of those that are gone. Takes the lock.
void weir_movables_tell(struct weir_state *state);

// For the helper: declares all that are had to a new connection. 0 or -errno. Takes the lock.
int weir_movables_declare(struct weir_state *state, int fd, uint64_t cookie);

#endif
