// graph_nodes.c: the calls that add nodes to graphs, and that look at and change what they do.
#include "graph.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// ---- Adding ----

// Where a node is to go.
struct place {
    CUgraphNode *out;
    CUgraph graph;
    const CUgraphNode *deps;
    const CUgraphEdgeData *edges;
    size_t count;
};

// The first half of adding: checks, and makes a node without edges. The driver is locked after it.
static CUresult begin(const struct place *place, CUgraphNodeType type, struct node **node) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct graph *graph = graph_get(place->graph);
    if (!place->out || !graph || graph->exec)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    rc = nodes_check(graph, place->deps, place->count);
    if (!rc)
        rc = edges_plain(place->edges, place->count);
    if (rc)
        return driver_leave(rc);
    *node = node_make(graph, type);
    return *node ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
}

// The second half, with the driver locked: the edges, or the node's end after an error.
static CUresult finish(const struct place *place, struct node *node, CUresult rc) {
    for (size_t i = 0; i < place->count && !rc; i++)
        if (!edge_add(node_get(place->deps[i]), node))
            rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc)
        node_end(node);
    else
        *place->out = (CUgraphNode)node;
    return driver_leave(rc);
}

// A child graph is a copy, which belongs to the node.
static CUresult child_set(struct node *node, CUgraph handle) {
    struct graph *child = graph_get(handle);
    if (!child || child == node->graph || child->capture)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_has_memory(child))
        return CUDA_ERROR_NOT_SUPPORTED;
    node->child = graph_clone(child);
    if (!node->child)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->child->parent = node;
    return CUDA_SUCCESS;
}

static CUresult add(const struct place *place, CUgraphNodeParams *params) {
    struct node *node;
    if (params->type >= CU_GRAPH_NODE_TYPE_CONDITIONAL ||
        params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL ||
        params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT) {
        CUresult rc = driver_check();
        return rc ? rc : CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult rc = begin(place, params->type, &node);
    if (rc)
        return rc;
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        rc = child_set(node, params->graph);
    else if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        rc = alloc_node_set(node, &params->alloc);
    else if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        rc = free_node_set(node, params->free);
    else if (params->type != CU_GRAPH_NODE_TYPE_EMPTY)
        rc = params_set(node, params);
    return finish(place, node, rc);
}

API cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                      const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    return add(&(struct place){node, graph, deps, edges, count}, params);
}

API cuGraphAddNode(CU_ADD_NODE, CUgraphNodeParams *params) {
    return cuGraphAddNode_v2(node, graph, deps, NULL, count, params);
}

#define PLACE (&(struct place){node, graph, deps, NULL, count})

static void kernel_first(CUgraphNodeParams *params, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    memcpy(&params->kernel, kernel, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
}

API cuGraphAddKernelNode(CU_ADD_NODE, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    kernel_first(&params, kernel);
    return add(PLACE, &params);
}

API cuGraphAddKernelNode_v2(CU_ADD_NODE, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    params.kernel = *kernel;
    return add(PLACE, &params);
}

API cuGraphAddMemcpyNode(CU_ADD_NODE, const CUDA_MEMCPY3D *copy, CUcontext context) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy = (CUDA_MEMCPY_NODE_PARAMS){.copyCtx = context, .copyParams = *copy};
    return add(PLACE, &params);
}

static void set_first(CUgraphNodeParams *params, const CUDA_MEMSET_NODE_PARAMS *set,
                      CUcontext context) {
    memcpy(&params->memset, set, offsetof(CUDA_MEMSET_NODE_PARAMS, ctx));
    params->memset.ctx = context;
}

API cuGraphAddMemsetNode(CU_ADD_NODE, const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (!set)
        return CUDA_ERROR_INVALID_VALUE;
    set_first(&params, set, context);
    return add(PLACE, &params);
}

API cuGraphAddHostNode(CU_ADD_NODE, const CUDA_HOST_NODE_PARAMS *host) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    params.host = *host;
    return add(PLACE, &params);
}

API cuGraphAddChildGraphNode(CU_ADD_NODE, CUgraph child) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = child};
    return add(PLACE, &params);
}

API cuGraphAddEmptyNode(CU_ADD_NODE) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(PLACE, &params);
}

API cuGraphAddEventRecordNode(CU_ADD_NODE, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event};
    return add(PLACE, &params);
}

API cuGraphAddEventWaitNode(CU_ADD_NODE, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event};
    return add(PLACE, &params);
}

// The address comes back in the parameters.
API cuGraphAddMemAllocNode(CU_ADD_NODE, CUDA_MEM_ALLOC_NODE_PARAMS *alloc) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    if (!alloc)
        return CUDA_ERROR_INVALID_VALUE;
    params.alloc = *alloc;
    CUresult rc = add(PLACE, &params);
    if (!rc)
        alloc->dptr = params.alloc.dptr;
    return rc;
}

API cuGraphAddMemFreeNode(CU_ADD_NODE, CUdeviceptr address) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = address};
    return add(PLACE, &params);
}

API cuGraphAddBatchMemOpNode(CU_ADD_NODE, const CUDA_BATCH_MEM_OP_NODE_PARAMS *memop) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    if (!memop)
        return CUDA_ERROR_INVALID_VALUE;
    params.memOp = *memop;
    return add(PLACE, &params);
}

// ---- What a node does ----

// A node of one type; `out` is where the caller's answer goes.
static CUresult typed_enter(CUgraphNode handle, CUgraphNodeType type, const void *out,
                            struct node **node) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *node = node_get(handle);
    bool good = *node && (*node)->type == type && out;
    return good ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult kernel_get(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *out, size_t bytes) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_KERNEL, out, &node);
    if (rc)
        return rc;
    const struct kernel_params *kernel = &node->kernel;
    CUDA_KERNEL_NODE_PARAMS params = {
        .func = (CUfunction)kernel->function,
        .gridDimX = kernel->grid[0],
        .gridDimY = kernel->grid[1],
        .gridDimZ = kernel->grid[2],
        .blockDimX = kernel->block[0],
        .blockDimY = kernel->block[1],
        .blockDimZ = kernel->block[2],
        .sharedMemBytes = kernel->shared_bytes,
        .kernelParams = kernel->pointers,
        .ctx = (CUcontext)node->context,
    };
    memcpy(out, &params, bytes);
    return driver_leave(CUDA_SUCCESS);
}

API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
    return kernel_get(node, params, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
}

API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
    return kernel_get(node, params, sizeof *params);
}

API cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *copy) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_MEMCPY, copy, &node);
    if (!rc)
        *copy = node->copy;
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *set) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_MEMSET, set, &node);
    if (!rc)
        memcpy(set, &node->set, offsetof(CUDA_MEMSET_NODE_PARAMS, ctx));
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *host) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_HOST, host, &node);
    if (!rc)
        *host = node->host;
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *child) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_GRAPH, child, &node);
    if (!rc)
        *child = (CUgraph)node->child;
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

static CUresult event_of(CUgraphNode handle, CUgraphNodeType type, CUevent *event) {
    struct node *node;
    CUresult rc = typed_enter(handle, type, event, &node);
    if (!rc)
        *event = (CUevent)node->event;
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) {
    return event_of(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) {
    return event_of(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

API cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params, &node);
    if (!rc)
        *params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = (CUcontext)node->context,
                                                  .count = node->memop.count,
                                                  .paramArray = node->memop.ops};
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params, &node);
    if (!rc)
        *params = alloc_node_params(node);
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *address) {
    struct node *node;
    CUresult rc = typed_enter(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, address, &node);
    if (!rc)
        *address = node->free->address;
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

// ---- Changing it ----

static CUresult change(CUgraphNode handle, const CUgraphNodeParams *params) {
    struct node *node;
    CUresult rc = typed_enter(handle, params->type, params, &node);
    return rc ? rc : driver_leave(params_set(node, params));
}

API cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    return params ? change(node, params) : CUDA_ERROR_INVALID_VALUE;
}

API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    kernel_first(&params, kernel);
    return change(node, &params);
}

API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    params.kernel = *kernel;
    return change(node, &params);
}

API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy.copyParams = *copy;
    return change(node, &params);
}

API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (!set)
        return CUDA_ERROR_INVALID_VALUE;
    set_first(&params, set, NULL);
    return change(node, &params);
}

API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *host) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    params.host = *host;
    return change(node, &params);
}

API cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event};
    return change(node, &params);
}

API cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event};
    return change(node, &params);
}

API cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *memop) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    if (!memop)
        return CUDA_ERROR_INVALID_VALUE;
    params.memOp = *memop;
    return change(node, &params);
}
