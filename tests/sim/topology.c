// topology.c: which cards reach each other, and how fast.
#include "machine.h"

bool sim_peer_ok(const struct sim_config *config, unsigned from, unsigned to) {
    return from != to && from < config->gpu_count && to < config->gpu_count &&
           !config->no_peer_access;
}

// Over all NVLinks between the two, else over PCIe, as fast as the slower card.
uint64_t sim_peer_bytes_per_s(const struct sim_config *config, unsigned from, unsigned to) {
    if (!sim_peer_ok(config, from, to))
        return 0;
    unsigned links = config->nvlinks[from][to];
    uint64_t out = config->gpus[from].d2h_bytes_per_s, in = config->gpus[to].h2d_bytes_per_s;
    return links ? links * config->nvlink_bytes_per_s : out < in ? out : in;
}
