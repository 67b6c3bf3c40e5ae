// managed.c: managed memory of this process: its pages, and which of them an operation touches.
//
// Managed addresses lie in one arena, cut into pages from its beginning. An allocation of a page or
// more begins with a page and has its pages for itself; smaller ones are packed, as by the real
// driver, and share pages. What an operation touches is read off its task:
//   - a kernel: for each 64-bit word of its parameters that is an address in an allocation, all of
//     that. A kernel that only has a cost (weir_spin_ns) has pairs of address and bytes after the
//     cost, and touches exactly these ranges;
//     On a device without concurrent managed access, whatever its parameters: all;
//   - copies and sets: from the first byte to the last. They work on the GPU's side: pages come
//     there first, wherever they lie;
//   - a prefetch: its range.
// Addresses that a kernel loads from memory are not seen, nor are managed variables of modules.
// The host's first touch of a page is seen when an operation first wants it: if the page is in the
// memory of this process by then, the host has written there.
#define _GNU_SOURCE
#include "managed.h"

#include <string.h>
#include <sys/mman.h>

#define HOST_PAGE 4096u
#define LOOK_PAGES 4096u  // of the host, at a time

static struct {
    uint64_t base;
    uint64_t page_bytes;
    struct page *pages;  // NULL: there was never any managed memory here
    uint32_t top;        // no page from here on was ever used
    uint64_t counted_bytes[SIM_COLUMNS];
} managed;

bool managed_concurrent(uint32_t gpu) {
    return !driver.config->gpus[gpu].no_concurrent_managed;
}

struct page *managed_page(uint32_t number) {
    return &managed.pages[number];
}

unsigned managed_place(int device) {
    return device < 0 ? SIM_AT_HOST : sim_column(driver.cards[device]);
}

// The pages of a range of addresses.
static struct pages pages_of(uint64_t address, uint64_t bytes) {
    uint64_t first = (address - managed.base) / managed.page_bytes;
    uint64_t last = (address - managed.base + bytes - 1) / managed.page_bytes;
    return (struct pages){.first = (uint32_t)first, .count = (uint32_t)(last - first + 1)};
}

bool managed_pages(CUdeviceptr address, size_t bytes, struct pages *pages) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    if (!block || block->kind != BLOCK_MANAGED || !bytes ||
        bytes > block->count * SIM_GRANULE - (address - arena_address(arena, block)))
        return false;
    *pages = pages_of(address, bytes);
    return true;
}

// ---- Allocations ----

uint64_t managed_page_bytes(void) {
    return sim_machine_config(driver.machine)->gpus[0].page_bytes;
}

static bool start(const struct arena *arena, const struct block *any) {
    if (managed.pages)
        return true;
    void *pages = mmap(NULL, SIM_MANAGED_PAGES_MAX * sizeof(struct page), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return false;
    managed.page_bytes = managed_page_bytes();
    managed.base = arena_address(arena, any) - any->first * SIM_GRANULE;
    if (!managed_data_start((void *)(uintptr_t)managed.base, arena_bytes(arena),
                            managed.page_bytes)) {
        munmap(pages, SIM_MANAGED_PAGES_MAX * sizeof(struct page));
        return false;
    }
    managed.pages = pages;
    return true;
}

// A block of so many bytes that begins with a page. NULL: no room.
static struct block *take_aligned(struct arena *arena, uint64_t bytes) {
    uint64_t page = managed_page_bytes();
    bytes = (bytes + page - 1) / page * page;
    struct block *block = arena_take(arena, bytes + page - SIM_GRANULE, BLOCK_MANAGED);
    if (!block)
        return NULL;
    uint64_t before = block->first * SIM_GRANULE % page;
    if (before) {
        struct block *front = block;
        block = arena_split(arena, front, page - before);
        arena_give(arena, front);
    }
    if (block->count * SIM_GRANULE > bytes)
        arena_give(arena, arena_split(arena, block, bytes));
    return block;
}

// Uses the pages of a block; *fresh are those that it is the first to use.
static void use_pages(struct pages pages, struct pages *fresh) {
    *fresh = (struct pages){.first = pages.first};
    for (uint32_t i = pages.first; i < pages.first + pages.count; i++) {
        struct page *page = managed_page(i);
        if (page->users++)
            continue;
        *page = (struct page){.preferred = NO_DEVICE, .last_prefetch = NO_DEVICE, .users = 1};
        fresh->first = fresh->count ? fresh->first : i;
        fresh->count = i + 1 - fresh->first;
    }
    if (managed.top < pages.first + pages.count)
        managed.top = pages.first + pages.count;
}

// Uses them no more; *gone are those that nobody uses now. Only the ends of a block are shared, so
// these, too, follow each other.
static void leave_pages(struct pages pages, struct pages *gone) {
    *gone = (struct pages){.first = pages.first};
    for (uint32_t i = pages.first; i < pages.first + pages.count; i++)
        if (--managed_page(i)->users == 0) {
            gone->first = gone->count ? gone->first : i;
            gone->count = i + 1 - gone->first;
        }
}

static struct pages block_pages(const struct arena *arena, const struct block *block) {
    return pages_of(arena_address(arena, block), block->count * SIM_GRANULE);
}

static uint64_t counted_bytes(const struct block *block) {
    return (block->bytes + SIM_GRANULE - 1) / SIM_GRANULE * SIM_GRANULE;
}

// Memory that has to be on its card as a whole is no more than the card has.
static bool too_much(uint32_t card, uint64_t bytes) {
    struct sim_gpu_config config;
    uint64_t counted_bytes = managed.counted_bytes[sim_column(card)];
    return !sim_gpu_describe(driver.machine, card, &config) && config.no_concurrent_managed &&
           (bytes > config.memory_bytes || counted_bytes > config.memory_bytes - bytes);
}

struct block *managed_take(struct arena *arena, uint32_t card, uint64_t bytes) {
    bool whole = bytes >= managed_page_bytes();
    if (too_much(card, bytes))
        return NULL;
    struct block *block =
        whole ? take_aligned(arena, bytes) : arena_take(arena, bytes, BLOCK_MANAGED);
    if (!block)
        return NULL;
    block->bytes = bytes;
    if (start(arena, block)) {
        struct pages fresh, pages = block_pages(arena, block);
        use_pages(pages, &fresh);
        if (!sim_managed_take(driver.machine, card, counted_bytes(block), fresh.first,
                              fresh.count)) {
            managed.counted_bytes[sim_column(card)] += counted_bytes(block);
            return block;
        }
        leave_pages(pages, &fresh);
    }
    arena_give(arena, block);
    return NULL;
}

void managed_give(struct arena *arena, const struct block *block) {
    struct pages gone;
    leave_pages(block_pages(arena, block), &gone);
    managed.counted_bytes[sim_column(block->context->card)] -= counted_bytes(block);
    sim_managed_give(driver.machine, block->context->card, counted_bytes(block), gone.first,
                     gone.count);
    // Whatever comes to lie there next has not been touched by the host.
    if (gone.count && managed_data_on())
        managed_data_drop(gone.first, gone.count);
    else if (gone.count)
        madvise(arena_data(arena, managed.base + gone.first * managed.page_bytes),
                gone.count * managed.page_bytes, MADV_DONTNEED);
}

// ---- The host's first touches ----

// What of the host's pages is in this process's memory, from one on.
struct presence {
    unsigned char here[LOOK_PAGES];
    uint64_t first, count;
};

static bool is_present(struct presence *presence, uint64_t host_page) {
    if (host_page < presence->first || host_page - presence->first >= presence->count) {
        uint64_t at = managed.base + host_page * HOST_PAGE;
        uint64_t end = managed.base + SIM_MANAGED_PAGES_MAX * managed.page_bytes;
        uint64_t left = (end - at) / HOST_PAGE;
        presence->first = host_page;
        presence->count = left < LOOK_PAGES ? left : LOOK_PAGES;
        while (mincore((void *)(uintptr_t)at, presence->count * HOST_PAGE, presence->here)) {
            presence->count /= 2;  // the arena ends here
            if (!presence->count)
                return false;
        }
    }
    return presence->here[host_page - presence->first] & 1;
}

static bool is_touched(struct presence *presence, uint32_t number) {
    uint64_t count = managed.page_bytes / HOST_PAGE, first = number * count;
    for (uint64_t i = 0; i < count; i++)
        if (is_present(presence, first + i))
            return true;
    return false;
}

// Tells the machine which of the pages that nobody has asked for yet the host has touched.
static void look_at_host(struct pages pages) {
    struct presence presence = {.count = 0};
    struct pages touched = {0};
    for (uint32_t i = pages.first; i < pages.first + pages.count; i++) {
        struct page *page = managed_page(i);
        if (!page->seen && is_touched(&presence, i)) {
            touched.first = touched.count ? touched.first : i;
            touched.count++;
        } else if (touched.count) {
            sim_managed_host(driver.machine, touched.first, touched.count);
            touched.count = 0;
        }
        page->seen = true;
    }
    if (touched.count)
        sim_managed_host(driver.machine, touched.first, touched.count);
}

// ---- What an operation touches ----

// The allocation behind an address.
static bool allocation(uint64_t address, struct pages *pages) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    if (!block || block->kind != BLOCK_MANAGED)
        return false;
    *pages = pages_of(arena_address(arena, block), block->bytes);
    return true;
}

static uint64_t word_at(const unsigned char *params, size_t offset) {
    uint64_t word;
    memcpy(&word, params + offset, sizeof word);
    return word;
}

// The bytes of its parameters from one range of a kernel to the next.
static size_t range_step(const struct function *function) {
    return (function->spins ? 2 : 1) * sizeof(uint64_t);
}

static size_t ranges_begin(const struct function *function) {
    return function->spins ? sizeof(uint64_t) : 0;
}

static bool argument(const struct function *function, const unsigned char *params, size_t offset,
                     struct pages *pages) {
    uint64_t word = word_at(params, offset);
    return function->spins ? managed_pages(word, word_at(params, offset + sizeof word), pages)
                           : allocation(word, pages);
}

bool managed_among(const struct function *function, const unsigned char *params, size_t bytes) {
    struct pages pages;
    size_t step = range_step(function);
    if (!managed.pages)
        return false;
    if (!managed_concurrent(function->module->context->gpu))
        return true;
    for (size_t at = ranges_begin(function); at + step <= bytes; at += step)
        if (argument(function, params, at, &pages))
            return true;
    return false;
}

static bool shape_pages(const struct shape *shape, size_t width, size_t height, size_t depth,
                        struct pages *pages) {
    size_t bytes = (depth - 1) * shape->plane + (height - 1) * shape->pitch + width;
    return managed_pages((uintptr_t)shape->base, bytes, pages);
}

// How many ranges a task may touch, and the one of a number. False: it is of other memory.
static size_t range_count(const struct task *task) {
    size_t begin;
    switch (task->kind) {
    case TASK_KERNEL:
        begin = ranges_begin(task->kernel.function);
        return task->kernel.params_bytes < begin
                   ? 0
                   : (task->kernel.params_bytes - begin) / range_step(task->kernel.function);
    case TASK_COPY:
        return 2;
    case TASK_SET:
    case TASK_PREFETCH:
        return 1;
    default:
        return 0;
    }
}

static bool range_of(const struct task *task, size_t number, struct managed_walk *walk) {
    const struct shape *shape = number ? &task->copy.from : &task->copy.to;
    const struct function *function = task->kernel.function;
    struct pages pages = {0};
    bool found = true;
    switch (task->kind) {
    case TASK_KERNEL:
        found = argument(function, task->params,
                         ranges_begin(function) + number * range_step(function), &pages);
        break;
    case TASK_COPY:
        found = shape_pages(shape, task->copy.width, task->copy.height, task->copy.depth, &pages);
        break;
    case TASK_SET:
        found = shape_pages(&task->set.to, task->set.count * task->set.element, task->set.height, 1,
                            &pages);
        break;
    default:
        pages = (struct pages){.first = task->prefetch.first, .count = task->prefetch.count};
    }
    walk->first = pages.first;
    walk->count = pages.count;
    walk->writes = task->kind == TASK_SET || (task->kind == TASK_COPY && !number);
    return found;
}

// The pages at the beginning of some that are alike.
static uint32_t alike(uint32_t first, uint32_t count) {
    struct page *page = managed_page(first);
    if (page->alike)
        return page->alike < count ? page->alike : count;
    uint32_t n = 1;
    look_at_host((struct pages){.first = first, .count = count});
    for (const struct page *next = page + 1; n < count; n++, next++)
        if (next->accessed_by != page->accessed_by || next->preferred != page->preferred ||
            next->read_mostly != page->read_mostly)
            break;
    // Pages that small blocks share may change one by one.
    page->alike = n > 2 ? n : 0;
    return n;
}

// One stretch of pages, by what the program advised.
static struct sim_touch touch_of(const struct task *task, const struct managed_walk *walk,
                                 uint32_t count) {
    const struct page *page = managed_page(walk->first);
    bool prefetch = task->kind == TASK_PREFETCH;
    int device = (int)task->context->gpu;
    struct sim_touch touch = {.first = walk->first,
                              .count = count,
                              .kind = prefetch ? SIM_TOUCH_PREFETCH : SIM_TOUCH_USE,
                              .to = prefetch ? (uint16_t)task->prefetch.place : 0,
                              .flags = page->read_mostly && !walk->writes ? SIM_TOUCH_SHARES : 0};
    if (prefetch)
        return touch;
    if (page->preferred != NO_DEVICE && page->preferred != device)
        touch.stays = 1u << managed_place(page->preferred);
    if (page->preferred == -1)
        touch.flags |= SIM_TOUCH_AT_HOST;
    if (page->accessed_by >> device & 1)
        touch.stays = UINT32_MAX;
    return touch;
}

// The next run of pages in use.
static bool next_in_use(struct managed_walk *walk) {
    while (walk->first < managed.top && !managed_page(walk->first)->users)
        walk->first++;
    while (walk->first + walk->count < managed.top &&
           managed_page(walk->first + walk->count)->users)
        walk->count++;
    return walk->count != 0;
}

// The next of all pages of this process: without concurrent access they come together, whatever was
// advised.
static bool touch_all(struct managed_walk *walk, struct sim_touch touches[SIM_TOUCHES_MAX]) {
    for (unsigned used = 0; walk->count || next_in_use(walk); used++) {
        if (used == SIM_TOUCHES_MAX)
            return true;
        look_at_host((struct pages){.first = walk->first, .count = walk->count});
        touches[used] =
            (struct sim_touch){.first = walk->first, .count = walk->count, .kind = SIM_TOUCH_USE};
        walk->first += walk->count;
        walk->count = 0;
    }
    return false;
}

bool managed_touches(const struct task *task, struct managed_walk *walk,
                     struct sim_touch touches[SIM_TOUCHES_MAX]) {
    unsigned used = 0;
    memset(touches, 0, SIM_TOUCHES_MAX * sizeof touches[0]);
    if (!managed.pages || !task)
        return false;
    if (task->kind == TASK_KERNEL && !managed_concurrent(task->context->gpu))
        return touch_all(walk, touches);
    size_t ranges = range_count(task);
    unsigned most = task->kind == TASK_PREFETCH ? 1 : SIM_TOUCHES_MAX;
    for (;;) {
        while (!walk->count) {
            if (walk->number == ranges)
                return false;
            if (!range_of(task, walk->number++, walk))
                walk->count = 0;
        }
        if (used == most)
            return true;
        uint32_t count = alike(walk->first, walk->count);
        touches[used++] = touch_of(task, walk, count);
        walk->first += count;
        walk->count -= count;
    }
}

bool managed_task_is_empty(const struct task *task) {
    return task && ((task->kind == TASK_PREFETCH && !managed_data_on()) ||
                    (task->kind == TASK_KERNEL && task->kernel.function->bodiless));
}
