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
    event->id = ++driver.ids;
    event->context = context;
    event->flags = flags;
    if (shared && sim_signal_make(driver.machine, &event->signal)) {
        pool_drop(&driver.events, event);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
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

struct event *event_get(CUevent handle) {
    return pool_get(&driver.events, handle);
}

void event_recorded(struct event *event, struct context *context, uint64_t seq) {
    forget(event);
    capture_forget(event);
    event->machine = context->machine;
    event->seq = seq;
    event->finish_ns = 0;
    context->ops[seq % SIM_QUEUE_MAX].event = event;
}

// What it was recorded in last is of a capture: nothing can be known of it.
static CUresult captured(const struct event *event) {
    return event->captured ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

static CUresult event_enter(CUevent handle, struct event **event) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *event = pool_get(&driver.events, handle);
    return *event ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_HANDLE);
}

static void drop(struct event *event) {
    capture_forget(event);
    if (event->signal.id && !event->imported)
        sim_signal_drop(driver.machine, &event->signal);
    pool_drop(&driver.events, event);
}

API cuEventDestroy_v2(CUevent handle) {
    struct event *event;
    CUresult rc = event_enter(handle, &event);
    if (rc)
        return rc;
    forget(event);
    drop(event);
    return driver_leave(CUDA_SUCCESS);
}

API cuEventDestroy(CUevent handle) {
    return cuEventDestroy_v2(handle);
}

void events_drop(struct context *context) {
    struct event *event;
    for (uint32_t i = 0; (event = pool_next(&driver.events, &i)); i++)
        if (event->context == context)
            drop(event);
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned flags, bool per_thread) {
    struct stream *stream;
    CUresult rc = stream_enter(stream_handle, per_thread, &stream);
    if (rc)
        return rc;
    struct event *event = pool_get(&driver.events, handle);
    if (!event)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (event->context != stream->context)
        return driver_leave(CUDA_ERROR_INVALID_HANDLE);
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    if (stream->capture)
        return driver_leave(capture_record(stream, event, flags & CU_EVENT_RECORD_EXTERNAL));
    if (event->signal.id)
        return driver_leave(ipc_event_record(event, stream));
    uint64_t seq, id = event->id;
    struct context *context = stream->context;
    rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, NULL, &seq);
    if (!rc && event->object.live && event->id == id)
        event_recorded(event, context, seq);
    return driver_leave(rc);
}

API cuEventRecord(CUevent event, CUstream stream) {
    return record(event, stream, 0, false);
}
API cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return record(event, stream, 0, true);
}

API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, flags, false);
}

API cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
    return record(event, stream, flags, true);
}

API cuEventQuery(CUevent handle) {
    struct event *event;
    CUresult rc = event_enter(handle, &event);
    if (rc)
        return rc;
    rc = captured(event);
    if (!rc)
        rc = capture_unsafe();
    if (!rc && event->signal.id)
        return driver_leave(ipc_event_query(event));
    struct op *op = recording(event);
    return driver_leave(rc || !op ? rc : op_query(op->context, op->seq));
}

API cuEventSynchronize(CUevent handle) {
    struct event *event;
    CUresult rc = event_enter(handle, &event);
    if (rc)
        return rc;
    rc = captured(event);
    if (!rc)
        rc = capture_unsafe();
    struct op *op = recording(event);
    if (!rc && event->signal.id)
        rc = ipc_event_synchronize(event);
    else if (!rc && op)
        rc = op_wait(op->context, op->seq);
    if (!rc)
        mempools_release();
    return driver_leave(rc);
}

// Whether it has, or will have, a time.
static bool timed(const struct event *event) {
    return event->seq && !(event->flags & CU_EVENT_DISABLE_TIMING);
}

// The event's time; NOT_READY before that.
static CUresult time_of(struct event *event, uint64_t *time) {
    struct op *op = recording(event);
    CUresult rc = captured(event);
    if (!rc && op)
        rc = op_query(op->context, op->seq);
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
