// green.c: green contexts: contexts that are given a part of a device's multiprocessors.
//
// Each has a context of its own, which takes what every context takes of the card, and retains the
// device's primary context. How many multiprocessors it has is recorded and changes no times. Also
// here: waiting for, and holding up, all work of a context at once.
#include "green.h"

static struct pool greens = {.bytes = sizeof(struct green), .most = SIM_CONTEXTS_MAX};

static CUresult green_enter(CUgreenCtx handle, struct green **green) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    *green = pool_get(&greens, handle);
    return *green ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_CONTEXT);
}

// With the primary context retained.
static CUresult make(CUdevice device, unsigned processors, CUgreenCtx *out) {
    struct context *context;
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    rc = context_make((uint32_t)device, 0, &context);
    if (rc)
        return driver_leave(rc);
    struct green *green = pool_take(&greens);
    if (!green) {
        context_destroy(context);
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    green->context = context;
    green->device = device;
    green->processors = processors;
    context->green = green;
    *out = (CUgreenCtx)green;
    return driver_leave(CUDA_SUCCESS);
}

API cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc description, CUdevice device,
                     unsigned int flags) {
    CUcontext primary;
    unsigned processors;
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    if (!out || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        rc = CUDA_ERROR_INVALID_VALUE;
    else
        rc = device_ok(device) ? resource_described(description, device, &processors)
                               : CUDA_ERROR_INVALID_DEVICE;
    driver_leave(rc);
    if (!rc)
        rc = cuDevicePrimaryCtxRetain(&primary, device);
    if (rc)
        return rc;
    rc = make(device, processors, out);
    if (rc)
        cuDevicePrimaryCtxRelease_v2(device);
    return rc;
}

API cuGreenCtxDestroy(CUgreenCtx handle) {
    struct green *green;
    CUresult rc = green_enter(handle, &green);
    if (rc)
        return rc;
    struct context *context = green->context;
    CUdevice device = green->device;
    pool_drop(&greens, green);
    context->green = NULL;
    context_destroy(context);
    driver_leave(CUDA_SUCCESS);
    // A program that has released the primary context too often has ended it already.
    cuDevicePrimaryCtxRelease_v2(device);
    return CUDA_SUCCESS;
}

API cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle) {
    struct green *green;
    CUresult rc = green_enter(handle, &green);
    if (rc)
        return rc;
    if (context)
        *context = (CUcontext)green->context;
    return driver_leave(context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type) {
    struct green *green;
    CUresult rc = green_enter(handle, &green);
    if (rc)
        return rc;
    if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
        return driver_leave(resource ? CUDA_ERROR_INVALID_RESOURCE_TYPE : CUDA_ERROR_INVALID_VALUE);
    resource_make(resource, green->device, green->processors);
    return driver_leave(CUDA_SUCCESS);
}

// ---- Streams ----

API cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx handle, unsigned int flags, int priority) {
    CUcontext context;
    CUresult rc = cuCtxFromGreenCtx(&context, handle);
    if (!rc && (!stream || flags != CU_STREAM_NON_BLOCKING))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        rc = cuCtxPushCurrent_v2(context);
    if (rc)
        return rc;
    rc = cuStreamCreateWithPriority(stream, flags, priority);
    cuCtxPopCurrent_v2(&context);
    return rc;
}

// Of a green context's stream the green context, of any other the context; the other one is NULL.
static CUresult contexts_of(CUstream handle, bool per_thread, CUcontext *context,
                            CUgreenCtx *green) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    bool is_green = stream->context->green;
    if (context)
        *context = is_green ? NULL : (CUcontext)stream->context;
    if (green)
        *green = (CUgreenCtx)stream->context->green;
    return driver_leave(context || green ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

API cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green) {
    return contexts_of(stream, false, NULL, green);
}

API cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green) {
    return contexts_of(stream, false, context, green);
}

API cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context, CUgreenCtx *green) {
    return contexts_of(stream, true, context, green);
}

// ---- All of a context's work at once ----

static bool captures(const struct context *context) {
    struct stream *stream;
    for (uint32_t i = 0; (stream = pool_next(&driver.streams, &i)); i++)
        if (stream->context == context && stream->capture)
            return true;
    return false;
}

// An operation that follows all work of the context, in a stream of nobody's.
static CUresult join(struct context *context, uint64_t *seq) {
    struct stream *stream;
    uint64_t id = context->id;
    CUresult rc = submit(&context->leftover, SIM_ENGINE_NONE, 0, NULL, NULL, seq);
    for (uint32_t i = 0; !rc && (stream = pool_next(&driver.streams, &i)); i++) {
        if (stream->context != context || !stream->last)
            continue;
        struct sim_dep last = {.seq = stream->last, .context = context->machine};
        rc = submit(&context->leftover, SIM_ENGINE_NONE, 0, NULL, &last, seq);
        if (!rc && (!context->object.live || context->id != id))
            rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return rc;
}

static CUresult record(struct context *context, CUevent handle) {
    struct event *event = event_get(handle);
    uint64_t seq;
    if (!event || event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (captures(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult rc = join(context, &seq);
    if (!rc && event_get(handle) == event)
        event_recorded(event, context, seq);
    return rc;
}

// Every stream gets an operation that waits; streams to come begin behind it.
static CUresult wait(struct context *context, CUevent handle) {
    const struct event *event = event_get(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (captures(context))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct sim_dep recording = {.seq = event->finish_ns ? 0 : event->seq,
                                .context = event->machine};
    struct stream *stream;
    uint64_t seq;
    if (!recording.seq)
        return CUDA_SUCCESS;
    CUresult rc = submit(&context->legacy, SIM_ENGINE_NONE, 0, NULL, &recording, &seq);
    if (!rc)
        context->gate = seq;
    for (uint32_t i = 0; !rc && (stream = pool_next(&driver.streams, &i)); i++)
        if (stream->context == context)
            rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, &recording, &seq);
    return rc;
}

static CUresult of_context(CUcontext handle, CUevent event,
                           CUresult (*act)(struct context *, CUevent)) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    struct context *context = context_get(handle);
    return driver_leave(context ? act(context, event) : CUDA_ERROR_INVALID_CONTEXT);
}

API cuCtxRecordEvent(CUcontext context, CUevent event) {
    return of_context(context, event, record);
}

API cuCtxWaitEvent(CUcontext context, CUevent event) {
    return of_context(context, event, wait);
}

API cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
    struct green *green;
    CUresult rc = green_enter(handle, &green);
    return rc ? rc : driver_leave(record(green->context, event));
}

API cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
    struct green *green;
    CUresult rc = green_enter(handle, &green);
    return rc ? rc : driver_leave(wait(green->context, event));
}
