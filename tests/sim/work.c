// work.c: operations submitted to the engines, and looks at them (see machine.h).
#include "engine.h"

#include <errno.h>

// Whether the context is there and ours. A process that was taken for dead has none.
static bool ours(const struct sim_machine *machine, const struct sim_engines *engines,
                 uint32_t context) {
    return context < SIM_CONTEXTS_MAX && machine->serial &&
           engines->contexts[context].serial == machine->serial;
}

int sim_work_submit(struct sim_machine *machine, uint32_t context, const struct sim_work *work,
                    uint64_t *seq, uint64_t *recycled_finish_ns, uint64_t *wait_ns) {
    struct sim_engines *engines;
    uint64_t mine = 0;
    int rc;
    do {
        engines = sim_lock(machine);
        rc = ours(machine, engines, context) ? 0 : EBADF;
        if (!rc && !(mine && engines->contexts[context].tail > mine)) {
            uint64_t now = sim_now_ns();
            mine = engines->contexts[context].tail;
            sim_engines_advance(engines, now);
            rc = sim_engines_submit(engines, context, work, now, recycled_finish_ns);
            *seq = mine;
            if (rc == EAGAIN) {
                uint64_t oldest = engines->contexts[context].floor;
                *wait_ns = sim_engines_bound(engines, context, oldest, now);
                mine = 0;
            }
        }
    } while (!sim_unlock(machine, engines));
    return rc;
}

int sim_work_look(struct sim_machine *machine, uint32_t context, uint64_t seq, uint64_t *finish_ns,
                  uint64_t *wait_ns) {
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        *finish_ns = *wait_ns = 0;
        rc = ours(machine, engines, context) ? 0 : EBADF;
        if (!rc) {
            struct sim_item *item = sim_engines_item(engines, context, seq);
            *finish_ns = item ? item->finish_ns : 1;
            if (!*finish_ns)
                *wait_ns = sim_engines_bound(engines, context, seq, sim_now_ns());
        }
    } while (!sim_unlock(machine, engines));
    return rc;
}

int sim_work_ready(struct sim_machine *machine, uint32_t context, uint64_t seq, bool *ready,
                   uint64_t *wait_ns) {
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        *ready = true;
        *wait_ns = 0;
        rc = ours(machine, engines, context) ? 0 : EBADF;
        struct sim_item *item = rc ? NULL : sim_engines_item(engines, context, seq);
        if (item && item->unmet) {
            *ready = false;
            *wait_ns = UINT64_MAX;
            uint64_t now = sim_now_ns();
            for (unsigned i = 0; i < SIM_DEPS_MAX; i++) {
                const struct sim_edge *dep = &item->deps[i];
                if (!dep->seq || !sim_engines_item(engines, dep->context, dep->seq) ||
                    sim_engines_item(engines, dep->context, dep->seq)->finish_ns)
                    continue;
                *wait_ns = sim_engines_bound(engines, dep->context, dep->seq, now);
                break;
            }
        }
    } while (!sim_unlock(machine, engines));
    return rc;
}

int sim_work_oldest(struct sim_machine *machine, uint32_t context, uint64_t *seq) {
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        rc = ours(machine, engines, context) ? 0 : EBADF;
        if (!rc)
            *seq = engines->contexts[context].floor;
    } while (!sim_unlock(machine, engines));
    return rc;
}

int sim_work_finish(struct sim_machine *machine, uint32_t context, uint64_t seq) {
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        rc = ours(machine, engines, context) ? 0 : EBADF;
        if (!rc)
            sim_engines_finish(engines, context, seq, engines->gpus[0].now_ns);
    } while (!sim_unlock(machine, engines));
    return rc;
}

uint64_t sim_cost_copy(const struct sim_machine *machine, unsigned gpu, enum sim_engine engine,
                       uint64_t bytes) {
    const struct sim_gpu_config *config = sim_config_of(machine, gpu);
    if (engine == SIM_ENGINE_COMPUTE)
        return config->kernel_ns +
               (uint64_t)((double)bytes * 1e9 / (double)config->memory_bytes_per_s);
    uint64_t speed = engine == SIM_ENGINE_H2D ? config->h2d_bytes_per_s : config->d2h_bytes_per_s;
    return config->copy_latency_ns + (uint64_t)((double)bytes * 1e9 / (double)speed);
}

uint64_t sim_cost_kernel(const struct sim_machine *machine, unsigned gpu, uint64_t threads) {
    const struct sim_gpu_config *config = sim_config_of(machine, gpu);
    double extra = (double)threads * (double)config->thread_ps / 1000.0;
    return config->kernel_ns + (extra < 1e18 ? (uint64_t)extra : (uint64_t)1e18);
}
