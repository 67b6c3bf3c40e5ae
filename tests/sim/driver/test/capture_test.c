// capture_test.c: streams of the simulated driver that are captured: what becomes a node, how
// captures spread over streams, and what they refuse.
#define _GNU_SOURCE
#include "test_graph.h"

#include <pthread.h>

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUresult cuMemsetD32Async_ptsz(CUdeviceptr to, unsigned int value, size_t count, CUstream stream);

static CUstream other, blocking;
static CUevent fork_event, join_event;

static void begin(CUstreamCaptureMode mode) {
    OK(cuStreamBeginCapture_v2(stream, mode));
}

static void end(void) {
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(graph);
}

// Ends a capture that has failed.
static void end_with(CUresult wanted) {
    CHECK_EQ(cuStreamEndCapture(stream, &graph), wanted);
    CHECK(!graph);
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(stream, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static size_t node_count(void) {
    size_t count;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static CUstreamCaptureStatus status_of(CUstream which) {
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(which, &status));
    return status;
}

static void callback(CUstream which, CUresult result, void *user) {
    (void)which, (void)result, (void)user;
}

// ---- What becomes a node ----

static void all_kinds(void) {
    static const CUgraphNodeType wanted[] = {
        CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL,
        CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST,   CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        CU_GRAPH_NODE_TYPE_MEMCPY};
    uint32_t pageable = 0;
    int by = 3;
    clear();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD32Async(words, 10, 1, stream));
    add_to(words, 1, 5, stream);
    spin_for(1000, stream);
    OK(cuMemcpyDtoDAsync_v2(words + 4, words, 4, stream));
    OK(cuLaunchHostFunc(stream, host_function, &by));
    OK(cuStreamWriteValue32_v2(stream, words + 8, 77, 0));
    OK(cuMemcpyDtoHAsync_v2(&pageable, words + 4, 4, stream));
    CHECK_EQ(pageable, 0);  // nothing has been done
    end();
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK_EQ(word(0), 0);
    CUgraphNode nodes[7];
    size_t count = 7;
    OK(cuGraphGetNodes(graph, nodes, &count));
    CHECK_EQ(count, 7);
    for (unsigned i = 0; i < 7; i++) {
        CUgraphNodeType type;
        OK(cuGraphNodeGetType(nodes[i], &type));
        CHECK_EQ(type, wanted[i]);
        OK(cuGraphNodeGetDependencies(nodes[i], NULL, &count));
        CHECK_EQ(count, i > 0);
    }
    // What was captured can be looked at.
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_KERNEL_NODE_PARAMS kernel;
    OK(cuGraphMemcpyNodeGetParams(nodes[3], &copy));
    CHECK(copy.dstDevice == words + 4 && copy.srcDevice == words && copy.WidthInBytes == 4);
    OK(cuGraphMemcpyNodeSetParams(nodes[3], &copy));
    OK(cuGraphMemsetNodeGetParams(nodes[0], &set));
    CHECK(set.dst == words && set.value == 10 && set.width == 1 && set.elementSize == 4);
    OK(cuGraphKernelNodeGetParams(nodes[1], &kernel));
    CHECK(kernel.func == add && *(uint32_t *)kernel.kernelParams[2] == 5);
    called = 0;
    instantiate();
    launch_and_wait();
    launch_and_wait();
    CHECK_EQ(pageable, 15);
    CHECK_EQ(called, 6);
    CHECK_EQ(word(2), 77);
    drop();
}

// Two-dimensional copies keep their shape.
static void shapes(void) {
    uint32_t rows[4][8];
    for (unsigned i = 0; i < 32; i++)
        rows[i / 8][i % 8] = i;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = rows,
                          .srcXInBytes = 4,
                          .srcY = 1,
                          .srcPitch = 32,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = words,
                          .dstPitch = 64,
                          .WidthInBytes = 8,
                          .Height = 2};
    clear();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemcpy2DAsync_v2(&copy, stream));
    end();
    instantiate();
    launch_and_wait();
    CHECK(word(0) == 9 && word(1) == 10 && word(2) == 0 && word(16) == 17 && word(17) == 18);
    drop();
}

// A launch of a graph becomes a child graph.
static void child_graph(void) {
    CUgraphExec inner;
    OK(cuGraphCreate(&graph, 0));
    add_node(NULL, 0, words, 5);
    OK(cuGraphInstantiateWithFlags(&inner, graph, 0));
    OK(cuGraphDestroy(graph));
    clear();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuGraphLaunch(inner, stream));
    OK(cuGraphLaunch(inner, stream));
    add_to(words, 1, 100, stream);
    end();
    OK(cuGraphExecDestroy(inner));
    CHECK_EQ(node_count(), 3);
    instantiate();
    launch_and_wait();
    CHECK_EQ(word(0), 110);
    drop();
}

static void per_thread_stream(void) {
    clear();
    OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(status_of(CU_STREAM_PER_THREAD), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD32Async_ptsz(words, 4, 1, NULL));
    OK(cuStreamEndCapture_ptsz(NULL, &graph));
    CHECK_EQ(node_count(), 1);
    CHECK_EQ(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
             CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuGraphDestroy(graph));
}

// ---- Several streams ----

static void fork_and_join(void) {
    clear();
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD32Async(words, 1, 1, stream));
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    CHECK_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    add_to(words, 1, 10, other);
    OK(cuMemcpyDtoDAsync_v2(words + 4, words, 4, other));
    OK(cuMemsetD32Async(words + 8, 3, 1, stream));
    OK(cuEventRecord(join_event, other));
    OK(cuStreamWaitEvent(stream, join_event, 0));
    OK(cuMemcpyDtoDAsync_v2(words + 12, words + 4, 4, stream));
    end();
    CHECK_EQ(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
    size_t count;
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    CHECK_EQ(count, 5);
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    CHECK_EQ(count, 1);
    instantiate();
    launch_and_wait();
    CHECK(word(1) == 11 && word(2) == 3 && word(3) == 11);
    drop();
    // What was last recorded in a capture tells nothing afterwards.
    CHECK_EQ(cuEventQuery(join_event), CUDA_ERROR_CAPTURED_EVENT);
    CHECK_EQ(cuEventSynchronize(join_event), CUDA_ERROR_CAPTURED_EVENT);
    CHECK_EQ(cuStreamWaitEvent(stream, join_event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    OK(cuEventRecord(join_event, stream));
    OK(cuEventSynchronize(join_event));
}

static void unjoined(void) {
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(other, fork_event, 0));
    spin_for(0, other);
    CUgraph ignored;
    CHECK_EQ(cuStreamEndCapture(other, &ignored), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end_with(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    spin_for(0, other);  // it is free again
    OK(cuStreamSynchronize(other));
}

static void isolation_and_merge(void) {
    OK(cuEventRecord(fork_event, other));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQ(cuStreamWaitEvent(stream, fork_event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CHECK_EQ(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQ(cuMemsetD32Async(words, 1, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork_event, other));
    CHECK_EQ(cuStreamWaitEvent(stream, fork_event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    end_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// Events outside, by nodes of their own.
static void external_events(void) {
    CUevent outside;
    CUgraphNode nodes[2];
    CUgraphNodeType type;
    size_t count = 2;
    OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamWaitEvent(stream, outside, CU_EVENT_WAIT_EXTERNAL));
    OK(cuEventRecordWithFlags(outside, stream, CU_EVENT_RECORD_EXTERNAL));
    end();
    OK(cuGraphGetNodes(graph, nodes, &count));
    CHECK_EQ(count, 2);
    OK(cuGraphNodeGetType(nodes[0], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    OK(cuGraphNodeGetType(nodes[1], &type));
    CHECK_EQ(type, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    instantiate();
    launch_and_wait();
    OK(cuEventSynchronize(outside));
    drop();
    OK(cuEventDestroy_v2(outside));
}

// ---- What is refused ----

static void refused_on_the_stream(void) {
    CUevent never;
    OK(cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
    CUresult got[5];
    OK(cuGraphCreate(&graph, 0));
    instantiate();
    OK(cuGraphDestroy(graph));
    for (unsigned i = 0; i < 5; i++) {
        begin(CU_STREAM_CAPTURE_MODE_RELAXED);
        OK(cuStreamWaitEvent(stream, never, 0));  // never recorded: nothing to wait for
        got[i] = i == 0   ? cuStreamSynchronize(stream)
                 : i == 1 ? cuStreamQuery(stream)
                 : i == 2 ? cuStreamAddCallback(stream, callback, NULL, 0)
                 : i == 3 ? cuGraphUpload(exec, stream)
                          : cuMemFreeAsync(words, stream);
        CHECK(got[i]);
        end_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    CHECK_EQ(got[0], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(got[1], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(got[2], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(got[3], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQ(got[4], CUDA_ERROR_INVALID_VALUE);  // it is no memory of a graph
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy_v2(never));
}

// The default stream would have to wait for a blocking stream that is captured.
static void implicit_dependency(void) {
    uint32_t value;
    CUstreamCaptureStatus status;
    OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_EQ(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_EQ(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);  // asking harms nothing
    CHECK_EQ(cuMemcpyDtoH_v2(&value, words, 4), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_EQ(status_of(blocking), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // A non-blocking one is none of its business.
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemcpyDtoH_v2(&value, words, 4));
    end();
    OK(cuGraphDestroy(graph));
}

// Calls that may do something at once, from the thread that captures or from another one.
static CUresult unsafe_calls[8];
static CUstreamCaptureMode unsafe_mode;

static void *call_unsafe(void *context) {
    CUstreamCaptureMode mode = unsafe_mode;
    CUdeviceptr at;
    void *host;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    unsafe_calls[0] = cuMemAlloc_v2(&at, 4096);
    unsafe_calls[1] = unsafe_calls[0] ? unsafe_calls[0] : cuMemFree_v2(at);
    unsafe_calls[2] = cuMemAllocHost_v2(&host, 4096);
    if (!unsafe_calls[2])
        OK(cuMemFreeHost(host));
    unsafe_calls[3] = cuEventQuery(fork_event);
    unsafe_calls[4] = cuStreamQuery(other);
    unsafe_calls[5] = cuStreamSynchronize(other);
    unsafe_calls[6] = cuCtxSynchronize();
    CUmodule module;
    unsafe_calls[7] = cuModuleLoadData(&module, test_kernels);
    if (!unsafe_calls[7])
        unsafe_calls[7] = cuModuleUnload(module);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    return NULL;
}

static void unsafe(CUstreamCaptureMode capture, CUstreamCaptureMode thread, bool same, bool fine) {
    pthread_t id;
    OK(cuEventRecord(fork_event, other));
    begin(capture);
    unsafe_mode = thread;
    if (same) {
        call_unsafe(primary);
    } else {
        CHECK(!pthread_create(&id, NULL, call_unsafe, primary));
        CHECK(!pthread_join(id, NULL));
    }
    for (unsigned i = 0; i < 8; i++)
        CHECK_EQ(unsafe_calls[i], fine ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!fine) {
        end_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        return;
    }
    end();
    OK(cuGraphDestroy(graph));
}

static void modes(void) {
    const CUstreamCaptureMode GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
                              LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                              RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;
    unsafe(GLOBAL, GLOBAL, true, false);
    unsafe(GLOBAL, GLOBAL, false, false);
    unsafe(GLOBAL, LOCAL, false, true);
    unsafe(GLOBAL, LOCAL, true, false);
    unsafe(GLOBAL, RELAXED, true, true);
    unsafe(GLOBAL, RELAXED, false, true);
    unsafe(LOCAL, GLOBAL, true, false);
    unsafe(LOCAL, GLOBAL, false, true);
    unsafe(LOCAL, RELAXED, true, true);
    unsafe(RELAXED, GLOBAL, true, true);
    unsafe(RELAXED, GLOBAL, false, true);
    CUstreamCaptureMode mode = 3;
    CHECK_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
    mode = RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQ(mode, RELAXED);
}

static void *end_elsewhere(void *wanted) {
    OK(cuCtxSetCurrent(primary));
    CHECK_EQ(cuStreamEndCapture(stream, &graph), (CUresult)(uintptr_t)wanted);
    return NULL;
}

static void other_thread(void) {
    pthread_t id;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQ(cuStreamBeginCapture_v2(stream, 0), CUDA_ERROR_ILLEGAL_STATE);
    CHECK(!pthread_create(&id, NULL, end_elsewhere,
                          (void *)(uintptr_t)CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
    CHECK(!pthread_join(id, NULL));
    end();
    OK(cuGraphDestroy(graph));
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK(!pthread_create(&id, NULL, end_elsewhere, (void *)(uintptr_t)CUDA_SUCCESS));
    CHECK(!pthread_join(id, NULL));
    OK(cuGraphDestroy(graph));
}

static void ends_of_streams(void) {
    CUstream gone;
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(fork_event, stream));
    OK(cuStreamWaitEvent(gone, fork_event, 0));
    OK(cuStreamDestroy_v2(gone));
    end_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(gone, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(words, 1, 1, gone));
    OK(cuStreamDestroy_v2(gone));
    OK(cuCtxSynchronize());  // nothing is captured any more
}

// ---- Looking and steering ----

static void capture_info(void) {
    CUstreamCaptureStatus status;
    uint64_t id = 0, again = 0;
    CUgraph own = NULL, end_graph;
    const CUgraphNode *deps;
    const CUgraphEdgeData *edges;
    CUgraphNode extra;
    size_t count = 99;
    clear();
    OK(cuStreamGetCaptureInfo_v2(stream, &status, &id, &own, &deps, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE && !id && !own && count == 99);
    CHECK_EQ(cuStreamUpdateCaptureDependencies(stream, NULL, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    add_to(words, 1, 1, stream);
    OK(cuStreamGetCaptureInfo(stream, &status, &id));
    OK(cuStreamGetCaptureInfo_v3(stream, &status, &again, &own, &deps, &edges, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id && id == again && own && count == 1);
    // A node of the program's own, behind what has been captured.
    graph = own;
    extra = *deps;
    extra = add_node(&extra, 1, words, 10);
    CHECK_EQ(cuGraphDestroyNode(extra), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuGraphDestroy(own), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamUpdateCaptureDependencies(stream, &extra, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuStreamUpdateCaptureDependencies(stream, &extra, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    CHECK_EQ(cuStreamUpdateCaptureDependencies(stream, &extra, 1, 7), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoDAsync_v2(words + 4, words, 4, stream));
    OK(cuStreamEndCapture(stream, &end_graph));
    CHECK(end_graph == own);
    CHECK_EQ(node_count(), 3);
    instantiate();
    launch_and_wait();
    CHECK_EQ(word(1), 11);
    drop();
}

// A capture that continues a graph of the program's.
static void into_a_graph(void) {
    CUgraph own, end_graph;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    own = graph;
    node = set_node(NULL, 0, words, 5);
    OK(cuStreamBeginCaptureToGraph(stream, own, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(cuStreamBeginCaptureToGraph(other, own, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL),
             CUDA_ERROR_INVALID_VALUE);
    add_to(words, 1, 2, stream);
    OK(cuStreamEndCapture(stream, &end_graph));
    CHECK(end_graph == own);
    CHECK_EQ(node_count(), 2);
    clear();
    instantiate();
    launch_and_wait();
    CHECK_EQ(word(0), 7);
    OK(cuGraphExecDestroy(exec));
    // A failed one leaves the graph to the program.
    OK(cuStreamBeginCaptureToGraph(stream, own, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuGraphDestroy(own));
}

int main(int argc, char **argv) {
    start_graphs();
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, CU_EVENT_DISABLE_TIMING));
    static const struct test tests[] = {
        TEST(all_kinds),           TEST(shapes),          TEST(child_graph),
        TEST(per_thread_stream),   TEST(fork_and_join),   TEST(unjoined),
        TEST(isolation_and_merge), TEST(external_events), TEST(refused_on_the_stream),
        TEST(implicit_dependency), TEST(modes),           TEST(other_thread),
        TEST(ends_of_streams),     TEST(capture_info),    TEST(into_a_graph),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
