// slab.h: records found by a hash, in memory that is reserved once and touched as it is used.
//
// A slab has room for a fixed number of records of one size; beyond that there is no more, which
// its users must be able to live with. Records have numbers from 1 on and never move. A new record
// is the first of its chain, so that of two that look alike the newer one is found first. What else
// a record holds is its user's matter, but for its first word, which is the slab's.
//
// Like the other books it is not locked, its owner does that; all zeros is an empty one, and a
// forked child finds zeros.
#ifndef WEIR_SLAB_H
#define WEIR_SLAB_H

#include "lock.h"

struct weir_slab_shape {
    uint32_t record_bytes;  // a multiple of 8
    uint32_t records_max;
    uint32_t chains;  // a power of two
};

struct weir_slab {
    void *memory;  // the chains' heads, then the records; NULL until it is readied
    uint32_t free;
    uint32_t used;  // records that ever were in use
    uint32_t live;
};

// Reserves the memory, once. 0; ENOMEM, or EDEADLK where this thread holds the lock.
int weir_slab_ready(struct weir_slab *slab, const struct weir_slab_shape *shape,
                    struct weir_lock *lock);

// The functions below want the lock held.

// A new record of zeros, but for its first word. Its number; 0 where there is no room, or the slab
// was never readied.
uint32_t weir_slab_new(struct weir_slab *slab, const struct weir_slab_shape *shape, uint64_t hash);

// Takes a record out of its chain and makes it free.
void weir_slab_free(struct weir_slab *slab, const struct weir_slab_shape *shape, uint64_t hash,
                    uint32_t number);

// The records of a chain, one after the other; 0 is the end.
uint32_t weir_slab_first(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                         uint64_t hash);
uint32_t weir_slab_next(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                        uint32_t number);

// The record with a number, which must be one that was given out.
static inline void *weir_slab_at(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                                 uint32_t number) {
    char *records = (char *)slab->memory + (size_t)shape->chains * sizeof(uint32_t);
    return records + (size_t)(number - 1) * shape->record_bytes;
}

// Spreads a number's bits for a hash.
static inline uint64_t weir_slab_hash(uint64_t x) {
    x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

#endif
