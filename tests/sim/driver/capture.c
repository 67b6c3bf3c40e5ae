// capture.c: streams whose operations become nodes of a graph instead of being done.
//
// A capture has a graph and, for each stream in it, the nodes that the stream's next one depends
// on. It begins in one stream; another joins it by waiting for an event that was recorded in it,
// and must have been waited for when the first one ends it. What would break the order that the
// graph stands for is refused and makes the capture invalid: it can only be ended then.
#include "capture.h"

#include <stdlib.h>

// What an event that was recorded in a capture stands for.
struct captured_event {
    uint64_t capture_id;
    struct nodes nodes;
};

static struct capture *captures;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// ---- Streams in a capture ----

static bool blocking(const struct stream *stream) {
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

bool nodes_set(struct nodes *to, const struct nodes *from) {
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++)
        if (!nodes_add(to, from->at[i]))
            return false;
    return true;
}

CUresult capture_join(struct stream *stream, struct capture *capture, const struct nodes *deps) {
    if (!nodes_set(&stream->capture_deps, deps))
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->capture = capture;
    stream->context->captured += blocking(stream);
    return CUDA_SUCCESS;
}

static void leave(struct stream *stream) {
    stream->context->captured -= blocking(stream);
    stream->capture = NULL;
    free(stream->capture_deps.at);
    stream->capture_deps = (struct nodes){0};
}

void capture_begin(struct capture *capture) {
    capture->next = captures;
    captures = capture;
    capture->graph->capture = capture;
}

void capture_finish(struct capture *capture, bool keep) {
    struct stream *stream;
    for (uint32_t i = 0; (stream = pool_next(&driver.streams, &i)); i++)
        if (stream->capture == capture)
            leave(stream);
    capture->graph->capture = NULL;
    if (!keep && !capture->borrowed)
        graph_end(capture->graph);
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    free(capture);
}

void capture_stream_gone(struct stream *stream) {
    struct capture *capture = stream->capture;
    if (!capture)
        return;
    capture->invalid = true;
    leave(stream);
    if (capture->origin == stream)
        capture_finish(capture, false);
}

// ---- What a capture forbids ----

CUresult capture_refuse(struct stream *stream) {
    if (stream->capture)
        stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_implicit(const struct stream *stream) {
    struct context *context = stream->context;
    if (stream != &context->legacy || !context->captured)
        return CUDA_SUCCESS;
    struct stream *other;
    for (uint32_t i = 0; (other = pool_next(&driver.streams, &i)); i++)
        if (other->context == context && other->capture && blocking(other))
            other->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

// Whether a capture forbids this thread potentially unsafe calls.
static bool forbids(const struct capture *capture) {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
        capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return capture->thread == thread_number() || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                                  capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult capture_unsafe(void) {
    CUresult rc = CUDA_SUCCESS;
    for (struct capture *c = captures; c; c = c->next)
        if (forbids(c)) {
            c->invalid = true;
            rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return rc;
}

CUresult driver_enter_unsafe(void) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = capture_unsafe();
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

CUresult context_enter_unsafe(struct context **context) {
    CUresult rc = context_enter(context);
    if (rc)
        return rc;
    rc = capture_unsafe();
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

CUresult capture_allows_wait(struct stream *stream) {
    if (stream->capture)
        return capture_refuse(stream);
    CUresult rc = capture_implicit(stream);
    return rc ? rc : capture_unsafe();
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    CUresult rc = driver_check();
    if (rc || !mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return rc ? rc : CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

// ---- Nodes ----

// A node behind what the stream has captured so far. NULL: no room.
static struct node *append(struct stream *stream, CUgraphNodeType type) {
    struct node *node = node_make(stream->capture->graph, type);
    if (!node)
        return NULL;
    node->context = stream->context;
    node->context_id = stream->context->id;
    for (uint32_t i = 0; i < stream->capture_deps.count; i++)
        if (!edge_add(stream->capture_deps.at[i], node)) {
            node_end(node);
            return NULL;
        }
    return node;
}

// Makes a filled node the one that the stream's next depends on; after an error it is ended.
static CUresult settle(struct stream *stream, struct node *node, CUresult rc) {
    stream->capture_deps.count = rc ? stream->capture_deps.count : 0;
    if (!rc && !nodes_add(&stream->capture_deps, node))
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc) {
        node_end(node);
        stream->capture->invalid = true;
    }
    return rc;
}

static CUresult begin_node(struct stream *stream, CUgraphNodeType type, struct node **node) {
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *node = append(stream, type);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The type of node that a task becomes; false: none.
static bool type_of(const struct task *task, CUgraphNodeType *type) {
    unsigned count;
    if (!task)
        return false;
    if (task->kind == TASK_KERNEL)
        *type = CU_GRAPH_NODE_TYPE_KERNEL;
    else if (task->kind == TASK_COPY)
        *type = CU_GRAPH_NODE_TYPE_MEMCPY;
    else if (task->kind == TASK_SET)
        *type = CU_GRAPH_NODE_TYPE_MEMSET;
    else if (task->kind == TASK_HOST && task->host.function)
        *type = CU_GRAPH_NODE_TYPE_HOST;
    else if (memop_of(task, &count))
        *type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    else
        return false;
    return true;
}

static CUresult fill(struct node *node, const struct task *task) {
    unsigned count;
    const CUstreamBatchMemOpParams *ops;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_params_take(node, task);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        node->copy = task->copy.what;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        node->set = (CUDA_MEMSET_NODE_PARAMS){.dst = task->set.address,
                                              .pitch = task->set.to.pitch,
                                              .value = task->set.value,
                                              .elementSize = task->set.element,
                                              .width = task->set.count,
                                              .height = task->set.height};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        node->host = (CUDA_HOST_NODE_PARAMS){task->host.function, task->host.user};
        return CUDA_SUCCESS;
    default:
        ops = memop_of(task, &count);
        return memop_params_set(node, ops, count, 0);
    }
}

CUresult capture_task(struct stream *stream, struct task *task) {
    CUgraphNodeType type;
    struct node *node;
    CUresult rc = type_of(task, &type) ? begin_node(stream, type, &node) : capture_refuse(stream);
    if (!rc)
        rc = settle(stream, node, fill(node, task));
    free(task);
    return rc;
}

CUresult capture_graph(struct stream *stream, const struct exec *exec) {
    struct node *node;
    if (graph_has_memory(exec->graph))
        return capture_refuse(stream);
    CUresult rc = begin_node(stream, CU_GRAPH_NODE_TYPE_GRAPH, &node);
    if (rc)
        return rc;
    node->child = graph_clone(exec->graph);
    if (node->child)
        node->child->parent = node;
    return settle(stream, node, node->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult capture_alloc(struct stream *stream, uint32_t gpu, uint64_t bytes, uint64_t *address) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)gpu}},
        .bytesize = bytes};
    struct node *node;
    CUresult rc = begin_node(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node);
    if (!rc)
        rc = settle(stream, node, alloc_node_set(node, &params));
    if (!rc)
        *address = params.dptr;
    return rc;
}

CUresult capture_free(struct stream *stream, uint64_t address) {
    struct node *node;
    CUresult rc = begin_node(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, &node);
    return rc ? rc : settle(stream, node, free_node_set(node, address));
}

// ---- Events ----

void capture_forget(struct event *event) {
    if (event->captured)
        free(event->captured->nodes.at);
    free(event->captured);
    event->captured = NULL;
}

static CUresult event_node(struct stream *stream, struct event *event, CUgraphNodeType type) {
    struct node *node;
    CUresult rc = begin_node(stream, type, &node);
    return rc ? rc : settle(stream, node, event_params_set(node, (CUevent)event));
}

CUresult capture_record(struct stream *stream, struct event *event, bool external) {
    if (external)
        return event_node(stream, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct captured_event *captured = calloc(1, sizeof *captured);
    if (!captured || !nodes_set(&captured->nodes, &stream->capture_deps)) {
        free(captured);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    captured->capture_id = stream->capture->id;
    capture_forget(event);
    event->captured = captured;
    return CUDA_SUCCESS;
}

static struct capture *capture_by_id(uint64_t id) {
    struct capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

// The stream waits for what was captured elsewhere.
static CUresult wait_captured(struct stream *stream, const struct captured_event *event) {
    struct capture *capture = capture_by_id(event->capture_id);
    if (!capture || stream == &stream->context->legacy) {
        if (stream->capture)
            stream->capture->invalid = true;
        return capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                       : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!stream->capture)
        return capture_join(stream, capture, &event->nodes);
    if (stream->capture != capture) {
        stream->capture->invalid = capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    for (uint32_t i = 0; i < event->nodes.count; i++)
        if (!nodes_have(&stream->capture_deps, event->nodes.at[i]) &&
            !nodes_add(&stream->capture_deps, event->nodes.at[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult capture_wait(struct stream *stream, struct event *event, bool external) {
    if (stream->capture && external)
        return event_node(stream, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    if (event->captured)
        return wait_captured(stream, event->captured);
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->seq)
        return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}
