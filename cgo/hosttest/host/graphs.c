// graphs.c: graphs of the tests' driver, which have memory nodes and graphs in them, and nothing
// else. What a graph needs in a stream is taken when it is uploaded or launched there, and kept for
// the stream, whose graphs all use the same; memory of streams that have nothing to do is given
// back when the driver is told to.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../../hooks.h"
#include "driver.h"

#define NODES_MAX 16
#define STREAMS 256
#define FIRST_ADDRESS 0x500000000000ull

struct node {
    struct graph *graph;  // of a graph in a graph, else NULL
    uint64_t bytes;       // of a memory node; 0: an empty node
    int gpu;
};

struct graph {
    struct node nodes[NODES_MAX];
    size_t count;
};

struct exec {
    uint64_t needs[TEST_GPUS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t kept_bytes[TEST_GPUS][STREAMS];
// Of that, in use until the stream has come so far.
static uint64_t running_bytes[TEST_GPUS][STREAMS], running_mark[STREAMS];
static uint64_t next_address = FIRST_ADDRESS;
// By this thread's present call.
static __thread uint64_t grown_bytes[TEST_GPUS];
// The one capture that there is at a time: its stream and what comes of it.
static struct graph *captured;
static uintptr_t captured_stream;

static struct node *add(struct graph *graph) {
    return graph->count < NODES_MAX ? &graph->nodes[graph->count++] : NULL;
}

static CUresult create(CUgraph *graph, unsigned flags) {
    *graph = calloc(1, sizeof(struct graph));
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult destroy(CUgraph graph) {
    free(graph);
    return CUDA_SUCCESS;
}

static CUresult add_alloc(CUgraphNode *handle, CUgraph graph, const CUgraphNode *after,
                          size_t after_count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    struct node *node = add((struct graph *)graph);
    (void)after, (void)after_count;
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    *node = (struct node){.bytes = params->bytesize, .gpu = params->poolProps.location.id};
    params->dptr = __atomic_add_fetch(&next_address, 512, __ATOMIC_RELAXED);
    *handle = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

static CUresult add_child(CUgraphNode *handle, CUgraph graph, const CUgraphNode *after,
                          size_t after_count, CUgraph child) {
    struct node *node = add((struct graph *)graph);
    (void)after, (void)after_count;
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    *node = (struct node){.graph = (struct graph *)child};
    *handle = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    struct graph *graph = (struct graph *)handle;
    for (size_t i = 0; nodes && i < graph->count && i < *count; i++)
        nodes[i] = (CUgraphNode)&graph->nodes[i];
    *count = graph->count;
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode handle, int *type) {
    const struct node *node = (const struct node *)handle;
    *type = node->graph ? CU_GRAPH_NODE_TYPE_GRAPH : node->bytes ? CU_GRAPH_NODE_TYPE_MEM_ALLOC : 5;
    return CUDA_SUCCESS;
}

static CUresult get_params(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    const struct node *node = (const struct node *)handle;
    memset(params, 0, sizeof(*params));
    params->poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, node->gpu};
    params->bytesize = node->bytes;
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode handle, CUgraph *graph) {
    *graph = (CUgraph)((const struct node *)handle)->graph;
    return CUDA_SUCCESS;
}

static void add_needs(const struct graph *graph, struct exec *exec) {
    for (size_t i = 0; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->graph)
            add_needs(node->graph, exec);
        else
            exec->needs[node->gpu] += node->bytes;
    }
}

// Gets what a graph needs in a stream.
static CUresult get_memory(const struct exec *exec, uintptr_t stream) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (int gpu = 0; gpu < TEST_GPUS && result == CUDA_SUCCESS; gpu++) {
        uint64_t *kept = &kept_bytes[gpu][stream % STREAMS];
        uint64_t needed = test_driver_round(exec->needs[gpu], test_driver.chunk_bytes);
        if (needed <= *kept)
            continue;
        if (!test_driver_grow(gpu, needed - *kept)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            continue;
        }
        grown_bytes[gpu] += needed - *kept;
        *kept = needed;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult instantiate_params(CUgraphExec *handle, CUgraph graph,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    int code = test_driver_failure();
    if (code)
        return code;
    struct exec *exec = calloc(1, sizeof(*exec));
    add_needs((const struct graph *)graph, exec);
    *handle = (CUgraphExec)exec;
    return params->flags & 2 ? get_memory(exec, (uintptr_t)params->hUploadStream) : CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags) {
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = flags};
    return instantiate_params(exec, graph, &params);
}

static CUresult exec_destroy(CUgraphExec exec) {
    free(exec);
    return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec exec, CUstream stream) {
    int code = test_driver_failure();
    return code ? code : get_memory((const struct exec *)exec, (uintptr_t)stream);
}

static CUresult launch(CUgraphExec exec, CUstream stream) {
    CUresult result = upload(exec, stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    uintptr_t number = (uintptr_t)stream % STREAMS;
    int running = test_pools_pending(number, running_mark[number]);
    for (int gpu = 0; gpu < TEST_GPUS; gpu++) {
        uint64_t needed =
            test_driver_round(((const struct exec *)exec)->needs[gpu], test_driver.chunk_bytes);
        if (!running || needed > running_bytes[gpu][number])
            running_bytes[gpu][number] = needed;
    }
    running_mark[number] = test_pools_submit(number);
    pthread_mutex_unlock(&lock);
    test_driver_dawdle();
    return CUDA_SUCCESS;
}

static CUresult get_attribute(CUdevice device, int attribute, void *value) {
    uint64_t sum = 0;
    if (device < 0 || device >= TEST_GPUS || attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STREAMS; i++)
        sum += kept_bytes[device][i];
    pthread_mutex_unlock(&lock);
    *(uint64_t *)value = sum;
    return CUDA_SUCCESS;
}

static CUresult trim(CUdevice device) {
    if (device < 0 || device >= TEST_GPUS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (uintptr_t i = 0; i < STREAMS; i++) {
        uint64_t in_use = test_pools_pending(i, running_mark[i]) ? running_bytes[device][i] : 0;
        test_driver_give(device, kept_bytes[device][i] - in_use);
        kept_bytes[device][i] = in_use;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void test_graphs_call_over(void) {
    for (int gpu = 0; gpu < TEST_GPUS; gpu++) {
        test_driver_firm(gpu, grown_bytes[gpu]);
        grown_bytes[gpu] = 0;
    }
}

int test_graphs_owns(uint64_t pointer) {
    return pointer > FIRST_ADDRESS && pointer <= __atomic_load_n(&next_address, __ATOMIC_RELAXED);
}

int test_graphs_capturing(uintptr_t stream) {
    return __atomic_load_n(&captured, __ATOMIC_ACQUIRE) && captured_stream == stream;
}

uint64_t test_graphs_capture(int gpu, uint64_t bytes) {
    struct node *node = add(captured);
    if (node)
        *node = (struct node){.bytes = bytes, .gpu = gpu};
    return node ? __atomic_add_fetch(&next_address, 512, __ATOMIC_RELAXED) : 0;
}

static CUresult is_capturing(CUstream stream, int *status) {
    *status = test_graphs_capturing((uintptr_t)stream);
    return CUDA_SUCCESS;
}

// Streams of the tests' driver never have another's handle.
static CUresult get_id(CUstream stream, unsigned long long *id) {
    *id = (uintptr_t)stream;
    return CUDA_SUCCESS;
}

static CUresult begin_capture(CUstream stream, int mode) {
    (void)mode;
    captured_stream = (uintptr_t)stream;
    __atomic_store_n(&captured, calloc(1, sizeof(struct graph)), __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *graph) {
    (void)stream;
    *graph = (CUgraph)captured;
    __atomic_store_n(&captured, NULL, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

void test_graphs_install(void) {
    INSTALL(cuGraphCreate, create);
    INSTALL(cuGraphDestroy, destroy);
    INSTALL(cuGraphAddMemAllocNode, add_alloc);
    INSTALL(cuGraphAddChildGraphNode, add_child);
    INSTALL(cuGraphGetNodes, get_nodes);
    INSTALL(cuGraphNodeGetType, get_type);
    INSTALL(cuGraphMemAllocNodeGetParams, get_params);
    INSTALL(cuGraphChildGraphNodeGetGraph, get_child);
    INSTALL(cuGraphInstantiateWithFlags, instantiate);
    INSTALL(cuGraphInstantiateWithParams, instantiate_params);
    INSTALL(cuGraphExecDestroy, exec_destroy);
    INSTALL(cuGraphUpload, upload);
    INSTALL(cuGraphLaunch, launch);
    INSTALL(cuDeviceGetGraphMemAttribute, get_attribute);
    INSTALL(cuDeviceGraphMemTrim, trim);
    INSTALL(cuStreamIsCapturing, is_capturing);
    INSTALL(cuStreamIsCapturing_ptsz, is_capturing);
    INSTALL(cuStreamGetId, get_id);
    INSTALL(cuStreamGetId_ptsz, get_id);
    INSTALL(cuStreamBeginCapture_v2, begin_capture);
    INSTALL(cuStreamEndCapture, end_capture);
}
