// runs.h: runs of pages on a GPU, and the order in which they came. Private to the residency
// sources.
//
// The callers keep the bits `here`; these functions keep the runs of pages that lie there. A page
// is in no run only between a detach and the attach that follows.
#ifndef SIM_RUNS_H
#define SIM_RUNS_H

#include "residency.h"

#include <stdbool.h>

// The number of the block that holds a page; 0: none does.
static inline uint32_t sim_block_number(const struct sim_residency *r, uint32_t slot,
                                        uint32_t page) {
    const struct sim_owner *owner = &r->owners[slot];
    uint32_t index = page / SIM_BLOCK_PAGES;
    return index < owner->directory_used ? owner->directory[index] : 0;
}

// That block; NULL: none.
static inline struct sim_block *sim_block_of(struct sim_residency *r, uint32_t slot,
                                             uint32_t page) {
    uint32_t number = sim_block_number(r, slot, page);
    return number ? &r->blocks[number - 1] : NULL;
}

static inline uint64_t sim_page_bit(uint32_t page) {
    return UINT64_C(1) << page % SIM_BLOCK_PAGES;
}

// The bits of the pages from `page` up to `end` that are in its block.
static inline uint64_t sim_page_mask(uint32_t page, uint32_t end) {
    uint32_t from = page % SIM_BLOCK_PAGES, count = SIM_BLOCK_PAGES - from;
    count = end - page < count ? end - page : count;
    uint64_t bits = count < SIM_BLOCK_PAGES ? (UINT64_C(1) << count) - 1 : ~UINT64_C(0);
    return bits << from;
}

// The first page of the block after the one that holds a page.
static inline uint32_t sim_next_block(uint32_t page) {
    return (page / SIM_BLOCK_PAGES + 1) * SIM_BLOCK_PAGES;
}

// Takes the first stretch of ones out of a mask; its first bit and length.
static inline bool sim_next_stretch(uint64_t *mask, unsigned *first, unsigned *count) {
    if (!*mask)
        return false;
    *first = (unsigned)__builtin_ctzll(*mask);
    uint64_t zeros = ~(*mask >> *first);
    *count = zeros ? (unsigned)__builtin_ctzll(zeros) : SIM_BLOCK_PAGES;
    uint64_t taken = *count < SIM_BLOCK_PAGES ? (UINT64_C(1) << *count) - 1 : ~UINT64_C(0);
    *mask &= ~(taken << *first);
    return true;
}

// The run that a number names, and its pages.
struct sim_run *sim_run_at(struct sim_residency *r, uint32_t number);
uint32_t sim_run_number(const struct sim_residency *r, uint32_t slot, unsigned column,
                        uint32_t page);
uint32_t sim_run_first(const struct sim_residency *r, uint32_t number);
uint32_t sim_run_slot(const struct sim_residency *r, uint32_t number);
unsigned sim_run_column(uint32_t number);

// The order of the card or GPU instance behind a process's column.
struct sim_lru *sim_lru_of(struct sim_residency *r, uint32_t slot, unsigned column);

// The run that begins at a page; NULL: none does.
struct sim_run *sim_run_from(struct sim_residency *r, uint32_t slot, unsigned column,
                             uint32_t page);

// Makes a run begin at a page, if it is inside one.
void sim_run_cut(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t page);

// Makes a run the newest.
void sim_run_renew(struct sim_residency *r, uint32_t number, uint64_t stamp);

// When the last of some pages, all of which are in runs, has arrived.
uint64_t sim_run_ready(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                       uint32_t count);

// Takes pages, all of which are in runs, out of them. Returns when the last of them has arrived.
uint64_t sim_run_detach(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                        uint32_t count);

// Puts pages that are in no run into the newest, or makes them one.
void sim_run_attach(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                    uint32_t count, uint64_t stamp, uint64_t ready_ns);

// Takes the first pages out of a run.
void sim_run_shorten(struct sim_residency *r, uint32_t number, uint32_t count);

// Appends a run to an order, or takes it out.
void sim_lru_append(struct sim_residency *r, struct sim_lru *lru, uint32_t number);
void sim_lru_remove(struct sim_residency *r, struct sim_lru *lru, uint32_t number);

#endif
