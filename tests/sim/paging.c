// paging.c: what the managed pages of operations cost (managed.h says by which rules). Costs follow
// from the bytes that residency.c says have moved, and from the rates of the GPU's link.
#include "engine.h"

static uint64_t bytes_ns(const struct sim_engines *e, uint64_t pages, uint64_t bytes_per_s) {
    return (uint64_t)((double)(pages * e->residency.page_bytes) * 1e9 / (double)bytes_per_s);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// An operation uses pages, and stands still until all are there.
static uint64_t use_cost(struct sim_engines *e, const struct sim_context *context,
                         const struct sim_touch touches[], uint64_t t) {
    const struct sim_link *link = &e->gpus[context->gpu].link;
    unsigned column = sim_column(context->gpu);
    struct sim_moved moved = {0};
    for (unsigned i = 0; i < SIM_TOUCHES_MAX; i++)
        if (touches[i].kind == SIM_TOUCH_USE)
            sim_residency_touch(&e->residency, context->process, column, &touches[i], &moved);
    uint64_t faults = moved.in + moved.populated;
    uint64_t batches = link->batch_ns ? (faults + link->batch_pages - 1) / link->batch_pages : 0;
    uint64_t cost = batches * link->batch_ns +
                    bytes_ns(e, moved.in + moved.remote, link->h2d_bytes_per_s) +
                    bytes_ns(e, moved.out, link->d2h_bytes_per_s);
    cost += moved.ready_ns > t ? moved.ready_ns - t : 0;
    struct sim_managed *books = &e->residency.owners[context->process].books[column];
    books->fault_batches += batches;
    books->fault_ns += cost;
    return cost;
}

// A copy engine moves pages ahead of their use, those that make room the other way meanwhile.
static uint64_t prefetch_cost(struct sim_engines *e, const struct sim_context *context,
                              const struct sim_touch *touch, uint64_t t) {
    const struct sim_link *link = &e->gpus[context->gpu].link;
    unsigned column = touch->to == SIM_AT_HOST ? sim_column(context->gpu) : touch->to;
    struct sim_moved moved = {0};
    sim_residency_touch(&e->residency, context->process, column, touch, &moved);
    if (!moved.in && !moved.out)
        return 0;
    uint64_t cost = link->latency_ns + larger(bytes_ns(e, moved.in, link->h2d_bytes_per_s),
                                              bytes_ns(e, moved.out, link->d2h_bytes_per_s));
    if (touch->to != SIM_AT_HOST && moved.in)
        sim_residency_arrive(&e->residency, context->process, column, touch->first, touch->count,
                             t + cost);
    return cost;
}

uint64_t sim_paging_cost(struct sim_engines *e, uint32_t context,
                         const struct sim_touch touches[SIM_TOUCHES_MAX], uint64_t t) {
    const struct sim_context *c = &e->contexts[context];
    return touches[0].kind == SIM_TOUCH_PREFETCH ? prefetch_cost(e, c, &touches[0], t)
                                                 : use_cost(e, c, touches, t);
}

void sim_paging_shrink(struct sim_engines *e, unsigned gpu, unsigned memory, uint64_t room,
                       uint64_t t) {
    uint64_t out = sim_residency_shrink(&e->residency, memory, room / e->residency.page_bytes);
    if (out)
        e->gpus[gpu].evicted_ns = larger(e->gpus[gpu].evicted_ns, t) +
                                  bytes_ns(e, out, e->gpus[gpu].link.d2h_bytes_per_s);
}
