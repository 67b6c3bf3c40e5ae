// mempool.h: memory pools: what the core (mempool.c), the calls (mempool_api.c) and sharing
// (mempool_share.c) have in common.
//
// A pool reserves memory of its card in chunks and gives pieces of it out in stream order. A piece
// is a block of the device's `pooled` arena, in one of three states:
//   - given out: freed = 0;
//   - pending: freed, but the operation that freed it may not be done; in the list `pending`;
//   - spare: freed for good (free_op is none), joined with its spare neighbours, in `part` or,
//   where
//     a whole chunk lies in it, in `whole`.
// A piece of a pool that can be exported is whole pages of the host, which others can map.
// Invariants: `reserved` is the sum of all pieces and what the pool has taken from the card, a
// multiple of the chunk; `used` is the sum of the pieces given out.
#ifndef SIM_MEMPOOL_H
#define SIM_MEMPOOL_H

#include "driver.h"

struct segment;
struct imported;

struct mempool {
    struct object object;
    uint32_t gpu;
    uint32_t allocations;  // pieces given out
    uint32_t busy;         // threads in the middle of something with it
    bool destroyed;        // its handle is gone, it lives on for its pieces
    bool imported;         // another process's: nothing can be allocated from it
    uint32_t handle_types;
    uint64_t bytes_max;  // reserved at most
    // Policies of reuse.
    int follow_events, opportunistic, internal;
    uint64_t threshold;
    uint64_t reserved, reserved_high;
    uint64_t used, used_high;
    uint64_t reads, writes;  // bits of devices that may access it
    struct bins part, whole;
    uint32_t pending;
    struct segment *segments;  // of a pool that can be exported
    int identity;              // and the descriptor that stands for it; -1: none
    struct imported *imports;  // of an imported pool
};

// The pool behind a handle; NULL: none.
struct mempool *mempool_get(CUmemoryPool handle);
struct mempool *mempool_make(uint32_t gpu, uint32_t handle_types, uint64_t bytes_max);
// A device's default pool, made when it is first asked for, and the one in use. NULL: no room.
struct mempool *mempool_default(uint32_t gpu);
struct mempool *mempool_current(uint32_t gpu);
void mempool_use(uint32_t gpu, struct mempool *pool);  // NULL: the default one
uint64_t mempool_chunk(uint32_t gpu);                  // bytes by which pools grow

// A piece of at least `bytes` for use in the stream. CUDA_ERROR_OUT_OF_MEMORY.
CUresult mempool_take(struct mempool *pool, struct stream *stream, uint64_t bytes,
                      uint64_t *address);
// Gives chunks back to the card while the pool keeps at least `keep` bytes.
void mempool_trim(struct mempool *pool, uint64_t keep);
// Ends a pool without a handle as soon as nothing of it is given out or pending.
void mempool_destroy(struct mempool *pool);

// ---- mempool_share.c ----

// A segment of a pool that can be exported: memory in a file of its own, which goes as a whole.
// Has a new piece lie in one.
CUresult segment_add(struct mempool *pool, const struct block *block);
void segment_remove(struct mempool *pool, const struct block *block);
// Whether a piece is a whole segment, and whether two lie in the same one.
bool segment_is(const struct mempool *pool, const struct block *block);
bool segment_same(const struct mempool *pool, const struct block *a, const struct block *b);
// What another process has allocated, taken back in stream order or at once.
CUresult import_give_async(struct block *block, struct stream *stream);
void import_give(struct block *block);
// Unmaps what has been taken back and can be used no more.
void imports_settle(struct mempool *pool);
// Follows a change of the pool's rights.
void imports_allow(const struct mempool *pool);
// The end of a pool that has nothing left.
void shared_pool_end(struct mempool *pool);

#endif
