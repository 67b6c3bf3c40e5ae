// owner.h: what allocations end with: a context on a GPU, known by a small number.
//
// The driver may give the handle of a context that has ended to a new one at once. So a context's
// owner is retired before the driver is asked to end it: what is allocated from then on gets a new
// owner, and what is swept afterwards are the retired one's allocations only. If the driver
// refuses, it is restored.
//
// Like the table this is not locked, takes no memory, and all zeros is empty.
#ifndef WEIR_OWNER_H
#define WEIR_OWNER_H

#include <stdint.h>

// Contexts in which a process may hold memory at the same time.
#define WEIR_OWNERS_MAX 512u
#define WEIR_NO_OWNER UINT32_MAX

struct weir_owner {
    uint64_t context;  // the driver's handle
    uint64_t uses;     // entries in the table, and threads in the driver; 0: this place is free
    uint32_t gpu;      // the driver's ordinal
    uint32_t ticket;   // of the call that ends the context; 0: none does
};

struct weir_owners {
    struct weir_owner owner[WEIR_OWNERS_MAX];
    uint32_t used;  // places that ever were in use
    uint32_t last;  // the one that was asked for last
    uint32_t tickets;
};

// Finds or makes the owner of a context on a GPU and adds a use. WEIR_NO_OWNER where there are too
// many.
uint32_t weir_owner_use(struct weir_owners *owners, uint64_t context, uint32_t gpu);

static inline void weir_owner_release(struct weir_owners *owners, uint32_t number) {
    owners->owner[number].uses--;
}

// Retires the owners of a context. Returns a ticket, never 0, that names them from now on.
uint32_t weir_owner_retire(struct weir_owners *owners, uint64_t context);

// Makes those of a ticket what they were.
void weir_owner_restore(struct weir_owners *owners, uint32_t ticket);

#endif
