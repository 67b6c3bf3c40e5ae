// graph.c: graphs as they are built and made executable, and what their memory nodes need. Memory
// nodes are looked for when a graph is made executable, and only in programs that have allocated in
// stream order (a stream capture makes nodes of that) or have made such nodes themselves.
#include "graph.h"

#include "graphused.h"
#include "hooks.h"
#include "note.h"

// Graphs in graphs are looked into so deep.
#define DEPTH_MAX 32
// So many nodes are looked at without memory being mapped for them.
#define NODES_FEW 64

// ---- All nodes of a graph ----

struct walk {
    weir_graph_visit_fn *visit;
    void *context;
    int too_deep;
};

static CUresult walk_graph(CUgraph graph, int depth, struct walk *walk);

static CUresult walk_nodes(const CUgraphNode *nodes, size_t count, int depth, struct walk *walk) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUgraph child;
        int type = -1;
        result = WEIR_REAL(cuGraphNodeGetType)(nodes[i], &type);
        if (result == CUDA_SUCCESS && type != CU_GRAPH_NODE_TYPE_GRAPH)
            result = walk->visit(nodes[i], type, walk->context);
        if (result != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_GRAPH)
            continue;
        result = WEIR_REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child);
        if (result == CUDA_SUCCESS)
            result = walk_graph(child, depth + 1, walk);
    }
    return result;
}

static CUresult walk_graph(CUgraph graph, int depth, struct walk *walk) {
    CUgraphNode few[NODES_FEW], *nodes = few;
    size_t count = 0;
    walk->too_deep = depth > DEPTH_MAX;
    if (walk->too_deep)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = WEIR_REAL(cuGraphGetNodes)(graph, NULL, &count);
    size_t room_bytes = count * sizeof(CUgraphNode);
    if (result != CUDA_SUCCESS || !count)
        return result;
    if (count > NODES_FEW && !(nodes = weir_sys_map(room_bytes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = WEIR_REAL(cuGraphGetNodes)(graph, nodes, &count);
    if (result == CUDA_SUCCESS)
        result = walk_nodes(nodes, count, depth, walk);
    if (nodes != few)
        weir_sys_unmap(nodes, room_bytes);
    return result;
}

CUresult weir_graph_walk(CUgraph graph, weir_graph_visit_fn *visit, void *context) {
    struct walk walk = {visit, context, 0};
    return walk_graph(graph, 0, &walk);
}

// ---- What memory nodes need ----

static CUresult add_alloc_node(CUgraphNode node, int type, void *context) {
    struct weir_graph_needs *needs = context;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_SUCCESS;
    CUresult result = WEIR_REAL(cuGraphMemAllocNodeGetParams)(node, &params);
    const CUmemLocation *location = &params.poolProps.location;
    if (result != CUDA_SUCCESS || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (unsigned)location->id >= WEIR_ORDINALS_MAX)
        return result;
    needs->gpus |= (uint64_t)1 << location->id;
    if (params.bytesize > needs->largest_bytes)
        needs->largest_bytes = params.bytesize;
    return CUDA_SUCCESS;
}

// What a graph that is to be made executable needs. CUDA_SUCCESS and *state, NULL where nothing is
// to be charged; or the code for the program.
static CUresult look_into(CUgraph graph, struct weir_state **state,
                          struct weir_graph_needs *needs) {
    *needs = (struct weir_graph_needs){0};
    if (!weir_enforced(state) || !__atomic_load_n(&(*state)->graph_memory, __ATOMIC_RELAXED)) {
        *state = NULL;
        return CUDA_SUCCESS;
    }
    if (weir_lock_is_mine(&(*state)->lock))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct walk walk = {add_alloc_node, needs, 0};
    CUresult result = walk_graph(graph, 0, &walk);
    if (walk.too_deep)
        weir_note_bound(*state, WEIR_BOUND_NESTING, DEPTH_MAX);
    if (!needs->gpus)
        *state = NULL;
    return result;
}

// After a graph was made executable, or not. One that cannot be remembered is destroyed.
static CUresult made(struct weir_state *state, const struct weir_graph_needs *needs, CUgraph graph,
                     CUresult result, const CUgraphExec *exec) {
    if (result == CUDA_SUCCESS)
        weir_graph_used_made(*exec, graph);
    if (result != CUDA_SUCCESS || !state ||
        weir_exec_remember(state, weir_exec_handle(*exec), needs) == 0)
        return result;
    WEIR_REAL(cuGraphExecDestroy)(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                 char *log, size_t log_bytes) {
    struct weir_state *state;
    struct weir_graph_needs needs;
    CUresult result = look_into(graph, &state, &needs);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuGraphInstantiate)(exec, graph, error_node, log, log_bytes);
    return made(state, &needs, graph, result, exec);
}

CUresult weir_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                    char *log, size_t log_bytes) {
    struct weir_state *state;
    struct weir_graph_needs needs;
    CUresult result = look_into(graph, &state, &needs);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuGraphInstantiate_v2)(exec, graph, error_node, log, log_bytes);
    return made(state, &needs, graph, result, exec);
}

CUresult weir_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, uint64_t flags) {
    struct weir_state *state;
    struct weir_graph_needs needs;
    CUresult result = look_into(graph, &state, &needs);
    if (result != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuGraphInstantiateWithFlags)(exec, graph, flags);
    return made(state, &needs, graph, result, exec);
}

// A graph that needs memory is not uploaded by the driver in the same call, but by us afterwards.
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                            int per_thread) {
    struct weir_state *state;
    struct weir_graph_needs needs;
    CUresult result = look_into(graph, &state, &needs);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t uploads = state && params ? params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD : 0;
    if (uploads)
        params->flags -= uploads;
    result = (per_thread ? WEIR_REAL(cuGraphInstantiateWithParams_ptsz)
                         : WEIR_REAL(cuGraphInstantiateWithParams))(exec, graph, params);
    result = made(state, &needs, graph, result, exec);
    if (!uploads)
        return result;
    params->flags += uploads;
    if (result != CUDA_SUCCESS)
        return result;
    result = weir_graph_upload(*exec, params->hUploadStream, per_thread);
    if (result != CUDA_SUCCESS)
        weir_cuGraphExecDestroy(*exec);
    return result;
}

CUresult weir_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate(exec, graph, params, 0);
}

CUresult weir_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate(exec, graph, params, 1);
}

// It leaves the book before the driver can give its handle to another.
CUresult weir_cuGraphExecDestroy(CUgraphExec exec) {
    struct weir_state *state;
    struct weir_exec known;
    weir_graph_used_gone(exec);
    if (!weir_exec_may_allocate(exec) || !weir_enforced(&state) ||
        !weir_exec_forget(state, weir_exec_handle(exec), &known))
        return WEIR_REAL(cuGraphExecDestroy)(exec);
    CUresult result = WEIR_REAL(cuGraphExecDestroy)(exec);
    if (result == CUDA_SUCCESS)
        weir_reserves_settle(state);
    else
        weir_exec_remember(state, weir_exec_handle(exec), &known.needs);
    return result;
}

CUresult weir_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                     size_t after_count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    struct weir_state *state;
    if (!weir_passing() && weir_enter(&state) == WEIR_MODE_ENFORCED)
        weir_graphs_may_allocate(state);
    return WEIR_REAL(cuGraphAddMemAllocNode)(node, graph, after, after_count, params);
}

static void note_type(const CUgraphNodeParams *params) {
    struct weir_state *state;
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !weir_passing() &&
        weir_enter(&state) == WEIR_MODE_ENFORCED)
        weir_graphs_may_allocate(state);
}

CUresult weir_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                             size_t after_count, CUgraphNodeParams *params) {
    note_type(params);
    return WEIR_REAL(cuGraphAddNode)(node, graph, after, after_count, params);
}

CUresult weir_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                const void *edges, size_t after_count, CUgraphNodeParams *params) {
    note_type(params);
    return WEIR_REAL(cuGraphAddNode_v2)(node, graph, after, edges, after_count, params);
}

// What a graph has just been given, and is not using yet, is not to be given back.
CUresult weir_cuDeviceGraphMemTrim(CUdevice device) {
    struct weir_state *state;
    struct weir_growths growths;
    if ((unsigned)device >= WEIR_ORDINALS_MAX || !weir_enforced(&state) ||
        !__atomic_load_n(&state->gpus[device].reserved_bytes, __ATOMIC_RELAXED))
        return WEIR_REAL(cuDeviceGraphMemTrim)(device);
    CUresult result = weir_growths_begin(&growths, state, (uint64_t)1 << device, 1);
    if (result != CUDA_SUCCESS)
        return result;
    __atomic_fetch_add(&state->gpus[device].graph_trims, 1, __ATOMIC_RELAXED);
    result = WEIR_REAL(cuDeviceGraphMemTrim)(device);
    weir_growths_undone(&growths);  // settles
    return result;
}
