// residency_model.h: a second model of where managed pages lie, which keeps each page by itself and
// looks through all of them for the oldest. For comparison with residency.h.
#ifndef SIM_RESIDENCY_MODEL_H
#define SIM_RESIDENCY_MODEL_H

#include "../../residency.h"

#include <stdbool.h>

#define PROCESSES 3u
#define PAGES 400u
#define PAGE_BYTES 4096u
#define INSTANCE 20u  // the GPU instance behind the last column of all processes

#define COLUMNS 3u  // that the processes use, and which they are

extern const unsigned columns[COLUMNS];

struct page {
    bool live, host;
    bool here[COLUMNS];
    uint64_t stamp[COLUMNS];
};

extern struct model {
    struct page pages[PROCESSES][PAGES];
    struct sim_managed books[PROCESSES][COLUMNS];
    uint64_t room[COLUMNS];
    uint64_t stamp;
} model;

// Pages on the GPU of column number k.
uint64_t model_resident(unsigned k);
// Whether a page lies on another one.
bool model_elsewhere(const struct page *page, unsigned k);
// The page that came or was prefetched longest ago; of a prefetch the lowest.
bool model_oldest(unsigned k, unsigned *slot, unsigned *index);
// Whether it had to move.
uint64_t model_evict(unsigned k, unsigned slot, unsigned index);
void model_touch(unsigned k, unsigned slot, const struct sim_touch *touch, struct sim_moved *moved);
void model_end(unsigned slot, uint32_t first, uint32_t count);
void model_collapse(unsigned slot, uint32_t first, uint32_t count, unsigned place);

#endif
