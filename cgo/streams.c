// streams.c: what is done with streams that the scheduler of time has to hear of: captures, since
// what is captured takes no time, and a stream's end; and which device a stream is on.
#include "streams.h"

#include "hooks.h"
#include "timed.h"

// The context that a stream belongs to. That of a green context's stream some drivers give by
// another call only.
static CUresult context_of(CUstream stream, CUcontext *context) {
    CUgreenCtx green = NULL;
    CUresult result = WEIR_REAL(cuStreamGetCtx)(stream, context);
    if (result != CUDA_SUCCESS && WEIR_REAL(cuStreamGetGreenCtx)(stream, &green) == CUDA_SUCCESS &&
        green)
        result = WEIR_REAL(cuCtxFromGreenCtx)(context, green);
    return result;
}

CUresult weir_stream_device(CUstream stream, CUdevice *device) {
    CUcontext current, context;
    CUresult result = CUDA_SUCCESS;
    if ((uintptr_t)stream <= CU_STREAM_PER_THREAD)
        return WEIR_REAL(cuCtxGetDevice)(device);
    if ((result = WEIR_REAL(cuCtxGetCurrent)(&current)) != CUDA_SUCCESS ||
        (result = context_of(stream, &context)) != CUDA_SUCCESS)
        return result;
    if (context == current)
        return WEIR_REAL(cuCtxGetDevice)(device);
    if ((result = WEIR_REAL(cuCtxPushCurrent_v2)(context)) != CUDA_SUCCESS)
        return result;
    result = WEIR_REAL(cuCtxGetDevice)(device);
    WEIR_REAL(cuCtxPopCurrent_v2)(&context);
    return result;
}

// ---- Captures ----

// `call` is evaluated after the scheduler has heard of it.
#define BEGIN(stream, per_thread, call)                                                            \
    ({                                                                                             \
        weir_timed_capture_begin(stream, per_thread);                                              \
        CUresult result = call;                                                                    \
        if (result != CUDA_SUCCESS)                                                                \
            weir_timed_capture_end(stream, per_thread);                                            \
        result;                                                                                    \
    })

CUresult weir_cuStreamBeginCapture(CUstream stream) {
    return BEGIN(stream, 0, WEIR_REAL(cuStreamBeginCapture)(stream));
}

CUresult weir_cuStreamBeginCapture_ptsz(CUstream stream) {
    return BEGIN(stream, 1, WEIR_REAL(cuStreamBeginCapture_ptsz)(stream));
}

CUresult weir_cuStreamBeginCapture_v2(CUstream stream, int mode) {
    return BEGIN(stream, 0, WEIR_REAL(cuStreamBeginCapture_v2)(stream, mode));
}

CUresult weir_cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
    return BEGIN(stream, 1, WEIR_REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

CUresult weir_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                          const void *edges, size_t after_count, int mode) {
    return BEGIN(
        stream, 0,
        WEIR_REAL(cuStreamBeginCaptureToGraph)(stream, graph, after, edges, after_count, mode));
}

CUresult weir_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                               const CUgraphNode *after, const void *edges,
                                               size_t after_count, int mode) {
    return BEGIN(stream, 1,
                 WEIR_REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, after, edges,
                                                             after_count, mode));
}

// A capture that was found invalid has ended by this, too; one that another thread or stream began
// has not.
static CUresult ended(CUstream stream, int per_thread, CUresult result) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (result != CUDA_SUCCESS &&
        (per_thread ? WEIR_REAL(cuStreamIsCapturing_ptsz)
                    : WEIR_REAL(cuStreamIsCapturing))(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return result;
    weir_timed_capture_end(stream, per_thread);
    return result;
}

CUresult weir_cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return ended(stream, 0, WEIR_REAL(cuStreamEndCapture)(stream, graph));
}

CUresult weir_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return ended(stream, 1, WEIR_REAL(cuStreamEndCapture_ptsz)(stream, graph));
}

// ---- Ends ----

// A default stream cannot be destroyed.
static void ending(CUstream stream) {
    if ((uintptr_t)stream > CU_STREAM_PER_THREAD)
        weir_timed_stream_ending(stream);
}

CUresult weir_cuStreamDestroy(CUstream stream) {
    ending(stream);
    return WEIR_REAL(cuStreamDestroy)(stream);
}

CUresult weir_cuStreamDestroy_v2(CUstream stream) {
    ending(stream);
    return WEIR_REAL(cuStreamDestroy_v2)(stream);
}
