// slab.c: see slab.h. The first word of a record is the number of the next one in its chain or, of
// a free one, in the list of these.
#include "slab.h"

#include <string.h>

static uint32_t *head_of(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                         uint64_t hash) {
    return (uint32_t *)slab->memory + (hash & (shape->chains - 1));
}

static uint32_t *link_of(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                         uint32_t number) {
    return weir_slab_at(slab, shape, number);
}

int weir_slab_ready(struct weir_slab *slab, const struct weir_slab_shape *shape,
                    struct weir_lock *lock) {
    if (__atomic_load_n(&slab->memory, __ATOMIC_ACQUIRE))
        return 0;
    size_t bytes =
        (size_t)shape->chains * sizeof(uint32_t) + (size_t)shape->records_max * shape->record_bytes;
    void *memory = weir_sys_map(bytes);
    if (!memory)
        return ENOMEM;
    weir_sys_madvise(memory, bytes, WEIR_MADV_WIPEONFORK);
    int rc = weir_lock(lock);
    if (rc == 0) {
        if (!slab->memory) {
            __atomic_store_n(&slab->memory, memory, __ATOMIC_RELEASE);
            memory = NULL;
        }
        weir_unlock(lock);
    }
    if (memory)
        weir_sys_unmap(memory, bytes);
    return rc;
}

uint32_t weir_slab_new(struct weir_slab *slab, const struct weir_slab_shape *shape, uint64_t hash) {
    if (!slab->memory)
        return 0;
    uint32_t number = slab->free;
    if (number)
        slab->free = *link_of(slab, shape, number);
    else if (slab->used < shape->records_max)
        number = ++slab->used;
    else
        return 0;
    memset(weir_slab_at(slab, shape, number), 0, shape->record_bytes);
    uint32_t *head = head_of(slab, shape, hash);
    *link_of(slab, shape, number) = *head;
    *head = number;
    slab->live++;
    return number;
}

void weir_slab_free(struct weir_slab *slab, const struct weir_slab_shape *shape, uint64_t hash,
                    uint32_t number) {
    uint32_t *at = head_of(slab, shape, hash);
    while (*at != number)
        at = link_of(slab, shape, *at);
    *at = *link_of(slab, shape, number);
    memset(weir_slab_at(slab, shape, number), 0, shape->record_bytes);
    *link_of(slab, shape, number) = slab->free;
    slab->free = number;
    slab->live--;
}

uint32_t weir_slab_first(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                         uint64_t hash) {
    return slab->memory ? *head_of(slab, shape, hash) : 0;
}

uint32_t weir_slab_next(const struct weir_slab *slab, const struct weir_slab_shape *shape,
                        uint32_t number) {
    return *link_of(slab, shape, number);
}
