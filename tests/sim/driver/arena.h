// arena.h: a range of addresses, cut into blocks: what a process's memory of a device, of the host,
// or of a pool consists of. The driver is locked in all of it.
#ifndef SIM_ARENA_H
#define SIM_ARENA_H

#include "../machine.h"

struct arena;
struct allocation;
struct chunk;
struct context;
struct mempool;

enum block_kind {
    BLOCK_FREE,
    BLOCK_PLAIN,
    BLOCK_MANAGED,
    BLOCK_HOST,
    BLOCK_POOL,
    BLOCK_GRAPH,
    // Ranges: memory of a device and of the host that the program has mapped; what another process
    // has plain; and what another interface has made.
    BLOCK_MAPPED,
    BLOCK_MAPPED_HOST,
    BLOCK_IMPORTED,
    BLOCK_EXTERNAL,
};

struct block {
    uint64_t first;  // granule
    uint64_t count;
    uint32_t before;  // physical neighbours, 0: none
    uint32_t after;
    uint32_t next;  // in the list of free blocks of a size, or of a context's blocks
    uint32_t prev;
    enum block_kind kind;
    uint32_t flags;  // as given to the allocation
    struct context *context;
    uint64_t bytes;  // as asked for
    uint64_t id;     // unique in the process
    uint32_t sync_memops;
    uint32_t gpu;    // the device whose memory it is
    uint32_t freed;  // in stream order: gone for the program, mapped for kernels in flight
    union {
        struct mempool *pool;           // of BLOCK_POOL
        struct allocation *allocation;  // of BLOCK_GRAPH
    };
    struct chunk *chunk;     // of plain memory that others can map: where its data lie; else NULL
    struct sim_dep free_op;  // of a pool's freed piece: what freed it; seq 0: it is done
    uint64_t free_stream;    // and the id of its stream
    uint32_t inner;          // the driver's own (variables, arrays): no program frees it
};

// Blocks of one arena by size (each power of two in eight steps), to be found in constant time.
#define SIM_BINS 448u
struct bins {
    uint32_t heads[SIM_BINS];
    uint64_t filled[SIM_BINS / 64];  // which are not empty
};

void bins_push(struct arena *arena, struct bins *bins, struct block *block);
void bins_remove(struct arena *arena, struct bins *bins, struct block *block);
// A block with room for `bytes`; it stays where it is. NULL: none.
struct block *bins_find(struct arena *arena, const struct bins *bins, uint64_t bytes);

// `hidden`: the program sees addresses that it cannot touch, the data lie elsewhere.
int arena_make(struct arena **arena, uint64_t bytes, uint64_t hint, bool hidden);
// One over memory that there is; and the one whose blocks are ranges (share.h).
int arena_make_over(struct arena **arena, void *data, uint64_t bytes);
struct arena *arena_of_ranges(void);
struct block *arena_take(struct arena *arena, uint64_t bytes, enum block_kind kind);
void arena_give(struct arena *arena, struct block *block);
// Cuts a block that is in no list after `bytes`; returns the rest, which is like it. And back:
// appends the next block, in no list either, to this one.
struct block *arena_split(struct arena *arena, struct block *block, uint64_t bytes);
void arena_join(struct arena *arena, struct block *block);
struct block *arena_next(struct arena *arena, const struct block *block);  // NULL: the last
struct block *arena_before(struct arena *arena, const struct block *block);
struct block *arena_find(struct arena *arena, uint64_t address);  // NULL: no live block holds it
uint64_t arena_address(const struct arena *arena, const struct block *block);
void *arena_data(struct arena *arena, uint64_t address);
// Says that a block's data lie in a chunk; NULL: in the arena again.
void arena_move(struct arena *arena, struct block *block, struct chunk *chunk);
uint64_t arena_bytes(const struct arena *arena);  // of its addresses
bool arena_covers(const struct arena *arena, uint64_t address);
// Blocks of one context, as a list.
void arena_own(struct arena *arena, struct block *block, uint32_t *list);
struct block *arena_owned(struct arena *arena, uint32_t list);
void arena_disown(struct arena *arena, struct block *block, uint32_t *list);

#endif
