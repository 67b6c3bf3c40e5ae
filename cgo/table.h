// table.h: the live allocations of this process, by device pointer.
//
// An extendible hash table: a directory of 2^depth places, indexed by the top bits of the pointer's
// hash, names buckets of one page each. A bucket that gets crowded splits in two, so growing never
// touches more than a bucket (and, when the directory doubles, a few kilobytes of it): the cost of
// one allocation does not depend on how many are live. What it does depend on is the processor's
// cache. So an entry is small, it lies in the cache line that its hash names or, where that is
// full, the next one with room, and neighbours in memory share a line.
//
// The table is not locked: its owner does that. It calls no one and takes no memory: what it needs
// is fed to it beforehand, so that no system call happens under the lock. All zeros is an empty
// table.
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "owner.h"

#define WEIR_TABLE_DEPTH_MAX 16u
#define WEIR_BUCKET_BYTES 4096u
// The directory takes the half of the first feed; only the part in use is touched.
#define WEIR_DIRECTORY_BYTES ((size_t)8 << WEIR_TABLE_DEPTH_MAX)
#define WEIR_TABLE_FEED_BYTES (2 * WEIR_DIRECTORY_BYTES)

struct weir_entry {
    uint64_t pointer;     // device address; 0: no entry
    uint64_t bytes : 48;  // charged
    uint64_t owner : 16;  // number of its owner
};

struct weir_table {
    uintptr_t *directory;  // address of a bucket, plus its depth
    char *fresh;           // memory that was fed and never used: zeros, `fresh_bytes` of it
    uintptr_t spare;       // list of buckets that were in use
    size_t fresh_bytes;
    uint64_t depth;
    uint64_t entries;
};

// Gives the table memory: WEIR_TABLE_FEED_BYTES of zeros at a page boundary. Returns 0, or EBUSY
// where it has some left and does not take it.
int weir_table_feed(struct weir_table *table, void *memory);

// Adds an entry. One with the same pointer is replaced and copied to `old`, else old->pointer is 0.
// 0; ENOMEM where the table must be fed first; ENOSPC where it has as many as it can.
int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old);

// Removes the entry of `pointer` into `out`. 0, or ENOENT.
int weir_table_take(struct weir_table *table, uint64_t pointer, struct weir_entry *out);

// Removes, from one bucket, the entries whose owners were retired with `ticket`: adds what they
// were charged to freed_bytes[gpu] and releases their owners. *cursor starts at 0; returns 1 while
// there is more to go through. An entry never crosses the cursor, whatever is put, taken or split
// between calls.
int weir_table_sweep(struct weir_table *table, uint64_t *cursor, struct weir_owners *owners,
                     uint32_t ticket, uint64_t *freed_bytes);

#endif
