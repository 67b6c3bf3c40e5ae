// range.c: reserved addresses, and what is mapped at them (share.h has the idea).
//
// The addresses that the program sees cannot be touched by the host, but where memory of the host
// is mapped and it may. The data lie in a shadow of the same length. Both lists are sorted by
// address: programs map upwards, and look-ups are many times as frequent as changes. Invariants:
// reservations do not overlap, nor do ranges; each range lies in one reservation.
#define _GNU_SOURCE
#include "share.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define BASE UINT64_C(0x400000000000)  // where addresses are, if the program does not care

struct reservation {
    uint64_t start, bytes;
    char *data;
};

static struct reservation *reservations;
static unsigned reservation_count, reservation_room;
static struct range **ranges;
static unsigned range_count, range_room;

uint64_t range_address(const struct range *range) {
    return range->block.first * SIM_GRANULE;
}

uint64_t range_bytes(const struct range *range) {
    return range->block.count * SIM_GRANULE;
}

// ---- Sorted lists ----

// The place of the first reservation, or range, that ends behind an address.
static unsigned reservation_after(uint64_t address) {
    unsigned low = 0, high = reservation_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        const struct reservation *r = &reservations[middle];
        if (r->start + r->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static unsigned place_after(uint64_t address) {
    unsigned low = 0, high = range_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (range_address(ranges[middle]) + range_bytes(ranges[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Makes room for one more element; the list, perhaps elsewhere, or NULL.
static void *room_for(void *list, unsigned count, unsigned *room, size_t bytes) {
    if (count < *room)
        return list;
    unsigned wanted = *room ? *room * 2 : 16;
    void *grown = realloc(list, wanted * bytes);
    if (grown)
        *room = wanted;
    return grown;
}

static struct reservation *reservation_at(uint64_t address) {
    unsigned i = reservation_after(address);
    return i < reservation_count && reservations[i].start <= address ? &reservations[i] : NULL;
}

struct range *range_of(const struct chunk *chunk, enum block_kind kind) {
    for (unsigned i = 0; i < range_count; i++)
        if (ranges[i]->chunk == chunk && ranges[i]->block.kind == kind)
            return ranges[i];
    return NULL;
}

bool range_covers(uint64_t address) {
    return reservation_at(address) != NULL;
}

bool range_reservation(uint64_t address, uint64_t *start, uint64_t *bytes) {
    const struct reservation *r = reservation_at(address);
    if (r) {
        *start = r->start;
        *bytes = r->bytes;
    }
    return r != NULL;
}

struct range *range_after(uint64_t address) {
    unsigned i = place_after(address);
    return i < range_count ? ranges[i] : NULL;
}

struct range *range_find(uint64_t address) {
    struct range *range = range_after(address);
    return range && range_address(range) <= address ? range : NULL;
}

// ---- Addresses ----

static void *take_addresses(uint64_t hint, uint64_t bytes) {
    void *at = mmap((void *)(uintptr_t)hint, bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

// Addresses at a multiple of `align`: more than are needed, less what is too much.
static void *take_aligned(uint64_t hint, uint64_t bytes, uint64_t align) {
    uint64_t more;
    char *at = take_addresses(hint, bytes);
    if (!at || align <= PAGE || (uintptr_t)at % align == 0)
        return at;
    munmap(at, bytes);
    if (__builtin_add_overflow(bytes, align, &more))
        return NULL;
    at = take_addresses(hint, more);
    if (!at)
        return NULL;
    uint64_t skip = (align - (uintptr_t)at % align) % align;
    if (skip)
        munmap(at, skip);
    munmap(at + skip + bytes, more - skip - bytes);
    return at + skip;
}

CUresult range_reserve(uint64_t bytes, uint64_t align, uint64_t hint, uint64_t *address) {
    static uint64_t next = BASE;
    void *list =
        room_for(reservations, reservation_count, &reservation_room, sizeof reservations[0]);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reservations = list;
    char *seen = take_aligned(hint ? hint : next, bytes, align);
    char *data = seen ? take_addresses(0, bytes) : NULL;
    if (!data) {
        if (seen)
            munmap(seen, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t start = (uintptr_t)seen;
    if (!hint)
        next = start + bytes;
    unsigned i = reservation_after(start);
    memmove(&reservations[i + 1], &reservations[i],
            (reservation_count - i) * sizeof reservations[0]);
    reservations[i] = (struct reservation){.start = start, .bytes = bytes, .data = data};
    reservation_count++;
    driver.mapped = arena_of_ranges();
    *address = start;
    return CUDA_SUCCESS;
}

CUresult range_release(uint64_t address, uint64_t bytes) {
    struct reservation *r = reservation_at(address);
    const struct range *range = range_after(address);
    if (!r || r->start != address || r->bytes != bytes ||
        (range && range_address(range) < address + bytes))
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)r->start, r->bytes);
    munmap(r->data, r->bytes);
    unsigned i = (unsigned)(r - reservations);
    memmove(r, r + 1, (--reservation_count - i) * sizeof *r);
    return CUDA_SUCCESS;
}

// ---- Ranges ----

CUresult range_map(uint64_t address, uint64_t bytes, struct chunk *chunk, uint64_t offset,
                   enum block_kind kind, struct range **out) {
    const struct reservation *r = reservation_at(address);
    if (!r || !bytes || bytes > r->bytes - (address - r->start))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned i = place_after(address);
    if (i < range_count && range_address(ranges[i]) < address + bytes)
        return CUDA_ERROR_INVALID_VALUE;
    void *list = room_for(ranges, range_count, &range_room, sizeof ranges[0]);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ranges = list;
    struct range *range = calloc(1, sizeof *range);
    char *data = r->data + (address - r->start);
    if (!range || chunk_map(chunk, offset, bytes, data)) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->block = (struct block){.first = address / SIM_GRANULE,
                                  .count = bytes / SIM_GRANULE,
                                  .kind = kind,
                                  .gpu = chunk->gpu < 0 ? 0 : (uint32_t)chunk->gpu,
                                  .bytes = bytes,
                                  .id = ++driver.ids};
    range->chunk = chunk;
    range->offset = offset;
    range->data = data;
    chunk_keep(chunk);
    memmove(&ranges[i + 1], &ranges[i], (range_count++ - i) * sizeof ranges[0]);
    ranges[i] = range;
    *out = range;
    return CUDA_SUCCESS;
}

void range_unmap(struct range *range) {
    unsigned i = place_after(range_address(range));
    data_lose(range->data, range_bytes(range));
    range_allow(range, 0, 0);
    chunk_unmap(range->data, range_bytes(range), PROT_NONE);
    memmove(&ranges[i], &ranges[i + 1], (--range_count - i) * sizeof ranges[0]);
    chunk_drop(range->chunk);
    free(range);
}

CUresult range_place(struct chunk *chunk, uint64_t offset, uint64_t bytes, enum block_kind kind,
                     struct range **range) {
    uint64_t address;
    CUresult rc = range_reserve(bytes, 0, 0, &address);
    if (rc)
        return rc;
    rc = range_map(address, bytes, chunk, offset, kind, range);
    if (rc)
        range_release(address, bytes);
    return rc;
}

void range_displace(struct range *range) {
    uint64_t address = range_address(range), bytes = range_bytes(range);
    range_unmap(range);
    range_release(address, bytes);
}

// Whether the host sees the range, as its `reads` and `writes` say.
static int show(const struct range *range) {
    void *at = (void *)(uintptr_t)range_address(range);
    uint64_t bytes = range_bytes(range);
    if (!(range->reads & RANGE_HOST)) {
        chunk_unmap(at, bytes, PROT_NONE);
        return 0;
    }
    int rc = chunk_map(range->chunk, range->offset, bytes, at);
    if (!rc && !(range->writes & RANGE_HOST))
        mprotect(at, bytes, PROT_READ);
    return rc;
}

void range_allow(struct range *range, uint32_t reads, uint32_t writes) {
    uint32_t before = (range->reads | range->writes) & RANGE_HOST;
    range->reads = reads;
    range->writes = writes;
    if (before || reads & RANGE_HOST)
        show(range);
}

int range_follow(const struct chunk *chunk) {
    int rc = 0;
    for (unsigned i = 0; i < range_count && !rc; i++) {
        const struct range *range = ranges[i];
        if (range->chunk != chunk)
            continue;
        rc = chunk_map(chunk, range->offset, range_bytes(range), range->data);
        if (!rc && range->reads & RANGE_HOST)
            rc = show(range);
    }
    return rc;
}

bool range_usable(uint64_t address, uint64_t bytes, bool writes) {
    uint64_t end;
    uint32_t all = UINT32_MAX;
    const struct reservation *r = reservation_at(address);
    if (!r || __builtin_add_overflow(address, bytes, &end) || end > r->start + r->bytes)
        return false;
    for (unsigned i = place_after(address); all && address < end; i++) {
        if (i == range_count || range_address(ranges[i]) > address)
            return false;
        all &= writes ? ranges[i]->writes : ranges[i]->reads;
        address = range_address(ranges[i]) + range_bytes(ranges[i]);
    }
    return all & ~RANGE_HOST;
}

bool range_writable(uint64_t address, uint64_t bytes) {
    return !range_covers(address) || range_usable(address, bytes, true);
}

static struct range *first_of(const struct context *context) {
    for (unsigned i = 0; i < range_count; i++)
        if (ranges[i]->block.context == context)
            return ranges[i];
    return NULL;
}

void ranges_drop(struct context *context) {
    if (first_of(context))
        data_settle();
    struct range *range;
    while ((range = first_of(context)))
        range_displace(range);
}
