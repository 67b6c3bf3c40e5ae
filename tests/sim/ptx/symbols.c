// See symbols.h: a chained hash table whose entries are also listed by scope.
#include "symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define BUCKETS_FIRST 1024u

static uint32_t hash_of(struct sim_ptx_text name) {
    uint64_t h = 0x9e3779b97f4a7c15ull;
    for (uint32_t k = 0; k < name.bytes; k++)
        h = (h ^ (uint8_t)name.at[k]) * 0x100000001b3ull;
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t *bucket_of(struct sim_ptx_symbols *s, struct sim_ptx_text name) {
    return &s->buckets[hash_of(name) & (s->bucket_count - 1)];
}

static int set_buckets(struct sim_ptx_symbols *s, uint32_t count) {
    uint32_t *buckets = malloc((size_t)count * sizeof(*buckets));
    if (!buckets)
        return ENOMEM;
    memset(buckets, 0xff, (size_t)count * sizeof(*buckets));
    free(s->buckets);
    s->buckets = buckets;
    s->bucket_count = count;
    for (uint32_t scope = 0; scope < s->depth; scope++) {
        for (uint32_t k = s->scopes[scope]; k != NONE; k = s->all[k].next_in_scope) {
            uint32_t *bucket = bucket_of(s, s->all[k].name);
            s->all[k].next_in_bucket = *bucket;
            *bucket = k;
        }
    }
    return 0;
}

int sim_ptx_symbols_init(struct sim_ptx_symbols *s) {
    *s = (struct sim_ptx_symbols){.free = NONE, .depth = 1};
    s->scopes[0] = NONE;
    return set_buckets(s, BUCKETS_FIRST);
}

void sim_ptx_symbols_free(struct sim_ptx_symbols *s) {
    free(s->all);
    free(s->buckets);
}

int sim_ptx_scope_open(struct sim_ptx_symbols *s) {
    if (s->depth == SIM_PTX_SCOPES_MAX)
        return ENOSPC;
    s->scopes[s->depth++] = NONE;
    return 0;
}

void sim_ptx_scope_close(struct sim_ptx_symbols *s) {
    uint32_t next;
    for (uint32_t k = s->scopes[--s->depth]; k != NONE; k = next) {
        struct sim_ptx_symbol *symbol = &s->all[k];
        uint32_t *link = bucket_of(s, symbol->name);
        while (*link != k)
            link = &s->all[*link].next_in_bucket;
        *link = symbol->next_in_bucket;
        next = symbol->next_in_scope;
        symbol->next_in_scope = s->free;
        s->free = k;
    }
}

static int take_entry(struct sim_ptx_symbols *s, uint32_t *entry) {
    if (s->free != NONE) {
        *entry = s->free;
        s->free = s->all[*entry].next_in_scope;
        return 0;
    }
    if (s->count == SIM_PTX_SYMBOLS_MAX)
        return ENOSPC;
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity ? s->capacity * 2 : 256;
        void *all = realloc(s->all, (size_t)capacity * sizeof(*s->all));
        if (!all)
            return ENOMEM;
        s->all = all;
        s->capacity = capacity;
    }
    *entry = s->count++;
    return 0;
}

int sim_ptx_symbol_add(struct sim_ptx_symbols *s, uint32_t scope, struct sim_ptx_text name,
                       struct sim_ptx_symbol **symbol) {
    if (sim_ptx_symbol_in(s, scope, name))
        return EEXIST;
    int err = s->count > s->bucket_count ? set_buckets(s, s->bucket_count * 2) : 0;
    uint32_t k = 0;
    if (!err)
        err = take_entry(s, &k);
    if (err)
        return err;
    uint32_t *bucket = bucket_of(s, name);
    *symbol = &s->all[k];
    **symbol = (struct sim_ptx_symbol){
        .name = name,
        .scope = (uint8_t)scope,
        .next_in_bucket = *bucket,
        .next_in_scope = s->scopes[scope],
    };
    *bucket = s->scopes[scope] = k;
    return 0;
}

struct sim_ptx_symbol *sim_ptx_symbol_in(struct sim_ptx_symbols *s, uint32_t scope,
                                         struct sim_ptx_text name) {
    for (uint32_t k = *bucket_of(s, name); k != NONE; k = s->all[k].next_in_bucket)
        if (s->all[k].scope == scope && sim_ptx_text_same(s->all[k].name, name))
            return &s->all[k];
    return NULL;
}

struct sim_ptx_symbol *sim_ptx_symbol_find(struct sim_ptx_symbols *s, struct sim_ptx_text name) {
    struct sim_ptx_symbol *best = NULL;
    for (uint32_t k = *bucket_of(s, name); k != NONE; k = s->all[k].next_in_bucket) {
        struct sim_ptx_symbol *symbol = &s->all[k];
        if (sim_ptx_text_same(symbol->name, name) && (!best || symbol->scope > best->scope))
            best = symbol;
    }
    return best;
}
