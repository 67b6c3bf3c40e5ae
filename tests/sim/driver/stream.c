// stream.c: streams. A stream is only an order: the number of its newest operation and its kind;
// submit.c turns that into dependencies.
#include "driver.h"

uint64_t thread_number(void) {
    static uint64_t threads;
    static __thread uint64_t number;
    if (!number)
        number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    return number;
}

static struct stream *stream_make(struct context *context, unsigned flags, int priority) {
    struct stream *stream = pool_take(&driver.streams);
    if (stream) {
        stream->context = context;
        stream->last = context->gate;
        stream->flags = flags;
        stream->priority = priority;
        stream->id = ++driver.ids;
    }
    return stream;
}

static struct stream *thread_stream(struct context *context) {
    uint64_t number = thread_number();
    for (struct stream *s = context->threads; s; s = s->next_thread)
        if (s->thread == number)
            return s;
    struct stream *stream = stream_make(context, CU_STREAM_DEFAULT, 0);
    if (stream) {
        stream->thread = number;
        stream->next_thread = context->threads;
        context->threads = stream;
    }
    return stream;
}

CUresult stream_get(CUstream handle, bool per_thread, struct stream **stream) {
    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *stream = pool_get(&driver.streams, handle);
        return *stream ? context_error((*stream)->context) : CUDA_ERROR_INVALID_HANDLE;
    }
    struct context *context;
    CUresult rc = context_current(&context);
    if (rc)
        return rc;
    bool thread = handle == CU_STREAM_PER_THREAD || (!handle && per_thread);
    *stream = thread ? thread_stream(context) : &context->legacy;
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_enter(CUstream handle, bool per_thread, struct stream **stream) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = stream_get(handle, per_thread, stream);
    return rc ? driver_leave(rc) : CUDA_SUCCESS;
}

// Takes the stream out of its context's list of those used since the last legacy operation.
static void leave_since(struct stream *stream) {
    struct stream **link = &stream->context->since_legacy;
    while (*link && *link != stream)
        link = &(*link)->next_since;
    if (*link)
        *link = stream->next_since;
}

void streams_drop(struct context *context) {
    struct stream *stream;
    for (uint32_t i = 0; (stream = pool_next(&driver.streams, &i)); i++)
        if (stream->context == context) {
            capture_stream_gone(stream);
            pool_drop(&driver.streams, stream);
        }
}

// ---- Creation ----

API cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    if (!out || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    struct stream *stream = stream_make(context, flags, priority);
    if (stream)
        *out = (CUstream)stream;
    return driver_leave(stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

API cuStreamCreate(CUstream *out, unsigned int flags) {
    return cuStreamCreateWithPriority(out, flags, 0);
}

// Its work goes on, and later work of the default stream still has to wait for it.
API cuStreamDestroy_v2(CUstream handle) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct stream *stream = pool_get(&driver.streams, handle);
    if (!stream || stream->thread)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    capture_stream_gone(stream);
    uint64_t id = stream->id;
    stream_turn(stream);
    if (!stream->object.live || stream->id != id)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);  // another thread was faster
    if (stream->since_legacy) {
        struct sim_dep last = {.seq = stream->last, .context = stream->context->machine};
        uint64_t seq;
        leave_since(stream);
        submit(&stream->context->leftover, SIM_ENGINE_NONE, 0, NULL, &last, &seq);
    }
    pool_drop(&driver.streams, stream);
    return driver_leave(CUDA_SUCCESS);
}

API cuStreamDestroy(CUstream handle) {
    return cuStreamDestroy_v2(handle);
}

// ---- Waiting ----

// The operation to wait for. The default stream's includes what a later one in it would wait for.
static CUresult newest(struct stream *stream, uint64_t *seq) {
    *seq = stream->last;
    bool others = stream == &stream->context->legacy && stream->context->since_legacy;
    return others ? submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, seq) : CUDA_SUCCESS;
}

// Submits nothing, since that may have to wait.
static CUresult stream_query(CUstream handle, bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct context *context = stream->context;
    rc = capture_allows_wait(stream);
    if (!rc)
        rc = op_query(context, stream->last);
    if (stream == &context->legacy)
        for (struct stream *s = context->since_legacy; s && !rc; s = s->next_since)
            rc = op_query(context, s->last);
    return driver_leave(rc);
}

API cuStreamQuery(CUstream stream) {
    return stream_query(stream, false);
}
API cuStreamQuery_ptsz(CUstream stream) {
    return stream_query(stream, true);
}

static CUresult stream_synchronize(CUstream handle, bool per_thread) {
    struct stream *stream;
    uint64_t seq;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    rc = capture_allows_wait(stream);
    if (!rc)
        rc = newest(stream, &seq);
    if (!rc)
        rc = op_wait(stream->context, seq);
    if (!rc)
        mempools_release();
    return driver_leave(rc);
}

API cuStreamSynchronize(CUstream stream) {
    return stream_synchronize(stream, false);
}
API cuStreamSynchronize_ptsz(CUstream stream) {
    return stream_synchronize(stream, true);
}

static CUresult wait_event(CUstream handle, CUevent event_handle, unsigned flags, bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct event *event = pool_get(&driver.events, event_handle);
    if (!event)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture || event->captured)
        return driver_leave(capture_wait(stream, event, flags & CU_EVENT_WAIT_EXTERNAL));
    if (event->signal.id)
        return driver_leave(ipc_event_await(event, stream));
    struct sim_dep recording = {.seq = event->finish_ns ? 0 : event->seq,
                                .context = event->machine};
    uint64_t seq;
    if (recording.seq)
        rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, &recording, &seq);
    return driver_leave(rc);
}

API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    return wait_event(stream, event, flags, false);
}

API cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
    return wait_event(stream, event, flags, true);
}

// ---- Host functions ----

static CUresult host_task(CUstream handle, bool per_thread, CUhostFn function,
                          CUstreamCallback callback, void *user) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    struct task *task = task_make(TASK_HOST, stream->context, 0);
    if (!task)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    task->host.function = function;
    task->host.callback = callback;
    task->host.stream = handle;
    task->host.user = user;
    uint64_t seq;
    rc = submit(stream, SIM_ENGINE_HOST, 0, task, NULL, &seq);
    worker_wake();
    return driver_leave(rc);
}

API cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user) {
    return function ? host_task(stream, false, function, NULL, user) : CUDA_ERROR_INVALID_VALUE;
}

API cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *user) {
    return function ? host_task(stream, true, function, NULL, user) : CUDA_ERROR_INVALID_VALUE;
}

API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user,
                        unsigned int flags) {
    return callback && !flags ? host_task(stream, false, NULL, callback, user)
                              : CUDA_ERROR_INVALID_VALUE;
}

API cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *user,
                             unsigned int flags) {
    return callback && !flags ? host_task(stream, true, NULL, callback, user)
                              : CUDA_ERROR_INVALID_VALUE;
}

// ---- Properties ----

// One property of a stream into `out`; a 64-bit one where `wide`.
enum property { FLAGS, PRIORITY, ID, CONTEXT };

static CUresult get(CUstream handle, bool per_thread, enum property property, void *out) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc || !out)
        return rc ? rc : driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (property == FLAGS)
        *(unsigned *)out = stream->flags;
    else if (property == PRIORITY)
        *(int *)out = stream->priority;
    else if (property == ID)
        *(unsigned long long *)out = stream->id;
    else
        *(CUcontext *)out = (CUcontext)stream->context;
    return driver_leave(CUDA_SUCCESS);
}

#define PROPERTY(name, property, type)                                                             \
    API name(CUstream stream, type *out) {                                                         \
        return get(stream, false, property, out);                                                  \
    }                                                                                              \
    API name##_ptsz(CUstream stream, type *out) {                                                  \
        return get(stream, true, property, out);                                                   \
    }

PROPERTY(cuStreamGetFlags, FLAGS, unsigned int)
PROPERTY(cuStreamGetPriority, PRIORITY, int)
PROPERTY(cuStreamGetId, ID, unsigned long long)
PROPERTY(cuStreamGetCtx, CONTEXT, CUcontext)
