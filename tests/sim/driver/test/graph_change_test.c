// graph_change_test.c: what the nodes of graphs do, looked at and changed: in the graph, in a clone
// of it, and in what has been instantiated.
#define _GNU_SOURCE
#include "test_graph.h"

// ---- Looking at what nodes do, and changing it ----

static void parameters(void) {
    CUgraphNode kernel, set, copy, host;
    CUDA_KERNEL_NODE_PARAMS params;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_MEMCPY3D what;
    CUDA_HOST_NODE_PARAMS function;
    int one = 1, ten = 10;
    clear();
    OK(cuGraphCreate(&graph, 0));
    kernel = add_node(NULL, 0, words, 5);
    set = set_node(&kernel, 1, words + 4, 6);
    copy = copy_node(&set, 1, words + 8, words);
    function = (CUDA_HOST_NODE_PARAMS){host_function, &one};
    OK(cuGraphAddHostNode(&host, graph, &copy, 1, &function));
    OK(cuGraphKernelNodeGetParams(kernel, &params));
    CHECK(params.func == add);
    CHECK_EQ(*(uint32_t *)params.kernelParams[2], 5);
    OK(cuGraphMemsetNodeGetParams(set, &fill));
    CHECK_EQ(fill.value, 6);
    OK(cuGraphMemcpyNodeGetParams(copy, &what));
    CHECK_EQ(what.dstDevice, words + 8);
    OK(cuGraphHostNodeGetParams(host, &function));
    CHECK(function.userData == &one);
    CHECK_EQ(cuGraphMemsetNodeGetParams(kernel, &fill), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphKernelNodeGetParams(kernel, NULL), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec before;
    OK(cuGraphInstantiateWithFlags(&before, graph, 0));
    // What is changed in the graph counts for what is made of it from then on.
    uint32_t by = 50, n = 1;
    CUdeviceptr at = words;
    params.kernelParams = (void *[]){&at, &n, &by};
    OK(cuGraphKernelNodeSetParams(kernel, &params));
    fill.value = 60;
    OK(cuGraphMemsetNodeSetParams(set, &fill));
    what.srcDevice = words + 4;
    OK(cuGraphMemcpyNodeSetParams(copy, &what));
    function.userData = &ten;
    OK(cuGraphHostNodeSetParams(host, &function));
    fill.elementSize = 3;
    CHECK_EQ(cuGraphMemsetNodeSetParams(set, &fill), CUDA_ERROR_INVALID_VALUE);
    what.srcDevice = 4096;
    CHECK_EQ(cuGraphMemcpyNodeSetParams(copy, &what), CUDA_ERROR_INVALID_VALUE);
    called = 0;
    OK(cuGraphLaunch(before, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(word(0) == 5 && word(1) == 6 && word(2) == 5 && called == 1);
    instantiate();
    launch_and_wait();
    CHECK(word(0) == 55 && word(1) == 60 && word(2) == 60 && called == 11);
    OK(cuGraphExecDestroy(before));
    drop();
}

static void attributes(void) {
    CUgraphNode one, two;
    CUlaunchAttributeValue value = {.priority = -3}, got;
    OK(cuGraphCreate(&graph, 0));
    one = add_node(NULL, 0, words, 1);
    two = add_node(NULL, 0, words, 1);
    OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    value = (CUlaunchAttributeValue){.cooperative = 1};
    OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    OK(cuGraphKernelNodeCopyAttributes(two, one));
    OK(cuGraphKernelNodeGetAttribute(two, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
    CHECK_EQ(got.priority, -3);
    OK(cuGraphKernelNodeGetAttribute(two, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got));
    CHECK_EQ(got.cooperative, 1);
    CHECK_EQ(cuGraphKernelNodeGetAttribute(two, 77, &got), CUDA_ERROR_INVALID_VALUE);
    instantiate();
    launch_and_wait();
    drop();
}

static void copies_of_graphs(void) {
    CUgraph clone, original;
    CUgraphNode node, twin;
    CUDA_MEMSET_NODE_PARAMS fill = set_of(words, 9, 1);
    OK(cuGraphCreate(&graph, 0));
    node = set_node(NULL, 0, words, 1);
    add_node(&node, 1, words, 1);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&twin, node, clone));
    CHECK(twin != node);
    CHECK_EQ(cuGraphNodeFindInClone(&twin, node, graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphMemsetNodeSetParams(node, &fill));
    original = graph;
    graph = clone;
    instantiate();
    clear();
    launch_and_wait();
    CHECK_EQ(word(0), 2);
    drop();
    OK(cuGraphDestroy(original));
}

// ---- Changing what has been instantiated ----

static void exec_parameters(void) {
    CUgraphNode kernel, set, copy, host, child_node, inner;
    CUgraph child, outer;
    int one = 1, ten = 10;
    unsigned enabled;
    OK(cuGraphCreate(&graph, 0));
    inner = add_node(NULL, 0, words + 12, 1);
    child = graph;
    OK(cuGraphCreate(&graph, 0));
    outer = graph;
    kernel = add_node(NULL, 0, words, 5);
    set = set_node(&kernel, 1, words + 4, 6);
    copy = copy_node(&set, 1, words + 8, words);
    CUDA_HOST_NODE_PARAMS function = {host_function, &one};
    OK(cuGraphAddHostNode(&host, outer, &copy, 1, &function));
    OK(cuGraphAddChildGraphNode(&child_node, outer, &host, 1, child));
    OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
    uint32_t by = 50, n = 1;
    CUdeviceptr at = words;
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphKernelNodeGetParams_v2(kernel, &params));
    params.kernelParams = (void *[]){&at, &n, &by};
    OK(cuGraphExecKernelNodeSetParams_v2(exec, kernel, &params));
    CUDA_MEMSET_NODE_PARAMS fill = set_of(words + 4, 60, 1);
    OK(cuGraphExecMemsetNodeSetParams(exec, set, &fill, primary));
    CUDA_MEMCPY3D what = copy_of(words + 8, words + 4, 4);
    OK(cuGraphExecMemcpyNodeSetParams(exec, copy, &what, primary));
    function.userData = &ten;
    OK(cuGraphExecHostNodeSetParams(exec, host, &function));
    // A child graph of the same shape.
    OK(cuGraphCreate(&graph, 0));
    add_node(NULL, 0, words + 12, 1000);
    OK(cuGraphExecChildGraphNodeSetParams(exec, child_node, graph));
    inner = add_node(NULL, 0, words + 12, 1);
    CHECK_EQ(cuGraphExecChildGraphNodeSetParams(exec, child_node, graph), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
    called = 0;
    clear();
    launch_and_wait();
    CHECK(word(0) == 50 && word(1) == 60 && word(2) == 60 && word(3) == 1000 && called == 10);
    // Of another kind, of another graph, or not of one row.
    CHECK_EQ(cuGraphExecMemsetNodeSetParams(exec, kernel, &fill, primary),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphExecMemsetNodeSetParams(exec, inner, &fill, primary), CUDA_ERROR_INVALID_VALUE);
    what.Height = 2;
    what.srcPitch = what.dstPitch = 64;
    CHECK_EQ(cuGraphExecMemcpyNodeSetParams(exec, copy, &what, primary), CUDA_ERROR_INVALID_VALUE);
    // Nodes can be switched off and on.
    OK(cuGraphNodeSetEnabled(exec, set, 0));
    OK(cuGraphNodeGetEnabled(exec, set, &enabled));
    CHECK_EQ(enabled, 0);
    CHECK_EQ(cuGraphNodeSetEnabled(exec, host, 0), CUDA_ERROR_INVALID_VALUE);
    clear();
    launch_and_wait();
    CHECK(word(0) == 50 && word(1) == 0 && word(2) == 0);
    OK(cuGraphNodeSetEnabled(exec, set, 1));
    launch_and_wait();
    CHECK_EQ(word(1), 60);
    OK(cuGraphDestroy(child));
    graph = outer;
    drop();
}

static CUgraph update_graph(uint32_t by, bool twist) {
    CUgraphNode a, b, c;
    OK(cuGraphCreate(&graph, 0));
    a = set_node(NULL, 0, words, by);
    b = add_node(&a, 1, words, 2 * by);
    c = add_node(twist ? &a : &b, 1, words + 4, 3 * by);
    (void)c;
    return graph;
}

static void updates(void) {
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult result;
    CUgraphNode node;
    CUgraph first = update_graph(1, false);
    instantiate();
    CUgraph second = update_graph(10, false);
    OK(cuGraphExecUpdate_v2(exec, second, &info));
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    clear();
    launch_and_wait();
    CHECK(word(0) == 30 && word(1) == 30);
    CUgraph twisted = update_graph(100, true);
    CHECK_EQ(cuGraphExecUpdate(exec, twisted, &node, &result),
             CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphCreate(&graph, 0));
    node = add_node(NULL, 0, words, 1);
    node = add_node(&node, 1, words, 1);
    node = add_node(&node, 1, words, 1);
    CHECK_EQ(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    CHECK(info.errorNode);
    add_node(&node, 1, words, 1);
    CHECK_EQ(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    launch_and_wait();  // nothing of them has been taken over
    CHECK_EQ(word(0), 30);
    OK(cuGraphDestroy(twisted));
    OK(cuGraphDestroy(first));
    OK(cuGraphDestroy(second));
    drop();
}

int main(int argc, char **argv) {
    start_graphs();
    static const struct test tests[] = {
        TEST(parameters),      TEST(attributes), TEST(copies_of_graphs),
        TEST(exec_parameters), TEST(updates),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
