// graphuse.c: graphs of the test driver whose nodes use memory, in place of those of graphs.c from
// the command `graphof` on:
//   graphof KERNEL COPY SET CHILD ODD   a graph whose kernel, copy, set and child graph's kernel
//   use
//                                       these addresses, and one node of a kind that is not known;
//                                       made executable: its handle
//   graphrun EXEC                       launches it
//   graphset EXEC KERNEL                gives its kernel another address
//   graphupdate EXEC KERNEL             makes it as a graph with one kernel is
//   graphend EXEC
#include <stdlib.h>
#include <string.h>

#include "../../hooks.h"
#include "driver.h"
#include "host.h"

#define ODD_TYPE 13
#define NODES 5

struct use_node {
    int type;
    uint64_t address[2];  // a kernel's one parameter
    void *params[1];
    struct use_graph *child;
};

struct use_graph {
    struct use_node nodes[NODES];
    size_t count;
};

static uintptr_t last_exec = 0x9000;

static struct use_node *node_of(CUgraphNode node) {
    return (struct use_node *)node;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    struct use_graph *graph = (struct use_graph *)handle;
    for (size_t i = 0; nodes && i < graph->count; i++)
        nodes[i] = (CUgraphNode)&graph->nodes[i];
    *count = graph->count;
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode node, int *type) {
    *type = node_of(node)->type;
    return CUDA_SUCCESS;
}

static CUresult get_child(CUgraphNode node, CUgraph *graph) {
    *graph = (CUgraph)node_of(node)->child;
    return CUDA_SUCCESS;
}

static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
    memset(params, 0, sizeof(*params));
    params->kern = (void *)100;  // of a library
    params->kernelParams = node_of(node)->params;
    return CUDA_SUCCESS;
}

static CUresult get_copy(CUgraphNode node, CUDA_MEMCPY3D *copy) {
    memset(copy, 0, sizeof(*copy));
    copy->srcDevice = node_of(node)->address[0];
    return CUDA_SUCCESS;
}

static CUresult get_set(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *set) {
    memset(set, 0, sizeof(*set));
    set->dst = node_of(node)->address[0];
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags) {
    (void)graph, (void)flags;
    *exec = (CUgraphExec)(last_exec += 16);
    return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream) {
    (void)exec;
    return test_work_submit(stream, 100);
}

static CUresult set_kernel(CUgraphExec exec, CUgraphNode node,
                           const CUDA_KERNEL_NODE_PARAMS *params) {
    (void)exec, (void)node, (void)params;
    return CUDA_SUCCESS;
}

static CUresult update(CUgraphExec exec, CUgraph graph, void *result) {
    (void)exec, (void)graph, (void)result;
    return CUDA_SUCCESS;
}

static CUresult end(CUgraphExec exec) {
    (void)exec;
    return CUDA_SUCCESS;
}

static void install(void) {
    INSTALL(cuGraphGetNodes, get_nodes);
    INSTALL(cuGraphNodeGetType, get_type);
    INSTALL(cuGraphChildGraphNodeGetGraph, get_child);
    INSTALL(cuGraphKernelNodeGetParams_v2, get_kernel);
    INSTALL(cuGraphMemcpyNodeGetParams, get_copy);
    INSTALL(cuGraphMemsetNodeGetParams, get_set);
    INSTALL(cuGraphInstantiateWithFlags, instantiate);
    INSTALL(cuGraphLaunch, launch);
    INSTALL(cuGraphExecKernelNodeSetParams_v2, set_kernel);
    INSTALL(cuGraphExecUpdate_v2, update);
    INSTALL(cuGraphExecDestroy, end);
}

// ---- Commands ----

static struct use_node *add(struct use_graph *graph, int type, uint64_t address) {
    struct use_node *node = &graph->nodes[graph->count++];
    *node = (struct use_node){.type = type, .address = {address, 0}};
    node->params[0] = node->address;
    return node;
}

static struct use_graph *with_kernel(uint64_t address) {
    struct use_graph *graph = calloc(1, sizeof(*graph));
    add(graph, CU_GRAPH_NODE_TYPE_KERNEL, address);
    return graph;
}

static void make(char **words) {
    struct use_graph *graph = with_kernel(number(words[1]));
    CUgraphExec exec;
    install();
    add(graph, CU_GRAPH_NODE_TYPE_MEMCPY, number(words[2]));
    add(graph, CU_GRAPH_NODE_TYPE_MEMSET, number(words[3]));
    add(graph, CU_GRAPH_NODE_TYPE_GRAPH, 0)->child = with_kernel(number(words[4]));
    if (number(words[5]))
        add(graph, ODD_TYPE, 0);
    CUresult result = weir_cuGraphInstantiateWithFlags(&exec, (CUgraph)graph, 0);
    say(result, (uint64_t)(uintptr_t)exec);
}

static CUresult change(CUgraphExec exec, uint64_t address) {
    uint64_t parameter[2] = {address, 0};
    void *params[] = {parameter};
    const CUDA_KERNEL_NODE_PARAMS kernel = {.func = (CUfunction)100, .kernelParams = params};
    return weir_cuGraphExecKernelNodeSetParams_v2(exec, NULL, &kernel);
}

int test_graphuse(char **words) {
    CUgraphExec exec = (CUgraphExec)(uintptr_t)number(words[1]);
    if (!strcmp(words[0], "graphof"))
        make(words);
    else if (!strcmp(words[0], "graphrun"))
        say(weir_cuGraphLaunch(exec, (CUstream)7), 0);
    else if (!strcmp(words[0], "graphset"))
        say(change(exec, number(words[2])), 0);
    else if (!strcmp(words[0], "graphupdate"))
        say(weir_cuGraphExecUpdate_v2(exec, (CUgraph)with_kernel(number(words[2])), NULL), 0);
    else if (!strcmp(words[0], "graphend"))
        say(weir_cuGraphExecDestroy(exec), 0);
    else
        return 0;
    return 1;
}
