// graph_test.c: graphs of the simulated driver built from nodes: their structure, what they
// compute, and what a launch costs.
#define _GNU_SOURCE
#include "test_graph.h"

#include <pthread.h>
#include <unistd.h>

// ---- Structure ----

static void structure(void) {
    CUgraphNode nodes[5], from[8], to[8], got[8];
    size_t count;
    CUgraphNodeType type;
    OK(cuGraphCreate(&graph, 0));
    CHECK_EQ(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < 5; i++)
        OK(cuGraphAddEmptyNode(&nodes[i], graph, nodes, i < 2 ? 0 : 2));
    OK(cuGraphNodeGetType(nodes[0], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK_EQ(count, 5);
    count = 8;
    OK(cuGraphGetNodes(graph, got, &count));
    CHECK_EQ(count, 5);
    CHECK(got[4] == nodes[4] && !got[5] && !got[7]);
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    CHECK_EQ(count, 2);
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    CHECK_EQ(count, 6);
    count = 2;
    OK(cuGraphGetEdges(graph, from, to, &count));
    CHECK(from[0] == nodes[0] && from[1] == nodes[1] && to[0] == nodes[2] && to[1] == nodes[2]);
    count = 8;
    OK(cuGraphNodeGetDependentNodes(nodes[0], got, &count));
    CHECK_EQ(count, 3);
    CHECK(got[2] == nodes[4]);
    OK(cuGraphNodeGetDependencies(nodes[4], NULL, &count));
    CHECK_EQ(count, 2);
    // Edges come and go; no edge twice, and none from outside.
    CHECK_EQ(cuGraphAddDependencies(graph, nodes, nodes + 2, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddDependencies(graph, nodes, nodes, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddDependencies(graph, nodes + 2, nodes + 3, 1));
    OK(cuGraphRemoveDependencies(graph, nodes, nodes + 2, 1));
    CHECK_EQ(cuGraphRemoveDependencies(graph, nodes, nodes + 2, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    CHECK_EQ(count, 6);
    OK(cuGraphDestroyNode(nodes[1]));
    CHECK_EQ(cuGraphDestroyNode(nodes[1]), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    CHECK_EQ(count, 3);
    CHECK_EQ(cuGraphAddEmptyNode(got, graph, nodes + 1, 1), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode twice[2] = {nodes[0], nodes[0]};
    CHECK_EQ(cuGraphAddEmptyNode(got, graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
    // A cycle can be built, but nothing can be made of it.
    OK(cuGraphAddDependencies(graph, nodes + 4, nodes, 1));
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CHECK_EQ(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
    OK(cuGraphDestroy(graph));
    CHECK_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphGetNodes(graph, NULL, &count), CUDA_ERROR_INVALID_VALUE);
}

static void edge_data(void) {
    CUgraphNode a, b, got[2];
    CUgraphEdgeData data[2] = {{0}}, other = {.type = 1};
    size_t count = 2;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    CHECK_EQ(cuGraphAddNode_v2(&b, graph, &a, &other, 1, &params), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphAddNode_v2(&b, graph, &a, data, 1, &params));
    memset(data, 0xff, sizeof data);
    OK(cuGraphNodeGetDependencies_v2(b, got, data, &count));
    CHECK_EQ(count, 1);
    CHECK_EQ(data[0].type, 0);
    CHECK_EQ(cuGraphRemoveDependencies_v2(graph, &a, &b, &other, 1), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphDestroy(graph));
}

// ---- What is computed ----

static void all_kinds(void) {
    uint32_t *host;
    int by = 7;
    CUgraphNode first, nodes[6];
    OK(cuMemHostAlloc((void **)&host, 4096, 0));
    host[0] = 100;
    OK(cuGraphCreate(&graph, 0));
    // The host's 100 to the device, + 5, copied beside, all back.
    CUDA_MEMCPY3D in = copy_of(words, 0, 4), out = copy_of(0, words, 8);
    in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = host;
    out.dstHost = host + 1;
    OK(cuGraphAddMemcpyNode(&first, graph, NULL, 0, &in, primary));
    nodes[0] = add_node(&first, 1, words, 5);
    nodes[1] = copy_node(nodes, 1, words + 4, words);
    OK(cuGraphAddMemcpyNode(&nodes[2], graph, nodes + 1, 1, &out, primary));
    CUDA_HOST_NODE_PARAMS function = {host_function, &by};
    OK(cuGraphAddHostNode(&nodes[3], graph, nodes + 2, 1, &function));
    CUstreamBatchMemOpParams write = {
        .value = {CU_STREAM_MEM_OP_WRITE_VALUE_32, words + 8, 42, 0, 0}};
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {primary, 1, &write, 0};
    OK(cuGraphAddBatchMemOpNode(&nodes[4], graph, nodes + 3, 1, &batch));
    instantiate();
    called = 0;
    for (unsigned round = 1; round <= 3; round++) {
        clear();
        launch_and_wait();
        CHECK_EQ(host[1], 105);
        CHECK_EQ(host[2], 105);
        CHECK_EQ(called, 7 * (int)round);
        CHECK_EQ(word(2), 42);
    }
    drop();
    OK(cuMemFreeHost(host));
}

static void child_graphs(void) {
    CUgraph outer, child;
    CUgraphNode node, inner, nodes[2];
    size_t count;
    OK(cuGraphCreate(&graph, 0));
    inner = set_node(NULL, 0, words, 3);
    inner = add_node(&inner, 1, words, 4);
    child = graph;
    OK(cuGraphCreate(&graph, 0));
    outer = graph;
    node = set_node(NULL, 0, words, 50);
    OK(cuGraphAddChildGraphNode(&nodes[0], outer, &node, 1, child));
    OK(cuGraphAddChildGraphNode(&nodes[1], outer, nodes, 1, child));
    add_node(nodes + 1, 1, words, 100);
    OK(cuGraphDestroy(child));  // the nodes have copies
    OK(cuGraphChildGraphNodeGetGraph(nodes[0], &child));
    OK(cuGraphGetNodes(child, NULL, &count));
    CHECK_EQ(count, 2);
    CHECK_EQ(cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);  // it is the node's
    CHECK_EQ(cuGraphAddChildGraphNode(&node, outer, NULL, 0, outer), CUDA_ERROR_INVALID_VALUE);
    // An empty child orders all the same.
    CUgraph empty;
    OK(cuGraphCreate(&empty, 0));
    OK(cuGraphAddChildGraphNode(&node, outer, nodes, 1, empty));
    OK(cuGraphDestroy(empty));
    graph = outer;
    instantiate();
    clear();
    launch_and_wait();
    CHECK_EQ(word(0), 107);
    drop();
}

static void events(void) {
    CUevent start, end, outside;
    CUgraphNode node, record, wait;
    float ms;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, outside));
    OK(cuGraphAddEventRecordNode(&record, graph, &wait, 1, start));
    node = spin_node(&record, 1, 20000000);
    OK(cuGraphAddEventRecordNode(&node, graph, &node, 1, end));
    CUevent got;
    OK(cuGraphEventRecordNodeGetEvent(node, &got));
    CHECK(got == end);
    OK(cuGraphEventWaitNodeGetEvent(wait, &got));
    CHECK(got == outside);
    CHECK_EQ(cuGraphEventWaitNodeGetEvent(node, &got), CUDA_ERROR_INVALID_VALUE);
    instantiate();
    CUstream other;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    int go;
    hold(other, &go);
    OK(cuEventRecord(outside, other));
    OK(cuGraphLaunch(exec, stream));
    CHECK_EQ(cuEventQuery(start), CUDA_ERROR_NOT_READY);
    let_go(&go);
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms > 19.9 && ms < 20.1);
    // An event that is gone is an error of the launch.
    OK(cuEventDestroy_v2(outside));
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
    drop();
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(other));
}

// ---- Launches ----

// The kernels that the driver has computed, and for how long.
static struct sim_books books(void) {
    char path[256];
    struct sim_machine *machine;
    struct sim_process_state state;
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &machine), 0);
    CHECK_EQ(sim_machine_process(machine, 0, &state), 0);
    CHECK_EQ(state.pid, getpid());
    sim_machine_close(machine);
    return state.gpus[0].books;
}

// A launch costs what its nodes cost, whatever its shape, and nothing else.
static void costs(void) {
    CUgraphNode all[40], first;
    OK(cuGraphCreate(&graph, 0));
    first = spin_node(NULL, 0, 1000000);
    for (unsigned i = 0; i < 40; i++)
        all[i] = spin_node(&first, 1, 250000);
    OK(cuGraphAddEmptyNode(&first, graph, all, 40));
    spin_node(&first, 1, 1000000);
    instantiate();
    struct sim_books before = books();
    for (unsigned i = 0; i < 3; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    struct sim_books after = books();
    CHECK_EQ(after.launches - before.launches, 3 * 42);
    CHECK_EQ(after.busy_ns - before.busy_ns, 3 * 12000000);
    drop();
}

// More nodes than the queue has places, in a chain and side by side.
static void large_graphs(void) {
    enum { CHAIN = 1500, WIDE = 2500 };
    static CUgraphNode nodes[WIDE];
    CUgraphNode node = NULL;
    CUdeviceptr wide = alloc(WIDE * 4);
    OK(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < CHAIN; i++)
        node = add_node(&node, i > 0, words, 1);
    for (unsigned i = 0; i < WIDE; i++)
        nodes[i] = set_node(&node, 1, wide + 4 * i, 5 + i);
    OK(cuGraphAddEmptyNode(&node, graph, nodes, WIDE));
    copy_node(&node, 1, words + 4, wide + 4 * (WIDE - 1));
    instantiate();
    clear();
    launch_and_wait();
    CHECK_EQ(word(0), CHAIN);
    CHECK_EQ(word(1), 5 + WIDE - 1);
    drop();
    OK(cuMemFree_v2(wide));
}

// Launches of one executable graph follow one another, whatever the streams.
static void one_after_another(void) {
    CUstream streams[3];
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    node = add_node(NULL, 0, words, 1);
    node = copy_node(&node, 1, words + 4, words);
    add_node(&node, 1, words, 1);
    instantiate();
    clear();
    for (unsigned i = 0; i < 3; i++)
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 60; i++)
        OK(cuGraphLaunch(exec, streams[i % 3]));
    OK(cuGraphExecDestroy(exec));  // what is launched goes on
    for (unsigned i = 0; i < 3; i++)
        OK(cuStreamSynchronize(streams[i]));
    CHECK_EQ(word(0), 120);
    CHECK_EQ(word(1), 119);
    for (unsigned i = 0; i < 3; i++)
        OK(cuStreamDestroy_v2(streams[i]));
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
}

static void in_the_default_stream(void) {
    CUstream blocking;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode node = spin_node(NULL, 0, 15000000);
    add_node(&node, 1, words, 1);
    instantiate();
    clear();
    uint64_t before = sim_now_ns();
    spin_for(15000000, blocking);
    OK(cuGraphLaunch(exec, NULL));
    add_to(words, 1, 10, blocking);
    OK(cuStreamSynchronize(blocking));
    CHECK(sim_now_ns() - before >= 30000000);
    CHECK_EQ(word(0), 11);
    drop();
    OK(cuStreamDestroy_v2(blocking));
}

// Memory or code that is gone is an error of the launch, which then has done nothing.
static void stale_nodes(void) {
    CUmodule module;
    CUfunction function;
    CUgraphNode node;
    CUdeviceptr at = alloc(4096);
    OK(cuModuleLoadData(&module, test_kernels));
    OK(cuModuleGetFunction(&function, module, "store"));
    OK(cuGraphCreate(&graph, 0));
    node = add_node(NULL, 0, words, 1);
    set_node(&node, 1, at, 5);
    instantiate();
    clear();
    launch_and_wait();
    OK(cuMemFree_v2(at));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK_EQ(word(0), 1);
    drop();
    at = words;
    CUDA_KERNEL_NODE_PARAMS params = {.func = function,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = (void *[]){&at}};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    instantiate();
    launch_and_wait();
    CHECK_EQ(word(0), 7);
    OK(cuModuleUnload(module));
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
    params.blockDimX = 5000;
    params.func = store;
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    drop();
}

static void bad_calls(void) {
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    uint64_t flags;
    OK(cuGraphCreate(&graph, 0));
    CHECK_EQ(cuGraphAddNode(&node, graph, NULL, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    params.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
    CHECK_EQ(cuGraphAddNode(&node, graph, NULL, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphAddNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddEmptyNode(NULL, graph, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddEmptyNode(&node, graph, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphAddHostNode(&node, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphInstantiateWithFlags(&exec, graph, 64), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
             CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphInstantiateWithFlags(NULL, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA_GRAPH_INSTANTIATE_PARAMS with = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
                                          .hUploadStream = stream};
    OK(cuGraphInstantiateWithParams(&exec, graph, &with));
    OK(cuGraphExecGetFlags(exec, &flags));
    CHECK_EQ(flags, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    launch_and_wait();  // an empty graph is one
    OK(cuGraphUpload(exec, stream));
    CHECK_EQ(cuGraphLaunch(exec, (CUstream)&node), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuGraphLaunch((CUgraphExec)graph, stream), CUDA_ERROR_INVALID_VALUE);
    drop();
    CHECK_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
}

// ---- User objects ----

static int destroyed;

static void destroy(void *user) {
    __atomic_add_fetch((int *)user, 1, __ATOMIC_RELEASE);
}

static void wait_for(int wanted) {
    for (unsigned i = 0; i < 30000 && __atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) != wanted; i++)
        usleep(1000);
    CHECK_EQ(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), wanted);
}

static void user_objects(void) {
    CUuserObject object;
    CUgraph clone;
    CHECK_EQ(cuUserObjectCreate(&object, &destroyed, destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuUserObjectCreate(&object, &destroyed, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
             CUDA_ERROR_INVALID_VALUE);
    OK(cuUserObjectCreate(&object, &destroyed, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphCreate(&graph, 0));
    spin_node(NULL, 0, 30000000);
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuUserObjectRetain(object, 1));
    OK(cuGraphRetainUserObject(graph, object, 2, 0));
    OK(cuGraphReleaseUserObject(graph, object, 1));
    CHECK_EQ(cuGraphReleaseUserObject(graph, object, 5), CUDA_ERROR_INVALID_VALUE);
    OK(cuUserObjectRelease(object, 2));
    OK(cuGraphClone(&clone, graph));
    instantiate();
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(clone));
    uint64_t before = sim_now_ns();
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec));
    wait_for(1);  // not before the launch is over
    CHECK(sim_now_ns() - before >= 30000000);
    CHECK_EQ(cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
}

// ---- Threads ----

static void *launcher(void *user) {
    CUgraphExec own;
    CUstream mine;
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&mine, CU_STREAM_DEFAULT));
    OK(cuGraphInstantiateWithFlags(&own, *(CUgraph *)user, 0));
    for (unsigned i = 0; i < 30; i++) {
        OK(cuGraphLaunch(own, i % 5 ? mine : NULL));
        if (i % 7 == 0)
            OK(cuStreamSynchronize(mine));
    }
    OK(cuGraphExecDestroy(own));
    OK(cuStreamDestroy_v2(mine));
    return NULL;
}

static void threads(void) {
    pthread_t ids[4];
    CUgraphNode node = NULL;
    OK(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < 40; i++)
        node = spin_node(&node, i > 0, 1000);
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_create(&ids[i], NULL, launcher, &graph));
    for (unsigned i = 0; i < 4; i++)
        CHECK(!pthread_join(ids[i], NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphDestroy(graph));
}

int main(int argc, char **argv) {
    start_graphs();
    static const struct test tests[] = {
        TEST(structure),
        TEST(edge_data),
        TEST(all_kinds),
        TEST(child_graphs),
        TEST(events),
        TEST(costs),
        TEST(large_graphs),
        TEST(one_after_another),
        TEST(in_the_default_stream),
        TEST(stale_nodes),
        TEST(bad_calls),
        TEST(user_objects),
        TEST(threads),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
