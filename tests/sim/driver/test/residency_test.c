// residency_test.c: where managed pages lie, alone, under random schedules, beside a second model
// that keeps each page by itself and looks through all of them for the oldest.
//
// Checked after each step: every page is in the same places in both, the same pages were moved and
// counted, and no card has more pages than room. Copies and repairs come in between.
#include "residency_model.h"
#include "test.h"

#include <sys/mman.h>
#include <time.h>

static uint64_t seed;

static uint64_t random_below(uint64_t bound) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % bound;
}

// ---- Both beside each other ----

static struct sim_residency *residency_new(void) {
    struct sim_residency *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(r != MAP_FAILED);
    r->page_bytes = PAGE_BYTES;
    return r;
}

static void residency_free(struct sim_residency *r) {
    munmap(r, sizeof *r);
}

static unsigned memory_of(unsigned k) {
    return columns[k] < SIM_GPUS_MAX ? columns[k] : INSTANCE;
}

static void compare(const struct sim_residency *r) {
    for (unsigned p = 0; p < PROCESSES; p++)
        for (uint32_t i = 0; i < PAGES; i++) {
            const struct page *page = &model.pages[p][i];
            uint32_t places = page->host ? 1u << SIM_AT_HOST : 0;
            for (unsigned k = 0; k < COLUMNS; k++)
                places |= page->here[k] ? 1u << columns[k] : 0;
            CHECK_EQ(sim_residency_where(r, p, i), places);
        }
    for (unsigned k = 0; k < COLUMNS; k++) {
        CHECK_EQ(r->lrus[memory_of(k)].pages, model_resident(k));
        CHECK(model_resident(k) <= model.room[k]);
        for (unsigned p = 0; p < PROCESSES; p++) {
            struct sim_managed want = model.books[p][k], got = r->owners[p].books[columns[k]];
            for (unsigned i = 0; i < PAGES; i++)
                want.resident_bytes += model.pages[p][i].here[k] ? PAGE_BYTES : 0;
            CHECK(!memcmp(&want, &got, sizeof want));
        }
    }
}

static uint32_t random_places(void) {
    uint32_t places = 0;
    if (random_below(3))
        return 0;
    for (unsigned k = 0; k < COLUMNS; k++)
        places |= random_below(2) ? 1u << columns[k] : 0;
    return places | (random_below(2) ? 1u << SIM_AT_HOST : 0);
}

static void random_range(uint32_t *first, uint32_t *count) {
    // Often the same few ranges, as of allocations.
    if (random_below(2)) {
        *first = (uint32_t)random_below(4) * 100;
        *count = 100;
    } else {
        *first = (uint32_t)random_below(PAGES);
        *count = 1 + (uint32_t)random_below(PAGES - *first);
    }
}

static void random_touch(struct sim_residency *r, unsigned slot) {
    struct sim_touch touch = {.kind = random_below(3) ? SIM_TOUCH_USE : SIM_TOUCH_PREFETCH};
    struct sim_moved got = {0}, want = {0};
    unsigned k = (unsigned)random_below(COLUMNS);
    random_range(&touch.first, &touch.count);
    if (!random_below(8))
        touch.flags |= SIM_TOUCH_SHARES;
    if (touch.kind == SIM_TOUCH_USE) {
        touch.stays = random_places();
        touch.flags |= random_below(4) ? 0 : SIM_TOUCH_AT_HOST;
    } else {
        touch.to = random_below(3) ? (uint16_t)columns[k] : SIM_AT_HOST;
    }
    sim_residency_touch(r, slot, columns[k], &touch, &got);
    model_touch(k, slot, &touch, &want);
    CHECK_EQ(got.in, want.in);
    CHECK_EQ(got.out, want.out);
    CHECK_EQ(got.populated, want.populated);
    CHECK_EQ(got.remote, want.remote);
}

static void random_shrink(struct sim_residency *r) {
    unsigned k = (unsigned)random_below(COLUMNS), slot, index;
    uint64_t room = random_below(500), out = 0;
    model.room[k] = room;
    while (model_resident(k) > room && model_oldest(k, &slot, &index))
        out += model_evict(k, slot, index);
    CHECK_EQ(sim_residency_shrink(r, memory_of(k), room), out);
}

static void random_life(struct sim_residency *r, unsigned slot, unsigned what) {
    uint32_t first, count;
    random_range(&first, &count);
    if (what < 3) {
        CHECK_EQ(sim_residency_begin(r, slot, first, count), 0);
        for (uint32_t i = first; i < first + count; i++)
            model.pages[slot][i].live = true;
    } else if (what == 3) {
        sim_residency_end(r, slot, first, count);
        model_end(slot, first, count);
    } else if (what == 4) {
        sim_residency_host(r, slot, first, count);
        for (uint32_t i = first; i < first + count; i++)
            model.pages[slot][i].host |=
                model.pages[slot][i].live && !model_elsewhere(&model.pages[slot][i], COLUMNS);
    } else {
        unsigned place = columns[random_below(COLUMNS)];
        sim_residency_collapse(r, slot, first, count, place);
        model_collapse(slot, first, count, place);
    }
}

static uint64_t serials[PROCESSES];

static void random_death(struct sim_residency *r, unsigned slot) {
    sim_residency_disown(r, slot);
    sim_residency_own(r, slot, serials[slot] += PROCESSES, INSTANCE);
    model_end(slot, 0, PAGES);
    memset(model.books[slot], 0, sizeof model.books[slot]);
}

// Moves on in a copy, where something else may have been before, or after a repair: neither changes
// anything.
static struct sim_residency *random_repair(struct sim_residency *r, struct sim_residency **spare) {
    if (random_below(2)) {
        struct sim_residency *copy = *spare;
        sim_residency_copy(copy, r);
        *spare = r;
        r = copy;
    }
    sim_residency_rebuild(r);
    return r;
}

static void run_schedule(bool repairs) {
    struct sim_residency *r = residency_new(), *spare = residency_new();
    memset(&model, 0, sizeof model);
    for (unsigned k = 0; k < COLUMNS; k++) {
        model.room[k] = random_below(500);
        sim_residency_shrink(r, memory_of(k), model.room[k]);
    }
    for (unsigned p = 0; p < PROCESSES; p++)
        serials[p] = p + 1;
    for (unsigned step = 0; step < 600; step++) {
        unsigned slot = (unsigned)random_below(PROCESSES), what = (unsigned)random_below(40);
        sim_residency_own(r, slot, serials[slot], INSTANCE);
        if (what < 6)
            random_life(r, slot, what);
        else if (what == 6)
            random_shrink(r);
        else if (what == 7 && !random_below(4))
            random_death(r, slot);
        else
            random_touch(r, slot);
        if (repairs && !random_below(8))
            r = random_repair(r, &spare);
        compare(r);
    }
    residency_free(r);
    residency_free(spare);
}

static void random_schedules(void) {
    for (unsigned i = 0; i < 30; i++)
        run_schedule(false);
}

static void random_schedules_with_repairs(void) {
    for (unsigned i = 0; i < 30; i++)
        run_schedule(true);
}

// ---- Single rules ----

static struct sim_moved use(struct sim_residency *r, uint32_t first, uint32_t count) {
    struct sim_touch touch = {.first = first, .count = count, .kind = SIM_TOUCH_USE};
    struct sim_moved moved = {0};
    sim_residency_touch(r, 0, 0, &touch, &moved);
    return moved;
}

// Sweeps over more than fits move all of it each time; the oldest goes first.
static void sweeps_thrash(void) {
    struct sim_residency *r = residency_new();
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, 1250), 0);
    sim_residency_shrink(r, 0, 1000);
    CHECK_EQ(use(r, 0, 1250).populated, 1250);
    CHECK_EQ(sim_residency_where(r, 0, 249), 1u << SIM_AT_HOST);
    CHECK_EQ(sim_residency_where(r, 0, 250), 1u << 0);
    for (unsigned i = 0; i < 3; i++) {
        struct sim_moved moved = use(r, 0, 1250);
        CHECK_EQ(moved.in, 1250);
        CHECK_EQ(moved.in, moved.out);
    }
    residency_free(r);
}

// What is used goes in the order in which it came, however often it is used: nobody sees uses that
// do not fault.
static void uses_do_not_renew(void) {
    struct sim_residency *r = residency_new();
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, 40), 0);
    sim_residency_shrink(r, 0, 20);
    use(r, 0, 20);
    use(r, 0, 10);
    use(r, 20, 5);
    CHECK_EQ(sim_residency_where(r, 0, 4), 1u << SIM_AT_HOST);
    CHECK_EQ(sim_residency_where(r, 0, 5), 1u << 0);
    CHECK_EQ(use(r, 0, 1).in, 1);  // which is newer than what came with it
    use(r, 25, 5);
    CHECK_EQ(sim_residency_where(r, 0, 0), 1u << 0);
    CHECK_EQ(sim_residency_where(r, 0, 10), 1u << SIM_AT_HOST);
    residency_free(r);
}

// A prefetch makes the newest of what is there already, one page after the other: where the card is
// full, an old page of its own may go before its turn, and comes back in it.
static void prefetches_renew(void) {
    struct sim_residency *r = residency_new();
    struct sim_touch some = {.count = 5, .kind = SIM_TOUCH_PREFETCH};
    struct sim_moved moved = {0};
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, 40), 0);
    sim_residency_shrink(r, 0, 20);
    use(r, 0, 20);
    sim_residency_touch(r, 0, 0, &some, &moved);
    CHECK_EQ(moved.in + moved.out, 0);
    use(r, 20, 2);
    CHECK_EQ(sim_residency_where(r, 0, 0), 1u << 0);
    CHECK_EQ(sim_residency_where(r, 0, 5), 1u << SIM_AT_HOST);
    CHECK_EQ(sim_residency_where(r, 0, 6), 1u << SIM_AT_HOST);
    some = (struct sim_touch){.first = 6, .count = 2, .kind = SIM_TOUCH_PREFETCH};
    sim_residency_touch(r, 0, 0, &some, &moved);
    CHECK_EQ(moved.in, 2);  // page 7 was the oldest, and went for page 6
    CHECK_EQ(moved.out, 2);
    CHECK_EQ(sim_residency_where(r, 0, 7), 1u << 0);
    CHECK_EQ(sim_residency_where(r, 0, 8), 1u << SIM_AT_HOST);
    residency_free(r);
}

// What is prefetched as a whole is one run, whatever it was before.
static void prefetches_merge(void) {
    struct sim_residency *r = residency_new();
    struct sim_touch all = {.count = 1000, .kind = SIM_TOUCH_PREFETCH};
    struct sim_moved moved = {0};
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, 1000), 0);
    sim_residency_shrink(r, 0, 2000);
    for (uint32_t page = 0; page < 1000; page += 3)
        use(r, page, 1);
    sim_residency_touch(r, 0, 0, &all, &moved);
    CHECK_EQ(r->lrus[0].oldest, r->lrus[0].newest);
    CHECK_EQ(r->lrus[0].pages, 1000);
    residency_free(r);
}

// A copy on the host ends with the next touch that does not share, however it came to be.
static void copies_end(void) {
    struct sim_residency *r = residency_new();
    struct sim_touch fetch = {
        .count = 10, .kind = SIM_TOUCH_PREFETCH, .to = SIM_AT_HOST, .flags = SIM_TOUCH_SHARES};
    struct sim_moved moved = {0};
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, 10), 0);
    sim_residency_shrink(r, 0, 100);
    use(r, 0, 10);
    sim_residency_touch(r, 0, 0, &fetch, &moved);
    CHECK_EQ(moved.out, 10);
    CHECK_EQ(sim_residency_where(r, 0, 3), 1u << SIM_AT_HOST | 1u << 0);
    use(r, 0, 10);
    CHECK_EQ(sim_residency_where(r, 0, 3), 1u << 0);
    residency_free(r);
}

// When no block is left a range is refused as a whole, and blocks come back.
static void blocks_run_out(void) {
    struct sim_residency *r = residency_new();
    uint32_t most = SIM_BLOCKS_MAX * SIM_BLOCK_PAGES;
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, most - 64), 0);
    CHECK(sim_residency_begin(r, 0, most, 128) != 0);
    CHECK_EQ(sim_residency_begin(r, 0, most, 64), 0);
    CHECK(sim_residency_begin(r, 0, most + 64, 1) != 0);
    sim_residency_end(r, 0, 640, 64);
    CHECK_EQ(sim_residency_begin(r, 0, most + 64, 1), 0);
    residency_free(r);
}

// Bits that were set when a holder died are true, whatever else was not: the pages are found.
static void cut_off_half_way(void) {
    struct sim_residency *r = residency_new();
    sim_residency_own(r, 0, 1, 0);
    CHECK_EQ(sim_residency_begin(r, 0, 0, 200), 0);
    sim_residency_shrink(r, 0, 1000);
    use(r, 0, 200);
    struct sim_block *block = &r->blocks[1];
    block->starts[0] = 0x10;      // a run that was being cut
    block->here[1] = 0xff0;       // pages that were coming to another GPU
    block->live &= ~UINT64_C(1);  // one that was ending
    r->owners[0].copies = 1;
    sim_residency_rebuild(r);
    CHECK_EQ(r->lrus[0].pages, 199);
    CHECK_EQ(r->lrus[1].pages, 8);
    sim_residency_shrink(r, 1, 1000);
    CHECK_EQ(use(r, 0, 200).in, 0);
    CHECK_EQ(r->lrus[0].pages, 199);
    CHECK_EQ(r->lrus[1].pages, 0);
    CHECK_EQ(sim_residency_shrink(r, 0, 0), 199);
    CHECK_EQ(sim_residency_where(r, 0, 70), 1u << SIM_AT_HOST);
    residency_free(r);
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec << 20 | 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    static const struct test tests[] = {
        TEST(sweeps_thrash),    TEST(uses_do_not_renew), TEST(prefetches_renew),
        TEST(prefetches_merge), TEST(copies_end),        TEST(blocks_run_out),
        TEST(cut_off_half_way), TEST(random_schedules),  TEST(random_schedules_with_repairs),
    };
    return RUN(tests);
}
