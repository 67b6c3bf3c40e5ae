// residency_model.c: see residency_model.h.
#include "residency_model.h"

#include <string.h>

const unsigned columns[COLUMNS] = {0, 1, SIM_GPUS_MAX};
struct model model;

uint64_t model_resident(unsigned k) {
    uint64_t count = 0;
    for (unsigned p = 0; p < PROCESSES; p++)
        for (unsigned i = 0; i < PAGES; i++)
            count += model.pages[p][i].here[k];
    return count;
}

bool model_elsewhere(const struct page *page, unsigned k) {
    bool other = false;
    for (unsigned i = 0; i < COLUMNS; i++)
        other |= i != k && page->here[i];
    return other;
}

bool model_oldest(unsigned k, unsigned *slot, unsigned *index) {
    bool found = false;
    for (unsigned p = 0; p < PROCESSES; p++)
        for (unsigned i = 0; i < PAGES; i++)
            if (model.pages[p][i].here[k] &&
                (!found || model.pages[p][i].stamp[k] < model.pages[*slot][*index].stamp[k])) {
                found = true;
                *slot = p;
                *index = i;
            }
    return found;
}

uint64_t model_evict(unsigned k, unsigned slot, unsigned index) {
    struct page *page = &model.pages[slot][index];
    bool alone = !page->host && !model_elsewhere(page, k);
    page->here[k] = false;
    page->host |= alone;
    model.books[slot][k].evicted_bytes += alone ? PAGE_BYTES : 0;
    return alone;
}

static void make_room(unsigned k, uint64_t count, struct sim_moved *moved) {
    unsigned slot, index;
    while (model_resident(k) + count > model.room[k] && model_oldest(k, &slot, &index))
        moved->out += model_evict(k, slot, index);
}

static void model_bring(unsigned k, unsigned slot, unsigned index, const struct sim_touch *touch,
                        struct sim_moved *moved) {
    struct page *page = &model.pages[slot][index];
    struct sim_managed *books = &model.books[slot][k];
    bool in = page->host;
    for (unsigned i = 0; i < COLUMNS; i++)
        if (i != k && page->here[i] && !in) {
            in = true;
            model.books[slot][i].peer_out_bytes += PAGE_BYTES;
        }
    moved->in += in;
    moved->populated += !in;
    books->populated_bytes += in ? 0 : PAGE_BYTES;
    if (in && touch->kind == SIM_TOUCH_PREFETCH)
        books->prefetch_in_bytes += PAGE_BYTES;
    else if (in)
        books->fault_in_bytes += PAGE_BYTES;
    page->here[k] = true;
}

static bool stays(const struct page *page, uint32_t places) {
    bool stay = page->host && places >> SIM_AT_HOST & 1;
    for (unsigned i = 0; i < COLUMNS; i++)
        stay |= page->here[i] && places >> columns[i] & 1;
    return stay;
}

static void model_keep(unsigned k, unsigned slot, unsigned index) {
    struct page *page = &model.pages[slot][index];
    for (unsigned i = 0; i < COLUMNS; i++)
        page->here[i] &= i == k;
    page->host = false;
}

// Touches the pages of one block by use: all that are not there come at once.
static void model_use(unsigned k, unsigned slot, uint32_t from, uint32_t to,
                      const struct sim_touch *touch, struct sim_moved *moved) {
    bool wanted[SIM_BLOCK_PAGES] = {false};
    uint64_t count = 0, found = 0;
    for (uint32_t i = from; i < to; i++) {
        struct page *page = &model.pages[slot][i];
        if (!page->live)
            continue;
        if (touch->flags & SIM_TOUCH_AT_HOST && !page->here[k] && !model_elsewhere(page, k))
            page->host = true;
        if (!page->here[k] && stays(page, touch->stays)) {
            moved->remote++;
            model.books[slot][k].remote_bytes += PAGE_BYTES;
        } else if (!page->here[k]) {
            wanted[i - from] = true;
            count++;
        }
    }
    uint64_t may = count < model.room[k] ? count : model.room[k];
    make_room(k, may, moved);
    for (uint32_t i = from; i < to; i++) {
        struct page *page = &model.pages[slot][i];
        bool brought = wanted[i - from] && found < may;
        if (brought) {
            found++;
            model_bring(k, slot, i, touch, moved);
            page->stamp[k] = model.stamp;
        } else if (wanted[i - from]) {
            moved->remote++;
            model.books[slot][k].remote_bytes += PAGE_BYTES;
        }
        if (page->live && page->here[k] && !(touch->flags & SIM_TOUCH_SHARES))
            model_keep(k, slot, i);
    }
}

// A prefetch brings one after the other, each as the newest.
static void model_prefetch(unsigned k, unsigned slot, const struct sim_touch *touch,
                           struct sim_moved *moved) {
    for (uint32_t i = touch->first; i < touch->first + touch->count; i++) {
        struct page *page = &model.pages[slot][i];
        if (page->live && !page->here[k] && model.room[k]) {
            make_room(k, 1, moved);
            model_bring(k, slot, i, touch, moved);
        }
        if (!page->here[k])
            continue;
        page->stamp[k] = model.stamp;
        if (!(touch->flags & SIM_TOUCH_SHARES))
            model_keep(k, slot, i);
    }
}

static void model_fetch(unsigned slot, unsigned index, bool shares, struct sim_moved *moved) {
    struct page *page = &model.pages[slot][index];
    for (unsigned i = 0; i < COLUMNS; i++)
        if (page->here[i] && !page->host) {
            page->host = true;
            moved->out++;
            model.books[slot][i].prefetch_out_bytes += PAGE_BYTES;
        }
    page->host = true;
    for (unsigned i = 0; i < COLUMNS && !shares; i++)
        page->here[i] = false;
}

void model_touch(unsigned k, unsigned slot, const struct sim_touch *touch,
                 struct sim_moved *moved) {
    uint32_t end = touch->first + touch->count;
    model.stamp++;
    if (touch->kind == SIM_TOUCH_PREFETCH && touch->to == SIM_AT_HOST) {
        for (uint32_t i = touch->first; i < end; i++)
            if (model.pages[slot][i].live)
                model_fetch(slot, i, touch->flags & SIM_TOUCH_SHARES, moved);
        return;
    }
    if (touch->kind == SIM_TOUCH_PREFETCH) {
        model_prefetch(k, slot, touch, moved);
        return;
    }
    for (uint32_t from = touch->first; from < end;) {
        uint32_t to = (from / SIM_BLOCK_PAGES + 1) * SIM_BLOCK_PAGES;
        to = to < end ? to : end;
        model_use(k, slot, from, to, touch, moved);
        from = to;
    }
}

void model_end(unsigned slot, uint32_t first, uint32_t count) {
    memset(&model.pages[slot][first], 0, count * sizeof model.pages[0][0]);
}

void model_collapse(unsigned slot, uint32_t first, uint32_t count, unsigned place) {
    for (uint32_t i = first; i < first + count; i++) {
        struct page *page = &model.pages[slot][i];
        unsigned k = COLUMNS;
        for (unsigned c = COLUMNS; c--;)
            k = page->here[c] ? c : k;
        for (unsigned c = 0; c < COLUMNS; c++)
            if (page->here[c] && columns[c] == place)
                k = c;
        bool keep = k < COLUMNS && (!page->host || columns[k] == place);
        if (keep)
            model_keep(k, slot, i);
        else if (page->host)
            memset(page->here, 0, sizeof page->here);
    }
}
