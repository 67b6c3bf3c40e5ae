// residency_repair.c: copies of a residency, and all that is derived in it made anew.
//
// Facts are each owner's directory and books, each block's bits, and the stamps of runs. After a
// change that was cut off half-way a page may lie in two places (it was moving), or be the first of
// a run without a stamp (it goes first, then).
#include "runs.h"

#include <string.h>

#define SORT_LEVELS 32

static void copy_block(struct sim_block *to, const struct sim_block *from) {
    to->slot = from->slot;
    to->index = from->index;
    to->live = from->live;
    to->host = from->host;
    memcpy(to->here, from->here, sizeof to->here);
    memcpy(to->starts, from->starts, sizeof to->starts);
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        for (uint64_t starts = to->starts[i]; starts; starts &= starts - 1) {
            unsigned page = (unsigned)__builtin_ctzll(starts);
            to->runs[i][page] = from->runs[i][page];
        }
}

void sim_residency_copy(struct sim_residency *to, const struct sim_residency *from) {
    to->page_bytes = from->page_bytes;
    to->stamp = from->stamp;
    to->owners_used = from->owners_used;
    to->blocks_used = from->blocks_used;
    memcpy(to->lrus, from->lrus, sizeof to->lrus);
    for (uint32_t i = 0; i < to->owners_used; i++) {
        struct sim_owner *owner = &to->owners[i];
        const struct sim_owner *source = &from->owners[i];
        owner->serial = source->serial;
        owner->memory = source->memory;
        owner->directory_used = source->directory_used;
        owner->copies = source->copies;
        memcpy(owner->books, source->books, sizeof owner->books);
        memcpy(owner->directory, source->directory,
               owner->directory_used * sizeof owner->directory[0]);
    }
    for (uint32_t i = 0; i < to->blocks_used; i++)
        copy_block(&to->blocks[i], &from->blocks[i]);
}

// ---- Runs by their stamps ----

// Whether a run was touched before another; of two with one stamp, which are parts of one touch,
// the one with the lower pages was.
static bool before(const struct sim_residency *r, uint32_t a, uint32_t b) {
    const struct sim_run *first = sim_run_at((struct sim_residency *)r, a);
    const struct sim_run *second = sim_run_at((struct sim_residency *)r, b);
    if (first->stamp != second->stamp)
        return first->stamp < second->stamp;
    uint32_t first_slot = sim_run_slot(r, a), second_slot = sim_run_slot(r, b);
    if (first_slot != second_slot)
        return first_slot < second_slot;
    return sim_run_first(r, a) < sim_run_first(r, b);
}

// Merges two lists that are in order, linked by `newer`.
static uint32_t merge(struct sim_residency *r, uint32_t a, uint32_t b) {
    uint32_t head = 0, *link = &head;
    while (a && b) {
        uint32_t *first = before(r, b, a) ? &b : &a;
        *link = *first;
        link = &sim_run_at(r, *first)->newer;
        *first = *link;
    }
    *link = a ? a : b;
    return head;
}

// Puts the runs of a list, linked by `newer`, in order.
static uint32_t sort(struct sim_residency *r, uint32_t list) {
    uint32_t sorted[SORT_LEVELS] = {0};  // of 1, 2, 4, ... runs
    while (list) {
        uint32_t one = list;
        unsigned level = 0;
        list = sim_run_at(r, one)->newer;
        sim_run_at(r, one)->newer = 0;
        for (; sorted[level]; level++) {
            one = merge(r, sorted[level], one);
            sorted[level] = 0;
        }
        sorted[level] = one;
    }
    for (unsigned level = 0; level < SORT_LEVELS; level++)
        list = merge(r, sorted[level], list);
    return list;
}

// ---- Blocks ----

// The pages of one column of a block as runs, each put before its order's other ones. `open` is the
// run that the page before the block is in, 0: none.
static uint32_t find_runs(struct sim_residency *r, struct sim_block *block, unsigned column,
                          uint32_t open) {
    struct sim_lru *lru = sim_lru_of(r, block->slot, column);
    block->here[column] &= block->live;
    block->starts[column] &= block->here[column];
    uint64_t here = block->here[column];
    for (unsigned page = 0; page < SIM_BLOCK_PAGES; page++) {
        uint64_t bit = UINT64_C(1) << page;
        if (!(here & bit)) {
            open = 0;
            continue;
        }
        if (!open && !(block->starts[column] & bit)) {
            block->runs[column][page] = (struct sim_run){0};
            block->starts[column] |= bit;
        }
        if (block->starts[column] & bit) {
            open = sim_run_number(r, block->slot, column, block->index * SIM_BLOCK_PAGES + page);
            sim_run_at(r, open)->count = 0;
            sim_run_at(r, open)->newer = lru->oldest;
            lru->oldest = open;
        }
        sim_run_at(r, open)->count++;
    }
    uint64_t pages = (uint64_t)__builtin_popcountll(here);
    lru->pages += pages;
    r->owners[block->slot].books[column].resident_bytes += pages * r->page_bytes;
    return open;
}

static void find_blocks(struct sim_residency *r, uint32_t slot) {
    struct sim_owner *owner = &r->owners[slot];
    uint32_t open[SIM_COLUMNS] = {0};
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        owner->books[i].resident_bytes = 0;
    for (uint32_t index = 0; index < owner->directory_used; index++) {
        uint32_t number = owner->directory[index];
        struct sim_block *block =
            number && number <= r->blocks_used ? &r->blocks[number - 1] : NULL;
        // A block without live pages was just being taken or given back.
        if (!block || block->slot != slot || block->index != index || !block->live ||
            !owner->serial) {
            owner->directory[index] = 0;
            memset(open, 0, sizeof open);
            continue;
        }
        for (unsigned i = 0; i < SIM_COLUMNS; i++)
            open[i] = block->here[i] ? find_runs(r, block, i, open[i]) : 0;
        block->host &= block->live;
    }
}

static bool in_directory(const struct sim_residency *r, uint32_t number) {
    const struct sim_block *block = &r->blocks[number - 1];
    return block->slot < r->owners_used && block->index < SIM_PROCESS_BLOCKS &&
           block->index < r->owners[block->slot].directory_used &&
           r->owners[block->slot].directory[block->index] == number;
}

void sim_residency_rebuild(struct sim_residency *r) {
    for (unsigned i = 0; i < SIM_UNITS_MAX; i++) {
        r->lrus[i].oldest = r->lrus[i].newest = 0;
        r->lrus[i].pages = 0;
    }
    for (uint32_t slot = 0; slot < r->owners_used; slot++)
        find_blocks(r, slot);
    r->free_block = 0;
    for (uint32_t number = r->blocks_used; number; number--)
        if (!in_directory(r, number)) {
            r->blocks[number - 1].index = r->free_block;
            r->free_block = number;
        }
    for (unsigned i = 0; i < SIM_UNITS_MAX; i++) {
        struct sim_lru *lru = &r->lrus[i];
        uint32_t run = sort(r, lru->oldest);
        for (lru->oldest = 0; run;) {
            uint32_t next = sim_run_at(r, run)->newer;
            sim_lru_append(r, lru, run);
            run = next;
        }
    }
}
