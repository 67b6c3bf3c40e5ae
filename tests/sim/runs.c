// runs.c: see runs.h. A run's first page has its entry and its bit in `starts`; the entry is
// written before the bit is set, and both before what is derived of them.
#include "runs.h"

#include <stddef.h>

// ---- Numbers ----

struct sim_run *sim_run_at(struct sim_residency *r, uint32_t number) {
    uint32_t i = number - 1;
    struct sim_block *block = &r->blocks[i / SIM_BLOCK_PAGES / SIM_COLUMNS];
    return &block->runs[i / SIM_BLOCK_PAGES % SIM_COLUMNS][i % SIM_BLOCK_PAGES];
}

uint32_t sim_run_number(const struct sim_residency *r, uint32_t slot, unsigned column,
                        uint32_t page) {
    uint32_t block = r->owners[slot].directory[page / SIM_BLOCK_PAGES] - 1;
    return (block * SIM_COLUMNS + column) * SIM_BLOCK_PAGES + page % SIM_BLOCK_PAGES + 1;
}

uint32_t sim_run_first(const struct sim_residency *r, uint32_t number) {
    uint32_t i = number - 1;
    return r->blocks[i / SIM_BLOCK_PAGES / SIM_COLUMNS].index * SIM_BLOCK_PAGES +
           i % SIM_BLOCK_PAGES;
}

uint32_t sim_run_slot(const struct sim_residency *r, uint32_t number) {
    return r->blocks[(number - 1) / SIM_BLOCK_PAGES / SIM_COLUMNS].slot;
}

unsigned sim_run_column(uint32_t number) {
    return (number - 1) / SIM_BLOCK_PAGES % SIM_COLUMNS;
}

struct sim_lru *sim_lru_of(struct sim_residency *r, uint32_t slot, unsigned column) {
    return &r->lrus[column < SIM_GPUS_MAX ? column : r->owners[slot].memory];
}

// ---- The order ----

static void lru_insert(struct sim_residency *r, struct sim_lru *lru, uint32_t number,
                       uint32_t after) {
    struct sim_run *run = sim_run_at(r, number);
    run->older = after;
    run->newer = after ? sim_run_at(r, after)->newer : lru->oldest;
    *(run->older ? &sim_run_at(r, run->older)->newer : &lru->oldest) = number;
    *(run->newer ? &sim_run_at(r, run->newer)->older : &lru->newest) = number;
}

void sim_lru_append(struct sim_residency *r, struct sim_lru *lru, uint32_t number) {
    lru_insert(r, lru, number, lru->newest);
}

void sim_lru_remove(struct sim_residency *r, struct sim_lru *lru, uint32_t number) {
    struct sim_run *run = sim_run_at(r, number);
    *(run->older ? &sim_run_at(r, run->older)->newer : &lru->oldest) = run->newer;
    *(run->newer ? &sim_run_at(r, run->newer)->older : &lru->newest) = run->older;
}

// ---- Runs ----

struct sim_run *sim_run_from(struct sim_residency *r, uint32_t slot, unsigned column,
                             uint32_t page) {
    struct sim_block *block = sim_block_of(r, slot, page);
    bool starts = block && block->starts[column] & sim_page_bit(page);
    return starts ? &block->runs[column][page % SIM_BLOCK_PAGES] : NULL;
}

static void start_run(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t page,
                      struct sim_run run) {
    struct sim_block *block = sim_block_of(r, slot, page);
    block->runs[column][page % SIM_BLOCK_PAGES] = run;
    block->starts[column] |= sim_page_bit(page);
}

static void end_run(struct sim_residency *r, uint32_t number) {
    uint32_t page = sim_run_first(r, number), slot = sim_run_slot(r, number);
    unsigned column = sim_run_column(number);
    sim_lru_remove(r, sim_lru_of(r, slot, column), number);
    sim_block_of(r, slot, page)->starts[column] &= ~sim_page_bit(page);
}

// Where the run begins that a page is in.
static uint32_t run_start(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t page) {
    uint32_t index = page / SIM_BLOCK_PAGES;
    uint64_t upto = sim_page_bit(page) | (sim_page_bit(page) - 1);
    uint64_t starts = sim_block_of(r, slot, page)->starts[column] & upto;
    while (!starts && index--)
        starts = sim_block_of(r, slot, index * SIM_BLOCK_PAGES)->starts[column];
    return index * SIM_BLOCK_PAGES + 63 - (uint32_t)__builtin_clzll(starts);
}

void sim_run_cut(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t page) {
    struct sim_block *block = sim_block_of(r, slot, page);
    if (!block || !(block->here[column] & sim_page_bit(page)) ||
        block->starts[column] & sim_page_bit(page))
        return;
    uint32_t start = run_start(r, slot, column, page);
    uint32_t number = sim_run_number(r, slot, column, start);
    struct sim_run *front = sim_run_at(r, number), back = *front;
    back.count = front->count - (page - start);
    start_run(r, slot, column, page, back);
    front->count = page - start;
    lru_insert(r, sim_lru_of(r, slot, column), sim_run_number(r, slot, column, page), number);
}

void sim_run_renew(struct sim_residency *r, uint32_t number, uint64_t stamp) {
    struct sim_lru *lru = sim_lru_of(r, sim_run_slot(r, number), sim_run_column(number));
    sim_run_at(r, number)->stamp = stamp;
    sim_lru_remove(r, lru, number);
    sim_lru_append(r, lru, number);
}

uint64_t sim_run_ready(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                       uint32_t count) {
    uint64_t ready_ns = 0;
    for (uint32_t page = first; page < first + count;) {
        uint32_t start = run_start(r, slot, column, page);
        const struct sim_run *run = sim_run_at(r, sim_run_number(r, slot, column, start));
        ready_ns = run->ready_ns > ready_ns ? run->ready_ns : ready_ns;
        page = start + run->count;
    }
    return ready_ns;
}

uint64_t sim_run_detach(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                        uint32_t count) {
    uint64_t ready_ns = 0;
    uint32_t end = first + count;
    sim_run_cut(r, slot, column, first);
    sim_run_cut(r, slot, column, end);
    while (first < end) {
        uint32_t number = sim_run_number(r, slot, column, first);
        const struct sim_run *run = sim_run_at(r, number);
        ready_ns = run->ready_ns > ready_ns ? run->ready_ns : ready_ns;
        first += run->count;
        end_run(r, number);
    }
    return ready_ns;
}

void sim_run_attach(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                    uint32_t count, uint64_t stamp, uint64_t ready_ns) {
    struct sim_lru *lru = sim_lru_of(r, slot, column);
    struct sim_run *newest = lru->newest ? sim_run_at(r, lru->newest) : NULL;
    if (newest && newest->stamp == stamp && sim_run_slot(r, lru->newest) == slot &&
        sim_run_column(lru->newest) == column &&
        sim_run_first(r, lru->newest) + newest->count == first) {
        newest->count += count;
        newest->ready_ns = newest->ready_ns > ready_ns ? newest->ready_ns : ready_ns;
        return;
    }
    start_run(r, slot, column, first,
              (struct sim_run){.stamp = stamp, .ready_ns = ready_ns, .count = count});
    sim_lru_append(r, lru, sim_run_number(r, slot, column, first));
}

void sim_run_shorten(struct sim_residency *r, uint32_t number, uint32_t count) {
    uint32_t first = sim_run_first(r, number), slot = sim_run_slot(r, number);
    unsigned column = sim_run_column(number);
    if (count < sim_run_at(r, number)->count)
        sim_run_cut(r, slot, column, first + count);
    end_run(r, number);
}
