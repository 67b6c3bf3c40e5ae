// owner.c: see owner.h. There are few owners: they are looked through one by one, the last one
// first.
#include "owner.h"

static int is(const struct weir_owner *owner, uint64_t context, uint32_t gpu) {
    return owner->uses && owner->context == context && owner->gpu == gpu && !owner->ticket;
}

static uint32_t find(const struct weir_owners *owners, uint64_t context, uint32_t gpu) {
    if (is(&owners->owner[owners->last], context, gpu))
        return owners->last;
    for (uint32_t i = 0; i < owners->used; i++)
        if (is(&owners->owner[i], context, gpu))
            return i;
    return WEIR_NO_OWNER;
}

static uint32_t make(struct weir_owners *owners, uint64_t context, uint32_t gpu) {
    uint32_t number = 0;
    while (number < owners->used && owners->owner[number].uses)
        number++;
    if (number == WEIR_OWNERS_MAX)
        return WEIR_NO_OWNER;
    if (number == owners->used)
        owners->used++;
    owners->owner[number] = (struct weir_owner){.context = context, .gpu = gpu};
    return number;
}

uint32_t weir_owner_use(struct weir_owners *owners, uint64_t context, uint32_t gpu) {
    uint32_t number = find(owners, context, gpu);
    if (number == WEIR_NO_OWNER)
        number = make(owners, context, gpu);
    if (number == WEIR_NO_OWNER)
        return number;
    owners->owner[number].uses++;
    owners->last = number;
    return number;
}

uint32_t weir_owner_retire(struct weir_owners *owners, uint64_t context) {
    if (++owners->tickets == 0)
        owners->tickets = 1;
    for (uint32_t i = 0; i < owners->used; i++) {
        struct weir_owner *owner = &owners->owner[i];
        if (owner->uses && owner->context == context && !owner->ticket)
            owner->ticket = owners->tickets;
    }
    return owners->tickets;
}

void weir_owner_restore(struct weir_owners *owners, uint32_t ticket) {
    for (uint32_t i = 0; i < owners->used; i++)
        if (owners->owner[i].ticket == ticket)
            owners->owner[i].ticket = 0;
}
