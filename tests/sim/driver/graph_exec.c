// graph_exec.c: executable graphs: made from graphs, changed without being made anew, and ended.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct pool execs = {.bytes = sizeof(struct exec), .most = 1u << 18};

struct exec *exec_get(CUgraphExec handle) {
    struct exec *exec = pool_get(&execs, handle);
    return exec && !exec->doomed ? exec : NULL;
}

static CUresult exec_enter(CUgraphExec handle, struct exec **exec) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *exec = exec_get(handle);
    return *exec ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

// ---- Making and ending ----

void exec_end(struct exec *exec) {
    if (exec->source && exec->source->object.live && exec->source->id == exec->source_id &&
        exec->source->instance == exec)
        exec->source->instance = NULL;
    demands_end(exec);
    if (exec->graph) {
        retained_drop_after(&exec->graph->retained, exec->last);
        graph_end(exec->graph);
    }
    free(exec->steps);
    free(exec->deps);
    pool_drop(&execs, exec);
}

static CUresult instantiate(struct graph *graph, uint64_t flags, struct exec **out) {
    bool memory = graph_has_memory(graph);
    if (memory && graph->instance)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct exec *exec = pool_take(&execs);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->id = ++driver.ids;
    exec->source = graph;
    exec->source_id = graph->id;
    exec->flags = flags;
    exec->graph = graph_clone(graph);
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (exec->graph) {
        exec->graph->exec = exec;
        rc = exec_plan(exec);
    }
    if (rc) {
        exec_end(exec);
        return rc;
    }
    if (memory)
        graph->instance = exec;
    *out = exec;
    return CUDA_SUCCESS;
}

#define FLAGS                                                                                      \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |        \
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static CUresult instantiate_flags(CUgraphExec *out, CUgraph handle, uint64_t flags,
                                  struct exec **exec) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct graph *graph = graph_get(handle);
    if (!out || !graph || graph->exec || graph->capture)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    rc = flags & ~(uint64_t)FLAGS ? CUDA_ERROR_INVALID_VALUE : instantiate(graph, flags, exec);
    if (!rc)
        *out = (CUgraphExec)*exec;
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

// Uploading needs a stream, which only the form with parameters names.
API cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    struct exec *exec;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = instantiate_flags(out, graph, flags, &exec);
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log,
                          size_t log_bytes) {
    if (error)
        *error = NULL;
    if (log && log_bytes)
        *log = 0;
    return cuGraphInstantiateWithFlags(out, graph, 0);
}

API cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log,
                       size_t log_bytes) {
    return cuGraphInstantiate_v2(out, graph, error, log, log_bytes);
}

static CUgraphInstantiateResult result_of(CUresult rc) {
    switch (rc) {
    case CUDA_SUCCESS:
        return CUDA_GRAPH_INSTANTIATE_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
        return CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    case CUDA_ERROR_NOT_SUPPORTED:
        return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    default:
        return CUDA_GRAPH_INSTANTIATE_ERROR;
    }
}

static CUresult instantiate_params(CUgraphExec *out, CUgraph graph,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread) {
    struct exec *exec;
    struct stream *stream;
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->hErrNode_out = NULL;
    CUresult rc = instantiate_flags(out, graph, params->flags, &exec);
    if (!rc) {
        if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
            rc = stream_get(params->hUploadStream, per_thread, &stream);
            if (!rc)
                rc = exec_upload(exec, stream);
            if (rc)
                exec_end(exec);
        }
        driver_leave(CUDA_SUCCESS);
    }
    params->result_out = result_of(rc);
    return rc;
}

API cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate_params(out, graph, params, false);
}

API cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate_params(out, graph, params, true);
}

API cuGraphExecDestroy(CUgraphExec handle) {
    struct exec *exec;
    CUresult rc = exec_enter(handle, &exec);
    if (rc)
        return rc;
    if (exec->flights)
        exec->doomed = true;
    else
        exec_end(exec);
    return driver_leave(CUDA_SUCCESS);
}

API cuGraphExecGetFlags(CUgraphExec handle, uint64_t *flags) {
    struct exec *exec;
    CUresult rc = exec_enter(handle, &exec);
    if (rc)
        return rc;
    if (flags)
        *flags = exec->flags;
    return driver_leave(flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// ---- Finding nodes ----

// Programs that change many nodes do so in their order.
struct node *exec_node(struct exec *exec, CUgraphNode handle) {
    const struct node *source = node_get(handle);
    if (!source)
        return NULL;
    for (uint32_t i = 0; i < exec->step_count; i++) {
        uint32_t at = (exec->cursor + i) % exec->step_count;
        struct node *node = exec->steps[at].node;
        if (node && node->origin == source && node->origin_id == source->id) {
            exec->cursor = at + 1;
            return node;
        }
    }
    return graph_find_copy(exec->graph, source);  // a child graph has no step of its own
}

static CUresult node_enter(CUgraphExec handle, CUgraphNode node_handle, struct exec **exec,
                           struct node **node) {
    CUresult rc = exec_enter(handle, exec);
    if (rc)
        return rc;
    *node = exec_node(*exec, node_handle);
    return *node ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

// ---- Switching nodes on and off ----

static bool can_be_off(const struct node *node) {
    return node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

API cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node_handle, unsigned int enabled) {
    struct exec *exec;
    struct node *node;
    CUresult rc = node_enter(handle, node_handle, &exec, &node);
    if (rc)
        return rc;
    if (enabled > 1 || !can_be_off(node))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    node->disabled = !enabled;
    return driver_leave(CUDA_SUCCESS);
}

API cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node_handle, unsigned int *enabled) {
    struct exec *exec;
    struct node *node;
    CUresult rc = node_enter(handle, node_handle, &exec, &node);
    if (rc)
        return rc;
    if (!enabled || !can_be_off(node))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *enabled = !node->disabled;
    return driver_leave(CUDA_SUCCESS);
}
