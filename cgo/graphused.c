// graphused.c: see graphused.h.
#include "graphused.h"

#include "graph.h"
#include "hooks.h"
#include "used.h"

// Executable graphs with a list. Those beyond are unknown.
#define LISTS_MAX 8192u

static const struct weir_slab_shape shape = {
    .record_bytes = sizeof(struct weir_graph_used), .records_max = LISTS_MAX, .chains = 1024};

_Static_assert(sizeof(struct weir_graph_used) % 8 == 0, "a slab's record");

// ---- The book ----

// This process's, whether or not anything is movable now; NULL where there never was.
static struct weir_swap *known_swap(void) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    return state ? __atomic_load_n(&state->swap, __ATOMIC_ACQUIRE) : NULL;
}

// Lock held, here and in the next.
static struct weir_graph_used *find(const struct weir_swap *swap, CUgraphExec exec, uint32_t *at) {
    uint64_t handle = weir_exec_handle(exec), hash = weir_slab_hash(handle);
    for (*at = swap->graphs.memory ? weir_slab_first(&swap->graphs, &shape, hash) : 0; *at;
         *at = weir_slab_next(&swap->graphs, &shape, *at)) {
        struct weir_graph_used *list = weir_slab_at(&swap->graphs, &shape, *at);
        if (list->handle == handle)
            return list;
    }
    return NULL;
}

const struct weir_graph_used *weir_graph_used_of(const struct weir_swap *swap, CUgraphExec exec) {
    uint32_t at;
    return find(swap, exec, &at);
}

void weir_graph_used_gone(CUgraphExec exec) {
    struct weir_swap *swap = known_swap();
    uint32_t at;
    if (!swap || !swap->graphs.memory || weir_lock(&swap->state->lock))
        return;
    if (find(swap, exec, &at))
        weir_slab_free(&swap->graphs, &shape, weir_slab_hash(weir_exec_handle(exec)), at);
    weir_unlock(&swap->state->lock);
}

// Begins an empty list. Whether there is one.
static int begin(struct weir_swap *swap, CUgraphExec exec) {
    uint64_t handle = weir_exec_handle(exec);
    weir_graph_used_gone(exec);  // one whose end was not seen, or that is made anew
    if (weir_slab_ready(&swap->graphs, &shape, &swap->state->lock) || weir_lock(&swap->state->lock))
        return 0;
    uint32_t at = weir_slab_new(&swap->graphs, &shape, weir_slab_hash(handle));
    if (at)
        ((struct weir_graph_used *)weir_slab_at(&swap->graphs, &shape, at))->handle = handle;
    weir_unlock(&swap->state->lock);
    return at != 0;
}

// ---- What is read ----

struct reading {
    struct weir_swap *swap;
    CUgraphExec exec;
};

static void set_unknown(const struct reading *reading) {
    uint32_t at;
    if (weir_lock(&reading->swap->state->lock))
        return;
    struct weir_graph_used *list = find(reading->swap, reading->exec, &at);
    if (list)
        list->unknown = 1;
    weir_unlock(&reading->swap->state->lock);
}

// Adds the allocation that an address is in, if it is in one. Lock held.
static void add(struct weir_swap *swap, uint64_t address, void *context) {
    const struct reading *reading = context;
    uint32_t number = weir_movable_holding(swap, address), at, i = 0;
    struct weir_graph_used *list = number ? find(swap, reading->exec, &at) : NULL;
    if (!list)
        return;
    uint64_t pointer = weir_movable_at(swap, number)->pointer;
    while (i < list->count && list->at[i] != pointer)
        i++;
    if (i < list->count)
        return;
    if (i == WEIR_GRAPH_USED_MAX)
        list->unknown = 1;
    else
        list->at[list->count++] = pointer;
}

static void read_addresses(struct reading *reading, uint64_t a, uint64_t b) {
    if (weir_lock(&reading->swap->state->lock))
        return;
    add(reading->swap, a, reading);
    add(reading->swap, b, reading);
    weir_unlock(&reading->swap->state->lock);
}

static void read_kernel(struct reading *reading, void *function, void **params, void **extra) {
    const struct weir_used_words words = {reading->swap, add, reading};
    if (!weir_used_words(&words, function, params, extra))
        set_unknown(reading);
}

static CUresult read_kernel_node(struct reading *reading, CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS params = {.func = NULL};
    CUresult result = WEIR_REAL(cuGraphKernelNodeGetParams_v2)(node, &params);
    if (result == CUDA_SUCCESS)
        read_kernel(reading, params.func ? (void *)params.func : params.kern, params.kernelParams,
                    params.extra);
    return result;
}

static CUresult read_copy_node(struct reading *reading, CUgraphNode node) {
    CUDA_MEMCPY3D copy = {.dstDevice = 0};
    CUresult result = WEIR_REAL(cuGraphMemcpyNodeGetParams)(node, &copy);
    if (result == CUDA_SUCCESS)
        read_addresses(reading, copy.dstDevice, copy.srcDevice);
    return result;
}

static CUresult read_set_node(struct reading *reading, CUgraphNode node) {
    CUDA_MEMSET_NODE_PARAMS set = {.dst = 0};
    CUresult result = WEIR_REAL(cuGraphMemsetNodeGetParams)(node, &set);
    if (result == CUDA_SUCCESS)
        read_addresses(reading, set.dst, 0);
    return result;
}

static CUresult read_node(CUgraphNode node, int type, void *context) {
    struct reading *reading = context;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return read_kernel_node(reading, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return read_copy_node(reading, node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return read_set_node(reading, node);
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void read_graph(struct reading *reading, CUgraph graph) {
    if (weir_graph_walk(graph, read_node, reading) != CUDA_SUCCESS)
        set_unknown(reading);
}

void weir_graph_used_made(CUgraphExec exec, CUgraph graph) {
    struct reading reading = {weir_swap_known(), exec};
    if (!reading.swap)
        weir_graph_used_gone(exec);
    else if (begin(reading.swap, exec))
        read_graph(&reading, graph);
}

// ---- Changes of executable graphs ----

// Evaluates a call of the driver; where it has changed an executable graph that may use movable
// memory, `read` is done with what it has been given.
#define CHANGE(exec, call, read)                                                                   \
    ({                                                                                             \
        CUresult result = call;                                                                    \
        struct reading reading = {result == CUDA_SUCCESS ? weir_swap_known() : NULL, exec};        \
        if (reading.swap)                                                                          \
            read;                                                                                  \
        result;                                                                                    \
    })

CUresult weir_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS *params) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecKernelNodeSetParams)(exec, node, params),
                  read_kernel(&reading, params->func, params->kernelParams, params->extra));
}

CUresult weir_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS *params) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecKernelNodeSetParams_v2)(exec, node, params),
                  read_kernel(&reading, params->func ? (void *)params->func : params->kern,
                              params->kernelParams, params->extra));
}

CUresult weir_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_MEMCPY3D *copy, CUcontext context) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecMemcpyNodeSetParams)(exec, node, copy, context),
                  read_addresses(&reading, copy->dstDevice, copy->srcDevice));
}

CUresult weir_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_MEMSET_NODE_PARAMS *set,
                                             CUcontext context) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecMemsetNodeSetParams)(exec, node, set, context),
                  read_addresses(&reading, set->dst, 0));
}

CUresult weir_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 CUgraph child) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child),
                  read_graph(&reading, child));
}

// Of the forms of nodes that it serves, only the kernel's is read.
CUresult weir_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                       CUgraphNodeParams *params) {
    const CUDA_KERNEL_NODE_PARAMS *kernel =
        params && params->type == CU_GRAPH_NODE_TYPE_KERNEL ? (void *)params->reserved1 : NULL;
    return CHANGE(exec, WEIR_REAL(cuGraphExecNodeSetParams)(exec, node, params),
                  kernel ? read_kernel(&reading, kernel->func ? (void *)kernel->func : kernel->kern,
                                       kernel->kernelParams, kernel->extra)
                         : set_unknown(&reading));
}

CUresult weir_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                int *result_out) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecUpdate)(exec, graph, error_node, result_out),
                  weir_graph_used_made(exec, graph));
}

CUresult weir_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result_out) {
    return CHANGE(exec, WEIR_REAL(cuGraphExecUpdate_v2)(exec, graph, result_out),
                  weir_graph_used_made(exec, graph));
}
