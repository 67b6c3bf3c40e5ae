// graph_backing.c: the memory of the card behind what graphs allocate.
//
// An executable graph demands so many chunks of a device, and has them from its first launch (or
// upload) on in a *backing*. Graphs that free all that they allocate share the backing of the
// stream in which they are launched, since they run one after another there; one whose allocations
// outlive the launch has a backing for itself.
// Invariants: `reserved` is what the device's graphs have taken from the card, `bound` what of it
// is in backings; both are multiples of the chunk. A backing that is idle, and holds no live
// allocation, may lose its memory at any time; the next launch gets it new.
#include "graph.h"

#include "mempool.h"

#include <stdlib.h>
#include <string.h>

static struct graph_memory {
    uint64_t reserved, reserved_high;
    uint64_t bound, bound_high;
    struct backing *backings;
} memories[SIM_GPUS_MAX];

// ---- What a graph needs ----

// A part of the backing, by turns of several allocations.
struct slot {
    uint32_t gpu;
    uint64_t bytes;
    struct node *freed;  // by which its last allocation was; NULL: it is in use
    const struct allocation *allocation;
};

// Marks all that a node follows, with `mark` in their index.
static bool mark_ancestors(struct node *node, uint32_t mark) {
    struct nodes todo = {0};
    bool good = nodes_add(&todo, node);
    for (uint32_t i = 0; i < todo.count && good; i++)
        for (uint32_t j = 0; j < todo.at[i]->deps.count && good; j++) {
            struct node *dep = todo.at[i]->deps.at[j];
            if (dep->index != mark) {
                dep->index = mark;
                good = nodes_add(&todo, dep);
            }
        }
    free(todo.at);
    return good;
}

static struct slot *slot_for(struct slot *slots, uint32_t *count, struct node *node,
                             uint32_t mark) {
    const struct allocation *allocation = node->alloc.allocation;
    uint64_t bytes = allocation->block->count * SIM_GRANULE;
    struct slot *best = NULL;
    if (!mark_ancestors(node, mark))
        return NULL;
    for (uint32_t i = 0; i < *count; i++) {
        struct slot *slot = &slots[i];
        if (slot->gpu == allocation->gpu && slot->bytes >= bytes && slot->freed &&
            slot->freed->index == mark && (!best || slot->bytes < best->bytes))
            best = slot;
    }
    if (!best) {
        best = &slots[(*count)++];
        *best = (struct slot){.gpu = allocation->gpu, .bytes = bytes};
    }
    best->freed = NULL;
    best->allocation = allocation;
    return best;
}

struct demand *demand_of(struct exec *exec, uint32_t gpu) {
    for (uint32_t i = 0; i < exec->demand_count; i++)
        if (exec->demands[i].gpu == gpu)
            return &exec->demands[i];
    exec->demands[exec->demand_count] = (struct demand){.gpu = gpu};
    return &exec->demands[exec->demand_count++];
}

static void sum_slots(struct exec *exec, const struct slot *slots, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct demand *demand = demand_of(exec, slots[i].gpu);
        demand->bytes += slots[i].bytes;
        demand->lasting |= !slots[i].freed;
    }
    for (uint32_t i = 0; i < exec->demand_count; i++) {
        uint64_t chunk = mempool_chunk(exec->demands[i].gpu);
        exec->demands[i].bytes = (exec->demands[i].bytes + chunk - 1) / chunk * chunk;
    }
}

CUresult demands_plan(struct exec *exec, const struct nodes *order) {
    struct slot *slots = calloc(order->count + 1, sizeof *slots);
    exec->demands = calloc(SIM_GPUS_MAX, sizeof exec->demands[0]);
    bool good = slots && exec->demands;
    uint32_t count = 0;
    for (uint32_t i = 0; i < order->count; i++)
        order->at[i]->index = 0;
    for (uint32_t i = 0; i < order->count && good; i++) {
        struct node *node = order->at[i];
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            good = slot_for(slots, &count, node, i + 1) != NULL;
        for (uint32_t j = 0; node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && j < count; j++)
            if (slots[j].allocation == node->free)
                slots[j].freed = node;
    }
    if (good)
        sum_slots(exec, slots, count);
    free(slots);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// ---- Backings ----

static bool idle(const struct backing *backing) {
    return !backing->live && op_done(backing->last);
}

// Forgets backings that nobody will use again.
static void collect(struct graph_memory *memory) {
    struct backing **link = &memory->backings;
    while (*link) {
        struct backing *backing = *link;
        if (backing->users || !idle(backing)) {
            link = &backing->next;
            continue;
        }
        memory->bound -= backing->bytes;
        *link = backing->next;
        free(backing);
    }
}

void graph_memory_trim(uint32_t gpu) {
    struct graph_memory *memory = &memories[gpu];
    collect(memory);
    for (struct backing *b = memory->backings; b; b = b->next)
        if (idle(b)) {
            memory->bound -= b->bytes;
            b->bytes = 0;
        }
    uint64_t unused = memory->reserved - memory->bound;
    if (unused)
        sim_memory_give(driver.machine, driver.cards[gpu], unused);
    memory->reserved -= unused;
}

// Brings a backing to a size. What nobody uses on the card is given back before it fails.
static CUresult grow(struct backing *backing, uint64_t bytes) {
    struct graph_memory *memory = &memories[backing->gpu];
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        uint64_t more = bytes - backing->bytes, unused = memory->reserved - memory->bound;
        uint64_t missing = more > unused ? more - unused : 0;
        if (!missing || !sim_memory_take(driver.machine, driver.cards[backing->gpu], missing)) {
            memory->reserved += missing;
            memory->bound += more;
            backing->bytes = bytes;
            if (memory->reserved > memory->reserved_high)
                memory->reserved_high = memory->reserved;
            if (memory->bound > memory->bound_high)
                memory->bound_high = memory->bound;
            return CUDA_SUCCESS;
        }
        if (!attempt)
            mempools_reclaim(backing->gpu);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct backing *backing_for(uint32_t gpu, uint64_t stream_id) {
    struct graph_memory *memory = &memories[gpu];
    for (struct backing *b = memory->backings; b && stream_id; b = b->next)
        if (b->stream_id == stream_id)
            return b;
    struct backing *backing = calloc(1, sizeof *backing);
    if (backing) {
        *backing = (struct backing){.next = memory->backings, .gpu = gpu, .stream_id = stream_id};
        memory->backings = backing;
    }
    return backing;
}

static CUresult meet(struct demand *demand, uint64_t stream_id) {
    collect(&memories[demand->gpu]);
    uint64_t owner = demand->lasting ? 0 : stream_id;
    if (demand->backing && demand->backing->stream_id != owner) {
        demand->backing->users--;
        demand->backing = NULL;
    }
    if (!demand->backing) {
        demand->backing = backing_for(demand->gpu, owner);
        if (!demand->backing)
            return CUDA_ERROR_OUT_OF_MEMORY;
        demand->backing->users++;
    }
    return demand->backing->bytes >= demand->bytes ? CUDA_SUCCESS
                                                   : grow(demand->backing, demand->bytes);
}

CUresult demands_meet(struct exec *exec, uint64_t stream_id) {
    CUresult rc = CUDA_SUCCESS;
    uint32_t met = 0;
    for (; met < exec->demand_count; met++) {
        rc = meet(&exec->demands[met], stream_id);
        if (rc)
            break;
        exec->demands[met].backing->live++;
    }
    while (rc && met--)
        exec->demands[met].backing->live--;
    return rc;
}

void demands_used(struct exec *exec, struct sim_dep last) {
    for (uint32_t i = 0; i < exec->demand_count; i++) {
        struct backing *backing = exec->demands[i].backing;
        if (last.seq)
            backing->last = last;
        backing->live--;
    }
}

void demands_end(struct exec *exec) {
    for (uint32_t i = 0; i < exec->demand_count; i++)
        if (exec->demands[i].backing)
            exec->demands[i].backing->users--;
    free(exec->demands);
    exec->demands = NULL;
    exec->demand_count = 0;
}

// ---- Calls ----

// The memory of a device; NULL with *rc: not to be asked for. The driver is locked where it is not.
static struct graph_memory *memory_enter(CUdevice device, const void *value, CUresult *rc) {
    *rc = driver_enter();
    if (*rc)
        return NULL;
    if (!value || !device_ok(device)) {
        *rc = driver_leave(value ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
        return NULL;
    }
    collect(&memories[device]);
    return &memories[device];
}

API cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    CUresult rc;
    struct graph_memory *memory = memory_enter(device, value, &rc);
    if (!memory)
        return rc;
    uint64_t *out = value;
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *out = memory->bound;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *out = memory->bound_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *out = memory->reserved;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *out = memory->reserved_high;
        break;
    default:
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    return driver_leave(rc);
}

// A high-water mark can be set to zero, which means: to what is now.
API cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    CUresult rc;
    struct graph_memory *memory = memory_enter(device, value, &rc);
    if (!memory)
        return rc;
    uint64_t given;
    memcpy(&given, value, sizeof given);
    if (given)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        memory->bound_high = memory->bound;
    else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        memory->reserved_high = memory->reserved;
    else
        rc = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(rc);
}

API cuDeviceGraphMemTrim(CUdevice device) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!device_ok(device))
        return driver_leave(CUDA_ERROR_INVALID_DEVICE);
    graph_memory_trim((uint32_t)device);
    return driver_leave(CUDA_SUCCESS);
}
