// event.c: events. A recording is an operation that costs nothing; its computed finish is the
// event's time. An event whose operation the ring forgets has been told its finish before.
#include "driver.h"

API cuEventCreate(CUevent *out, unsigned int flags) {
    struct context *context;
    CUresult rc = context_enter(&context);
    if (rc)
        return rc;
    bool shared = flags & CU_EVENT_INTERPROCESS;
    if (!out || flags > 7 || (shared && !(flags & CU_EVENT_DISABLE_TIMING)))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct event *event = pool_take(&driver.events);
    if (!event)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    event->context = context;
    event->flags = flags;
    *out = (CUevent)event;
    return driver_leave(CUDA_SUCCESS);
}

// The operation that records the event, while the ring has it.
static struct op *recording(const struct event *event) {
    struct context *context = event->seq ? driver.by_machine[event->machine] : NULL;
    struct op *op = context ? &context->ops[event->seq % SIM_QUEUE_MAX] : NULL;
    return op && op->event == event ? op : NULL;
}

static void forget(struct event *event) {
    struct op *op = recording(event);
    if (op)
        op->event = NULL;
}

static CUresult event_enter(CUevent handle, struct event **event) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *event = pool_get(&driver.events, handle);
    return *event ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

API cuEventDestroy_v2(CUevent handle) {
    struct event *event;
    CUresult rc = event_enter(handle, &event);
    if (rc)
        return rc;
    forget(event);
    pool_drop(&driver.events, event);
    return driver_leave(CUDA_SUCCESS);
}

API cuEventDestroy(CUevent handle) {
    return cuEventDestroy_v2(handle);
}

void events_drop(struct context *context) {
    struct event *event;
    for (uint32_t i = 0; (event = pool_next(&driver.events, &i)); i++)
        if (event->context == context)
            pool_drop(&driver.events, event);
}

static CUresult record(CUevent handle, CUstream stream_handle, bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(stream_handle, per_thread, &stream);
    if (rc)
        return rc;
    struct event *event = pool_get(&driver.events, handle);
    if (!event)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (event->context != stream->context)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    uint64_t seq;
    rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, &seq);
    if (!rc) {
        forget(event);
        event->machine = stream->context->machine;
        event->seq = seq;
        event->finish_ns = 0;
        stream->context->ops[seq % SIM_QUEUE_MAX].event = event;
    }
    return driver_leave(rc);
}

API cuEventRecord(CUevent event, CUstream stream) {
    return record(event, stream, false);
}
API cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return record(event, stream, true);
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(event, stream, false);
}

API cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : record(event, stream, true);
}

API cuEventQuery(CUevent handle) {
    struct event *event;
    CUresult rc = event_enter(handle, &event);
    if (rc)
        return rc;
    struct op *op = recording(event);
    return driver_leave(op ? op_query(op->context, op->seq) : CUDA_SUCCESS);
}

API cuEventSynchronize(CUevent handle) {
    struct event *event;
    CUresult rc = event_enter(handle, &event);
    if (rc)
        return rc;
    struct op *op = recording(event);
    return driver_leave(op ? op_wait(op->context, op->seq) : CUDA_SUCCESS);
}

// Whether it has, or will have, a time.
static bool timed(const struct event *event) {
    return event->seq && !(event->flags & CU_EVENT_DISABLE_TIMING);
}

// The event's time; NOT_READY before that.
static CUresult time_of(struct event *event, uint64_t *time) {
    struct op *op = recording(event);
    CUresult rc = op ? op_query(op->context, op->seq) : CUDA_SUCCESS;
    uint64_t wait_ns;
    if (!rc && op &&
        sim_work_look(driver.machine, op->context->machine, op->seq, &event->finish_ns, &wait_ns))
        rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *time = event->finish_ns;
    return rc;
}

API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct event *first = pool_get(&driver.events, start), *second = pool_get(&driver.events, end);
    if (!milliseconds || !first || !second)
        return driver_leave(milliseconds ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    uint64_t from, to;
    if (!timed(first) || !timed(second))
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    rc = time_of(first, &from);
    if (!rc)
        rc = time_of(second, &to);
    if (!rc)
        *milliseconds = (float)((double)(int64_t)(to - from) / 1e6);
    return driver_leave(rc);
}
