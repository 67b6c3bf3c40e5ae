// table.c: see table.h. Invariants: every directory place names a bucket; a bucket of depth d is
// named by 2^(depth - d) neighbouring places, those whose top d bits are its own; between the home
// of an entry and its place in the bucket there is no empty place.
#include "table.h"

#include <errno.h>
#include <string.h>

struct weir_bucket {
    union {
        struct weir_bucket *next;  // while spare
        uint64_t depth;            // while in use
    };
    uint64_t count;
    uint64_t unused[2];
    struct weir_entry entries[WEIR_BUCKET_ENTRIES];
};

_Static_assert(sizeof(struct weir_entry) == 32, "entry resized");
_Static_assert(sizeof(struct weir_bucket) == WEIR_BUCKET_BYTES, "bucket resized");

// A bijection whose every output bit depends on every input bit (multiply and fold, twice):
// pointers differ in few bits and are multiples of 512.
static uint64_t hash_of(uint64_t pointer) {
    uint64_t x = pointer ^ (pointer >> 32);
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

// The place where the search for a hash begins: its low half, scaled. The top bits choose the
// bucket.
static uint32_t home_of(uint64_t hash) {
    return (uint32_t)(((hash & UINT32_MAX) * WEIR_BUCKET_ENTRIES) >> 32);
}

static uint32_t after(uint32_t place) {
    return place + 1 == WEIR_BUCKET_ENTRIES ? 0 : place + 1;
}

static uint64_t directory_index(const struct weir_table *table, uint64_t hash) {
    return table->depth ? hash >> (64 - table->depth) : 0;
}

static void spare_bucket(struct weir_table *table, struct weir_bucket *bucket) {
    bucket->next = table->spare;
    table->spare = bucket;
}

// Whether `count` buckets can be made without being fed.
static int has_room(const struct weir_table *table, uint32_t count) {
    if (table->fresh_bytes >= count * WEIR_BUCKET_BYTES)
        return 1;
    count -= (uint32_t)(table->fresh_bytes / WEIR_BUCKET_BYTES);
    for (const struct weir_bucket *spare = table->spare; spare && count; spare = spare->next)
        count--;
    return count == 0;
}

int weir_table_feed(struct weir_table *table, void *memory) {
    if (has_room(table, 2))
        return EBUSY;
    if (table->fresh_bytes)
        spare_bucket(table, (struct weir_bucket *)table->fresh);
    table->fresh = memory;
    table->fresh_bytes = WEIR_TABLE_FEED_BYTES;
    if (!table->directory) {
        table->directory = memory;
        table->fresh += WEIR_DIRECTORY_BYTES;
        table->fresh_bytes -= WEIR_DIRECTORY_BYTES;
    }
    return 0;
}

static struct weir_bucket *new_bucket(struct weir_table *table, uint64_t depth) {
    struct weir_bucket *bucket = table->spare;
    if (bucket) {
        table->spare = bucket->next;
        memset(bucket, 0, sizeof(*bucket));
    } else {
        bucket = (struct weir_bucket *)table->fresh;
        table->fresh += WEIR_BUCKET_BYTES;
        table->fresh_bytes -= WEIR_BUCKET_BYTES;
    }
    bucket->depth = depth;
    return bucket;
}

// Adds an entry to a bucket that has room and none of that pointer.
static void bucket_add(struct weir_bucket *bucket, uint64_t hash, const struct weir_entry *entry) {
    uint32_t place = home_of(hash);
    while (bucket->entries[place].pointer)
        place = after(place);
    bucket->entries[place] = *entry;
    bucket->count++;
}

static struct weir_entry *bucket_find(struct weir_bucket *bucket, uint64_t hash, uint64_t pointer) {
    for (uint32_t place = home_of(hash); bucket->entries[place].pointer; place = after(place))
        if (bucket->entries[place].pointer == pointer)
            return &bucket->entries[place];
    return NULL;
}

// Empties a place: entries behind it that may lie nearer to their home move up.
static void bucket_remove(struct weir_bucket *bucket, struct weir_entry *entry) {
    uint32_t hole = (uint32_t)(entry - bucket->entries);
    for (uint32_t at = after(hole); bucket->entries[at].pointer; at = after(at)) {
        uint32_t home = home_of(hash_of(bucket->entries[at].pointer));
        uint32_t from_home = (at + WEIR_BUCKET_ENTRIES - home) % WEIR_BUCKET_ENTRIES;
        uint32_t from_hole = (at + WEIR_BUCKET_ENTRIES - hole) % WEIR_BUCKET_ENTRIES;
        if (from_home < from_hole)
            continue;
        bucket->entries[hole] = bucket->entries[at];
        hole = at;
    }
    bucket->entries[hole].pointer = 0;
    bucket->count--;
}

// Doubles the directory in place, from its end, so that nothing is overwritten before it is read.
static void double_directory(struct weir_table *table) {
    for (uint64_t i = (uint64_t)1 << table->depth; i-- > 0;) {
        table->directory[2 * i + 1] = table->directory[i];
        table->directory[2 * i] = table->directory[i];
    }
    table->depth++;
}

// Replaces the bucket that holds `hash` by two of half its range. 0, ENOMEM or ENOSPC.
static int split(struct weir_table *table, uint64_t hash) {
    struct weir_bucket *old = table->directory[directory_index(table, hash)];
    if (old->depth == WEIR_TABLE_DEPTH_MAX)
        return ENOSPC;
    if (!has_room(table, 2))
        return ENOMEM;
    if (old->depth == table->depth)
        double_directory(table);
    uint64_t depth = old->depth + 1;
    struct weir_bucket *halves[2] = {new_bucket(table, depth), new_bucket(table, depth)};
    for (uint32_t i = 0; i < WEIR_BUCKET_ENTRIES; i++) {
        const struct weir_entry *entry = &old->entries[i];
        if (!entry->pointer)
            continue;
        uint64_t entry_hash = hash_of(entry->pointer);
        bucket_add(halves[(entry_hash >> (64 - depth)) & 1], entry_hash, entry);
    }
    uint64_t places = (uint64_t)1 << (table->depth - depth);
    uint64_t first = directory_index(table, hash) & ~(2 * places - 1);
    for (uint64_t i = 0; i < 2 * places; i++)
        table->directory[first + i] = halves[i >= places];
    spare_bucket(table, old);
    return 0;
}

int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old) {
    uint64_t hash = hash_of(entry->pointer);
    old->pointer = 0;
    if (!table->directory)
        return ENOMEM;
    if (!table->directory[0])  // just fed for the first time
        table->directory[0] = new_bucket(table, 0);
    for (;;) {
        struct weir_bucket *bucket = table->directory[directory_index(table, hash)];
        struct weir_entry *same = bucket_find(bucket, hash, entry->pointer);
        if (same) {
            *old = *same;
            *same = *entry;
            return 0;
        }
        if (bucket->count < WEIR_BUCKET_FULL) {
            bucket_add(bucket, hash, entry);
            table->entries++;
            return 0;
        }
        int rc = split(table, hash);
        if (rc)
            return rc;
    }
}

int weir_table_take(struct weir_table *table, uint64_t pointer, struct weir_entry *out) {
    if (!table->directory || !table->directory[0] || !pointer)
        return ENOENT;
    uint64_t hash = hash_of(pointer);
    struct weir_bucket *bucket = table->directory[directory_index(table, hash)];
    struct weir_entry *entry = bucket_find(bucket, hash, pointer);
    if (!entry)
        return ENOENT;
    *out = *entry;
    bucket_remove(bucket, entry);
    table->entries--;
    return 0;
}

int weir_table_sweep(struct weir_table *table, uint64_t *cursor, uint64_t context, uint64_t stamp,
                     uint64_t *freed_bytes) {
    if (!table->directory || !table->directory[0])
        return 0;
    struct weir_bucket *bucket = table->directory[directory_index(table, *cursor)];
    for (uint32_t i = 0; i < WEIR_BUCKET_ENTRIES;) {
        struct weir_entry *entry = &bucket->entries[i];
        if (!entry->pointer || entry->context != context || entry->stamp > stamp) {
            i++;
            continue;
        }
        freed_bytes[entry->gpu] += entry->bytes;
        bucket_remove(bucket, entry);  // another may now lie here: look at this place again
        table->entries--;
    }
    if (!bucket->depth)
        return 0;
    uint64_t range = (uint64_t)1 << (64 - bucket->depth);
    *cursor = (*cursor & ~(range - 1)) + range;
    return *cursor != 0;
}
