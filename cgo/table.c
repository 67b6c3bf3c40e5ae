// table.c: see table.h. Invariants: every directory place names a bucket; a bucket of depth d is
// named by 2^(depth - d) neighbouring places, those whose top d bits are its own; between the home
// of an entry and its place in the bucket there is no empty place.
#include "table.h"

#include <errno.h>
#include <string.h>

// A bucket splits when an entry would lie further from its home than this.
#define PROBES_MAX 16u
#define PLACE_MASK (WEIR_BUCKET_ENTRIES - 1)
#define DEPTH_MASK ((uintptr_t)WEIR_BUCKET_BYTES - 1)
#define NO_PLACE WEIR_BUCKET_ENTRIES

_Static_assert(sizeof(struct weir_entry) * WEIR_BUCKET_ENTRIES == WEIR_BUCKET_BYTES, "bucket size");
_Static_assert((WEIR_BUCKET_ENTRIES & PLACE_MASK) == 0, "places are masked");

// A bijection whose every output bit depends on every input bit (multiply and fold, twice):
// pointers differ in few bits and are multiples of 512. The top bits choose the bucket, the bottom
// ones the place in it and among the recent entries.
static uint64_t hash_of(uint64_t pointer) {
    uint64_t x = pointer ^ (pointer >> 32);
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

static uint64_t directory_index(const struct weir_table *table, uint64_t hash) {
    return table->depth ? hash >> (64 - table->depth) : 0;
}

static struct weir_entry *bucket_of(uintptr_t word) {
    return (struct weir_entry *)(word & ~DEPTH_MASK);
}

static struct weir_entry *recent_of(struct weir_table *table, uint64_t hash) {
    return &table->recent[hash & (WEIR_RECENT_ENTRIES - 1)];
}

// A bucket not in use holds the address of the next one.
static void spare_bucket(struct weir_table *table, void *bucket) {
    *(uintptr_t *)bucket = table->spare;
    table->spare = (uintptr_t)bucket;
}

// Whether `count` buckets can be made without being fed.
static int has_room(const struct weir_table *table, size_t count) {
    size_t have = table->fresh_bytes / WEIR_BUCKET_BYTES;
    for (uintptr_t at = table->spare; at && have < count; at = *(const uintptr_t *)at)
        have++;
    return have >= count;
}

int weir_table_feed(struct weir_table *table, void *memory) {
    if (has_room(table, 2))
        return EBUSY;
    if (table->fresh_bytes)
        spare_bucket(table, table->fresh);
    table->fresh = memory;
    table->fresh_bytes = WEIR_TABLE_FEED_BYTES;
    if (!table->directory) {
        table->directory = memory;
        table->fresh += WEIR_DIRECTORY_BYTES;
        table->fresh_bytes -= WEIR_DIRECTORY_BYTES;
    }
    return 0;
}

static struct weir_entry *new_bucket(struct weir_table *table) {
    void *bucket = (void *)table->spare;
    if (bucket) {
        table->spare = *(uintptr_t *)bucket;
        memset(bucket, 0, WEIR_BUCKET_BYTES);
    } else {
        bucket = table->fresh;
        table->fresh += WEIR_BUCKET_BYTES;
        table->fresh_bytes -= WEIR_BUCKET_BYTES;
    }
    return bucket;
}

// The place of a pointer in a bucket, or the empty one where it would go; NO_PLACE where that is
// not found within `probes`.
static uint32_t find_place(const struct weir_entry *bucket, uint64_t hash, uint64_t pointer,
                           uint32_t probes) {
    for (uint32_t i = 0; i < probes; i++) {
        uint32_t place = (uint32_t)(hash + i) & PLACE_MASK;
        if (bucket[place].pointer == pointer || !bucket[place].pointer)
            return place;
    }
    return NO_PLACE;
}

// Empties a place: entries behind it that may lie nearer to their home move up.
static void remove_at(struct weir_entry *bucket, uint32_t hole) {
    bucket[hole].pointer = 0;
    for (uint32_t at = (hole + 1) & PLACE_MASK; bucket[at].pointer; at = (at + 1) & PLACE_MASK) {
        uint32_t home = (uint32_t)hash_of(bucket[at].pointer) & PLACE_MASK;
        if (((at - home) & PLACE_MASK) < ((at - hole) & PLACE_MASK))
            continue;
        bucket[hole] = bucket[at];
        bucket[at].pointer = 0;
        hole = at;
    }
}

// Doubles the directory in place, from its end, so that nothing is overwritten before it is read.
static void double_directory(struct weir_table *table) {
    for (uint64_t i = (uint64_t)1 << table->depth; i-- > 0;) {
        table->directory[2 * i + 1] = table->directory[i];
        table->directory[2 * i] = table->directory[i];
    }
    table->depth++;
}

// Replaces the bucket that holds `hash` by two of half its range. 0, or ENOMEM.
static int split(struct weir_table *table, uint64_t hash) {
    if (!has_room(table, 2))
        return ENOMEM;
    uintptr_t word = table->directory[directory_index(table, hash)];
    const struct weir_entry *old = bucket_of(word);
    uint64_t depth = (word & DEPTH_MASK) + 1;
    if (depth > table->depth)
        double_directory(table);
    struct weir_entry *halves[2] = {new_bucket(table), new_bucket(table)};
    for (uint32_t i = 0; i < WEIR_BUCKET_ENTRIES; i++) {
        if (!old[i].pointer)
            continue;
        uint64_t one = hash_of(old[i].pointer);
        struct weir_entry *half = halves[(one >> (64 - depth)) & 1];
        half[find_place(half, one, old[i].pointer, WEIR_BUCKET_ENTRIES)] = old[i];
    }
    uint64_t places = (uint64_t)1 << (table->depth - depth);
    uint64_t first = directory_index(table, hash) & ~(2 * places - 1);
    for (uint64_t i = 0; i < 2 * places; i++)
        table->directory[first + i] = (uintptr_t)halves[i >= places] | depth;
    spare_bucket(table, (void *)(word & ~DEPTH_MASK));
    return 0;
}

// Puts an entry into its bucket; an older one of the same pointer goes to `old`. 0, ENOMEM or
// ENOSPC.
static int put_in_bucket(struct weir_table *table, const struct weir_entry *entry,
                         struct weir_entry *old) {
    uint64_t hash = hash_of(entry->pointer);
    if (!table->directory)
        return ENOMEM;
    if (!table->directory[0])  // just fed for the first time
        table->directory[0] = (uintptr_t)new_bucket(table);
    for (;;) {
        uintptr_t word = table->directory[directory_index(table, hash)];
        struct weir_entry *bucket = bucket_of(word);
        int deepest = (word & DEPTH_MASK) == WEIR_TABLE_DEPTH_MAX;
        uint32_t place =
            find_place(bucket, hash, entry->pointer, deepest ? WEIR_BUCKET_ENTRIES : PROBES_MAX);
        if (place != NO_PLACE) {
            *old = bucket[place];
            bucket[place] = *entry;
            return 0;
        }
        if (deepest)
            return ENOSPC;
        int rc = split(table, hash);
        if (rc)
            return rc;
    }
}

int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old) {
    struct weir_entry *recent = recent_of(table, hash_of(entry->pointer));
    old->pointer = 0;
    if (recent->pointer == entry->pointer) {
        *old = *recent;
    } else if (recent->pointer) {
        int rc = put_in_bucket(table, recent, old);
        if (rc)
            return rc;
    }
    *recent = *entry;
    table->entries += old->pointer == 0;
    return 0;
}

int weir_table_take(struct weir_table *table, uint64_t pointer, uint64_t stamp,
                    struct weir_entry *out) {
    uint64_t hash = hash_of(pointer);
    struct weir_entry *entry = recent_of(table, hash);
    if (!pointer)
        return ENOENT;
    if (entry->pointer == pointer && entry->stamp <= stamp) {
        *out = *entry;
        entry->pointer = 0;
        table->entries--;
        return 0;
    }
    if (!table->directory || !table->directory[0])
        return ENOENT;
    struct weir_entry *bucket = bucket_of(table->directory[directory_index(table, hash)]);
    uint32_t place = find_place(bucket, hash, pointer, WEIR_BUCKET_ENTRIES);
    if (place == NO_PLACE || bucket[place].pointer != pointer || bucket[place].stamp > stamp)
        return ENOENT;
    *out = bucket[place];
    remove_at(bucket, place);
    table->entries--;
    return 0;
}

// Whether an entry is to be swept; if so, it is counted as freed.
static int sweeps(struct weir_table *table, const struct weir_entry *entry, uint64_t context,
                  uint64_t stamp, uint64_t *freed_bytes) {
    if (!entry->pointer || entry->context != context || entry->stamp > stamp)
        return 0;
    freed_bytes[entry->gpu] += entry->bytes;
    table->entries--;
    return 1;
}

int weir_table_sweep(struct weir_table *table, uint64_t *cursor, uint64_t context, uint64_t stamp,
                     uint64_t *freed_bytes) {
    // Recent entries first: what moves from there into buckets later is not to be swept.
    for (uint32_t i = 0; i < WEIR_RECENT_ENTRIES && *cursor == 0; i++)
        if (sweeps(table, &table->recent[i], context, stamp, freed_bytes))
            table->recent[i].pointer = 0;
    if (!table->directory || !table->directory[0])
        return 0;
    uintptr_t word = table->directory[directory_index(table, *cursor)];
    struct weir_entry *bucket = bucket_of(word);
    for (int again = 1; again;) {  // what is removed lets others move, also to places behind us
        again = 0;
        for (uint32_t i = 0; i < WEIR_BUCKET_ENTRIES; i++) {
            if (!sweeps(table, &bucket[i], context, stamp, freed_bytes))
                continue;
            remove_at(bucket, i);
            again = 1;
        }
    }
    uint64_t depth = word & DEPTH_MASK;
    if (!depth)
        return 0;
    uint64_t range = (uint64_t)1 << (64 - depth);
    *cursor = (*cursor & ~(range - 1)) + range;
    return *cursor != 0;
}
