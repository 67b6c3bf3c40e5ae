// table.h: the live allocations of this process, by device pointer.
//
// An extendible hash table: a directory of 2^depth places, indexed by the top bits of the pointer's
// hash, names buckets of one page each. A bucket that gets crowded splits in two, so growing never
// touches more than a bucket (and, when the directory doubles, a few kilobytes of it): the cost of
// one allocation does not depend on how many are live. What it does depend on is the processor's
// cache. So an entry is small, it lies in the cache line that its hash names or, where that is
// full, in the next one with room, neighbours in memory share a line, and nothing ever moves but in
// a split. A few recent entries lie in front of the buckets: memory that is freed soon after it was
// allocated, as most is, never gets into them, nor they into the cache.
//
// The table is not locked: its owner does that. It calls no one and takes no memory: what it needs
// is fed to it beforehand, so that no system call happens under the lock. All zeros is an empty
// table.
//
// A free. An entry is taken out after the driver has freed the memory; by then another thread may
// have been given the same address and have put an entry of its own. Which is which is told by
// stamps: each put raises the table's, and a free notes it before it calls the driver. An entry
// that it may take is no younger. Recent entries have their stamp; when one goes into a bucket,
// where it has none, the frees of its pointer that are older are told (freeing.h).
#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "freeing.h"
#include "owner.h"

#define WEIR_TABLE_DEPTH_MAX 16u
#define WEIR_BUCKET_BYTES 4096u
#define WEIR_RECENT_ENTRIES 64u
// Entries are counted by region: 2 MiB of addresses, which drivers do not share between plain
// memory and pools. Regions whose hash is the same are counted together.
#define WEIR_REGION_SHIFT 21u
#define WEIR_REGIONS_SHIFT 13u
// The directory takes the half of the first feed; only the part in use is touched.
#define WEIR_DIRECTORY_BYTES ((size_t)8 << WEIR_TABLE_DEPTH_MAX)
#define WEIR_TABLE_FEED_BYTES (2 * WEIR_DIRECTORY_BYTES)

struct weir_entry {
    uint64_t pointer;     // device address; 0: no entry
    uint64_t bytes : 48;  // charged
    uint64_t owner : 9;   // number of its owner
    uint64_t passed : 7;  // the table's own
};
_Static_assert(WEIR_OWNERS_MAX <= 1 << 9, "owners have more numbers than an entry can hold");

struct weir_table {
    uint64_t stamp;        // of the latest put; also read without the lock
    uintptr_t *directory;  // address of a bucket, plus its depth
    char *fresh;           // memory that was fed and never used: zeros, `fresh_bytes` of it
    uintptr_t spare;       // list of buckets that were in use
    size_t fresh_bytes;
    uint64_t depth;
    uint64_t entries;
    // The last place is that of the entry which had to leave its own last: it goes into its bucket
    // when the next one comes, and the bucket's line has got into the cache by then.
    struct weir_entry recent[WEIR_RECENT_ENTRIES + 1];
    uint64_t recent_stamp[WEIR_RECENT_ENTRIES + 1];
    struct weir_freeings freeings;
    // How many entries there are in the regions of each hash; also read without the lock.
    uint32_t regions[1u << WEIR_REGIONS_SHIFT];
};

// The stamp of the latest put. Needs no lock.
static inline uint64_t weir_table_stamp(const struct weir_table *table) {
    return __atomic_load_n(&table->stamp, __ATOMIC_ACQUIRE);
}

// A free that is under way.
struct weir_free_token {
    uint64_t stamp;  // of the latest put when it began
    uint32_t place;  // among the table's frees
};

static inline uint32_t weir_table_region(uint64_t pointer) {
    return (uint32_t)((pointer >> WEIR_REGION_SHIFT) * 0x9e3779b97f4a7c15u >>
                      (64 - WEIR_REGIONS_SHIFT));
}

// Whether there may be an entry of `pointer`. Needs no lock, as above; costs less than looking for
// it, which is worth it where many are asked about that have none: what lies in pools.
static inline int weir_table_may_have(const struct weir_table *table, uint64_t pointer) {
    return __atomic_load_n(&table->regions[weir_table_region(pointer)], __ATOMIC_RELAXED) != 0;
}

// Gives the table memory: WEIR_TABLE_FEED_BYTES of zeros at a page boundary. Returns 0, or EBUSY
// where it has some left and does not take it.
int weir_table_feed(struct weir_table *table, void *memory);

// Adds an entry. 0; ENOMEM where the table must be fed first; ENOSPC where it has as many as it
// can. An older entry of a pointer that was put again gives way sooner or later (not always at
// once: it may lie in a bucket that is not looked at now): then it is copied to `old`, else
// old->pointer is 0.
int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old);

// Fetches into the cache what weir_table_take will look at. Needs no lock.
void weir_table_prefetch(const struct weir_table *table, uint64_t pointer);

// A free of `pointer` begins, before the driver is called; needs no lock. Tells what
// weir_table_take is to be given: who frees has seen the put of what it frees.
struct weir_free_token weir_table_free(struct weir_table *table, uint64_t pointer);

// Removes the entry of `pointer` that is no younger than the free into `out`. 0, or ENOENT.
int weir_table_take(struct weir_table *table, uint64_t pointer, struct weir_free_token free,
                    struct weir_entry *out);

// The free is over, whether or not anything was freed.
void weir_table_freed(struct weir_table *table, struct weir_free_token free);

// The newest entry of `pointer`, or NULL, until the table's next change. Its bytes may be changed:
// they are kept in another book then.
struct weir_entry *weir_table_find(struct weir_table *table, uint64_t pointer);

// Removes, from one bucket, the entries whose owners were retired with `ticket`: adds what they
// were charged to freed_bytes[gpu] and releases their owners. *cursor starts at 0; returns 1 while
// there is more to go through. An entry never crosses the cursor, whatever is put, taken or split
// between calls.
int weir_table_sweep(struct weir_table *table, uint64_t *cursor, struct weir_owners *owners,
                     uint32_t ticket, uint64_t *freed_bytes);

#endif
