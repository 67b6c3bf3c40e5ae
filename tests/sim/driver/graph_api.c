// graph_api.c: the calls that make and end graphs, and that look at and change their structure.
// (graph_nodes.c has those that add nodes and look at what they do.)
#include "graph.h"

#include <stdlib.h>

static CUresult graph_enter(CUgraph handle, struct graph **graph) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *graph = graph_get(handle);
    return *graph ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult node_enter(CUgraphNode handle, struct node **node) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *node = node_get(handle);
    return *node ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

// ---- Graphs ----

API cuGraphCreate(CUgraph *out, unsigned int flags) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!out || flags)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct graph *graph = graph_make();
    if (graph)
        *out = (CUgraph)graph;
    return driver_leave(graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

// A child graph belongs to its node, a captured one to its capture.
API cuGraphDestroy(CUgraph handle) {
    struct graph *graph;
    CUresult rc = graph_enter(handle, &graph);
    if (rc)
        return rc;
    if (graph->parent || graph->exec || graph->capture)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    graph_end(graph);
    return driver_leave(CUDA_SUCCESS);
}

API cuGraphClone(CUgraph *out, CUgraph handle) {
    struct graph *graph;
    CUresult rc = graph_enter(handle, &graph);
    if (rc)
        return rc;
    if (!out)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (graph_has_memory(graph))
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    struct graph *clone = graph_clone(graph);
    if (clone)
        *out = (CUgraph)clone;
    return driver_leave(clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original_handle, CUgraph clone) {
    struct graph *graph;
    CUresult rc = graph_enter(clone, &graph);
    if (rc)
        return rc;
    struct node *original = node_get(original_handle);
    struct node *node = out && original ? graph_find_copy(graph, original) : NULL;
    if (node)
        *out = (CUgraphNode)node;
    return driver_leave(node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuGraphDestroyNode(CUgraphNode handle) {
    struct node *node;
    CUresult rc = node_enter(handle, &node);
    if (rc)
        return rc;
    if (graph_has_memory(node->graph) || node->graph->capture)
        return driver_leave(CUDA_ERROR_NOT_SUPPORTED);
    node_end(node);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Looking ----

API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    struct node *node;
    CUresult rc = node_enter(handle, &node);
    if (rc)
        return rc;
    if (type)
        *type = node->type;
    return driver_leave(type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult list_graph(CUgraph handle, bool roots, CUgraphNode *out, size_t *count) {
    struct graph *graph;
    CUresult rc = graph_enter(handle, &graph);
    if (rc)
        return rc;
    struct nodes list = {0};
    bool good = true;
    for (struct node *n = graph->first; n && good; n = n->next)
        good = (roots && n->deps.count) || nodes_add(&list, n);
    rc = good ? nodes_list(&list, out, NULL, count) : CUDA_ERROR_OUT_OF_MEMORY;
    free(list.at);
    return driver_leave(rc);
}

API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_graph(graph, false, nodes, count);
}

API cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_graph(graph, true, nodes, count);
}

API cuGraphGetEdges_v2(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                       size_t *count) {
    struct graph *graph;
    CUresult rc = graph_enter(handle, &graph);
    if (rc)
        return rc;
    if (!count || !from != !to || (edges && !from))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    size_t room = from ? *count : 0, found = 0;
    for (struct node *n = graph->first; n; n = n->next)
        for (uint32_t i = 0; i < n->deps.count; i++, found++)
            if (found < room) {
                from[found] = (CUgraphNode)n->deps.at[i];
                to[found] = (CUgraphNode)n;
            }
    for (size_t i = found; i < room; i++)
        from[i] = to[i] = NULL;
    for (size_t i = 0; edges && i < room; i++)
        edges[i] = (CUgraphEdgeData){0};
    if (!from || room > found)
        *count = found;
    return driver_leave(CUDA_SUCCESS);
}

API cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

static CUresult list_neighbours(CUgraphNode handle, bool outs, CUgraphNode *out,
                                CUgraphEdgeData *edges, size_t *count) {
    struct node *node;
    CUresult rc = node_enter(handle, &node);
    return rc ? rc : driver_leave(nodes_list(outs ? &node->outs : &node->deps, out, edges, count));
}

API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *deps, size_t *count) {
    return list_neighbours(node, false, deps, NULL, count);
}

API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *edges,
                                  size_t *count) {
    return list_neighbours(node, false, deps, edges, count);
}

API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    return list_neighbours(node, true, nodes, NULL, count);
}

API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges,
                                    size_t *count) {
    return list_neighbours(node, true, nodes, edges, count);
}

// ---- Edges ----

// An edge that is to be added or removed. NULL ends: one is not a node of the graph.
struct ends {
    struct node *from, *to;
};

static bool find_ends(const struct graph *graph, CUgraphNode from, CUgraphNode to,
                      struct ends *ends) {
    ends->from = node_get(from);
    ends->to = node_get(to);
    return ends->from && ends->to && ends->from != ends->to && ends->from->graph == graph &&
           ends->to->graph == graph;
}

// All or nothing: what was added before an error is taken out again.
API cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                              const CUgraphEdgeData *edges, size_t count) {
    struct graph *graph;
    CUresult rc = graph_enter(handle, &graph);
    if (rc)
        return rc;
    rc = count && (!from || !to) ? CUDA_ERROR_INVALID_VALUE : edges_plain(edges, count);
    struct ends ends;
    size_t done = 0;
    for (; done < count && !rc; done++) {
        if (!find_ends(graph, from[done], to[done], &ends) || nodes_have(&ends.to->deps, ends.from))
            rc = CUDA_ERROR_INVALID_VALUE;
        else if (!edge_add(ends.from, ends.to))
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        if (rc)
            break;
    }
    while (rc && done--) {
        find_ends(graph, from[done], to[done], &ends);
        nodes_remove(&ends.to->deps, ends.from);
        nodes_remove(&ends.from->outs, ends.to);
    }
    return driver_leave(rc);
}

API cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                           size_t count) {
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

API cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                 const CUgraphEdgeData *edges, size_t count) {
    struct graph *graph;
    CUresult rc = graph_enter(handle, &graph);
    if (rc)
        return rc;
    rc = count && (!from || !to) ? CUDA_ERROR_INVALID_VALUE : edges_plain(edges, count);
    if (!rc && count && graph_has_memory(graph))
        rc = CUDA_ERROR_NOT_SUPPORTED;
    struct ends ends;
    for (size_t i = 0; i < count && !rc; i++)
        if (!find_ends(graph, from[i], to[i], &ends) || !nodes_have(&ends.to->deps, ends.from))
            rc = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !rc; i++) {
        find_ends(graph, from[i], to[i], &ends);
        nodes_remove(&ends.to->deps, ends.from);
        nodes_remove(&ends.from->outs, ends.to);
    }
    return driver_leave(rc);
}

API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                              size_t count) {
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
