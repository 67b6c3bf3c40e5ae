// copy.c: copies and sets of linear memory, in all their forms.
//
// Every form becomes one task of rows and planes. The direction is read off the addresses. A copy
// between pageable host memory and a device returns when the host memory is free to be used again:
// small data to the device are taken along at once, all else is waited for. The forms without a
// stream wait wherever the host could look at what they do.
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define STAGED_BYTES_MAX 65536u

// How far the caller is kept waiting.
enum wait { ASYNC, SYNC };

// One end of a copy, as the caller gave it.
struct end {
    uint64_t address;
    bool device;  // must be the driver's; else it may be any host memory
    size_t pitch, plane;
    int gpu;  // found: -1 is host memory
    bool pageable;
    bool hidden;  // the host cannot look at it
    unsigned char *data;
};

// From the first byte to behind the last one. False: more than there can be.
static bool extent(size_t pitch, size_t plane, size_t width, size_t height, size_t depth,
                   size_t *bytes) {
    size_t rows, planes;
    return !__builtin_mul_overflow(pitch, height - 1, &rows) &&
           !__builtin_mul_overflow(plane, depth - 1, &planes) &&
           !__builtin_add_overflow(rows, planes, bytes) &&
           !__builtin_add_overflow(*bytes, width, bytes);
}

static bool hidden(uint64_t address) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    return block && block->kind == BLOCK_PLAIN;
}

static CUresult find_end(struct end *end, size_t width, size_t height, size_t depth) {
    size_t bytes;
    struct arena *arena;
    if (!extent(end->pitch, end->plane, width, height, depth, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    end->data = memory_data(end->address, bytes, &end->gpu);
    end->hidden = hidden(end->address);
    if (end->data)
        return CUDA_SUCCESS;
    if (end->device || !end->address || memory_find(end->address, &arena) || arena)
        return CUDA_ERROR_INVALID_VALUE;
    end->data = (unsigned char *)(uintptr_t)end->address;
    end->pageable = true;
    return CUDA_SUCCESS;
}

static enum sim_engine engine_for(const struct end *to, const struct end *from) {
    if (to->gpu < 0 && from->gpu < 0)
        return SIM_ENGINE_NONE;
    if (from->gpu < 0)
        return SIM_ENGINE_H2D;
    return to->gpu == from->gpu ? SIM_ENGINE_COMPUTE : SIM_ENGINE_D2H;
}

static struct task *copy_task(struct context *context, const struct end *to, const struct end *from,
                              size_t width, size_t height, size_t depth, bool stage) {
    struct task *task = task_make(TASK_COPY, context, stage ? width : 0);
    if (!task)
        return NULL;
    task->copy.to = (struct shape){.base = to->data, .pitch = to->pitch, .plane = to->plane};
    task->copy.from =
        (struct shape){.base = from->data, .pitch = from->pitch, .plane = from->plane};
    task->copy.width = width;
    task->copy.height = height;
    task->copy.depth = depth;
    if (stage) {
        memcpy(task->params, from->data, width);
        task->copy.from.base = task->params;
    }
    return task;
}

// Has a submitted operation done, before the return or some time.
static CUresult see_to(struct context *context, uint64_t seq, bool block) {
    if (!block) {
        worker_wake();
        return CUDA_SUCCESS;
    }
    op_run_here(context, seq);
    return op_wait(context, seq);
}

static CUresult copy(struct end to, struct end from, size_t width, size_t height, size_t depth,
                     CUstream handle, bool per_thread, enum wait wait) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    if (!width || !height || !depth)
        return driver_leave(CUDA_SUCCESS);
    rc = find_end(&to, width, height, depth);
    if (!rc)
        rc = find_end(&from, width, height, depth);
    if (rc)
        return driver_leave(rc);
    struct context *context = stream->context;
    enum sim_engine engine = engine_for(&to, &from);
    bool stage = wait == ASYNC && from.pageable && to.gpu >= 0 && height == 1 && depth == 1 &&
                 width <= STAGED_BYTES_MAX;
    bool block = ((to.pageable || from.pageable) && !stage) ||
                 (wait == SYNC && !(to.hidden && from.hidden && engine == SIM_ENGINE_COMPUTE));
    struct task *task = copy_task(context, &to, &from, width, height, depth, stage);
    if (!task)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t seq, cost = 0;
    if (engine != SIM_ENGINE_NONE)
        cost = sim_cost_copy(driver.machine, context->card, engine, width * height * depth);
    rc = submit(stream, engine, cost, task, NULL, &seq);
    return driver_leave(rc ? rc : see_to(context, seq, block));
}

// ---- One-dimensional copies ----

static struct end device_end(CUdeviceptr address) {
    return (struct end){.address = address, .device = true};
}

static struct end host_end(const void *address) {
    return (struct end){.address = (uintptr_t)address};
}

static struct end any_end(CUdeviceptr address) {
    return (struct end){.address = address};
}

// A synchronous form and its per-thread twin; then an asynchronous one and its twin.
#define SYNC_FORM(name, twin, to_type, to_end, from_type, from_end)                                \
    API name(to_type to, from_type from, size_t bytes) {                                           \
        return copy(to_end(to), from_end(from), bytes, 1, 1, NULL, false, SYNC);                   \
    }                                                                                              \
    API twin(to_type to, from_type from, size_t bytes) {                                           \
        return copy(to_end(to), from_end(from), bytes, 1, 1, NULL, true, SYNC);                    \
    }

#define ASYNC_FORM(name, to_type, to_end, from_type, from_end)                                     \
    API name(to_type to, from_type from, size_t bytes, CUstream stream) {                          \
        return copy(to_end(to), from_end(from), bytes, 1, 1, stream, false, ASYNC);                \
    }                                                                                              \
    API name##_ptsz(to_type to, from_type from, size_t bytes, CUstream stream) {                   \
        return copy(to_end(to), from_end(from), bytes, 1, 1, stream, true, ASYNC);                 \
    }

SYNC_FORM(cuMemcpy, cuMemcpy_ptds, CUdeviceptr, any_end, CUdeviceptr, any_end)
SYNC_FORM(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, CUdeviceptr, device_end, const void *, host_end)
SYNC_FORM(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, void *, host_end, CUdeviceptr, device_end)
SYNC_FORM(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, CUdeviceptr, device_end, CUdeviceptr, device_end)
ASYNC_FORM(cuMemcpyAsync, CUdeviceptr, any_end, CUdeviceptr, any_end)
ASYNC_FORM(cuMemcpyHtoDAsync_v2, CUdeviceptr, device_end, const void *, host_end)
ASYNC_FORM(cuMemcpyDtoHAsync_v2, void *, host_end, CUdeviceptr, device_end)
ASYNC_FORM(cuMemcpyDtoDAsync_v2, CUdeviceptr, device_end, CUdeviceptr, device_end)

// ---- Between contexts: the addresses say it all, the contexts must only exist ----

static CUresult peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                     size_t bytes, CUstream stream, bool per_thread, enum wait wait) {
    CUresult rc = driver_enter();
    if (rc)
        return rc;
    bool good = pool_get(&driver.contexts, to_context) && pool_get(&driver.contexts, from_context);
    driver_leave(CUDA_SUCCESS);
    return good ? copy(device_end(to), device_end(from), bytes, 1, 1, stream, per_thread, wait)
                : CUDA_ERROR_INVALID_CONTEXT;
}

API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                 size_t bytes) {
    return peer(to, to_context, from, from_context, bytes, NULL, false, SYNC);
}

API cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) {
    return peer(to, to_context, from, from_context, bytes, NULL, true, SYNC);
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes, CUstream stream) {
    return peer(to, to_context, from, from_context, bytes, stream, false, ASYNC);
}

API cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) {
    return peer(to, to_context, from, from_context, bytes, stream, true, ASYNC);
}

// ---- Two and three dimensions ----

// One side of a descriptor.
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, z, pitch, height;
};

static CUresult side_end(const struct side *side, size_t width, size_t rows, size_t planes,
                         struct end *end) {
    size_t pitch = side->pitch, height = side->height;
    if (rows == 1 && planes == 1 && !pitch)
        pitch = width + side->x;
    if (planes == 1 && !height)
        height = rows + side->y;
    if (pitch < width || pitch - width < side->x || height < rows || height - rows < side->y)
        return CUDA_ERROR_INVALID_VALUE;
    size_t plane, skip_planes, skip_rows;
    if (__builtin_mul_overflow(pitch, height, &plane) ||
        __builtin_mul_overflow(plane, side->z, &skip_planes) ||
        __builtin_mul_overflow(pitch, side->y, &skip_rows))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t base;
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
        base = (uintptr_t)side->host;
        break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        base = side->device;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *end = (struct end){.address = base + skip_planes + skip_rows + side->x,
                        .device = side->type == CU_MEMORYTYPE_DEVICE,
                        .pitch = pitch,
                        .plane = plane};
    return CUDA_SUCCESS;
}

static CUresult copy_sides(const struct side *to, const struct side *from, size_t width,
                           size_t height, size_t depth, CUstream stream, bool per_thread,
                           enum wait wait) {
    struct end to_end, from_end;
    CUresult rc = driver_check();
    if (!rc && width && height && depth) {
        rc = side_end(to, width, height, depth, &to_end);
        if (!rc)
            rc = side_end(from, width, height, depth, &from_end);
        if (!rc)
            rc = copy(to_end, from_end, width, height, depth, stream, per_thread, wait);
    }
    return rc;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool per_thread, enum wait wait) {
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    struct side to = {.type = c->dstMemoryType,
                      .host = c->dstHost,
                      .device = c->dstDevice,
                      .x = c->dstXInBytes,
                      .y = c->dstY,
                      .pitch = c->dstPitch};
    struct side from = {.type = c->srcMemoryType,
                        .host = c->srcHost,
                        .device = c->srcDevice,
                        .x = c->srcXInBytes,
                        .y = c->srcY,
                        .pitch = c->srcPitch};
    return copy_sides(&to, &from, c->WidthInBytes, c->Height, 1, stream, per_thread, wait);
}

API cuMemcpy2D_v2(const CUDA_MEMCPY2D *c) {
    return copy_2d(c, NULL, false, SYNC);
}
API cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *c) {
    return copy_2d(c, NULL, true, SYNC);
}
API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c) {
    return copy_2d(c, NULL, false, SYNC);
}
API cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *c) {
    return copy_2d(c, NULL, true, SYNC);
}

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
    return copy_2d(c, stream, false, ASYNC);
}

API cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *c, CUstream stream) {
    return copy_2d(c, stream, true, ASYNC);
}

// The peer form has the same layout, with contexts in the reserved places.
static CUresult copy_3d(const CUDA_MEMCPY3D *c, bool peers, CUstream stream, bool per_thread,
                        enum wait wait) {
    if (!c || c->srcLOD || c->dstLOD || (!peers && (c->reserved0 || c->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    struct side to = {.type = c->dstMemoryType,
                      .host = c->dstHost,
                      .device = c->dstDevice,
                      .x = c->dstXInBytes,
                      .y = c->dstY,
                      .z = c->dstZ,
                      .pitch = c->dstPitch,
                      .height = c->dstHeight};
    struct side from = {.type = c->srcMemoryType,
                        .host = c->srcHost,
                        .device = c->srcDevice,
                        .x = c->srcXInBytes,
                        .y = c->srcY,
                        .z = c->srcZ,
                        .pitch = c->srcPitch,
                        .height = c->srcHeight};
    return copy_sides(&to, &from, c->WidthInBytes, c->Height, c->Depth, stream, per_thread, wait);
}

API cuMemcpy3D_v2(const CUDA_MEMCPY3D *c) {
    return copy_3d(c, false, NULL, false, SYNC);
}
API cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *c) {
    return copy_3d(c, false, NULL, true, SYNC);
}
API cuMemcpy3DPeer(const CUDA_MEMCPY3D *c) {
    return copy_3d(c, true, NULL, false, SYNC);
}
API cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D *c) {
    return copy_3d(c, true, NULL, true, SYNC);
}

API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream) {
    return copy_3d(c, false, stream, false, ASYNC);
}

API cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *c, CUstream stream) {
    return copy_3d(c, false, stream, true, ASYNC);
}

API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D *c, CUstream stream) {
    return copy_3d(c, true, stream, false, ASYNC);
}

API cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D *c, CUstream stream) {
    return copy_3d(c, true, stream, true, ASYNC);
}

// ---- Sets ----

static CUresult set(CUdeviceptr to, size_t pitch, uint32_t value, unsigned element, size_t count,
                    size_t height, CUstream handle, bool per_thread, enum wait wait) {
    struct stream *stream;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    if (!count || !height)
        return driver_leave(CUDA_SUCCESS);
    size_t width, bytes;
    int gpu;
    if (to % element || __builtin_mul_overflow(count, (size_t)element, &width) ||
        (height > 1 && (pitch < width || pitch % element)) ||
        !extent(pitch, 0, width, height, 1, &bytes))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    unsigned char *data = memory_data(to, bytes, &gpu);
    if (!data)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    struct context *context = stream->context;
    struct task *task = task_make(TASK_SET, context, 0);
    if (!task)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    task->set.to = (struct shape){.base = data, .pitch = pitch};
    task->set.value = value;
    task->set.element = element;
    task->set.count = count;
    task->set.height = height;
    uint64_t seq;
    uint64_t cost =
        sim_cost_copy(driver.machine, context->card, SIM_ENGINE_COMPUTE, width * height);
    rc = submit(stream, SIM_ENGINE_COMPUTE, cost, task, NULL, &seq);
    return driver_leave(rc ? rc : see_to(context, seq, wait == SYNC && !hidden(to)));
}

// The four names of a set of one element size, and of its two-dimensional form.
#define SETS(bits, type)                                                                           \
    API cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                           \
        return set(to, 0, value, bits / 8, count, 1, NULL, false, SYNC);                           \
    }                                                                                              \
    API cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count) {                      \
        return set(to, 0, value, bits / 8, count, 1, NULL, true, SYNC);                            \
    }                                                                                              \
    API cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {        \
        return set(to, 0, value, bits / 8, count, 1, stream, false, ASYNC);                        \
    }                                                                                              \
    API cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream) {   \
        return set(to, 0, value, bits / 8, count, 1, stream, true, ASYNC);                         \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,             \
                               size_t height) {                                                    \
        return set(to, pitch, value, bits / 8, width, height, NULL, false, SYNC);                  \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height) {                                               \
        return set(to, pitch, value, bits / 8, width, height, NULL, true, SYNC);                   \
    }                                                                                              \
    API cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,           \
                                 size_t height, CUstream stream) {                                 \
        return set(to, pitch, value, bits / 8, width, height, stream, false, ASYNC);               \
    }                                                                                              \
    API cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream) {                            \
        return set(to, pitch, value, bits / 8, width, height, stream, true, ASYNC);                \
    }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)
