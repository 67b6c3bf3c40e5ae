// arena.c: a range of addresses, cut into blocks of whole granules.
//
// Free blocks hang in lists by size (each power of two in eight steps), so taking and giving take
// constant time however many blocks there are; neighbours that are free are joined at once. The
// beginnings of blocks are marked in a bitmap of bitmaps, so that the block around any address is
// found in a few steps. All tables are taken from the system as they are touched.
// Invariants: blocks tile the range; no two free blocks are neighbours.
//
// One arena is of another kind: that of the ranges that programs map (range.c).
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define GRANULE SIM_GRANULE
#define LEVELS 6
#define KEEP_BYTES (256u << 10)  // a freed block from this size on gives its pages back

struct arena {
    uint64_t base;  // address that the program sees
    char *data;     // where the bytes are
    uint64_t granules;
    uint32_t *starts;  // by granule: the block that begins there
    uint64_t *marks[LEVELS];
    struct block *blocks;
    uint32_t blocks_used;
    uint32_t blocks_free;
    struct bins bins;
    uint32_t moved;  // blocks whose data lie in chunks
    bool ranges;     // it is that of ranges, and has none of the above
};

static void *reserve(uint64_t bytes, uint64_t hint, int protection) {
    void *at = mmap((void *)(uintptr_t)hint, bytes, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

// ---- Marks: the granules at which a block begins ----

static void mark(struct arena *arena, uint64_t granule) {
    for (unsigned level = 0; level < LEVELS && arena->marks[level]; level++) {
        arena->marks[level][granule / 64] |= UINT64_C(1) << granule % 64;
        granule /= 64;
    }
}

static void unmark(struct arena *arena, uint64_t granule) {
    for (unsigned level = 0; level < LEVELS && arena->marks[level]; level++) {
        uint64_t *word = &arena->marks[level][granule / 64];
        *word &= ~(UINT64_C(1) << granule % 64);
        if (*word)
            break;
        granule /= 64;
    }
}

// The last mark at or before a granule. Granule 0 is always marked.
static uint64_t last_mark(const struct arena *arena, uint64_t granule) {
    unsigned level = 0;
    uint64_t i = granule;
    for (;;) {
        uint64_t upto = i % 64 == 63 ? ~UINT64_C(0) : (UINT64_C(1) << (i % 64 + 1)) - 1;
        uint64_t word = arena->marks[level][i / 64] & upto;
        if (word) {
            i = i / 64 * 64 + 63 - (uint64_t)__builtin_clzll(word);
            break;
        }
        i = i / 64 - 1;  // the word before, one level up
        level++;
    }
    while (level--)
        i = i * 64 + 63 - (uint64_t)__builtin_clzll(arena->marks[level][i]);
    return i;
}

// ---- Free lists ----

static unsigned bin_of(uint64_t count) {
    if (count < 16)
        return (unsigned)count;
    unsigned log = 63 - (unsigned)__builtin_clzll(count);
    return 16 + (log - 4) * 8 + (unsigned)(count >> (log - 3) & 7);
}

// The bin whose every block has room for count.
static unsigned bin_above(uint64_t count) {
    if (count < 16)
        return (unsigned)count;
    unsigned log = 63 - (unsigned)__builtin_clzll(count);
    return bin_of(count + (UINT64_C(1) << (log - 3)) - 1);
}

static uint64_t granules(uint64_t bytes) {
    return bytes / GRANULE + (bytes % GRANULE != 0);
}

static uint32_t number(const struct arena *arena, const struct block *block) {
    return (uint32_t)(block - arena->blocks);
}

static void list_push(struct arena *arena, struct block *block, uint32_t *head) {
    block->prev = 0;
    block->next = *head;
    if (*head)
        arena->blocks[*head].prev = number(arena, block);
    *head = number(arena, block);
}

static void list_remove(struct arena *arena, struct block *block, uint32_t *head) {
    if (block->prev)
        arena->blocks[block->prev].next = block->next;
    else
        *head = block->next;
    if (block->next)
        arena->blocks[block->next].prev = block->prev;
}

void bins_push(struct arena *arena, struct bins *bins, struct block *block) {
    unsigned bin = bin_of(block->count);
    list_push(arena, block, &bins->heads[bin]);
    bins->filled[bin / 64] |= UINT64_C(1) << bin % 64;
}

void bins_remove(struct arena *arena, struct bins *bins, struct block *block) {
    unsigned bin = bin_of(block->count);
    list_remove(arena, block, &bins->heads[bin]);
    if (!bins->heads[bin])
        bins->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

struct block *bins_find(struct arena *arena, const struct bins *bins, uint64_t bytes) {
    uint64_t count = granules(bytes);
    unsigned bin = bin_above(count);
    for (unsigned word = bin / 64; word < SIM_BINS / 64; word++) {
        uint64_t bits = bins->filled[word];
        if (word == bin / 64)
            bits &= ~UINT64_C(0) << bin % 64;
        if (bits)
            return &arena->blocks[bins->heads[word * 64 + (unsigned)__builtin_ctzll(bits)]];
    }
    // Nearly full: a block in the bin below may still be long enough.
    for (uint32_t i = bins->heads[bin_of(count)]; i; i = arena->blocks[i].next)
        if (arena->blocks[i].count >= count)
            return &arena->blocks[i];
    return NULL;
}

// ---- Blocks ----

static struct block *block_new(struct arena *arena, uint64_t first, uint64_t count) {
    uint32_t i = arena->blocks_free;
    if (i)
        arena->blocks_free = arena->blocks[i].next;
    else
        i = ++arena->blocks_used;
    struct block *block = &arena->blocks[i];
    *block = (struct block){.first = first, .count = count};
    arena->starts[first] = i;
    mark(arena, first);
    return block;
}

static void block_delete(struct arena *arena, struct block *block) {
    unmark(arena, block->first);
    arena->starts[block->first] = 0;
    block->kind = BLOCK_FREE;
    block->next = arena->blocks_free;
    arena->blocks_free = number(arena, block);
}

// Appends the next block to this one, both free and in no list.
static void join_after(struct arena *arena, struct block *block) {
    struct block *after = &arena->blocks[block->after];
    block->count += after->count;
    block->after = after->after;
    if (block->after)
        arena->blocks[block->after].before = number(arena, block);
    block_delete(arena, after);
}

// With what it cuts: the addresses that are seen and the data that lie there are the caller's.
static int make(struct arena **out, uint64_t bytes, void *seen, void *data) {
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return ENOMEM;
    arena->granules = bytes / GRANULE;
    arena->data = data;
    arena->base = (uint64_t)(uintptr_t)seen;
    arena->starts = reserve(arena->granules * sizeof arena->starts[0], 0, PROT_READ | PROT_WRITE);
    arena->blocks =
        reserve((arena->granules + 1) * sizeof(struct block), 0, PROT_READ | PROT_WRITE);
    bool whole = seen && arena->data && arena->starts && arena->blocks;
    uint64_t words = arena->granules;
    for (unsigned level = 0; level < LEVELS && whole; level++) {
        words = (words + 63) / 64;
        arena->marks[level] = reserve(words * sizeof(uint64_t), 0, PROT_READ | PROT_WRITE);
        whole = arena->marks[level] != NULL;
        if (words == 1)
            break;
    }
    if (!whole)
        return ENOMEM;  // the context that asked for it is refused; what was reserved stays
    bins_push(arena, &arena->bins, block_new(arena, 0, arena->granules));
    *out = arena;
    return 0;
}

int arena_make(struct arena **arena, uint64_t bytes, uint64_t hint, bool hidden) {
    void *seen = reserve(bytes, hint, hidden ? PROT_NONE : PROT_READ | PROT_WRITE);
    void *data = hidden ? reserve(bytes, 0, PROT_READ | PROT_WRITE) : seen;
    return make(arena, bytes, seen, data);
}

int arena_make_over(struct arena **arena, void *data, uint64_t bytes) {
    return make(arena, bytes, data, data);
}

struct arena *arena_of_ranges(void) {
    static struct arena arena = {.ranges = true};
    return &arena;
}

struct block *arena_split(struct arena *arena, struct block *block, uint64_t bytes) {
    uint64_t count = granules(bytes);
    struct block *rest = block_new(arena, block->first + count, block->count - count);
    uint64_t first = rest->first, left = rest->count;
    *rest = *block;
    rest->first = first;
    rest->count = left;
    rest->before = number(arena, block);
    if (rest->after)
        arena->blocks[rest->after].before = number(arena, rest);
    block->after = number(arena, rest);
    block->count = count;
    return rest;
}

void arena_join(struct arena *arena, struct block *block) {
    join_after(arena, block);
}

struct block *arena_next(struct arena *arena, const struct block *block) {
    return block->after ? &arena->blocks[block->after] : NULL;
}

struct block *arena_before(struct arena *arena, const struct block *block) {
    return block->before ? &arena->blocks[block->before] : NULL;
}

struct block *arena_take(struct arena *arena, uint64_t bytes, enum block_kind kind) {
    uint64_t count = granules(bytes);
    if (!count || count > arena->granules)
        return NULL;
    struct block *block = bins_find(arena, &arena->bins, bytes);
    if (!block)
        return NULL;
    bins_remove(arena, &arena->bins, block);
    if (block->count > count)
        bins_push(arena, &arena->bins, arena_split(arena, block, bytes));
    block->kind = kind;
    block->context = NULL;
    block->chunk = NULL;
    block->flags = block->sync_memops = block->freed = block->inner = 0;
    block->bytes = bytes;
    block->id = ++driver.ids;
    return block;
}

// Gives a large block's pages back. Whole pages only, which may be larger than granules.
static void give_pages(struct arena *arena, const struct block *block) {
    if (block->count * GRANULE < KEEP_BYTES)
        return;
    uintptr_t from = (uintptr_t)arena->data + block->first * GRANULE;
    uintptr_t to = (from + block->count * GRANULE) & ~(uintptr_t)4095;
    from = (from + 4095) & ~(uintptr_t)4095;
    madvise((void *)from, to - from, MADV_DONTNEED);
}

void arena_give(struct arena *arena, struct block *block) {
    arena_move(arena, block, NULL);
    give_pages(arena, block);
    block->kind = BLOCK_FREE;
    struct block *after = arena_next(arena, block), *before = arena_before(arena, block);
    if (after && after->kind == BLOCK_FREE) {
        bins_remove(arena, &arena->bins, after);
        join_after(arena, block);
    }
    if (before && before->kind == BLOCK_FREE) {
        bins_remove(arena, &arena->bins, before);
        join_after(arena, before);
        block = before;
    }
    bins_push(arena, &arena->bins, block);
}

uint64_t arena_bytes(const struct arena *arena) {
    return arena->granules * GRANULE;
}

bool arena_covers(const struct arena *arena, uint64_t address) {
    if (arena && arena->ranges)
        return range_covers(address);
    return arena && address >= arena->base && address - arena->base < arena->granules * GRANULE;
}

struct block *arena_find(struct arena *arena, uint64_t address) {
    if (!arena_covers(arena, address))
        return NULL;
    if (arena->ranges) {
        struct range *range = range_find(address);
        return range ? &range->block : NULL;
    }
    uint64_t start = last_mark(arena, (address - arena->base) / GRANULE);
    struct block *block = &arena->blocks[arena->starts[start]];
    return block->kind == BLOCK_FREE ? NULL : block;
}

uint64_t arena_address(const struct arena *arena, const struct block *block) {
    return arena->base + block->first * GRANULE;
}

void *arena_data(struct arena *arena, uint64_t address) {
    if (arena->ranges) {
        const struct range *range = range_find(address);
        return range->data + (address - range_address(range));
    }
    const struct block *block = arena->moved ? arena_find(arena, address) : NULL;
    if (block && block->chunk)
        return block->chunk->data + (address - arena_address(arena, block));
    return arena->data + (address - arena->base);
}

void arena_move(struct arena *arena, struct block *block, struct chunk *chunk) {
    arena->moved += (chunk != NULL) - (block->chunk != NULL);
    block->chunk = chunk;
    if (chunk)
        give_pages(arena, block);
}

void arena_own(struct arena *arena, struct block *block, uint32_t *list) {
    list_push(arena, block, list);
}

struct block *arena_owned(struct arena *arena, uint32_t list) {
    return list ? &arena->blocks[list] : NULL;
}

void arena_disown(struct arena *arena, struct block *block, uint32_t *list) {
    list_remove(arena, block, list);
}
