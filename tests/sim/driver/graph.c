// graph.c: graphs as such: nodes, the edges between them, and walks over both.
#include "graph.h"

#include <stdlib.h>

static struct pool graphs = {.bytes = sizeof(struct graph), .most = 1u << 18};
static struct pool nodes = {.bytes = sizeof(struct node), .most = 1u << 21};

struct graph *graph_get(CUgraph handle) {
    return pool_get(&graphs, handle);
}

struct node *node_get(CUgraphNode handle) {
    struct node *node = pool_get(&nodes, handle);
    return node && !node->graph->exec ? node : NULL;  // an executable graph's are not for others
}

// ---- Lists of nodes ----

bool nodes_add(struct nodes *list, struct node *node) {
    if (list->count == list->room) {
        uint32_t room = list->room ? list->room * 2 : 4;
        void *grown = realloc(list->at, room * sizeof list->at[0]);
        if (!grown)
            return false;
        list->at = grown;
        list->room = room;
    }
    list->at[list->count++] = node;
    return true;
}

void nodes_remove(struct nodes *list, const struct node *node) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->at[i] != node)
            list->at[kept++] = list->at[i];
    list->count = kept;
}

bool nodes_have(const struct nodes *list, const struct node *node) {
    for (uint32_t i = 0; i < list->count; i++)
        if (list->at[i] == node)
            return true;
    return false;
}

CUresult nodes_check(const struct graph *graph, const CUgraphNode *handles, size_t count) {
    if (count && !handles)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct node *node = node_get(handles[i]);
        if (!node || node->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (handles[j] == handles[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult nodes_list(const struct nodes *list, CUgraphNode *out, CUgraphEdgeData *edges,
                    size_t *count) {
    if (!count || (edges && !out))
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = out ? *count : 0;
    for (size_t i = 0; i < room; i++) {
        out[i] = i < list->count ? (CUgraphNode)list->at[i] : NULL;
        if (edges)
            edges[i] = (CUgraphEdgeData){0};
    }
    if (!out || room > list->count)
        *count = list->count;
    return CUDA_SUCCESS;
}

// ---- Nodes ----

struct node *node_make(struct graph *graph, CUgraphNodeType type) {
    struct node *node = pool_take(&nodes);
    if (!node)
        return NULL;
    node->graph = graph;
    node->type = type;
    node->id = ++driver.ids;
    node->prev = graph->last;
    *(graph->last ? &graph->last->next : &graph->first) = node;
    graph->last = node;
    graph->count++;
    return node;
}

void node_end(struct node *node) {
    struct graph *graph = node->graph;
    for (uint32_t i = 0; i < node->deps.count; i++)
        nodes_remove(&node->deps.at[i]->outs, node);
    for (uint32_t i = 0; i < node->outs.count; i++)
        nodes_remove(&node->outs.at[i]->deps, node);
    free(node->deps.at);
    free(node->outs.at);
    params_drop(node);
    *(node->prev ? &node->prev->next : &graph->first) = node->next;
    *(node->next ? &node->next->prev : &graph->last) = node->prev;
    graph->count--;
    pool_drop(&nodes, node);
}

bool edge_add(struct node *from, struct node *to) {
    if (!nodes_add(&to->deps, from))
        return false;
    if (nodes_add(&from->outs, to))
        return true;
    nodes_remove(&to->deps, from);
    return false;
}

// ---- Graphs ----

struct graph *graph_make(void) {
    struct graph *graph = pool_take(&graphs);
    if (graph)
        graph->id = ++driver.ids;
    return graph;
}

void graph_end(struct graph *graph) {
    while (graph->first)
        node_end(graph->first);
    retained_drop(&graph->retained);
    pool_drop(&graphs, graph);
}

bool graph_has_memory(const struct graph *graph) {
    for (const struct node *n = graph->first; n; n = n->next)
        if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || n->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return true;
    return false;
}

// A copy of one node in the same place of another graph, edges to older nodes included. The
// originals' `index` numbers them, `made` has the copies.
static bool clone_node(struct graph *to, const struct node *from, struct node **made) {
    struct node *node = node_make(to, from->type);
    if (!node)
        return false;
    node->origin = (struct node *)from;
    node->origin_id = from->id;
    node->context = from->context;
    node->context_id = from->context_id;
    node->disabled = from->disabled;
    made[from->index] = node;
    return !params_copy(node, from);
}

struct graph *graph_clone(const struct graph *from) {
    struct graph *graph = graph_make();
    struct node **made = calloc(from->count + 1, sizeof *made);
    bool good = graph && made && !retained_copy(&graph->retained, from->retained);
    uint32_t index = 0;
    for (struct node *n = from->first; n && good; n = n->next) {
        n->index = index++;
        good = clone_node(graph, n, made);
    }
    // Edges in the order in which each node has them; a node may depend on a younger one.
    for (const struct node *n = from->first; n && good; n = n->next)
        for (uint32_t i = 0; i < n->deps.count && good; i++)
            good = edge_add(made[n->deps.at[i]->index], made[n->index]);
    free(made);
    if (!good && graph) {
        graph_end(graph);
        return NULL;
    }
    if (graph) {
        graph->origin = (struct graph *)from;
        graph->origin_id = from->id;
    }
    return graph;
}

struct node *graph_find_copy(const struct graph *graph, const struct node *original) {
    for (struct node *n = graph->first; n; n = n->next) {
        if (n->origin == original && n->origin_id == original->id)
            return n;
        bool parent = n->type == CU_GRAPH_NODE_TYPE_GRAPH;
        struct node *inner = parent ? graph_find_copy(n->child, original) : NULL;
        if (inner)
            return inner;
    }
    return NULL;
}

bool graph_order(const struct graph *graph, struct nodes *order, bool *cycle) {
    *order = (struct nodes){0};
    *cycle = false;
    for (struct node *n = graph->first; n; n = n->next) {
        n->index = n->deps.count;  // how many it waits for still
        if (!n->index && !nodes_add(order, n))
            return false;
    }
    for (uint32_t i = 0; i < order->count; i++) {
        const struct nodes *outs = &order->at[i]->outs;
        for (uint32_t j = 0; j < outs->count; j++)
            if (--outs->at[j]->index == 0 && !nodes_add(order, outs->at[j]))
                return false;
    }
    *cycle = order->count < graph->count;
    return !*cycle;
}

CUresult edges_plain(const CUgraphEdgeData *edges, size_t count) {
    for (size_t i = 0; edges && i < count; i++) {
        if (edges[i].from_port || edges[i].to_port || edges[i].type)
            return CUDA_ERROR_NOT_SUPPORTED;  // programmatic launches are not modelled
        for (unsigned j = 0; j < sizeof edges[i].reserved; j++)
            if (edges[i].reserved[j])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
