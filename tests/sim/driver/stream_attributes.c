// stream_attributes.c: launch attributes of streams. They change nothing on the simulated GPU and
// are kept for those who ask.
#include "driver.h"

#include <string.h>

static CUlaunchAttributeValue *value_of(struct stream *stream, int id) {
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return &stream->attributes[0];
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return &stream->attributes[1];
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return &stream->attributes[2];
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return &stream->attributes[3];
    default:
        return NULL;
    }
}

static CUresult get(CUstream handle, bool per_thread, int id, CUlaunchAttributeValue *out) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    const CUlaunchAttributeValue *value = value_of(stream, id);
    bool priority = id == CU_LAUNCH_ATTRIBUTE_PRIORITY;
    if (!out || (!value && !priority))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *out = priority ? (CUlaunchAttributeValue){.priority = stream->priority} : *value;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult set(CUstream handle, bool per_thread, int id, const CUlaunchAttributeValue *in) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    CUlaunchAttributeValue *value = value_of(stream, id);
    if (!in || !value)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    *value = *in;
    return driver_leave(CUDA_SUCCESS);
}

static CUresult copy(CUstream to_handle, CUstream from_handle, bool per_thread) {
    struct stream *to, *from;
    CUresult rc = stream_enter(to_handle, per_thread, &to);
    if (rc)
        return rc;
    rc = stream_get(from_handle, per_thread, &from);
    if (!rc && to->context != from->context)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (!rc)
        memcpy(to->attributes, from->attributes, sizeof to->attributes);
    return driver_leave(rc);
}

API cuStreamGetAttribute(CUstream stream, int id, CUlaunchAttributeValue *value) {
    return get(stream, false, id, value);
}

API cuStreamGetAttribute_ptsz(CUstream stream, int id, CUlaunchAttributeValue *value) {
    return get(stream, true, id, value);
}

API cuStreamSetAttribute(CUstream stream, int id, const CUlaunchAttributeValue *value) {
    return set(stream, false, id, value);
}

API cuStreamSetAttribute_ptsz(CUstream stream, int id, const CUlaunchAttributeValue *value) {
    return set(stream, true, id, value);
}

API cuStreamCopyAttributes(CUstream to, CUstream from) {
    return copy(to, from, false);
}

API cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
    return copy(to, from, true);
}
