// table.c: see table.h. Invariants: every directory place names a bucket; a bucket of depth d is
// named by 2^(depth - d) neighbouring places, those whose top d bits are its own; all lines between
// the home of an entry and the line where it lies are full.
#include "table.h"

#include <errno.h>
#include <string.h>

#define LINE_ENTRIES 4u
#define LINES (WEIR_BUCKET_BYTES / (LINE_ENTRIES * sizeof(struct weir_entry)))
#define LINE_MASK (LINES - 1)
// A bucket splits when an entry would lie further from its home than this, in lines.
#define DISTANCE_MAX 4u
#define DEPTH_MASK ((uintptr_t)WEIR_BUCKET_BYTES - 1)

struct line {
    struct weir_entry entries[LINE_ENTRIES];
};

_Static_assert(sizeof(struct line) == 64, "an entry or a line resized");
_Static_assert((LINES & LINE_MASK) == 0, "lines are masked");

// The driver's addresses are multiples of 512: those in the same 2 KiB share a hash, and so a line.
// Lower bits count as well, lest another alignment make a crowd. Multiply and fold, twice: every
// bit of the result depends on every bit that goes in. The top bits choose the bucket, the bottom
// ones the line.
static uint64_t hash_of(uint64_t pointer) {
    uint64_t x = (pointer >> 11) | (pointer << 55);
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

static uint64_t directory_index(const struct weir_table *table, uint64_t hash) {
    return table->depth ? hash >> (64 - table->depth) : 0;
}

static struct line *lines_of(uintptr_t word) {
    return (struct line *)(word & ~DEPTH_MASK);
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

static struct line *new_bucket(struct weir_table *table) {
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

// The entry of a pointer in a line; else an empty one; else NULL.
static struct weir_entry *find_in_line(struct line *line, uint64_t pointer) {
    struct weir_entry *empty = NULL;
    for (uint32_t i = 0; i < LINE_ENTRIES; i++) {
        if (line->entries[i].pointer == pointer)
            return &line->entries[i];
        if (!line->entries[i].pointer)
            empty = &line->entries[i];
    }
    return empty;
}

// The entry of a pointer in a bucket, or the empty one where it would go; NULL where neither is
// within `distance` lines. *at is the line.
static struct weir_entry *find(struct line *lines, uint64_t hash, uint64_t pointer,
                               uint32_t distance, uint32_t *at) {
    for (uint32_t i = 0; i < distance; i++) {
        *at = (uint32_t)(hash + i) & LINE_MASK;
        struct weir_entry *entry = find_in_line(&lines[*at], pointer);
        if (entry)
            return entry;
    }
    return NULL;
}

// An entry of a later line that may move into line `to`: one whose home is not after that.
// `distance` is how far the later line lies behind. Also tells whether that line is full.
static struct weir_entry *mover(struct line *lines, uint32_t to, uint32_t distance, int *full) {
    struct line *line = &lines[(to + distance) & LINE_MASK];
    struct weir_entry *found = NULL;
    *full = 1;
    for (uint32_t i = 0; i < LINE_ENTRIES; i++) {
        struct weir_entry *entry = &line->entries[i];
        uint32_t home = (uint32_t)hash_of(entry->pointer) & LINE_MASK;
        if (!entry->pointer)
            *full = 0;
        else if (((to + distance - home) & LINE_MASK) >= distance)
            found = entry;
    }
    return found;
}

// Removes an entry. Where its line was full, an entry from behind may have to move up into the
// place, and so on from the place that this leaves.
static void remove_entry(struct line *lines, struct weir_entry *hole, uint32_t at) {
    int full = 1;
    for (uint32_t i = 0; i < LINE_ENTRIES; i++)
        full &= lines[at].entries[i].pointer != 0;
    for (uint32_t distance = 1; full && distance < LINES; distance++) {
        struct weir_entry *from = mover(lines, at, distance, &full);
        if (!from)
            continue;
        *hole = *from;
        hole = from;
        at = (at + distance) & LINE_MASK;
        distance = 0;
    }
    hole->pointer = 0;
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
    const struct line *old = lines_of(word);
    uint64_t depth = (word & DEPTH_MASK) + 1;
    if (depth > table->depth)
        double_directory(table);
    struct line *halves[2] = {new_bucket(table), new_bucket(table)};
    for (uint32_t i = 0; i < LINES * LINE_ENTRIES; i++) {
        const struct weir_entry *entry = &old[i / LINE_ENTRIES].entries[i % LINE_ENTRIES];
        uint32_t at;
        if (!entry->pointer)
            continue;
        uint64_t one = hash_of(entry->pointer);
        *find(halves[(one >> (64 - depth)) & 1], one, entry->pointer, LINES, &at) = *entry;
    }
    uint64_t places = (uint64_t)1 << (table->depth - depth);
    uint64_t first = directory_index(table, hash) & ~(2 * places - 1);
    for (uint64_t i = 0; i < 2 * places; i++)
        table->directory[first + i] = (uintptr_t)halves[i >= places] | depth;
    spare_bucket(table, (void *)(word & ~DEPTH_MASK));
    return 0;
}

int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old) {
    uint64_t hash = hash_of(entry->pointer);
    old->pointer = 0;
    if (!table->directory)
        return ENOMEM;
    if (!table->directory[0])  // just fed for the first time
        table->directory[0] = (uintptr_t)new_bucket(table);
    for (;;) {
        uintptr_t word = table->directory[directory_index(table, hash)];
        int deepest = (word & DEPTH_MASK) == WEIR_TABLE_DEPTH_MAX;
        uint32_t at;
        struct weir_entry *place =
            find(lines_of(word), hash, entry->pointer, deepest ? LINES : DISTANCE_MAX, &at);
        if (place) {
            *old = *place;
            *place = *entry;
            table->entries += old->pointer == 0;
            return 0;
        }
        if (deepest)
            return ENOSPC;
        int rc = split(table, hash);
        if (rc)
            return rc;
    }
}

int weir_table_take(struct weir_table *table, uint64_t pointer, struct weir_entry *out) {
    uint64_t hash = hash_of(pointer);
    uint32_t at;
    if (!pointer || !table->directory || !table->directory[0])
        return ENOENT;
    struct line *lines = lines_of(table->directory[directory_index(table, hash)]);
    struct weir_entry *entry = find(lines, hash, pointer, LINES, &at);
    if (!entry || !entry->pointer)
        return ENOENT;
    *out = *entry;
    remove_entry(lines, entry, at);
    table->entries--;
    return 0;
}

int weir_table_sweep(struct weir_table *table, uint64_t *cursor, struct weir_owners *owners,
                     uint32_t ticket, uint64_t *freed_bytes) {
    if (!table->directory || !table->directory[0])
        return 0;
    uintptr_t word = table->directory[directory_index(table, *cursor)];
    struct line *lines = lines_of(word);
    for (int again = 1; again;) {  // what is removed lets others move, also to places behind us
        again = 0;
        for (uint32_t i = 0; i < LINES * LINE_ENTRIES; i++) {
            struct weir_entry *entry = &lines[i / LINE_ENTRIES].entries[i % LINE_ENTRIES];
            const struct weir_owner *owner = &owners->owner[entry->owner];
            if (!entry->pointer || owner->ticket != ticket)
                continue;
            freed_bytes[owner->gpu] += entry->bytes;
            weir_owner_release(owners, entry->owner);
            remove_entry(lines, entry, i / LINE_ENTRIES);
            table->entries--;
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
