// engine_setup.c: what the engines begin with: GPUs, and the contexts of processes.
#include "engine.h"

#include <errno.h>

void sim_engines_init(struct sim_engines *e, const struct sim_config *config, uint64_t now) {
    e->gpu_count = config->gpu_count;
    e->reaped_ns = now;
    e->residency.page_bytes = config->gpus[0].page_bytes;
    for (unsigned i = 0; i < e->gpu_count; i++)
        sim_engines_start(e, i, &config->gpus[i], now);
    sim_mig_activate(e);
}

void sim_engines_start(struct sim_engines *e, unsigned gpu, const struct sim_gpu_config *config,
                       uint64_t now) {
    bool faults = !config->no_concurrent_managed;
    e->gpus[gpu] = (struct sim_gpu){.now_ns = now,
                                    .slice_ns = config->slice_ns,
                                    .switch_ns = config->switch_ns,
                                    .launch_ns = config->launch_ns,
                                    .depth = config->queue_depth,
                                    .until_ns = UINT64_MAX,
                                    .link = {.memory_bytes = config->memory_bytes,
                                             .h2d_bytes_per_s = config->h2d_bytes_per_s,
                                             .d2h_bytes_per_s = config->d2h_bytes_per_s,
                                             .latency_ns = config->copy_latency_ns,
                                             .batch_ns = faults ? config->fault_batch_ns : 0,
                                             .batch_pages = config->fault_batch_pages}};
}

int sim_engines_open(struct sim_engines *e, uint32_t slot, uint64_t serial, uint64_t cookie,
                     unsigned gpu, uint32_t *context) {
    uint32_t free = SIM_CONTEXTS_MAX;
    for (uint32_t i = 0; i < e->contexts_used; i++) {
        struct sim_context *c = &e->contexts[i];
        if (c->serial == serial && c->cookie == cookie) {
            *context = i;
            return 0;
        }
        if (!c->serial && free == SIM_CONTEXTS_MAX)
            free = i;
    }
    if (free == SIM_CONTEXTS_MAX)
        free = e->contexts_used;
    if (free == SIM_CONTEXTS_MAX)
        return EUSERS;
    struct sim_context *c = &e->contexts[free];
    *c = (struct sim_context){.cookie = cookie,
                              .process = slot,
                              .gpu = gpu,
                              .floor = c->tail ? c->tail : 1,
                              .tail = c->tail ? c->tail : 1};
    __atomic_store_n(&c->serial, serial, __ATOMIC_RELEASE);
    if (free == e->contexts_used)
        __atomic_store_n(&e->contexts_used, free + 1, __ATOMIC_RELEASE);
    *context = free;
    return 0;
}

void sim_engines_close(struct sim_engines *e, uint32_t context) {
    e->contexts[context].serial = 0;
}
