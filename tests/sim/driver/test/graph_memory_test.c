// graph_memory_test.c: memory nodes of graphs: addresses, the card's memory behind them, and what
// outlives a launch.
#define _GNU_SOURCE
#include "test_graph.h"

#define CHUNK (512u << 10)  // 32 MiB / scale

static uint64_t attribute(CUgraphMem_attribute which) {
    uint64_t value;
    OK(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static uint64_t reserved(void) {
    return attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
}

static uint64_t bound(void) {
    return attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
}

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes) {
    return (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                                        .bytesize = bytes};
}

static CUgraphNode alloc_node(const CUgraphNode *dep, size_t bytes, CUdeviceptr *at) {
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(bytes);
    OK(cuGraphAddMemAllocNode(&node, graph, dep, dep != NULL, &params));
    CHECK(params.dptr);
    *at = params.dptr;
    return node;
}

static CUgraphNode free_node(const CUgraphNode *dep, CUdeviceptr at) {
    CUgraphNode node;
    OK(cuGraphAddMemFreeNode(&node, graph, dep, dep != NULL, at));
    return node;
}

// Allocates, uses and frees; leaves `value` in the word of that number, so that graphs which run
// side by side do not write the same one.
static CUdeviceptr temporary_graph(size_t bytes, uint32_t value) {
    CUdeviceptr at;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    node = alloc_node(NULL, bytes, &at);
    node = set_node(&node, 1, at + bytes - 4, value);
    node = copy_node(&node, 1, words + 4 * value, at + bytes - 4);
    free_node(&node, at);
    return at;
}

// Allocates and writes, and leaves it to others to free.
static CUdeviceptr lasting_graph(size_t bytes, uint32_t value) {
    CUdeviceptr at;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    node = alloc_node(NULL, bytes, &at);
    set_node(&node, 1, at, value);
    return at;
}

static uint32_t word_at(CUdeviceptr at) {
    uint32_t value;
    OK(cuMemcpyDtoHAsync_v2(&value, at, 4, stream));
    return value;
}

// ---- Nodes ----

static void nodes(void) {
    CUdeviceptr at, got;
    CUgraphNode node, freed, other;
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(0);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    OK(cuGraphCreate(&graph, 0));
    CHECK_EQ(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params = alloc_params(4096);
    params.poolProps.location.id = 9;
    CHECK_EQ(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_DEVICE);
    params = alloc_params(4096);
    params.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_EQ(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params = alloc_params(4096);
    params.accessDescs = &access;
    params.accessDescCount = 1;
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    at = params.dptr;
    CHECK(at);
    params = (CUDA_MEM_ALLOC_NODE_PARAMS){0};
    OK(cuGraphMemAllocNodeGetParams(node, &params));
    CHECK(params.dptr == at && params.bytesize == 4096 && params.accessDescCount == 1 &&
          params.accessDescs[0].location.id == 1);
    CHECK_EQ(cuGraphAddMemFreeNode(&freed, graph, &node, 1, words), CUDA_ERROR_INVALID_VALUE);
    freed = free_node(&node, at);
    OK(cuGraphMemFreeNodeGetParams(freed, &got));
    CHECK_EQ(got, at);
    CHECK_EQ(cuGraphAddMemFreeNode(&other, graph, &node, 1, at), CUDA_ERROR_INVALID_VALUE);
    // A graph with memory nodes can be neither copied nor cut, and has one instance.
    CUgraph clone, outer;
    CUgraphExec second;
    CHECK_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphCreate(&outer, 0));
    CHECK_EQ(cuGraphAddChildGraphNode(&other, outer, NULL, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphDestroy(outer));
    CHECK_EQ(cuGraphDestroyNode(freed), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphRemoveDependencies(graph, &node, &freed, 1), CUDA_ERROR_NOT_SUPPORTED);
    instantiate();
    CHECK_EQ(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphExecDestroy(exec));
    instantiate();
    drop();
}

// ---- The card's memory ----

static void books(void) {
    uint64_t before = free_bytes(), none = 0, one = 1;
    CHECK_EQ(reserved(), 0);
    CUdeviceptr at = temporary_graph(3 * CHUNK + 4, 11);
    CHECK_EQ(free_bytes(), before);
    instantiate();
    CHECK_EQ(free_bytes(), before);  // an address costs nothing
    launch_and_wait();
    CHECK_EQ(word(11), 11);
    CHECK_EQ(reserved(), 4 * CHUNK);
    CHECK_EQ(bound(), 4 * CHUNK);
    CHECK_EQ(before - free_bytes(), 4 * CHUNK);
    for (unsigned i = 0; i < 5; i++)
        launch_and_wait();
    CHECK_EQ(before - free_bytes(), 4 * CHUNK);
    // The card has it back when it is asked for, and the next launch takes it again.
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(reserved(), 0);
    CHECK_EQ(free_bytes(), before);
    OK(cuGraphUpload(exec, stream));
    CHECK_EQ(reserved(), 4 * CHUNK);
    launch_and_wait();
    CHECK_EQ(before - free_bytes(), 4 * CHUNK);
    drop();
    CHECK_EQ(bound(), 0);
    CHECK_EQ(reserved(), 4 * CHUNK);  // kept for other graphs
    CUdeviceptr other = temporary_graph(CHUNK, 12);
    CHECK(other);
    instantiate();
    launch_and_wait();
    CHECK_EQ(bound(), CHUNK);
    CHECK_EQ(reserved(), 4 * CHUNK);
    drop();
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 4 * CHUNK);
    OK(cuDeviceGraphMemTrim(0));
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &none));
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0);
    CHECK_EQ(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 0);
    CHECK_EQ(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &none),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuDeviceGetGraphMemAttribute(5, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none),
             CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(free_bytes(), before);
    (void)at;
}

// What is freed before an allocation is used by it again, and nothing else.
static void reuse_within(void) {
    CUdeviceptr first, second, third;
    CUgraphNode node, side;
    OK(cuGraphCreate(&graph, 0));
    node = alloc_node(NULL, 2 * CHUNK, &first);
    node = free_node(&node, first);
    node = alloc_node(&node, 2 * CHUNK, &second);
    free_node(&node, second);
    instantiate();
    launch_and_wait();
    CHECK(first != second);
    CHECK_EQ(bound(), 2 * CHUNK);
    drop();
    OK(cuGraphCreate(&graph, 0));
    node = alloc_node(NULL, 2 * CHUNK, &first);
    node = free_node(&node, first);
    side = alloc_node(NULL, 2 * CHUNK, &third);  // beside it
    free_node(&side, third);
    instantiate();
    launch_and_wait();
    CHECK_EQ(bound(), 4 * CHUNK);
    drop();
    OK(cuDeviceGraphMemTrim(0));
}

// Graphs that are launched in one stream share its memory; in two streams they do not.
static void sharing(void) {
    CUstream other;
    CUgraph graphs[2];
    CUgraphExec execs[2];
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 2; i++) {
        temporary_graph((i + 2) * CHUNK, i);
        instantiate();
        graphs[i] = graph;
        execs[i] = exec;
        OK(cuGraphLaunch(execs[i], stream));
    }
    CHECK_EQ(bound(), 3 * CHUNK);
    OK(cuGraphLaunch(execs[0], other));
    CHECK_EQ(bound(), 5 * CHUNK);
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < 2; i++) {
        exec = execs[i];
        graph = graphs[i];
        drop();
    }
    CHECK_EQ(bound(), 0);
    OK(cuDeviceGraphMemTrim(0));
    OK(cuStreamDestroy_v2(other));
}

static void out_of_memory(void) {
    uint64_t before = free_bytes(), most = before / CHUNK * CHUNK;
    CUmemoryPool pool;
    CUdeviceptr at;
    uint64_t all = UINT64_MAX, value;
    temporary_graph(before + 4, 5);
    instantiate();
    clear();
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(word(5), 0);
    CHECK_EQ(free_bytes(), before);
    drop();
    // What pools hold and do not use is given back first; and the other way round.
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    OK(cuMemAllocAsync(&at, most, stream));
    temporary_graph(CHUNK, 6);
    instantiate();
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    launch_and_wait();
    CHECK_EQ(word(6), 6);
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
    CHECK_EQ(value, 0);
    OK(cuMemAllocAsync(&at, most, stream));
    CHECK_EQ(reserved(), 0);
    OK(cuMemFreeAsync(at, stream));
    all = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    OK(cuStreamSynchronize(stream));
    launch_and_wait();
    drop();
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(free_bytes(), before);
}

// ---- What outlives a launch ----

static void freed_by_program(void) {
    uint64_t before = free_bytes();
    CUdeviceptr at = lasting_graph(CHUNK + 1, 21);
    CHECK_EQ(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);  // nothing is allocated yet
    instantiate();
    launch_and_wait();
    CHECK_EQ(word_at(at), 21);
    CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);  // while it lives
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(before - free_bytes(), 2 * CHUNK);  // it is in use
    OK(cuMemFreeAsync(at, stream));
    CHECK_EQ(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(at));
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, stream));
    drop();
    // It outlives its graph, too.
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word_at(at), 21);
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(before - free_bytes(), 2 * CHUNK);
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(free_bytes(), before);
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
}

static void freed_by_graph(void) {
    uint64_t before = free_bytes();
    CUgraph allocating, freeing;
    CUgraphExec allocate, release;
    CUgraphNode node;
    CUdeviceptr at = lasting_graph(4096, 31);
    allocating = graph;
    OK(cuGraphInstantiateWithFlags(&allocate, allocating, 0));
    OK(cuGraphCreate(&graph, 0));
    freeing = graph;
    node = add_node(NULL, 0, at, 1);
    node = copy_node(&node, 1, words, at);
    free_node(&node, at);
    OK(cuGraphInstantiateWithFlags(&release, freeing, 0));
    CHECK_EQ(cuGraphLaunch(release, stream), CUDA_ERROR_INVALID_VALUE);  // nothing to free
    for (unsigned i = 0; i < 3; i++) {
        OK(cuGraphLaunch(allocate, stream));
        OK(cuGraphLaunch(release, stream));
    }
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word(0), 32);
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphExecDestroy(allocate));
    OK(cuGraphExecDestroy(release));
    OK(cuGraphDestroy(allocating));
    OK(cuGraphDestroy(freeing));
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(free_bytes(), before);
}

// A flag has each launch free what the last one left.
static void auto_free(void) {
    uint64_t before = free_bytes();
    CUdeviceptr at = lasting_graph(4096, 41);
    OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    for (unsigned i = 0; i < 4; i++)
        OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    CHECK_EQ(word_at(at), 41);
    CHECK_EQ(reserved(), CHUNK);
    OK(cuMemFreeAsync(at, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamSynchronize(stream));
    drop();
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(free_bytes(), before);
}

// ---- By capture ----

static void captured(void) {
    uint64_t before = free_bytes();
    CUdeviceptr at, kept, pooled;
    CUgraphNode list[8];
    CUgraphNodeType type;
    size_t count = 8;
    OK(cuMemAllocAsync(&pooled, 4096, stream));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&at, 8192, stream));
    OK(cuMemAllocAsync(&kept, 4, stream));
    OK(cuMemsetD32Async(at, 51, 2048, stream));
    add_to(at, 2048, 1, stream);
    OK(cuMemcpyDtoDAsync_v2(kept, at + 8188, 4, stream));
    OK(cuMemFreeAsync(at, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, list, &count));
    CHECK_EQ(count, 6);
    OK(cuGraphNodeGetType(list[0], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    OK(cuGraphNodeGetType(list[5], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
    instantiate();
    launch_and_wait();
    CHECK_EQ(word_at(kept), 52);
    OK(cuMemFreeAsync(kept, stream));
    launch_and_wait();
    CHECK_EQ(word_at(kept), 52);
    OK(cuMemFree_v2(kept));
    CHECK_EQ(cuMemFreeAsync(at, stream), CUDA_ERROR_INVALID_VALUE);  // the graph has
    drop();
    // Memory from outside cannot be freed within.
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(cuMemFreeAsync(pooled, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuMemFreeAsync(pooled, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(free_bytes(), before);
}

// Great numbers of launches, and of graphs, leave nothing behind.
static void no_growth(void) {
    uint64_t before = free_bytes();
    for (unsigned i = 0; i < 300; i++) {
        CUdeviceptr at = i % 2 ? lasting_graph(1 + i * 1000 / 4 * 4, i) : 0;
        if (!at)
            temporary_graph(4 + i * 1000 / 4 * 4, i);
        instantiate();
        OK(cuGraphLaunch(exec, stream));
        if (at)
            OK(cuMemFreeAsync(at, stream));
        OK(cuGraphLaunch(exec, stream));
        if (at)
            OK(cuMemFreeAsync(at, stream));
        drop();
    }
    OK(cuStreamSynchronize(stream));
    CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) <= 64 * MIB);
    OK(cuDeviceGraphMemTrim(0));
    CHECK_EQ(reserved(), 0);
    CHECK_EQ(free_bytes(), before);
}

int main(int argc, char **argv) {
    start_graphs();
    static const struct test tests[] = {
        TEST(nodes),          TEST(books),         TEST(reuse_within),
        TEST(sharing),        TEST(out_of_memory), TEST(freed_by_program),
        TEST(freed_by_graph), TEST(auto_free),     TEST(captured),
        TEST(no_growth),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
