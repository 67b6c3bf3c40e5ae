// managed_data_test.c: data of managed memory that move with its pages, between copies on the host
// and on two cards: at random beside a model, and with mistakes, which have to show.
#include "test_managed.h"

#include <time.h>

static uint64_t seed;

static uint64_t below(uint64_t bound) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % bound;
}

static uint32_t *words(CUdeviceptr at) {
    return (uint32_t *)(uintptr_t)at;
}

// ---- Single rules ----

// The host and the card see the same data wherever these are; the addresses stay.
static void data_move_with_pages(void) {
    CUdeviceptr at = managed(PAGES(4));
    uint32_t value;
    words(at)[5] = 77;
    add_to(at, 8, 1, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(words(at)[5], 78);
    prefetch(at, PAGES(4), -1);
    CHECK_EQ(words(at)[5], 78);
    words(at)[PAGES(3) / 4] = 99;
    prefetch(at, PAGES(4), 0);
    OK(cuMemcpyDtoH_v2(&value, at + PAGES(3), 4));
    CHECK_EQ(value, 99);
    prefetch(at, PAGES(4), 1);
    CHECK_EQ(words(at)[5], 78);
    add_to(at, 8, 1, NULL);
    OK(cuCtxSynchronize());
    CHECK_EQ(words(at)[5], 79);
    OK(cuMemFree_v2(at));
}

// Memory that comes to lie where some was has none of its data.
static void freed_data_are_gone(void) {
    CUdeviceptr at = managed(PAGES(4));
    OK(cuMemsetD32_v2(at, 5, PAGES(4) / 4));
    prefetch(at, PAGES(2), -1);
    OK(cuMemFree_v2(at));
    CHECK_EQ(managed(PAGES(4)), at);
    for (unsigned i = 0; i < PAGES(4) / 4; i++)
        CHECK_EQ(words(at)[i], 0);
    OK(cuMemFree_v2(at));
}

// A prefetch is done when its data are there: whoever follows it finds them.
static void prefetch_carries_data(void) {
    enum { COUNT = 32 };
    CUdeviceptr at = managed(PAGES(COUNT));
    uint32_t back[COUNT];
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32_v2(at, 0, PAGES(COUNT) / 4));
    for (uint32_t i = 0; i < COUNT; i++)
        OK(cuMemsetD32_v2(at + PAGES(i), i + 1, PAGE / 4));
    for (unsigned round = 0; round < 4; round++) {
        OK(cuMemPrefetchAsync(at, PAGES(COUNT), round % 2 ? 0 : -1, stream));
        for (uint32_t i = 0; i < COUNT; i++)
            OK(cuMemcpyDtoHAsync_v2(&back[i], at + PAGES(i) + 4 * below(PAGE / 4), 4, stream));
        OK(cuStreamSynchronize(stream));
        for (uint32_t i = 0; i < COUNT; i++)
            CHECK_EQ(back[i], i + 1);
    }
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFree_v2(at));
}

// ---- Mistakes ----

// How many words are not as they were set, after a move with a mistake, and one back without.
static unsigned wrong_after(const char *mistake, CUdevice to) {
    struct sim_fault fault;
    uint32_t id;
    unsigned wrong = 0;
    CUdeviceptr at = managed(PAGES(4));
    OK(cuMemsetD32_v2(at, 5, PAGES(4) / 4));
    prefetch(at, PAGES(4), to < 0 ? 0 : -1);
    CHECK_EQ(sim_fault_parse(mistake, (uint32_t)strlen(mistake), &fault), 0);
    CHECK_EQ(sim_fault_arm(machine, &fault, &id), 0);
    prefetch(at, PAGES(4), to);
    CHECK_EQ(sim_fault_clear(machine, id), 0);
    prefetch(at, PAGES(4), to < 0 ? 0 : -1);
    for (unsigned i = 0; i < PAGES(4) / 4; i++)
        wrong += words(at)[i] != 5;
    OK(cuMemFree_v2(at));
    return wrong;
}

static void mistakes_show(void) {
    for (CUdevice to = -1; to <= 1; to++) {
        CHECK_EQ(wrong_after("move_lost:2", to), 0);  // there is one only
        CHECK_EQ(wrong_after("move_lost", to), PAGES(4) / 4);
        CHECK_EQ(wrong_after("move_torn", to), PAGES(2) / 4);
        CHECK_EQ(wrong_after("move_twice", to), PAGES(4) / 4);
    }
}

// ---- At random ----

enum { BLOCKS = 12, BLOCK_PAGES = 192 };  // 72 MiB, more than the card has

static struct {
    CUdeviceptr at;
    uint32_t tags[BLOCK_PAGES];  // of whole pages
} blocks[BLOCKS];

static void compare(unsigned b, unsigned page) {
    uint32_t back[PAGE / 4];
    OK(cuMemcpyDtoH_v2(back, blocks[b].at + PAGES(page), PAGE));
    for (unsigned i = 0; i < PAGE / 4; i++)
        CHECK_EQ(back[i], blocks[b].tags[page]);
}

static void look_from_host(unsigned b, unsigned page) {
    uint32_t *seen = words(blocks[b].at + PAGES(page));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < PAGE / 4; i += 97)
        CHECK_EQ(seen[i], blocks[b].tags[page]);
    blocks[b].tags[page] = (uint32_t)below(1u << 30) + 1;
    for (unsigned i = 0; i < PAGE / 4; i++)
        seen[i] = blocks[b].tags[page];
}

static void random_act(CUstream stream) {
    unsigned b = (unsigned)below(BLOCKS), page = (unsigned)below(BLOCK_PAGES);
    unsigned count = 1 + (unsigned)below(BLOCK_PAGES - page), other = (unsigned)below(BLOCKS);
    CUdeviceptr at = blocks[b].at + PAGES(page);
    uint32_t tag = (uint32_t)below(1u << 30) + 1;
    switch (below(8)) {
    case 0:
    case 1:
        OK(cuMemPrefetchAsync(at, PAGES(count), (CUdevice)below(3) - 1, stream));
        break;
    case 2:
        touch_for(below(2000), at, PAGES(count), NULL);
        break;
    case 3:
        count = count < 8 ? count : 8;
        OK(cuMemsetD32Async(at, tag, PAGES(count) / 4, NULL));
        for (unsigned i = 0; i < count; i++)
            blocks[b].tags[page + i] = tag;
        break;
    case 4:
        OK(cuMemcpyDtoDAsync_v2(at, blocks[other].at + PAGES(page), PAGE, NULL));
        blocks[b].tags[page] = blocks[other].tags[page];
        break;
    case 5:
        look_from_host(b, page);
        break;
    case 6:
        if (!below(8)) {
            OK(cuMemFree_v2(blocks[b].at));
            blocks[b].at = managed(PAGES(BLOCK_PAGES));
            memset(blocks[b].tags, 0, sizeof blocks[b].tags);
        }
        break;
    default:
        compare(b, page);
    }
}

static void random_moves(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned b = 0; b < BLOCKS; b++)
        blocks[b].at = managed(PAGES(BLOCK_PAGES));
    struct sim_managed before = books(0);
    for (unsigned i = 0; i < 3000; i++)
        random_act(stream);
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned page = 0; page < BLOCK_PAGES; page++)
            compare(b, page);
    CHECK(books(0).prefetch_out_bytes > before.prefetch_out_bytes + PAGES(1000));
    CHECK(books(0).evicted_bytes > before.evicted_bytes);
    for (unsigned b = 0; b < BLOCKS; b++)
        OK(cuMemFree_v2(blocks[b].at));
    OK(cuStreamDestroy_v2(stream));
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec << 20 | 1;
    printf("SEED=%llu\n", (unsigned long long)seed);
    start_managed_data();
    static const struct test tests[] = {
        TEST(data_move_with_pages), TEST(freed_data_are_gone), TEST(prefetch_carries_data),
        TEST(mistakes_show),        TEST(random_moves),
    };
    int rc = RUN(tests);
    stop_managed();
    return rc;
}
