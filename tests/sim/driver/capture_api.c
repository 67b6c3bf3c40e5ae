// capture_api.c: the calls that begin and end captures, and that look at them.
#include "capture.h"

#include <stdlib.h>

// ---- Beginning ----

// Where a capture into a graph of the program's begins.
struct start {
    struct graph *graph;  // NULL: a new one
    struct nodes deps;
};

static CUresult begin(struct stream *stream, CUstreamCaptureMode mode, const struct start *start) {
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == &stream->context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    struct graph *graph = start->graph ? start->graph : graph_make();
    if (!capture || !graph || capture_join(stream, capture, &start->deps)) {
        if (graph && !start->graph)
            graph_end(graph);
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *capture = (struct capture){.id = ++driver.ids,
                                .graph = graph,
                                .borrowed = start->graph != NULL,
                                .origin = stream,
                                .mode = mode,
                                .thread = thread_number()};
    capture_begin(capture);
    return CUDA_SUCCESS;
}

static CUresult begin_new(CUstream handle, bool per_thread, CUstreamCaptureMode mode) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    return rc ? rc : driver_leave(begin(stream, mode, &(struct start){0}));
}

API cuStreamBeginCapture(CUstream stream) {
    return begin_new(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
API cuStreamBeginCapture_ptsz(CUstream stream) {
    return begin_new(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin_new(stream, false, mode);
}
API cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    return begin_new(stream, true, mode);
}

// Handles of nodes as a list. CUDA_ERROR_INVALID_VALUE where one is not of the graph.
static CUresult list_of(const struct graph *graph, const CUgraphNode *handles, size_t count,
                        struct nodes *list) {
    CUresult rc = nodes_check(graph, handles, count);
    *list = (struct nodes){0};
    for (size_t i = 0; i < count && !rc; i++)
        if (!nodes_add(list, node_get(handles[i])))
            rc = CUDA_ERROR_OUT_OF_MEMORY;
    return rc;
}

static CUresult begin_to_graph(CUstream handle, bool per_thread, CUgraph graph_handle,
                               const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t count,
                               CUstreamCaptureMode mode) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct start start = {.graph = graph_get(graph_handle)};
    bool good = start.graph && !start.graph->exec && !start.graph->capture;
    rc = good ? edges_plain(edges, count) : CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        rc = list_of(start.graph, deps, count, &start.deps);
    if (!rc)
        rc = begin(stream, mode, &start);
    free(start.deps.at);
    return driver_leave(rc);
}

API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *deps,
                                const CUgraphEdgeData *edges, size_t count,
                                CUstreamCaptureMode mode) {
    return begin_to_graph(stream, false, graph, deps, edges, count, mode);
}

API cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *deps,
                                     const CUgraphEdgeData *edges, size_t count,
                                     CUstreamCaptureMode mode) {
    return begin_to_graph(stream, true, graph, deps, edges, count, mode);
}

// ---- Ending ----

// Whether all that other streams have captured has been waited for, in the end, by the first one.
static bool joined(const struct capture *capture) {
    uint32_t mark = 0;
    for (struct node *n = capture->graph->first; n; n = n->next)
        n->index = 0;
    struct nodes seen = {0};
    bool good = nodes_set(&seen, &capture->origin->capture_deps);
    for (uint32_t i = 0; i < seen.count; i++)
        seen.at[i]->index = 1;
    for (; mark < seen.count && good; mark++) {
        const struct nodes *deps = &seen.at[mark]->deps;
        for (uint32_t i = 0; i < deps->count && good; i++)
            if (!deps->at[i]->index) {
                deps->at[i]->index = 1;
                good = nodes_add(&seen, deps->at[i]);
            }
    }
    free(seen.at);
    struct stream *stream;
    for (uint32_t i = 0; good && (stream = pool_next(&driver.streams, &i)); i++)
        for (uint32_t j = 0; stream->capture == capture && j < stream->capture_deps.count; j++)
            good &= stream->capture_deps.at[j]->index != 0;
    return good;
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *graph) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct capture *capture = stream->capture;
    if (!graph || !capture)
        return driver_leave(graph ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE);
    *graph = NULL;
    if (capture->origin != stream)
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number())
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (capture->invalid)
        rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    else
        *graph = (CUgraph)capture->graph;
    capture_finish(capture, !rc);
    return driver_leave(rc);
}

API cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return end(stream, false, graph);
}
API cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return end(stream, true, graph);
}

// ---- Looking ----

static CUstreamCaptureStatus status_of(const struct stream *stream) {
    if (!stream->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// The default stream cannot tell while one that it waits for is captured; asking harms nothing.
static CUresult look(CUstream handle, bool per_thread, const void *out, struct stream **stream) {
    CUresult rc = stream_enter(handle, per_thread, stream);
    if (rc)
        return rc;
    const struct context *context = (*stream)->context;
    if (!out)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (*stream == &context->legacy && context->captured)
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream handle, bool per_thread, CUstreamCaptureStatus *status) {
    struct stream *stream;
    CUresult rc = look(handle, per_thread, status, &stream);
    if (!rc)
        *status = status_of(stream);
    return rc ? rc : driver_leave(CUDA_SUCCESS);
}

API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return is_capturing(stream, false, status);
}
API cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status) {
    return is_capturing(stream, true, status);
}

// All that the versions of the call ask for; each may be NULL but the status.
struct info {
    CUstreamCaptureStatus *status;
    uint64_t *id;
    CUgraph *graph;
    const CUgraphNode **deps;
    const CUgraphEdgeData **edges;
    size_t *count;
};

static CUresult get_info(CUstream handle, bool per_thread, const struct info *info) {
    struct stream *stream;
    CUresult rc = look(handle, per_thread, info->status, &stream);
    if (rc)
        return rc;
    *info->status = status_of(stream);
    if (*info->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        const struct capture *capture = stream->capture;
        if (info->id)
            *info->id = capture->id;
        if (info->graph)
            *info->graph = (CUgraph)capture->graph;
        if (info->deps)
            *info->deps = (const CUgraphNode *)stream->capture_deps.at;
        if (info->edges)
            *info->edges = NULL;  // no edge has data
        if (info->count)
            *info->count = stream->capture_deps.count;
    }
    return driver_leave(CUDA_SUCCESS);
}

#define INFO(name, twin, per_thread)                                                               \
    API name##twin(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id) {                 \
        return get_info(stream, per_thread, &(struct info){.status = status, .id = id});           \
    }                                                                                              \
    API name##_v2##twin(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id,              \
                        CUgraph *graph, const CUgraphNode **deps, size_t *count) {                 \
        return get_info(stream, per_thread, &(struct info){status, id, graph, deps, NULL, count}); \
    }                                                                                              \
    API name##_v3##twin(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id,              \
                        CUgraph *graph, const CUgraphNode **deps, const CUgraphEdgeData **edges,   \
                        size_t *count) {                                                           \
        return get_info(stream, per_thread,                                                        \
                        &(struct info){status, id, graph, deps, edges, count});                    \
    }

INFO(cuStreamGetCaptureInfo, , false)
INFO(cuStreamGetCaptureInfo, _ptsz, true)

// ---- Changing what the next node depends on ----

static CUresult update(CUstream handle, bool per_thread, const CUgraphNode *deps,
                       const CUgraphEdgeData *edges, size_t count, unsigned flags) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (!stream->capture)
        return driver_leave(CUDA_ERROR_ILLEGAL_STATE);
    if (stream->capture->invalid)
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    struct nodes fresh = {0};
    rc = edges_plain(edges, count);
    if (!rc)
        rc = list_of(stream->capture->graph, deps, count, &fresh);
    if (!rc && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        stream->capture_deps.count = 0;
    for (uint32_t i = 0; i < fresh.count && !rc; i++)
        if (!nodes_have(&stream->capture_deps, fresh.at[i]) &&
            !nodes_add(&stream->capture_deps, fresh.at[i]))
            rc = CUDA_ERROR_OUT_OF_MEMORY;
    free(fresh.at);
    return driver_leave(rc);
}

API cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *deps, size_t count,
                                      unsigned int flags) {
    return update(stream, false, deps, NULL, count, flags);
}

API cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *deps, size_t count,
                                           unsigned int flags) {
    return update(stream, true, deps, NULL, count, flags);
}

API cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *deps,
                                         const CUgraphEdgeData *edges, size_t count,
                                         unsigned int flags) {
    return update(stream, false, deps, edges, count, flags);
}

API cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *deps,
                                              const CUgraphEdgeData *edges, size_t count,
                                              unsigned int flags) {
    return update(stream, true, deps, edges, count, flags);
}
