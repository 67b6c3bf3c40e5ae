// graph_memory.c: memory nodes, and what they have allocated when a launch is over.
//
// A memory node has an address of its own for its life, which nobody else gets. What graphs free
// themselves is theirs alone; an allocation that outlives the launch is *live* until the program
// frees it, a graph does, or the next launch of the same graph that may.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

// Addresses are not used twice while a node lives, so there must be many.
#define ADDRESS_FACTOR 16u
#define ADDRESS_MIN (UINT64_C(1) << 32)
#define ADDRESS_BASE UINT64_C(0x580000000000)
#define ADDRESS_PER_GPU (UINT64_C(1) << 40)

// ---- Allocations ----

static CUresult allocation_make(uint32_t gpu, uint64_t bytes, struct allocation **out) {
    struct arena **arena = &driver.graphed[gpu];
    uint64_t room = driver.config->gpus[gpu].memory_bytes * ADDRESS_FACTOR;
    room = room > ADDRESS_MIN ? room : ADDRESS_MIN;
    if (!*arena && arena_make(arena, room, ADDRESS_BASE + gpu * ADDRESS_PER_GPU, true))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct allocation *allocation = calloc(1, sizeof *allocation);
    struct block *block = allocation ? arena_take(*arena, bytes, BLOCK_GRAPH) : NULL;
    if (!block) {
        free(allocation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->allocation = allocation;
    block->gpu = gpu;
    *allocation = (struct allocation){.block = block,
                                      .address = arena_address(*arena, block),
                                      .bytes = bytes,
                                      .gpu = gpu,
                                      .references = 1};
    *out = allocation;
    return CUDA_SUCCESS;
}

void allocation_keep(struct allocation *allocation) {
    allocation->references++;
}

void allocation_drop(struct allocation *allocation) {
    if (--allocation->references)
        return;
    arena_give(driver.graphed[allocation->gpu], allocation->block);
    free(allocation);
}

static struct allocation *allocation_at(uint64_t address) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    bool good = block && block->kind == BLOCK_GRAPH && arena_address(arena, block) == address;
    return good ? block->allocation : NULL;
}

// ---- Memory nodes ----

static CUresult check_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    const CUmemPoolProps *props = &params->poolProps;
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->handleTypes ||
        !params->bytesize || (params->accessDescCount && !params->accessDescs))
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!device_ok(props->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    for (size_t i = 0; i < params->accessDescCount; i++)
        if (params->accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !device_ok(params->accessDescs[i].location.id))
            return CUDA_ERROR_INVALID_VALUE;
    return params->bytesize > UINT64_MAX / 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult alloc_node_set(struct node *node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    CUresult rc = check_alloc(params);
    if (rc)
        return rc;
    size_t count = params->accessDescCount;
    CUmemAccessDesc *access = calloc(count + 1, sizeof *access);
    if (!access)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count)
        memcpy(access, params->accessDescs, count * sizeof *access);
    struct allocation *allocation;
    rc = allocation_make((uint32_t)params->poolProps.location.id, params->bytesize, &allocation);
    if (rc) {
        free(access);
        return rc;
    }
    allocation->graph_id = node->graph->id;
    node->alloc = (struct alloc_params){
        .allocation = allocation, .access = access, .access_count = (uint32_t)count};
    params->dptr = allocation->address;
    return CUDA_SUCCESS;
}

CUDA_MEM_ALLOC_NODE_PARAMS alloc_node_params(const struct node *node) {
    const struct allocation *allocation = node->alloc.allocation;
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)allocation->gpu}},
        .accessDescs = node->alloc.access_count ? node->alloc.access : NULL,
        .accessDescCount = node->alloc.access_count,
        .bytesize = allocation->bytes,
        .dptr = allocation->address};
}

// A graph frees its own allocation once, or another one's that outlives its launch.
CUresult free_node_set(struct node *node, CUdeviceptr address) {
    struct allocation *allocation = allocation_at(address);
    if (!allocation || allocation->freed_inside)
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct node *n = node->graph->first; n; n = n->next)
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->free == allocation)
            return CUDA_ERROR_INVALID_VALUE;
    allocation->freed_inside = allocation->graph_id == node->graph->id;
    allocation_keep(allocation);
    node->free = allocation;
    return CUDA_SUCCESS;
}

// ---- What outlives a launch ----

CUresult allocations_check(const struct exec *exec) {
    bool again = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    for (const struct node *n = exec->graph->first; n; n = n->next) {
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->alloc.allocation->live && !again)
            return CUDA_ERROR_INVALID_VALUE;
        bool own = n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->free->graph_id == exec->source_id;
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !own && !n->free->live)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

void allocation_free(struct allocation *allocation, struct sim_dep last) {
    struct backing *backing = allocation->backing;
    allocation->live = false;
    allocation->backing = NULL;
    backing->live--;
    if (last.seq)
        backing->last = last;
    allocation_drop(allocation);
}

void allocations_begin(struct exec *exec, struct sim_dep begin) {
    for (struct node *n = exec->graph->first; n; n = n->next)
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->alloc.allocation->live)
            allocation_free(n->alloc.allocation, begin);
}

// Whether the graph frees it itself.
static bool freed_by(const struct exec *exec, const struct allocation *allocation) {
    for (const struct node *n = exec->graph->first; n; n = n->next)
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->free == allocation)
            return true;
    return false;
}

void allocations_end(struct exec *exec, struct sim_dep end) {
    for (struct node *n = exec->graph->first; n; n = n->next) {
        struct allocation *a = n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? n->alloc.allocation : NULL;
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->free->live)
            allocation_free(n->free, end);
        if (!a || freed_by(exec, a))
            continue;
        a->live = true;
        a->backing = demand_of(exec, a->gpu)->backing;
        a->backing->live++;
        allocation_keep(a);
    }
}

CUresult allocation_give_async(struct allocation *allocation, struct stream *stream) {
    if (!allocation->live || allocation->freeing)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_dep last = {.context = stream->context->machine};
    allocation_keep(allocation);
    allocation->freeing = true;  // the lock may be dropped
    CUresult rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, &last.seq);
    allocation->freeing = false;
    if (!rc && allocation->live)
        allocation_free(allocation, last);
    allocation_drop(allocation);
    return rc;
}

CUresult allocation_give(struct allocation *allocation) {
    if (!allocation->live || allocation->freeing)
        return CUDA_ERROR_INVALID_VALUE;
    allocation_free(allocation, (struct sim_dep){0, 0});
    return CUDA_SUCCESS;
}
