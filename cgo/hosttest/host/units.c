// units.c: tests of the library's lock and table alone.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../lock.h"
#include "../../table.h"
#include "host.h"

#define THREADS 8
#define ROUNDS 100000
#define MODEL_ENTRIES 20000

static struct weir_lock lock;
static uint64_t counter;

static void *count_under_lock(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        if (weir_lock(&lock) != 0)
            return unused;
        counter++;
        weir_unlock(&lock);
    }
    return NULL;
}

int test_lock(void) {
    pthread_t threads[THREADS];
    int marker;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, count_under_lock, &marker);
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += result != NULL;
    }
    wrong += counter != (uint64_t)THREADS * ROUNDS;
    wrong += weir_lock(&lock) != 0;
    wrong += weir_lock(&lock) != EDEADLK;
    weir_unlock(&lock);
    wrong += weir_lock(&lock) != 0;
    return wrong;
}

// Each pointer that may be in the table, and what was put for it last. A pointer that is put twice
// has an older entry, which the table may keep for a while: all that is known of those is their
// sum.
struct model {
    struct weir_table table;
    struct weir_owners owners;
    struct weir_entry entries[MODEL_ENTRIES];
    uint64_t live;
    uint64_t older;
    uint64_t older_bytes;
    uint64_t stride;
    uint64_t seed;
};

static int differs(const struct weir_entry *a, const struct weir_entry *b) {
    return a->pointer != b->pointer || a->bytes != b->bytes || a->owner != b->owner;
}

// Feeds the table until it takes the entry.
static int put_fed(struct weir_table *table, const struct weir_entry *entry,
                   struct weir_entry *old) {
    int rc;
    while ((rc = weir_table_put(table, entry, old)) == ENOMEM) {
        void *memory = aligned_alloc(WEIR_BUCKET_BYTES, WEIR_TABLE_FEED_BYTES);
        memset(memory, 0, WEIR_TABLE_FEED_BYTES);
        if (weir_table_feed(table, memory) != 0)
            return EBUSY;
    }
    return rc;
}

// A free that nothing comes between.
static int take_now(struct weir_table *table, uint64_t pointer, struct weir_entry *out) {
    struct weir_free_token free = weir_table_free(table, pointer);
    int rc = weir_table_take(table, pointer, free, out);
    weir_table_freed(table, free);
    return rc;
}

static int put(struct model *model, uint64_t i, uint64_t context) {
    struct weir_entry *slot = &model->entries[i], old;
    struct weir_entry entry = {
        .pointer = (i + 1) * model->stride,
        .bytes = test_random(&model->seed) % 1000 * 512,
        .owner = (uint16_t)weir_owner_use(&model->owners, context, (uint32_t)context % 64),
    };
    int rc = put_fed(&model->table, &entry, &old);
    if (slot->pointer) {
        model->older++;
        model->older_bytes += slot->bytes;
    }
    if (old.pointer) {
        model->older--;
        model->older_bytes -= old.bytes;
        weir_owner_release(&model->owners, old.owner);
    }
    model->live += !slot->pointer;
    *slot = entry;
    return rc != 0;
}

static int take(struct model *model, uint64_t i) {
    struct weir_entry *slot = &model->entries[i], found;
    int rc = take_now(&model->table, (i + 1) * model->stride, &found);
    if (rc == 0)
        weir_owner_release(&model->owners, found.owner);
    if (slot->pointer) {
        int wrong = rc != 0 || differs(&found, slot);
        model->live--;
        slot->pointer = 0;
        return wrong;
    }
    if (rc == ENOENT)
        return 0;
    model->older--;
    model->older_bytes -= found.bytes;
    return rc != 0 || found.pointer != (i + 1) * model->stride;
}

// Ends a context while others, one of them with the same handle, get and lose entries.
static int sweep(struct model *model, uint64_t context) {
    static uint8_t swept[MODEL_ENTRIES];
    uint64_t expected = 0, freed[64] = {0}, cursor = 0;
    int wrong = 0;
    uint32_t ticket = weir_owner_retire(&model->owners, context);
    for (int i = 0; i < MODEL_ENTRIES; i++) {
        struct weir_entry *entry = &model->entries[i];
        swept[i] = entry->pointer && model->owners.owner[entry->owner].ticket == ticket;
        if (!swept[i])
            continue;
        expected += entry->bytes;
        entry->pointer = 0;
        model->live--;
    }
    while (weir_table_sweep(&model->table, &cursor, &model->owners, ticket, freed)) {
        uint64_t i = test_random(&model->seed) % MODEL_ENTRIES;
        if (model->entries[i].pointer)
            wrong += take(model, i);
        else if (!swept[i])
            wrong += put(model, i, context);
    }
    for (int i = 0; i < 64; i++)
        expected -= freed[i];
    return wrong + (expected != 0);
}

// Random operations; `twice`: the same pointer may be put again without having been taken.
static int run_model(struct model *model, int twice) {
    int wrong = 0;
    for (int step = 0; step < 150000 && !wrong; step++) {
        // Mostly puts in the first half, mostly takes in the second.
        uint64_t i = test_random(&model->seed) % MODEL_ENTRIES, puts = step < 75000 ? 7 : 3;
        uint64_t context = test_random(&model->seed) % 8 + 1;
        if (test_random(&model->seed) % 10 < puts && (twice || !model->entries[i].pointer))
            wrong += put(model, i, context);
        else
            wrong += take(model, i);
        // Often while there is little in it, so that some ends find all of it recent.
        if ((step % 20000 == 0 || (step < 2000 && step % 20 == 0)) && !twice)
            wrong += sweep(model, context);
        wrong += model->table.entries != model->live + model->older;
    }
    for (uint64_t i = 0; i < MODEL_ENTRIES; i++)  // twice: what is older comes out too
        for (int j = 0; j < 3; j++)
            wrong += take(model, i);
    for (uint32_t i = 0; i < WEIR_OWNERS_MAX; i++)
        wrong += model->owners.owner[i].uses != 0;
    return wrong + (model->table.entries != 0) + (model->older != 0) + (model->older_bytes != 0);
}

#define CROWD 4096
#define ADDRESS 0x7f0000000000ull

// Many other allocations, so that what was put before is recent no more.
static void crowd(struct weir_table *table, uint64_t from) {
    struct weir_entry old;
    for (uint64_t i = 0; i < CROWD; i++)
        put_fed(table, &(struct weir_entry){.pointer = from + i * 512, .bytes = 512}, &old);
}

// A free whose address is allocated anew before it is over takes the old entry or, where that has
// given way, none; never the new one. The old one, the new one: are they recent at the end, or in a
// bucket?
static int test_reuse(int old_recent, int new_recent) {
    struct weir_table *table = calloc(1, sizeof(*table));
    struct weir_entry out, old, first = {.pointer = ADDRESS, .bytes = 512};
    struct weir_entry second = {.pointer = ADDRESS, .bytes = 1024};
    int wrong = put_fed(table, &first, &old) != 0;
    if (!old_recent)
        crowd(table, ADDRESS + (1ull << 32));
    struct weir_free_token free_first = weir_table_free(table, ADDRESS);
    uint64_t given_back = 0;
    wrong += put_fed(table, &second, &old) != 0;
    given_back += old.pointer ? old.bytes : 0;
    for (uint64_t i = 0; i < CROWD && !new_recent; i++) {
        struct weir_entry other = {.pointer = ADDRESS + (2ull << 32) + i * 512, .bytes = 512};
        put_fed(table, &other, &old);
        given_back += old.pointer ? old.bytes : 0;
    }
    if (weir_table_take(table, ADDRESS, free_first, &out) == 0)
        given_back += out.bytes;
    weir_table_freed(table, free_first);
    wrong += given_back != first.bytes;
    wrong += take_now(table, ADDRESS, &out) != 0 || out.bytes != second.bytes;
    wrong += take_now(table, ADDRESS, &out) != ENOENT;
    free(table);
    return wrong;
}

// A free that takes long finds its entry whatever becomes of all the others meanwhile: their
// addresses are used again, and the older entries of these give way.
static int test_long_free(void) {
    struct weir_table *table = calloc(1, sizeof(*table));
    struct weir_entry out, old, first = {.pointer = ADDRESS, .bytes = 1536};
    int wrong = put_fed(table, &first, &old) != 0;
    crowd(table, ADDRESS + (1ull << 32));
    struct weir_free_token free_first = weir_table_free(table, ADDRESS);
    for (int i = 0; i < 3; i++)
        crowd(table, ADDRESS + (1ull << 32));
    wrong += weir_table_take(table, ADDRESS, free_first, &out) != 0 || out.bytes != first.bytes;
    weir_table_freed(table, free_first);
    free(table);
    return wrong;
}

// More frees at a time than have places. One without a place takes nothing out of a bucket; what it
// left there gives way to the next entry of its pointer. A free of nothing has no place.
static int test_many_frees(void) {
    struct weir_table *table = calloc(1, sizeof(*table));
    struct weir_entry out, old, entry = {.pointer = ADDRESS, .bytes = 1536};
    struct weir_free_token frees[WEIR_FREEING_MAX + 1];
    int wrong = put_fed(table, &entry, &old) != 0;
    wrong += weir_table_free(table, 0).place != WEIR_NO_FREEING;
    wrong += weir_table_free(table, 1).place != WEIR_NO_FREEING;
    crowd(table, ADDRESS + (1ull << 32));
    for (uint32_t i = 0; i <= WEIR_FREEING_MAX; i++)
        frees[i] = weir_table_free(table, ADDRESS);
    wrong += frees[WEIR_FREEING_MAX].place != WEIR_NO_FREEING;
    wrong += weir_table_take(table, ADDRESS, frees[WEIR_FREEING_MAX], &out) != ENOENT;
    wrong += weir_table_take(table, ADDRESS, frees[WEIR_FREEING_MAX - 1], &out) != 0;
    wrong += put_fed(table, &entry, &old) != 0;
    for (uint32_t i = 0; i <= WEIR_FREEING_MAX; i++)
        weir_table_freed(table, frees[i]);
    wrong += take_now(table, ADDRESS, &out) != 0;
    free(table);
    return wrong;
}

// As many owners as there can be, one more, and one that was retired and restored.
static int test_owners(void) {
    static struct weir_owners owners;
    int wrong = 0;
    memset(&owners, 0, sizeof(owners));
    for (uint32_t i = 0; i < WEIR_OWNERS_MAX; i++)
        wrong += weir_owner_use(&owners, i + 1, 0) != i;
    wrong += weir_owner_use(&owners, 1, 1) != WEIR_NO_OWNER;
    wrong += weir_owner_use(&owners, 7, 0) != 6;
    uint32_t ticket = weir_owner_retire(&owners, 7);
    wrong += weir_owner_use(&owners, 7, 0) != WEIR_NO_OWNER;
    weir_owner_restore(&owners, ticket);
    wrong += weir_owner_use(&owners, 7, 0) != 6 || owners.owner[6].uses != 3;
    weir_owner_release(&owners, 3);
    wrong += weir_owner_use(&owners, 7, 1) != 3;
    return wrong;
}

int test_table(uint64_t seed) {
    static const uint64_t strides[] = {512, 2u << 20, 16, 0x100000001ull};
    int wrong = test_owners();
    for (int i = 0; i < 4; i++)
        wrong += test_reuse(i & 1, i >> 1);
    wrong += test_long_free() + test_many_frees();
    for (unsigned i = 0; i < 2 * sizeof(strides) / sizeof(strides[0]) && !wrong; i++) {
        struct model *model = calloc(1, sizeof(*model));
        model->stride = strides[i / 2];
        model->seed = seed + i + 1;
        wrong += run_model(model, i % 2);
        free(model);
    }
    return wrong;
}
