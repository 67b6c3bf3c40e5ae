// Streams, events, and graphs by capture: the driver's own, by their handles.
#include "runtime.h"

API cudaError_t cudaStreamCreateWithFlags(CUstream *stream, unsigned flags) {
    return CALL(cuStreamCreate, stream, flags);
}

API cudaError_t cudaStreamCreate(CUstream *stream) {
    return cudaStreamCreateWithFlags(stream, 0);
}

API cudaError_t cudaStreamDestroy(CUstream stream) {
    return CALL(cuStreamDestroy, stream);
}

API cudaError_t cudaStreamSynchronize(CUstream stream) {
    return CALL(cuStreamSynchronize, stream);
}

API cudaError_t cudaStreamQuery(CUstream stream) {
    return CALL(cuStreamQuery, stream);
}

API cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return CALL(cuStreamWaitEvent, stream, event, flags);
}

API cudaError_t cudaStreamBeginCapture(CUstream stream, int mode) {
    return CALL(cuStreamBeginCapture, stream, mode);
}

API cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *graph) {
    return CALL(cuStreamEndCapture, stream, graph);
}

API cudaError_t cudaGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    return CALL(cuGraphInstantiateWithFlags, exec, graph, flags);
}

API cudaError_t cudaGraphLaunch(CUgraphExec exec, CUstream stream) {
    return CALL(cuGraphLaunch, exec, stream);
}

API cudaError_t cudaGraphExecDestroy(CUgraphExec exec) {
    return CALL(cuGraphExecDestroy, exec);
}

API cudaError_t cudaGraphDestroy(CUgraph graph) {
    return CALL(cuGraphDestroy, graph);
}

API cudaError_t cudaEventCreateWithFlags(CUevent *event, unsigned flags) {
    return CALL(cuEventCreate, event, flags);
}

API cudaError_t cudaEventCreate(CUevent *event) {
    return cudaEventCreateWithFlags(event, 0);
}

API cudaError_t cudaEventDestroy(CUevent event) {
    return CALL(cuEventDestroy, event);
}

API cudaError_t cudaEventRecord(CUevent event, CUstream stream) {
    return CALL(cuEventRecord, event, stream);
}

API cudaError_t cudaEventSynchronize(CUevent event) {
    return CALL(cuEventSynchronize, event);
}

API cudaError_t cudaEventQuery(CUevent event) {
    return CALL(cuEventQuery, event);
}

API cudaError_t cudaEventElapsedTime(float *ms, CUevent start, CUevent end) {
    return CALL(cuEventElapsedTime, ms, start, end);
}
