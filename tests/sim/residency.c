// residency.c: pages that come, go and are touched (see residency.h).
//
// A page stands for the 2 MiB that the driver's unified memory gives and takes as one, and the
// order of a card's pages for its list of those in use, as the sources of NVIDIA's open kernel
// modules have it (commit 448d5cc65624d3aa69015efa0d3fb50fd9729f41 of
// github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-uvm):
//   - whatever makes 2 MiB resident on a card puts them last, whether by a fault, or by a prefetch
//     that finds them there (uvm_va_block.c, uvm_va_block_make_resident_finish, which the migration
//     of uvm_va_block_migrate_locked calls in either case); uses that do not fault change nothing;
//   - who needs room takes what is free, then what holds no page any more, then the first of the
//     list, whoever's it is (uvm_pmm_gpu.c, pick_root_chunk_to_evict). The second are free at once
//     here: they cost nothing there either;
//   - only what is being filled at this moment is spared (chunk_is_root_chunk_pinned): a prefetch
//     of more than there is room for displaces what it has just brought.
#include "runs.h"

#include <errno.h>
#include <string.h>

static uint64_t bytes_of(const struct sim_residency *r, uint64_t pages) {
    return pages * r->page_bytes;
}

static uint64_t count_of(uint64_t mask) {
    return (uint64_t)__builtin_popcountll(mask);
}

// The lowest `count` bits of a mask that are set.
static uint64_t lowest(uint64_t mask, uint64_t count) {
    uint64_t kept = 0;
    for (; count && mask; count--) {
        kept |= mask & -mask;
        mask &= mask - 1;
    }
    return kept;
}

// The pages of a block that lie on any GPU but that of `column`.
static uint64_t on_others(const struct sim_residency *r, const struct sim_block *block,
                          unsigned column) {
    uint64_t mask = 0;
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        if (i != column && r->owners[block->slot].books[i].resident_bytes)
            mask |= block->here[i];
    return mask;
}

// ---- Bits `here` with their sums ----

static void come(struct sim_residency *r, struct sim_block *block, unsigned column, uint64_t mask) {
    block->here[column] |= mask;
    sim_lru_of(r, block->slot, column)->pages += count_of(mask);
    r->owners[block->slot].books[column].resident_bytes += bytes_of(r, count_of(mask));
}

static void go(struct sim_residency *r, struct sim_block *block, unsigned column, uint64_t mask) {
    block->here[column] &= ~mask;
    sim_lru_of(r, block->slot, column)->pages -= count_of(mask);
    r->owners[block->slot].books[column].resident_bytes -= bytes_of(r, count_of(mask));
}

// What is done with pages of runs; returns when the last of them has arrived.
typedef uint64_t run_step(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                          uint32_t count);

// Does it with pages of a block that lie on a GPU. Returns when the last of all has arrived.
static uint64_t each_run(struct sim_residency *r, const struct sim_block *block, unsigned column,
                         uint64_t mask, run_step *step) {
    uint64_t ready_ns = 0;
    unsigned first, count;
    while (sim_next_stretch(&mask, &first, &count)) {
        uint64_t ready =
            step(r, block->slot, column, block->index * SIM_BLOCK_PAGES + first, count);
        ready_ns = ready > ready_ns ? ready : ready_ns;
    }
    return ready_ns;
}

// Takes pages off a GPU.
static void leave(struct sim_residency *r, struct sim_block *block, unsigned column,
                  uint64_t mask) {
    mask &= block->here[column];
    if (!mask)
        return;
    each_run(r, block, column, mask, sim_run_detach);
    go(r, block, column, mask);
}

// ---- Making room ----

// Sends the first pages of a run to the host. Returns how many had to be moved: those with their
// only data there.
static uint64_t evict_front(struct sim_residency *r, uint32_t number, uint32_t count) {
    uint32_t page = sim_run_first(r, number), end = page + count, slot = sim_run_slot(r, number);
    unsigned column = sim_run_column(number);
    uint64_t moved = 0;
    sim_run_shorten(r, number, count);
    for (; page < end; page = sim_next_block(page)) {
        struct sim_block *block = sim_block_of(r, slot, page);
        uint64_t mask = sim_page_mask(page, end);
        uint64_t alone = mask & ~block->host;
        if (r->owners[slot].copies)
            alone &= ~on_others(r, block, column);
        block->host |= alone;
        go(r, block, column, mask);
        moved += count_of(alone);
    }
    r->owners[slot].books[column].evicted_bytes += bytes_of(r, moved);
    return moved;
}

// Sends the oldest pages to the host until `room` more have room. Returns whether they have.
static bool make_room(struct sim_residency *r, struct sim_lru *lru, uint64_t room, uint64_t *out) {
    while (lru->pages + room > lru->room && lru->oldest) {
        uint64_t over = lru->pages + room - lru->room;
        uint32_t pages = sim_run_at(r, lru->oldest)->count;
        *out += evict_front(r, lru->oldest, pages < over ? pages : (uint32_t)over);
    }
    return lru->pages + room <= lru->room;
}

uint64_t sim_residency_shrink(struct sim_residency *r, unsigned memory, uint64_t room) {
    uint64_t out = 0;
    r->lrus[memory].room = room;
    make_room(r, &r->lrus[memory], 0, &out);
    return out;
}

// ---- Touches ----

// A touch, as it goes on from block to block.
struct move {
    uint32_t slot;
    unsigned column;
    const struct sim_touch *touch;
    uint64_t stamp;
    struct sim_moved *moved;
};

static bool is_prefetch(const struct move *move) {
    return move->touch->kind == SIM_TOUCH_PREFETCH;
}

static bool shares(const struct move *move) {
    return move->touch->flags & SIM_TOUCH_SHARES;
}

// The pages of a block that lie in one of the places at which they may stay.
static uint64_t staying(const struct sim_block *block, uint32_t stays) {
    uint64_t mask = stays >> SIM_AT_HOST & 1 ? block->host : 0;
    for (unsigned i = 0; stays && i < SIM_COLUMNS; i++)
        if (stays >> i & 1)
            mask |= block->here[i];
    return mask;
}

// Of the pages that a touch wants to bring, those that find room.
static uint64_t find_room(struct sim_residency *r, const struct move *move, uint64_t wanted) {
    struct sim_lru *lru = sim_lru_of(r, move->slot, move->column);
    if (!wanted || make_room(r, lru, count_of(wanted), &move->moved->out))
        return wanted;
    return lowest(wanted, lru->room > lru->pages ? lru->room - lru->pages : 0);
}

// Takes pages away from all places but the GPU of the column.
static void leave_others(struct sim_residency *r, struct sim_block *block, unsigned column,
                         uint64_t mask) {
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        if (i != column)
            leave(r, block, i, mask);
    block->host &= ~mask;
}

// Counts pages that come to the GPU, by where they come from.
static void count_sources(struct sim_residency *r, const struct move *move,
                          const struct sim_block *block, uint64_t mask) {
    struct sim_managed *books = r->owners[move->slot].books;
    uint64_t in = mask & block->host;
    for (unsigned i = 0; i < SIM_COLUMNS; i++) {
        uint64_t from = i == move->column ? 0 : mask & block->here[i] & ~in;
        books[i].peer_out_bytes += bytes_of(r, count_of(from));
        in |= from;
    }
    move->moved->in += count_of(in);
    move->moved->populated += count_of(mask & ~in);
}

// Brings pages of one block to the GPU. A prefetch renews those that are there.
static void touch_block(struct sim_residency *r, const struct move *move, struct sim_block *block,
                        uint64_t mask) {
    unsigned first, count, column = move->column;
    mask &= block->live;
    uint64_t hits = mask & block->here[column], others = on_others(r, block, column);
    if (move->touch->flags & SIM_TOUCH_AT_HOST)
        block->host |= mask & ~hits & ~others;
    uint64_t remote = mask & ~hits & staying(block, move->touch->stays);
    uint64_t renewed = is_prefetch(move) ? hits : 0;
    uint64_t ready_ns = each_run(r, block, column, hits, sim_run_ready);
    each_run(r, block, column, renewed, sim_run_detach);
    uint64_t wanted = mask & ~hits & ~remote;
    uint64_t brought = find_room(r, move, wanted);
    remote |= wanted & ~brought;
    count_sources(r, move, block, brought);
    come(r, block, column, brought);
    mask = (hits & block->here[column]) | brought;  // of those used some may have gone for others
    if (!shares(move) && mask & (block->host | others))
        leave_others(r, block, column, mask);
    for (uint64_t left = renewed | brought; sim_next_stretch(&left, &first, &count);)
        sim_run_attach(r, move->slot, column, block->index * SIM_BLOCK_PAGES + first, count,
                       move->stamp, is_prefetch(move) ? ready_ns : 0);
    struct sim_moved *moved = move->moved;
    moved->remote += is_prefetch(move) ? 0 : count_of(remote);
    moved->ready_ns = ready_ns > moved->ready_ns ? ready_ns : moved->ready_ns;
}

// The same for a prefetch, whose pages come one after the other, each as the newest: where the card
// is full, those that are there and old may have to go before their turn, and the first for the
// last.
static void prefetch_block(struct sim_residency *r, const struct move *move,
                           struct sim_block *block, uint64_t mask) {
    const struct sim_lru *lru = sim_lru_of(r, move->slot, move->column);
    mask &= block->live;
    if (lru->pages + count_of(mask & ~block->here[move->column]) <= lru->room)
        touch_block(r, move, block, mask);
    else
        for (; mask; mask &= mask - 1)
            touch_block(r, move, block, mask & -mask);
}

// Brings pages of one block to the host.
static void fetch_block(struct sim_residency *r, const struct move *move, struct sim_block *block,
                        uint64_t mask) {
    struct sim_managed *books = r->owners[move->slot].books;
    mask &= block->live;
    for (unsigned i = 0; i < SIM_COLUMNS; i++) {
        uint64_t from = mask & block->here[i] & ~block->host;
        block->host |= from;
        books[i].prefetch_out_bytes += bytes_of(r, count_of(from));
        move->moved->out += count_of(from);
    }
    block->host |= mask;
    for (unsigned i = 0; i < SIM_COLUMNS && !shares(move); i++)
        leave(r, block, i, mask);
}

void sim_residency_touch(struct sim_residency *r, uint32_t slot, unsigned column,
                         const struct sim_touch *touch, struct sim_moved *moved) {
    struct move move = {.slot = slot, .column = column, .touch = touch, .moved = moved};
    struct sim_owner *owner = &r->owners[slot];
    uint32_t page = touch->first, end = page + touch->count;
    bool to_host = touch->kind == SIM_TOUCH_PREFETCH && touch->to == SIM_AT_HOST;
    if (!owner->serial || end < page || end > SIM_MANAGED_PAGES_MAX)
        return;
    move.stamp = ++r->stamp;
    if (shares(&move))
        owner->copies = 1;
    struct sim_run *run = to_host ? NULL : sim_run_from(r, slot, column, page);
    if (run && run->count == touch->count && !owner->copies) {
        moved->ready_ns = run->ready_ns > moved->ready_ns ? run->ready_ns : moved->ready_ns;
        if (is_prefetch(&move))
            sim_run_renew(r, sim_run_number(r, slot, column, page), move.stamp);
        return;
    }
    struct sim_moved before = *moved;
    for (; page < end; page = sim_next_block(page)) {
        struct sim_block *block = sim_block_of(r, slot, page);
        uint64_t mask = sim_page_mask(page, end);
        if (block)
            (to_host              ? fetch_block
             : is_prefetch(&move) ? prefetch_block
                                  : touch_block)(r, &move, block, mask);
    }
    struct sim_managed *books = &owner->books[column];
    uint64_t in = bytes_of(r, moved->in - before.in);
    *(is_prefetch(&move) ? &books->prefetch_in_bytes : &books->fault_in_bytes) += in;
    books->populated_bytes += bytes_of(r, moved->populated - before.populated);
    books->remote_bytes += bytes_of(r, moved->remote - before.remote);
}

void sim_residency_arrive(struct sim_residency *r, uint32_t slot, unsigned column, uint32_t first,
                          uint32_t count, uint64_t ready_ns) {
    uint32_t end = first + count;
    while (first < end) {
        struct sim_run *run = sim_run_from(r, slot, column, first);
        if (run)
            run->ready_ns = ready_ns;
        first += run ? run->count : 1;
    }
}

// ---- Life of pages ----

void sim_residency_own(struct sim_residency *r, uint32_t slot, uint64_t serial, uint32_t memory) {
    struct sim_owner *owner = &r->owners[slot];
    if (slot < r->owners_used && owner->serial == serial)
        return;
    // What lies beyond those that are used may be left from another time.
    for (; r->owners_used <= slot; r->owners_used++)
        r->owners[r->owners_used].serial = r->owners[r->owners_used].directory_used = 0;
    sim_residency_vacate(r, slot);
    owner->memory = memory;
    owner->serial = serial;
}

static void free_block(struct sim_residency *r, struct sim_block *block) {
    uint32_t number = (uint32_t)(block - r->blocks) + 1;
    r->owners[block->slot].directory[block->index] = 0;
    block->index = r->free_block;
    r->free_block = number;
}

static struct sim_block *new_block(struct sim_residency *r, uint32_t slot, uint32_t index) {
    uint32_t number = r->free_block;
    if (number)
        r->free_block = r->blocks[number - 1].index;
    else if (r->blocks_used < SIM_BLOCKS_MAX)
        number = ++r->blocks_used;
    if (!number)
        return NULL;
    struct sim_block *block = &r->blocks[number - 1];
    struct sim_owner *owner = &r->owners[slot];
    block->slot = slot;
    block->index = index;
    block->live = block->host = 0;
    memset(block->here, 0, sizeof block->here);
    memset(block->starts, 0, sizeof block->starts);
    for (uint32_t i = owner->directory_used; i < index; i++)
        owner->directory[i] = 0;
    owner->directory[index] = number;
    if (owner->directory_used <= index)
        owner->directory_used = index + 1;
    return block;
}

static void end_in_block(struct sim_residency *r, struct sim_block *block, uint64_t mask) {
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        leave(r, block, i, mask);
    block->host &= ~mask;
    block->live &= ~mask;
    if (!block->live)
        free_block(r, block);
}

void sim_residency_end(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count) {
    for (uint32_t page = first, end = first + count; page < end; page = sim_next_block(page)) {
        struct sim_block *block = sim_block_of(r, slot, page);
        if (block)
            end_in_block(r, block, sim_page_mask(page, end));
    }
}

int sim_residency_begin(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count) {
    for (uint32_t page = first, end = first + count; page < end; page = sim_next_block(page)) {
        struct sim_block *block = sim_block_of(r, slot, page);
        if (!block)
            block = new_block(r, slot, page / SIM_BLOCK_PAGES);
        if (!block) {
            sim_residency_end(r, slot, first, page - first);
            return ENOMEM;
        }
        block->live |= sim_page_mask(page, end);
    }
    return 0;
}

void sim_residency_disown(struct sim_residency *r, uint32_t slot) {
    struct sim_owner *owner = &r->owners[slot];
    for (uint32_t i = 0; i < owner->directory_used; i++)
        if (owner->directory[i])
            end_in_block(r, &r->blocks[owner->directory[i] - 1], ~UINT64_C(0));
    owner->directory_used = 0;
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        owner->books[i].allocated_bytes = 0;
    owner->serial = 0;
}

void sim_residency_vacate(struct sim_residency *r, uint32_t slot) {
    if (slot >= r->owners_used)
        return;
    sim_residency_disown(r, slot);
    memset(r->owners[slot].books, 0, sizeof r->owners[slot].books);
    r->owners[slot].copies = 0;
}

// ---- Single questions ----

void sim_residency_host(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count) {
    for (uint32_t page = first, end = first + count; page < end; page = sim_next_block(page)) {
        struct sim_block *block = sim_block_of(r, slot, page);
        if (block)
            block->host |=
                sim_page_mask(page, end) & block->live & ~on_others(r, block, SIM_COLUMNS);
    }
}

void sim_residency_collapse(struct sim_residency *r, uint32_t slot, uint32_t first, uint32_t count,
                            unsigned place) {
    for (uint32_t page = first, end = first + count; page < end; page = sim_next_block(page)) {
        struct sim_block *block = sim_block_of(r, slot, page);
        if (!block)
            continue;
        uint64_t left = sim_page_mask(page, end);
        if (place < SIM_COLUMNS) {
            leave_others(r, block, place, left & block->here[place]);
            left &= ~block->here[place];
        }
        for (unsigned i = 0; i < SIM_COLUMNS; i++)
            leave(r, block, i, left & block->host);
        left &= ~block->host;
        for (unsigned i = 0; i < SIM_COLUMNS; i++) {
            leave_others(r, block, i, left & block->here[i]);
            left &= ~block->here[i];
        }
    }
}

uint32_t sim_residency_where(const struct sim_residency *r, uint32_t slot, uint32_t page) {
    uint32_t number = sim_block_number(r, slot, page), places = 0;
    if (!number)
        return 0;
    const struct sim_block *block = &r->blocks[number - 1];
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        places |= block->here[i] & sim_page_bit(page) ? 1u << i : 0;
    return places | (block->host & sim_page_bit(page) ? 1u << SIM_AT_HOST : 0);
}
