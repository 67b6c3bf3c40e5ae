// peer.c: what one device has of another's memory: access for kernels, and copies over the link.
#include "share.h"

#include "mempool.h"

// ---- Access ----

static CUresult set_peer(CUcontext handle, bool enable) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    struct context *peer = context_get(handle);
    if (!peer)
        return driver_leave(CUDA_ERROR_INVALID_CONTEXT);
    uint64_t bit = UINT64_C(1) << peer->gpu;
    if (peer->gpu == context->gpu)
        rc = CUDA_ERROR_INVALID_DEVICE;
    else if (enable && context->peers & bit)
        rc = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else if (!enable && !(context->peers & bit))
        rc = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    else if (enable && !peer_ok(context->gpu, peer->gpu))
        rc = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    else
        context->peers ^= bit;
    return driver_leave(rc);
}

API cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    CUresult rc = driver_check();
    if (rc || flags)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    return set_peer(peer, true);
}

API cuCtxDisablePeerAccess(CUcontext peer) {
    return set_peer(peer, false);
}

bool peer_ok(uint32_t gpu, uint32_t other) {
    return sim_peer_ok(sim_machine_config(driver.machine), driver.cards[gpu], driver.cards[other]);
}

bool memory_reachable(const struct context *context, const struct block *block, bool *writable) {
    uint64_t bit = UINT64_C(1) << context->gpu;
    *writable = true;
    switch (block->kind) {
    case BLOCK_MAPPED:
    case BLOCK_MAPPED_HOST:
    case BLOCK_IMPORTED:
    case BLOCK_EXTERNAL: {
        const struct range *range = (const struct range *)block;
        *writable = range->writes & bit;
        return range->reads & bit;
    }
    case BLOCK_POOL:
        *writable = block->pool->writes & bit;
        return block->pool->reads & bit;
    case BLOCK_PLAIN:
        return block->gpu == context->gpu || context->peers >> block->gpu & 1;
    default:
        return true;
    }
}

// ---- Copies ----

// Between devices that do not reach each other a copy goes through the host's memory.
uint64_t peer_copy_ns(uint32_t from, uint32_t to, uint64_t bytes) {
    uint32_t from_card = driver.cards[from], to_card = driver.cards[to];
    const struct sim_config *config = sim_machine_config(driver.machine);
    if (!peer_ok(from, to))
        return sim_cost_copy(driver.machine, from_card, SIM_ENGINE_D2H, bytes) +
               sim_cost_copy(driver.machine, to_card, SIM_ENGINE_H2D, bytes);
    double bytes_per_s = (double)sim_peer_bytes_per_s(config, from_card, to_card);
    return config->gpus[from_card].copy_latency_ns + (uint64_t)((double)bytes * 1e9 / bytes_per_s);
}
