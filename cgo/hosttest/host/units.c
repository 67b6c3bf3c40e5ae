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
    struct weir_entry entries[MODEL_ENTRIES];
    uint64_t live;
    uint64_t older;
    uint64_t older_bytes;
};

static int differs(const struct weir_entry *a, const struct weir_entry *b) {
    return a->pointer != b->pointer || a->bytes != b->bytes || a->context != b->context ||
           a->stamp != b->stamp || a->gpu != b->gpu;
}

static int put(struct weir_table *table, struct model *model, struct weir_entry *slot,
               const struct weir_entry *entry) {
    struct weir_entry old;
    int rc;
    while ((rc = weir_table_put(table, entry, &old)) == ENOMEM) {
        void *memory = aligned_alloc(WEIR_BUCKET_BYTES, WEIR_TABLE_FEED_BYTES);
        memset(memory, 0, WEIR_TABLE_FEED_BYTES);
        if (weir_table_feed(table, memory) != 0)
            return 1;
    }
    if (slot->pointer) {
        model->older++;
        model->older_bytes += slot->bytes;
    }
    if (old.pointer) {
        model->older--;
        model->older_bytes -= old.bytes;
    }
    model->live += !slot->pointer;
    *slot = *entry;
    return rc != 0;
}

static int take(struct weir_table *table, struct model *model, struct weir_entry *slot,
                uint64_t pointer) {
    struct weir_entry found;
    int rc = weir_table_take(table, pointer, UINT64_MAX, &found);
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
    return rc != 0 || found.pointer != pointer;
}

// Sweeps a context while other entries come and go between the steps.
static int sweep(struct weir_table *table, struct model *model, uint64_t stride, uint64_t context,
                 uint64_t stamp, uint64_t *seed) {
    uint64_t expected[256] = {0}, freed[256] = {0}, cursor = 0;
    int wrong = 0;
    for (int i = 0; i < MODEL_ENTRIES; i++) {
        struct weir_entry *entry = &model->entries[i];
        if (!entry->pointer || entry->context != context || entry->stamp > stamp)
            continue;
        expected[entry->gpu] += entry->bytes;
        entry->pointer = 0;
        model->live--;
    }
    while (weir_table_sweep(table, &cursor, context, stamp, freed)) {
        // Entries of other contexts, at places that hold none of the swept one.
        uint64_t i = test_random(seed) % MODEL_ENTRIES;
        struct weir_entry entry = {(i + 1) * stride, 512, context + 1, stamp + 1, 0};
        if (model->entries[i].pointer)
            wrong += take(table, model, &model->entries[i], entry.pointer);
        else if (model->entries[i].context != context)
            wrong += put(table, model, &model->entries[i], &entry);
    }
    return wrong + (memcmp(expected, freed, sizeof(freed)) != 0);
}

// Random operations; `twice`: the same pointer may be put again without having been taken.
static int run_model(struct model *model, uint64_t stride, int twice, uint64_t *seed) {
    struct weir_table table = {0};
    uint64_t stamp = 0;
    int wrong = 0;
    for (int step = 0; step < 150000 && !wrong; step++) {
        uint64_t i = test_random(seed) % MODEL_ENTRIES;
        // Mostly puts in the first half, mostly takes in the second.
        int puts = step < 75000 ? 7 : 3;
        struct weir_entry *slot = &model->entries[i], entry = {
                                                          .pointer = (i + 1) * stride,
                                                          .bytes = test_random(seed) % 1000 * 512,
                                                          .context = test_random(seed) % 8 * 2,
                                                          .stamp = ++stamp,
                                                          .gpu = (uint8_t)(test_random(seed) % 64),
                                                      };
        if ((int)(test_random(seed) % 10) < puts && (twice || !slot->pointer))
            wrong += put(&table, model, slot, &entry);
        else
            wrong += take(&table, model, slot, entry.pointer);
        if (step % 20000 == 0 && !twice)
            wrong += sweep(&table, model, stride, test_random(seed) % 8 * 2,
                           stamp - test_random(seed) % 1000, seed);
        wrong += table.entries != model->live + model->older;
    }
    for (int i = 0; i < MODEL_ENTRIES; i++)  // twice: what is older comes out too
        for (int j = 0; j < 3; j++)
            wrong += take(&table, model, &model->entries[i], (uint64_t)(i + 1) * stride);
    return wrong + (table.entries != 0) + (model->older != 0) + (model->older_bytes != 0);
}

int test_table(uint64_t seed) {
    static const uint64_t strides[] = {512, 2u << 20, 16, 0x100000001ull};
    int wrong = 0;
    for (unsigned i = 0; i < 2 * sizeof(strides) / sizeof(strides[0]) && !wrong; i++) {
        struct model *model = calloc(1, sizeof(*model));
        wrong += run_model(model, strides[i / 2], i % 2, &seed);
        free(model);
    }
    return wrong;
}
