// test_graph.c: see test_graph.h.
#include "test_graph.h"

CUgraph graph;
CUgraphExec exec;
CUstream stream;
CUdeviceptr words;

void instantiate(void) {
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

void launch_and_wait(void) {
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}

void drop(void) {
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

uint32_t word(unsigned i) {
    uint32_t value;
    OK(cuMemcpyDtoHAsync_v2(&value, words + 4 * i, 4, stream));
    return value;
}

void clear(void) {
    OK(cuMemsetD32Async(words, 0, 1024, stream));
    OK(cuStreamSynchronize(stream));
}

// ---- Nodes, by short names ----

CUgraphNode add_node(const CUgraphNode *deps, size_t count, CUdeviceptr at, uint32_t by) {
    CUgraphNode node;
    uint32_t n = 1;
    void *args[] = {&at, &n, &by};
    CUDA_KERNEL_NODE_PARAMS params = {.func = add,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = args};
    OK(cuGraphAddKernelNode(&node, graph, deps, count, &params));
    at = n = by = 0;  // the arguments have been taken along
    return node;
}

CUgraphNode spin_node(const CUgraphNode *deps, size_t count, uint64_t ns) {
    CUgraphNode node;
    void *args[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS params = {.func = spin,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = args};
    OK(cuGraphAddKernelNode_v2(&node, graph, deps, count, &params));
    return node;
}

CUDA_MEMSET_NODE_PARAMS set_of(CUdeviceptr at, uint32_t value, size_t count) {
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = at, .value = value, .elementSize = 4, .width = count, .height = 1};
}

CUgraphNode set_node(const CUgraphNode *deps, size_t count, CUdeviceptr at, uint32_t value) {
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS set = set_of(at, value, 1);
    OK(cuGraphAddMemsetNode(&node, graph, deps, count, &set, primary));
    return node;
}

CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

CUgraphNode copy_node(const CUgraphNode *deps, size_t count, CUdeviceptr to, CUdeviceptr from) {
    CUgraphNode node;
    CUDA_MEMCPY3D copy = copy_of(to, from, 4);
    OK(cuGraphAddMemcpyNode(&node, graph, deps, count, &copy, primary));
    return node;
}

int called;
void host_function(void *user) {
    called += *(int *)user;
}

void start_graphs(void) {
    start_driver();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    words = alloc(4096);
}
