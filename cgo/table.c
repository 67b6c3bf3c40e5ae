// table.c: see table.h. Invariants: every directory place names a bucket; a bucket of depth d is
// named by 2^(depth - d) neighbouring places, those whose top d bits are its own; a line counts the
// entries that passed it on the way from their home to where they lie, so a search ends where that
// count is 0. The count is in its first entry; one that has reached its maximum stays there until a
// split.
#include "table.h"

#include <errno.h>
#include <string.h>

#define LINE_ENTRIES 4u
#define LINES (WEIR_BUCKET_BYTES / (LINE_ENTRIES * sizeof(struct weir_entry)))
#define LINE_MASK (LINES - 1)
// A bucket splits when an entry would lie further from its home than this, in lines.
#define DISTANCE_MAX 8u
#define PASSED_MAX 127u
#define DEPTH_MASK ((uintptr_t)WEIR_BUCKET_BYTES - 1)
// The place of the recent entry that waits for its bucket.
#define LEAVING WEIR_RECENT_ENTRIES

struct line {
    struct weir_entry entries[LINE_ENTRIES];
};

_Static_assert(sizeof(struct line) == 64, "an entry or a line resized");
_Static_assert((LINES & LINE_MASK) == 0, "lines are masked");

// Multiply and fold, twice: every bit of the result depends on every bit of the pointer, and
// pointers differ in few bits and are multiples of 512. The top bits choose the bucket, the bottom
// ones the line, others the place among the recent entries.
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

static struct line *lines_of(uintptr_t word) {
    return (struct line *)(word & ~DEPTH_MASK);
}

static uint32_t recent_place(uint64_t hash) {
    return (uint32_t)(hash >> 8) & (WEIR_RECENT_ENTRIES - 1);
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

// The entry of a pointer in a line, or NULL; 0 finds an empty one. Compares all: a branch on where
// it lies would be mispredicted.
static struct weir_entry *find_in_line(struct line *line, uint64_t pointer) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < LINE_ENTRIES; i++)
        found |= (uint32_t)(line->entries[i].pointer == pointer) << i;
    return found ? &line->entries[__builtin_ctz(found)] : NULL;
}
// The entry of a pointer in a bucket, or NULL. *distance: how far from its home, in lines.
static struct weir_entry *find(struct line *lines, uint64_t hash, uint64_t pointer,
                               uint32_t *distance) {
    for (*distance = 0; *distance < LINES; ++*distance) {
        struct line *line = &lines[(hash + *distance) & LINE_MASK];
        struct weir_entry *entry = find_in_line(line, pointer);
        if (entry || !line->entries[0].passed)
            return entry;
    }
    return NULL;
}

// Writes an entry into its place but for the line's count, which may lie there.
static void overwrite(struct weir_entry *place, const struct weir_entry *entry) {
    place->pointer = entry->pointer;
    place->bytes = entry->bytes;
    place->owner = entry->owner;
}

// Adds an entry that the bucket has not. 0, or ENOSPC where it would lie too far from its home.
static int add(struct line *lines, uint64_t hash, const struct weir_entry *entry,
               uint32_t distance_max) {
    struct weir_entry *place = NULL;
    uint32_t distance = 0;
    for (; distance < distance_max; distance++)
        if ((place = find_in_line(&lines[(hash + distance) & LINE_MASK], 0)))
            break;
    if (!place)
        return ENOSPC;
    overwrite(place, entry);
    while (distance-- > 0) {
        struct weir_entry *first = lines[(hash + distance) & LINE_MASK].entries;
        if (first->passed < PASSED_MAX)
            first->passed++;
    }
    return 0;
}

static void remove_entry(struct line *lines, uint64_t hash, struct weir_entry *entry,
                         uint32_t distance) {
    entry->pointer = 0;
    while (distance-- > 0) {
        struct weir_entry *first = lines[(hash + distance) & LINE_MASK].entries;
        if (first->passed < PASSED_MAX)
            first->passed--;
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
    const struct line *old = lines_of(word);
    uint64_t depth = (word & DEPTH_MASK) + 1;
    if (depth > table->depth)
        double_directory(table);
    struct line *halves[2] = {new_bucket(table), new_bucket(table)};
    for (uint32_t i = 0; i < LINES * LINE_ENTRIES; i++) {
        const struct weir_entry *entry = &old[i / LINE_ENTRIES].entries[i % LINE_ENTRIES];
        uint64_t one = hash_of(entry->pointer);
        if (entry->pointer)
            add(halves[(one >> (64 - depth)) & 1], one, entry, LINES);
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
        struct line *lines = lines_of(word);
        uint32_t distance;
        struct weir_entry *same = find(lines, hash, entry->pointer, &distance);
        if (same) {
            *old = *same;
            overwrite(same, entry);
            return 0;
        }
        int deepest = (word & DEPTH_MASK) == WEIR_TABLE_DEPTH_MAX;
        if (add(lines, hash, entry, deepest ? LINES : DISTANCE_MAX) == 0)
            return 0;
        int rc = deepest ? ENOSPC : split(table, hash);
        if (rc)
            return rc;
    }
}

// Counts an entry that has come (1) or gone (-1).
static void count(struct weir_table *table, uint64_t pointer, uint32_t change) {
    uint32_t *region = &table->regions[weir_table_region(pointer)];
    __atomic_store_n(region, *region + change, __ATOMIC_RELAXED);
    table->entries += (uint64_t)(int64_t)(int32_t)change;
}

// What this reads may be changing: then it fetches something else, and nothing is lost.
__attribute__((no_sanitize("thread"))) void weir_table_prefetch(const struct weir_table *table,
                                                                uint64_t pointer) {
    const uintptr_t *directory = table->directory;
    uint64_t hash = hash_of(pointer), depth = table->depth;
    if (!directory || !depth || depth > WEIR_TABLE_DEPTH_MAX)
        return;
    const struct line *lines = lines_of(directory[hash >> (64 - depth)]);
    __builtin_prefetch(&lines[hash & LINE_MASK], 1);
}

// Makes room at a place for recent entries. An older entry that gives way to one of the same
// pointer goes to `old`. 0, ENOMEM or ENOSPC.
static int make_room(struct weir_table *table, uint32_t place, struct weir_entry *old) {
    struct weir_entry *leaving = &table->recent[LEAVING];
    if (leaving->pointer) {
        int rc = put_in_bucket(table, leaving, old);
        if (rc)
            return rc;
        weir_freeing_overtake(&table->freeings, leaving->pointer, table->recent_stamp[LEAVING]);
    }
    *leaving = table->recent[place];
    table->recent_stamp[LEAVING] = table->recent_stamp[place];
    weir_table_prefetch(table, leaving->pointer);
    return 0;
}

int weir_table_put(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old) {
    uint32_t place = recent_place(hash_of(entry->pointer));
    struct weir_entry *recent = &table->recent[place];
    old->pointer = 0;
    if (recent->pointer == entry->pointer) {
        *old = *recent;
    } else if (recent->pointer) {
        int rc = make_room(table, place, old);
        if (rc)
            return rc;
    }
    *recent = *entry;
    uint64_t stamp = table->stamp + 1;
    __atomic_store_n(&table->stamp, stamp, __ATOMIC_RELEASE);
    table->recent_stamp[place] = stamp;
    count(table, entry->pointer, 1);
    if (old->pointer)
        count(table, old->pointer, -1u);
    return 0;
}

// Removes a recent entry, if it is that of `pointer` and no younger than `stamp`.
static int take_recent(struct weir_table *table, uint32_t place, uint64_t pointer, uint64_t stamp,
                       struct weir_entry *out) {
    struct weir_entry *entry = &table->recent[place];
    if (entry->pointer != pointer || table->recent_stamp[place] > stamp)
        return 0;
    *out = *entry;
    entry->pointer = 0;
    count(table, pointer, -1u);
    return 1;
}

struct weir_free_token weir_table_free(struct weir_table *table, uint64_t pointer) {
    struct weir_free_token free = {weir_table_stamp(table), WEIR_NO_FREEING};
    free.place = weir_freeing_begin(&table->freeings, pointer, free.stamp);
    return free;
}

void weir_table_freed(struct weir_table *table, struct weir_free_token free) {
    weir_freeing_end(&table->freeings, free.place);
}

int weir_table_take(struct weir_table *table, uint64_t pointer, struct weir_free_token free,
                    struct weir_entry *out) {
    uint64_t hash = hash_of(pointer);
    uint32_t distance;
    if (!pointer)
        return ENOENT;
    if (take_recent(table, recent_place(hash), pointer, free.stamp, out) ||
        take_recent(table, LEAVING, pointer, free.stamp, out))
        return 0;
    if (!table->directory || !table->directory[0])
        return ENOENT;
    struct line *lines = lines_of(table->directory[directory_index(table, hash)]);
    struct weir_entry *entry = find(lines, hash, pointer, &distance);
    if (!entry || weir_freeing_overtaken(&table->freeings, free.place))
        return ENOENT;
    *out = *entry;
    remove_entry(lines, hash, entry, distance);
    count(table, pointer, -1u);
    return 0;
}

struct weir_entry *weir_table_find(struct weir_table *table, uint64_t pointer) {
    uint64_t hash = hash_of(pointer);
    uint32_t distance;
    if (!pointer)
        return NULL;
    if (table->recent[recent_place(hash)].pointer == pointer)
        return &table->recent[recent_place(hash)];
    if (table->recent[LEAVING].pointer == pointer)
        return &table->recent[LEAVING];
    if (!table->directory || !table->directory[0])
        return NULL;
    return find(lines_of(table->directory[directory_index(table, hash)]), hash, pointer, &distance);
}

// Whether an entry is to be swept; if so, it is counted as freed.
static int sweeps(struct weir_table *table, const struct weir_entry *entry,
                  struct weir_owners *owners, uint32_t ticket, uint64_t *freed_bytes) {
    const struct weir_owner *owner = &owners->owner[entry->owner];
    if (!entry->pointer || owner->ticket != ticket)
        return 0;
    freed_bytes[owner->gpu] += entry->bytes;
    weir_owner_release(owners, entry->owner);
    count(table, entry->pointer, -1u);
    return 1;
}

int weir_table_sweep(struct weir_table *table, uint64_t *cursor, struct weir_owners *owners,
                     uint32_t ticket, uint64_t *freed_bytes) {
    // Recent entries first: what moves from there into buckets later has other owners.
    for (uint32_t i = 0; i <= LEAVING && *cursor == 0; i++)
        if (sweeps(table, &table->recent[i], owners, ticket, freed_bytes))
            table->recent[i].pointer = 0;
    if (!table->directory || !table->directory[0])
        return 0;
    uintptr_t word = table->directory[directory_index(table, *cursor)];
    struct line *lines = lines_of(word);
    for (uint32_t i = 0; i < LINES * LINE_ENTRIES; i++) {
        struct weir_entry *entry = &lines[i / LINE_ENTRIES].entries[i % LINE_ENTRIES];
        uint64_t hash = hash_of(entry->pointer);
        if (sweeps(table, entry, owners, ticket, freed_bytes))
            remove_entry(lines, hash, entry, (uint32_t)(i / LINE_ENTRIES - hash) & LINE_MASK);
    }
    uint64_t depth = word & DEPTH_MASK;
    if (!depth)
        return 0;
    uint64_t range = (uint64_t)1 << (64 - depth);
    *cursor = (*cursor & ~(range - 1)) + range;
    return *cursor != 0;
}
