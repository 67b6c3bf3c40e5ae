// graph_update.c: changes of what an executable graph's nodes do: one by one, or all at once after
// the example of a graph of the same shape.
//
// A node is paired with the one that was created as the so-manieth in the other graph, and must
// depend on the partners of what that depends on.
#include "graph.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// ---- What may be changed into what ----

// The device of one end of a copy; -1: host memory.
static int device_of(CUmemorytype type, CUdeviceptr address) {
    int gpu = -1;
    if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
        memory_data(address, 1, &gpu);
    return gpu;
}

static bool copy_changes(const CUDA_MEMCPY3D *a, const CUDA_MEMCPY3D *b) {
    return a->srcMemoryType == b->srcMemoryType && a->dstMemoryType == b->dstMemoryType &&
           device_of(a->srcMemoryType, a->srcDevice) == device_of(b->srcMemoryType, b->srcDevice) &&
           device_of(a->dstMemoryType, a->dstDevice) == device_of(b->dstMemoryType, b->dstDevice);
}

// Only sets of one row can be changed.
static bool set_changes(const CUDA_MEMSET_NODE_PARAMS *a, const CUDA_MEMSET_NODE_PARAMS *b) {
    if (!memcmp(a, b, offsetof(CUDA_MEMSET_NODE_PARAMS, ctx)))
        return true;
    return a->height == 1 && b->height == 1 &&
           device_of(CU_MEMORYTYPE_DEVICE, a->dst) == device_of(CU_MEMORYTYPE_DEVICE, b->dst);
}

static CUgraphExecUpdateResult node_change(const struct node *node, const struct node *fresh) {
    bool good = true;
    if (node->type != fresh->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return node->context == fresh->context && node->context_id == fresh->context_id
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        good = node->context == fresh->context && copy_changes(&node->copy, &fresh->copy);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        good = node->context == fresh->context && set_changes(&node->set, &fresh->set);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        good = node->context == fresh->context && node->memop.count == fresh->memop.count;
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
        break;
    }
    return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

// ---- After the example of a graph ----

// Numbers the nodes in the order of creation.
static void number(const struct graph *graph) {
    uint32_t index = 0;
    for (struct node *n = graph->first; n; n = n->next)
        n->index = index++;
}

static bool same_deps(const struct node *a, const struct node *b) {
    if (a->deps.count != b->deps.count)
        return false;
    for (uint32_t i = 0; i < a->deps.count; i++) {
        bool found = false;
        for (uint32_t j = 0; j < b->deps.count && !found; j++)
            found = a->deps.at[i]->index == b->deps.at[j]->index;
        if (!found)
            return false;
    }
    return true;
}

static CUgraphExecUpdateResult compare(const struct graph *own, const struct graph *fresh,
                                       CUgraphExecUpdateResultInfo *info) {
    if (own->count != fresh->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    number(own);
    number(fresh);
    const struct node *b = fresh->first;
    for (const struct node *a = own->first; a; a = a->next, b = b->next) {
        CUgraphExecUpdateResult result = node_change(a, b);
        if (!result && !same_deps(a, b))
            result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (!result && a->type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = compare(a->child, b->child, info);
        if (result && !info->errorNode)
            info->errorNode = (CUgraphNode)b;
        if (result)
            return result;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// Gives a node what another of its type does; it stays on or off.
static CUresult replace(struct node *node, struct node *fresh) {
    struct node copy = *node;
    CUresult rc = params_copy(&copy, fresh);
    if (rc) {
        params_drop(&copy);
        return rc;
    }
    params_drop(node);
    params_move(node, &copy);
    node->context = fresh->context;
    node->context_id = fresh->context_id;
    return CUDA_SUCCESS;
}

static CUresult follow(const struct graph *own, const struct graph *fresh) {
    CUresult rc = CUDA_SUCCESS;
    struct node *b = fresh->first;
    for (struct node *a = own->first; a && !rc; a = a->next, b = b->next)
        rc = a->type == CU_GRAPH_NODE_TYPE_GRAPH ? follow(a->child, b->child) : replace(a, b);
    return rc;
}

static CUresult update(CUgraphExec exec_handle, CUgraph handle, CUgraphExecUpdateResultInfo *info) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct exec *exec = exec_get(exec_handle);
    struct graph *graph = graph_get(handle);
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    if (!exec || !graph || graph->exec || graph->capture)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    info->result = compare(exec->graph, graph, info);
    if (info->result)
        return driver_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    rc = follow(exec->graph, graph);
    if (rc)
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    return driver_leave(rc);
}

API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    return info ? update(exec, graph, info) : CUDA_ERROR_INVALID_VALUE;
}

API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error,
                      CUgraphExecUpdateResult *result) {
    CUgraphExecUpdateResultInfo info;
    if (!result)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = update(exec, graph, &info);
    *result = info.result;
    if (error)
        *error = info.errorNode;
    return rc;
}

// ---- One by one ----

static struct node *named(CUgraphExec exec_handle, CUgraphNode handle, CUgraphNodeType type) {
    struct exec *exec = exec_get(exec_handle);
    struct node *node = exec ? exec_node(exec, handle) : NULL;
    return node && node->type == type ? node : NULL;
}

// Copies and sets of several rows cannot be changed so.
static bool flat(const struct node *node) {
    return node->type != CU_GRAPH_NODE_TYPE_MEMCPY ||
           (node->copy.Height == 1 && node->copy.Depth == 1);
}

static CUresult change(CUgraphExec exec, CUgraphNode handle, const CUgraphNodeParams *params) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct node *node = named(exec, handle, params->type);
    if (!node || node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    uint64_t id = node->id;
    struct node fresh = {
        .type = node->type, .id = id, .context = node->context, .context_id = node->context_id};
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
        kernel_settings_copy(&fresh.kernel, &node->kernel);
    rc = params_set(&fresh, params);
    node = named(exec, handle, params->type);  // the lock may have been dropped
    if (!rc &&
        (!node || node->id != id || !flat(node) || !flat(&fresh) || node_change(node, &fresh)))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc) {
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            kernel_attributes_move(&fresh.kernel, &node->kernel);
        params_drop(node);
        params_move(node, &fresh);
        node->context = fresh.context;
        node->context_id = fresh.context_id;
    } else {
        params_drop(&fresh);
    }
    return driver_leave(rc);
}

API cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    return params->type == CU_GRAPH_NODE_TYPE_GRAPH
               ? cuGraphExecChildGraphNodeSetParams(exec, node, params->graph)
               : change(exec, node, params);
}

API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                   const CUDA_KERNEL_NODE_PARAMS *kernel) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.kernel, kernel, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
    return change(exec, node, &params);
}

API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS *kernel) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    if (!kernel)
        return CUDA_ERROR_INVALID_VALUE;
    params.kernel = *kernel;
    return change(exec, node, &params);
}

API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                   CUcontext context) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy = (CUDA_MEMCPY_NODE_PARAMS){.copyCtx = context, .copyParams = *copy};
    return change(exec, node, &params);
}

API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                   const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    if (!set)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.memset, set, offsetof(CUDA_MEMSET_NODE_PARAMS, ctx));
    params.memset.ctx = context;
    return change(exec, node, &params);
}

API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                 const CUDA_HOST_NODE_PARAMS *host) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    if (!host)
        return CUDA_ERROR_INVALID_VALUE;
    params.host = *host;
    return change(exec, node, &params);
}

API cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event};
    return change(exec, node, &params);
}

API cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event};
    return change(exec, node, &params);
}

API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS *memop) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    if (!memop)
        return CUDA_ERROR_INVALID_VALUE;
    params.memOp = *memop;
    return change(exec, node, &params);
}

API cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph child) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct node *node = named(exec, handle, CU_GRAPH_NODE_TYPE_GRAPH);
    struct graph *graph = graph_get(child);
    CUgraphExecUpdateResultInfo info = {0};
    if (!node || !graph || compare(node->child, graph, &info))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    return driver_leave(follow(node->child, graph));
}
