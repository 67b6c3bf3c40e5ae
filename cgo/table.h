// table.h: the live allocations of this process, by device pointer.
//
// An extendible hash table: a directory of 2^depth places, indexed by the top bits of the pointer's
// hash, names buckets of one page each. A bucket that gets crowded splits in two, so growing never
// touches more than a bucket (and, when the directory doubles, a few kilobytes of it): the cost of
// one allocation does not depend on how many are live. Within a bucket entries are found by linear
// probing and removed by shifting back, so there are no marks of the dead that would pile up. A few
// recent entries lie in front of the buckets: memory that is freed soon after it was allocated, as
// most is, never gets into them, nor them into the processor's cache.
//
// The table is not locked: its owner does that. It calls no one and takes no memory: what it needs
// is fed to it beforehand, so that no system call happens under the lock. All zeros is an empty
// table.
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_TABLE_DEPTH_MAX 16u
#define WEIR_BUCKET_BYTES 4096u
#define WEIR_BUCKET_ENTRIES 128u
#define WEIR_RECENT_ENTRIES 64u
// The directory takes the half of the first feed; only the part in use is touched.
#define WEIR_DIRECTORY_BYTES ((size_t)8 << WEIR_TABLE_DEPTH_MAX)
#define WEIR_TABLE_FEED_BYTES (2 * WEIR_DIRECTORY_BYTES)

struct weir_entry {
    uint64_t pointer;     // device address; 0: no entry
    uint64_t bytes;       // charged
    uint64_t context;     // the driver's handle of the context that it ends with
    uint64_t stamp : 56;  // rises with every allocation: which came before a context's end
    uint64_t gpu : 8;     // the driver's ordinal
};

struct weir_table {
    uintptr_t *directory;  // address of a bucket, plus its depth
    char *fresh;           // memory that was fed and never used: zeros, `fresh_bytes` of it
    uintptr_t spare;       // list of buckets that were in use
    size_t fresh_bytes;
    uint64_t depth;
    uint64_t entries;
    struct weir_entry recent[WEIR_RECENT_ENTRIES];
};

// Gives the table memory: WEIR_TABLE_FEED_BYTES of zeros at a page boundary. Returns 0, or EBUSY
// where it has some left and does not take it.
int weir_table_feed(struct weir_table *table, void *memory);

// Adds an entry. 0; ENOMEM where the table must be fed first; ENOSPC where it has as many as it
// can. An older entry of a pointer that was put again gives way sooner or later (not always at
// once: it may lie in a bucket that is not looked at now): then it is copied to `old`, else
// old->pointer is 0.
int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old);

// Removes the entry of `pointer` that is no younger than `stamp` into `out`. 0, or ENOENT.
int weir_table_take(struct weir_table *table, uint64_t pointer, uint64_t stamp,
                    struct weir_entry *out);

// Removes a part of the entries of `context` up to and including `stamp`, and adds what they were
// charged to freed_bytes[gpu]. *cursor starts at 0; returns 1 while there is more to go through,
// one bucket a call. An entry never crosses the cursor, whatever is put, taken or split between two
// calls.
int weir_table_sweep(struct weir_table *table, uint64_t *cursor, uint64_t context, uint64_t stamp,
                     uint64_t *freed_bytes);

#endif
