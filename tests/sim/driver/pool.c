// pool.c: objects behind handles. A pool is one range of addresses, taken from the system as it is
// used; an address in it, at an object's beginning and marked live, is a good handle.
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>
#include <sys/mman.h>

void *pool_take(struct pool *pool) {
    if (!pool->base) {
        void *base = mmap(NULL, pool->bytes * pool->most, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            return NULL;
        pool->base = base;
    }
    struct object *object = pool->free;
    if (object) {
        pool->free = object->next_free;
        memset(object, 0, pool->bytes);
    } else if (pool->used < pool->most) {
        object = (struct object *)(pool->base + pool->bytes * pool->used++);
    } else {
        return NULL;
    }
    object->live = 1;
    return object;
}

void pool_drop(struct pool *pool, void *handle) {
    struct object *object = handle;
    object->live = 0;
    object->next_free = pool->free;
    pool->free = object;
}

void *pool_get(struct pool *pool, const void *handle) {
    uintptr_t base = (uintptr_t)pool->base, address = (uintptr_t)handle;
    if (!base || address < base || address >= base + pool->bytes * pool->used ||
        (address - base) % pool->bytes)
        return NULL;
    struct object *object = (struct object *)address;
    return object->live ? object : NULL;
}

void *pool_next(struct pool *pool, uint32_t *i) {
    for (; *i < pool->used; ++*i) {
        struct object *object = (struct object *)(pool->base + pool->bytes * *i);
        if (object->live)
            return object;
    }
    return NULL;
}
