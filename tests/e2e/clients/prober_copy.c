// prober_copy.c: copies of one allocation to another, directly, as a node of a graph, and captured.
#include "prober.h"

#include <string.h>

static size_t common(const struct memory *to, const struct memory *from) {
    return to->bytes < from->bytes ? to->bytes : from->bytes;
}

static CUresult launch(CUgraph graph) {
    CUgraphExec exec;
    CUresult code = cuGraphInstantiateWithFlags(&exec, graph, 0);
    for (int i = 0; i < 2 && !code; i++)
        code = cuGraphLaunch(exec, NULL);
    return code ? code : cuCtxSynchronize();
}

static CUresult node(const struct memory *to, const struct memory *from) {
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEMCPY3D copy;
    CUcontext context;
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from->at;
    copy.dstDevice = to->at;
    copy.WidthInBytes = common(to, from);
    copy.Height = copy.Depth = 1;
    CUresult code = cuCtxGetCurrent(&context);
    if (!code)
        code = cuGraphCreate(&graph, 0);
    if (!code)
        code = cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context);
    return code ? code : launch(graph);
}

static CUresult captured(const struct memory *to, const struct memory *from) {
    CUgraph graph;
    CUstream stream;
    CUresult code = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (!code)
        code = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!code)
        code = cuMemcpyDtoDAsync_v2(to->at, from->at, common(to, from), stream);
    if (!code)
        code = cuStreamEndCapture(stream, &graph);
    return code ? code : launch(graph);
}

CUresult prober_copy(const char *way, const struct memory *to, const struct memory *from) {
    if (!strcmp(way, "node"))
        return node(to, from);
    if (!strcmp(way, "captured"))
        return captured(to, from);
    CUresult code = cuMemcpyDtoD_v2(to->at, from->at, common(to, from));
    return code ? code : cuCtxSynchronize();
}
