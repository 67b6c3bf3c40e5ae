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

// Each pointer that may be in the table, and what was put for it last.
struct model {
    struct weir_table table;
    struct weir_owners owners;
    struct weir_entry entries[MODEL_ENTRIES];
    uint64_t live;
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

static int put(struct model *model, uint64_t i, uint64_t context) {
    struct weir_entry *slot = &model->entries[i], old,
                      entry = {
                          .pointer = (i + 1) * model->stride,
                          .bytes = test_random(&model->seed) % 1000 * 512,
                          .owner = (uint16_t)weir_owner_use(&model->owners, context,
                                                            (uint32_t)context % 64),
                      };
    int wrong = put_fed(&model->table, &entry, &old) != 0;
    if (slot->pointer) {
        wrong += differs(&old, slot);
        weir_owner_release(&model->owners, slot->owner);
    } else {
        wrong += old.pointer != 0;
        model->live++;
    }
    *slot = entry;
    return wrong;
}

static int take(struct model *model, uint64_t i) {
    struct weir_entry *slot = &model->entries[i], found;
    int rc = weir_table_take(&model->table, (i + 1) * model->stride, &found);
    if (!slot->pointer)
        return rc != ENOENT;
    int wrong = rc != 0 || differs(&found, slot);
    weir_owner_release(&model->owners, slot->owner);
    slot->pointer = 0;
    model->live--;
    return wrong;
}

// Ends a context while other entries, some of a new context with the same handle, come and go.
static int sweep(struct model *model, uint64_t context) {
    uint64_t expected = 0, freed[256] = {0}, cursor = 0;
    int wrong = 0;
    uint32_t ticket = weir_owner_retire(&model->owners, context);
    for (int i = 0; i < MODEL_ENTRIES; i++) {
        struct weir_entry *entry = &model->entries[i];
        if (!entry->pointer || model->owners.owner[entry->owner].ticket != ticket)
            continue;
        expected += entry->bytes;
        entry->pointer = 0;
        model->live--;
    }
    // Places whose old entry may still wait for the sweep are left alone.
    struct weir_entry *before = malloc(sizeof(model->entries));
    memcpy(before, model->entries, sizeof(model->entries));
    while (weir_table_sweep(&model->table, &cursor, &model->owners, ticket, freed)) {
        uint64_t i = test_random(&model->seed) % MODEL_ENTRIES;
        if (model->entries[i].pointer)
            wrong += take(model, i);
        else if (before[i].pointer || !before[i].owner)
            wrong += put(model, i, context);
    }
    free(before);
    for (int i = 0; i < 64; i++)
        expected -= freed[i];
    return wrong + (expected != 0);
}

static int run_model(struct model *model) {
    int wrong = 0;
    for (int step = 0; step < 200000 && !wrong; step++) {
        // Mostly puts in the first half, mostly takes in the second; some pointers are put twice.
        uint64_t i = test_random(&model->seed) % MODEL_ENTRIES, puts = step < 100000 ? 7 : 3;
        uint64_t context = test_random(&model->seed) % 8 + 1;
        if (test_random(&model->seed) % 10 < puts)
            wrong += put(model, i, context);
        else
            wrong += take(model, i);
        if (step % 20000 == 0)
            wrong += sweep(model, context);
        wrong += model->table.entries != model->live;
    }
    for (uint64_t i = 0; i < MODEL_ENTRIES; i++)
        wrong += take(model, i);
    for (uint32_t i = 0; i < WEIR_OWNERS_MAX; i++)
        wrong += model->owners.owner[i].uses != 0;
    return wrong + (model->table.entries != 0);
}

// As many owners as there can be, one more, and one that was retired and restored.
static int test_owners(void) {
    static struct weir_owners owners;
    int wrong = 0;
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
    static const uint64_t strides[] = {512, 2u << 20, 16, 4096, 0x100000001ull};
    int wrong = test_owners();
    for (unsigned i = 0; i < sizeof(strides) / sizeof(strides[0]) && !wrong; i++) {
        struct model *model = calloc(1, sizeof(*model));
        model->stride = strides[i];
        model->seed = seed + i + 1;
        wrong += run_model(model);
        free(model);
    }
    return wrong;
}
