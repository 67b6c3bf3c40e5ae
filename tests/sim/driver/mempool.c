// mempool.c: memory given out of pools and freed in stream order (mempool.h has the states of a
// piece).
//
// A freed piece is reused in the order of preference: what is spare; what was freed in the same
// stream; what is done though nothing in the stream says so (opportunistic); what the stream
// follows by events; then the pool grows; then the stream is made to wait for a free of another
// one (internal dependencies); and in the end, what lies unused anywhere on the card is given back
// and the growth tried again.
#include "mempool.h"

// Addresses for pools: several times the card, since a range can only be reused whole.
#define ADDRESS_FACTOR 8u
#define ADDRESS_MIN (UINT64_C(1) << 30)
#define ADDRESS_BASE UINT64_C(0x500000000000)
#define ADDRESS_PER_GPU (UINT64_C(1) << 40)
#define HOST_PAGE 4096u

static struct pool pools = {.bytes = sizeof(struct mempool), .most = 1u << 12};
static struct mempool *defaults[SIM_GPUS_MAX], *current[SIM_GPUS_MAX];

// ---- Pools ----

struct mempool *mempool_get(CUmemoryPool handle) {
    struct mempool *pool = pool_get(&pools, handle);
    return pool && !pool->destroyed ? pool : NULL;
}

struct mempool *mempool_make(uint32_t gpu, uint32_t handle_types, uint64_t bytes_max) {
    uint64_t bytes = driver.config->gpus[gpu].memory_bytes * ADDRESS_FACTOR;
    bytes = (bytes > ADDRESS_MIN ? bytes : ADDRESS_MIN) / mempool_chunk(gpu) * mempool_chunk(gpu);
    struct arena **arena = &driver.pooled[gpu];
    if (!*arena && arena_make(arena, bytes, ADDRESS_BASE + gpu * ADDRESS_PER_GPU, true))
        return NULL;
    struct mempool *pool = pool_take(&pools);
    if (pool) {
        pool->gpu = gpu;
        pool->handle_types = handle_types;
        pool->bytes_max = bytes_max ? bytes_max : UINT64_MAX;
        pool->follow_events = pool->opportunistic = pool->internal = 1;
        pool->reads = pool->writes = UINT64_C(1) << gpu;
        pool->identity = -1;
    }
    return pool;
}

struct mempool *mempool_default(uint32_t gpu) {
    if (!defaults[gpu])
        defaults[gpu] = mempool_make(gpu, 0, 0);
    return defaults[gpu];
}

struct mempool *mempool_current(uint32_t gpu) {
    return current[gpu] ? current[gpu] : mempool_default(gpu);
}

void mempool_use(uint32_t gpu, struct mempool *pool) {
    current[gpu] = pool;
}

uint64_t mempool_chunk(uint32_t gpu) {
    return driver.config->gpus[gpu].pool_chunk_bytes;
}

static struct arena *arena_of(const struct mempool *pool) {
    return driver.pooled[pool->gpu];
}

static uint64_t bytes_of(const struct block *block) {
    return block->count * SIM_GRANULE;
}

// ---- Spare pieces ----

// What of a spare piece the card can have back: whole chunks, as [*from, + the result) in bytes
// from the piece's beginning. A chunk that others can map is given back as it was taken.
static uint64_t releasable(const struct mempool *pool, const struct block *block, uint64_t *from) {
    uint64_t chunk = mempool_chunk(pool->gpu), start = block->first * SIM_GRANULE;
    uint64_t end = start + bytes_of(block);
    *from = 0;
    if (pool->handle_types)
        return segment_is(pool, block) ? bytes_of(block) : 0;
    uint64_t first = (start + chunk - 1) / chunk * chunk, last = end / chunk * chunk;
    *from = first - start;
    return last > first ? last - first : 0;
}

static struct bins *bins_of(struct mempool *pool, const struct block *block) {
    uint64_t from;
    return releasable(pool, block, &from) ? &pool->whole : &pool->part;
}

static bool is_pending(const struct block *block) {
    return block->free_op.seq != 0;
}

static bool is_spare(const struct mempool *pool, const struct block *block) {
    return block && block->kind == BLOCK_POOL && block->pool == pool && block->freed &&
           !is_pending(block);
}

// Whether two neighbours may become one piece: not across memory that is shared as a whole.
static bool joinable(const struct mempool *pool, const struct block *a, const struct block *b) {
    return !pool->handle_types || segment_same(pool, a, b);
}

// A piece that is in no list becomes spare, with its neighbours.
static void make_spare(struct mempool *pool, struct block *block) {
    struct arena *arena = arena_of(pool);
    struct block *after = arena_next(arena, block), *before = arena_before(arena, block);
    block->free_op = (struct sim_dep){0, 0};
    if (is_spare(pool, after) && joinable(pool, block, after)) {
        bins_remove(arena, bins_of(pool, after), after);
        arena_join(arena, block);
    }
    if (is_spare(pool, before) && joinable(pool, before, block)) {
        bins_remove(arena, bins_of(pool, before), before);
        arena_join(arena, before);
        block = before;
    }
    bins_push(arena, bins_of(pool, block), block);
}

// ---- Pending pieces ----

static void make_pending(struct mempool *pool, struct block *block) {
    arena_own(arena_of(pool), block, &pool->pending);
}

static void leave_pending(struct mempool *pool, struct block *block) {
    arena_disown(arena_of(pool), block, &pool->pending);
}

// Pieces whose frees are done become spare.
static void settle(struct mempool *pool) {
    struct arena *arena = arena_of(pool);
    struct block *next, *block = arena_owned(arena, pool->pending);
    for (; block; block = next) {
        next = arena_owned(arena, block->next);
        if (op_done(block->free_op)) {
            leave_pending(pool, block);
            make_spare(pool, block);
        }
    }
}

// Neighbours that were freed in the same stream are one piece.
static struct block *join_pending(struct mempool *pool, struct block *block) {
    struct arena *arena = arena_of(pool);
    for (unsigned side = 0; side < 2; side++) {
        struct block *other = side ? arena_before(arena, block) : arena_next(arena, block);
        if (!other || other->kind != BLOCK_POOL || other->pool != pool || !other->freed ||
            !is_pending(other) || other->free_stream != block->free_stream ||
            !joinable(pool, block, other))
            continue;
        leave_pending(pool, other);
        struct block *first = side ? other : block;
        struct sim_dep newest = block->free_op;
        arena_join(arena, first);
        first->free_op = newest;
        block = first;
    }
    return block;
}

// ---- Choice ----

// How a pending piece may become the stream's.
enum reuse { SAME_STREAM, FOLLOWS, ANY };

// The smallest pending piece with room that may be had so.
static struct block *choose(struct mempool *pool, const struct stream *stream, uint64_t bytes,
                            enum reuse reuse) {
    struct arena *arena = arena_of(pool);
    struct block *best = NULL, *block = arena_owned(arena, pool->pending);
    for (; block; block = arena_owned(arena, block->next)) {
        if (bytes_of(block) < bytes || (best && best->count <= block->count))
            continue;
        if (reuse == ANY || block->free_stream == stream->id ||
            (reuse == FOLLOWS && stream_follows(stream, block->free_op)))
            best = block;
    }
    if (best)
        leave_pending(pool, best);
    return best;
}

static struct block *choose_spare(struct mempool *pool, uint64_t bytes) {
    struct bins *both[2] = {&pool->part, &pool->whole};
    for (unsigned i = 0; i < 2; i++) {
        struct block *block = bins_find(arena_of(pool), both[i], bytes);
        if (block) {
            bins_remove(arena_of(pool), both[i], block);
            return block;
        }
    }
    return NULL;
}

// ---- Growing ----

static int card_take(struct mempool *pool, uint64_t bytes) {
    return pool->handle_types ? 0 : sim_memory_take(driver.machine, driver.cards[pool->gpu], bytes);
}

static void card_give(struct mempool *pool, struct block *block) {
    uint64_t bytes = bytes_of(block);
    if (pool->handle_types)
        segment_remove(pool, block);
    else
        sim_memory_give(driver.machine, driver.cards[pool->gpu], bytes);
    arena_give(arena_of(pool), block);
    pool->reserved -= bytes;
}

// New memory of the card as one piece in no list; NULL: there is none.
static struct block *grow(struct mempool *pool, uint64_t bytes) {
    uint64_t chunk = mempool_chunk(pool->gpu);
    uint64_t more = (bytes + chunk - 1) / chunk * chunk;
    if (more > pool->bytes_max || pool->reserved > pool->bytes_max - more || card_take(pool, more))
        return NULL;
    struct block *block = arena_take(arena_of(pool), more, BLOCK_POOL);
    pool->busy++;  // the lock may be dropped
    bool good = block && !(pool->handle_types && segment_add(pool, block));
    pool->busy--;
    if (!good) {
        if (block)
            arena_give(arena_of(pool), block);
        if (!pool->handle_types)
            sim_memory_give(driver.machine, driver.cards[pool->gpu], more);
        return NULL;
    }
    block->pool = pool;
    block->gpu = pool->gpu;
    block->freed = 1;
    block->free_op = (struct sim_dep){0, 0};
    pool->reserved += more;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return block;
}

void mempool_trim(struct mempool *pool, uint64_t keep) {
    uint64_t chunk = mempool_chunk(pool->gpu);
    struct arena *arena = arena_of(pool);
    struct block *block;
    imports_settle(pool);
    settle(pool);
    while (pool->reserved > keep && (block = bins_find(arena, &pool->whole, 1))) {
        uint64_t from, bytes = releasable(pool, block, &from);
        uint64_t most = (pool->reserved - keep) / chunk * chunk;
        if (bytes > most && pool->handle_types)
            break;  // it is a large one, and can only go as a whole
        bytes = bytes < most ? bytes : most;
        if (!bytes)
            break;
        bins_remove(arena, &pool->whole, block);
        struct block *middle = from ? arena_split(arena, block, from) : block;
        if (from)
            bins_push(arena, &pool->part, block);
        if (bytes_of(middle) > bytes) {
            struct block *rest = arena_split(arena, middle, bytes);
            bins_push(arena, bins_of(pool, rest), rest);
        }
        card_give(pool, middle);
    }
}

// ---- Giving out and taking back ----

// From now on a piece is the program's; and from then on it is not.
static void hand_over(struct mempool *pool, struct block *block) {
    block->freed = 0;
    pool->allocations++;
    pool->used += bytes_of(block);
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
}

static void take_back(struct mempool *pool, struct block *block) {
    block->freed = 1;
    pool->allocations--;
    pool->used -= bytes_of(block);
}

// Cuts what is needed off a piece in no list, and gives it out; the rest stays what it was.
static void give_out(struct mempool *pool, struct block *block, uint64_t bytes) {
    struct arena *arena = arena_of(pool);
    if (bytes_of(block) >= bytes + SIM_GRANULE) {
        struct block *rest = arena_split(arena, block, bytes);
        if (is_pending(rest))
            make_pending(pool, rest);
        else
            bins_push(arena, bins_of(pool, rest), rest);
    }
    block->id = ++driver.ids;
    block->flags = block->sync_memops = 0;
    block->free_op = (struct sim_dep){0, 0};
    hand_over(pool, block);
}

// A piece freed in another stream, for which this one is made to wait.
static CUresult wait_for_free(struct mempool *pool, struct stream *stream, uint64_t bytes,
                              struct block **block) {
    uint64_t seq;
    *block = choose(pool, stream, bytes, ANY);
    if (!*block)
        return CUDA_SUCCESS;
    struct sim_dep freed = (*block)->free_op;
    CUresult rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, &freed, &seq);
    if (rc) {
        make_pending(pool, *block);
        *block = NULL;
    }
    return rc;
}

CUresult mempool_take(struct mempool *pool, struct stream *stream, uint64_t bytes,
                      uint64_t *address) {
    uint64_t unit = pool->handle_types ? HOST_PAGE : SIM_GRANULE, asked = bytes;
    if (bytes > UINT64_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bytes = (bytes + unit - 1) / unit * unit;
    CUresult rc = CUDA_SUCCESS;
    struct block *block = choose_spare(pool, bytes);
    if (!block)
        block = choose(pool, stream, bytes, SAME_STREAM);
    if (!block && pool->opportunistic) {
        settle(pool);
        block = choose_spare(pool, bytes);
    }
    if (!block && pool->follow_events)
        block = choose(pool, stream, bytes, FOLLOWS);
    if (!block)
        block = grow(pool, bytes);
    if (!block && pool->internal)
        rc = wait_for_free(pool, stream, bytes, &block);
    if (!block && !rc) {
        mempools_reclaim(pool->gpu);
        block = choose_spare(pool, bytes);
        if (!block)
            block = grow(pool, bytes);
    }
    if (!block)
        return rc ? rc : CUDA_ERROR_OUT_OF_MEMORY;
    give_out(pool, block, bytes);
    block->bytes = asked;
    *address = arena_address(arena_of(pool), block);
    return CUDA_SUCCESS;
}

CUresult mempool_give_async(struct block *block, struct stream *stream) {
    struct mempool *pool = block->pool;
    if (pool->imported)
        return import_give_async(block, stream);
    uint32_t machine = stream->context->machine;
    uint64_t stream_id = stream->id, seq;
    take_back(pool, block);  // before the lock may be dropped
    CUresult rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, &seq);
    if (rc) {
        hand_over(pool, block);
        return rc;
    }
    block->free_op = (struct sim_dep){.seq = seq, .context = machine};
    block->free_stream = stream_id;
    make_pending(pool, join_pending(pool, block));
    if (pool->destroyed)
        mempool_destroy(pool);
    return CUDA_SUCCESS;
}

void mempool_give(struct block *block) {
    struct mempool *pool = block->pool;
    if (pool->imported)
        return import_give(block);
    take_back(pool, block);
    make_spare(pool, block);
    if (pool->destroyed)
        mempool_destroy(pool);
}

// ---- All pools ----

void mempool_destroy(struct mempool *pool) {
    pool->destroyed = true;
    if (current[pool->gpu] == pool)
        current[pool->gpu] = NULL;
    if (pool->allocations || pool->busy)
        return;
    mempool_trim(pool, 0);
    if (!pool->reserved && !pool->imports) {
        shared_pool_end(pool);
        pool_drop(&pools, pool);
    }
}

void mempools_release(void) {
    struct mempool *pool;
    for (uint32_t i = 0; (pool = pool_next(&pools, &i)); i++) {
        if (pool->destroyed)
            mempool_destroy(pool);
        else if (pool->reserved > pool->threshold || pool->imports)
            mempool_trim(pool, pool->threshold);
    }
}

void mempools_reclaim(uint32_t gpu) {
    struct mempool *pool;
    for (uint32_t i = 0; (pool = pool_next(&pools, &i)); i++)
        if (pool->gpu == gpu && !pool->imported)
            mempool_trim(pool, 0);
    graph_memory_trim(gpu);
}
