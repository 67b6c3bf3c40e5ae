// copy.c: how a copy becomes one task of rows and planes, whatever form it was asked for in.
//
// The direction is read off the addresses. A copy between pageable host memory and a device returns
// when the host memory is free to be used again: small data to the device are taken along at once,
// all else is waited for. The forms without a stream wait wherever the host could look at what they
// do. Of an array, a place is counted from its first row: its data lie as those of other memory do.
#include "copy.h"

#include "array.h"
#include "share.h"

#include <stdlib.h>
#include <string.h>

#define STAGED_BYTES_MAX 65536u

// One side of a copy, as the caller described it.
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    CUcontext context;  // in the peer form
    size_t x, y, z, pitch, height;
};

// The same, resolved to addresses.
struct end {
    uint64_t address;
    bool device;  // must be the driver's; else it may be any host memory
    size_t pitch, plane;
    size_t element_bytes;  // of an array; 0: none
    int gpu;               // found: -1 is host memory
    bool pageable;
    bool hidden;  // the host cannot look at it
    unsigned char *data;
};

struct size {
    size_t width, rows, planes;
};

// ---- Finding the ends ----

bool copy_extent(size_t pitch, size_t plane, size_t width, size_t height, size_t depth,
                 size_t *bytes) {
    size_t rows, planes;
    return !__builtin_mul_overflow(pitch, height - 1, &rows) &&
           !__builtin_mul_overflow(plane, depth - 1, &planes) &&
           !__builtin_add_overflow(rows, planes, bytes) &&
           !__builtin_add_overflow(*bytes, width, bytes);
}

bool copy_hidden(uint64_t address) {
    struct arena *arena;
    struct block *block = memory_find(address, &arena);
    return block && block->kind != BLOCK_MANAGED && block->kind != BLOCK_HOST &&
           block->kind != BLOCK_MAPPED_HOST;
}

static struct side side_to(const CUDA_MEMCPY3D *c) {
    return (struct side){.type = c->dstMemoryType,
                         .host = c->dstHost,
                         .device = c->dstDevice,
                         .array = c->dstArray,
                         .context = c->reserved1,
                         .x = c->dstXInBytes,
                         .y = c->dstY,
                         .z = c->dstZ,
                         .pitch = c->dstPitch,
                         .height = c->dstHeight};
}

static struct side side_from(const CUDA_MEMCPY3D *c) {
    return (struct side){.type = c->srcMemoryType,
                         .host = c->srcHost,
                         .device = c->srcDevice,
                         .array = c->srcArray,
                         .context = c->reserved0,
                         .x = c->srcXInBytes,
                         .y = c->srcY,
                         .z = c->srcZ,
                         .pitch = c->srcPitch,
                         .height = c->srcHeight};
}

static CUresult memory_end(const struct side *side, struct size size, struct end *end) {
    size_t pitch = side->pitch, height = side->height;
    if (size.rows == 1 && size.planes == 1 && !pitch)
        pitch = size.width + side->x;
    if (size.planes == 1 && !height)
        height = size.rows + side->y;
    if (pitch < size.width || pitch - size.width < side->x || height < size.rows ||
        height - size.rows < side->y)
        return CUDA_ERROR_INVALID_VALUE;
    size_t plane, skip_planes, skip_rows;
    if (__builtin_mul_overflow(pitch, height, &plane) ||
        __builtin_mul_overflow(plane, side->z, &skip_planes) ||
        __builtin_mul_overflow(pitch, side->y, &skip_rows))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t base = side->type == CU_MEMORYTYPE_HOST ? (uintptr_t)side->host : side->device;
    *end = (struct end){.address = base + skip_planes + skip_rows + side->x,
                        .device = side->type == CU_MEMORYTYPE_DEVICE,
                        .pitch = pitch,
                        .plane = plane};
    return CUDA_SUCCESS;
}

static bool inside(size_t at, size_t count, size_t room) {
    return at <= room && count <= room - at;
}

// `owner`: whose array it must be.
static CUresult array_end(const struct side *side, struct size size, const struct context *owner,
                          struct end *end) {
    const struct array *array = array_get(side->array);
    if (!array || array->context != owner)
        return CUDA_ERROR_INVALID_HANDLE;
    struct array_layout layout;
    array_layout_of(&array->descriptor, &layout);
    if (!inside(side->x, size.width, layout.row_bytes) ||
        !inside(side->y, size.rows, layout.rows) || !inside(side->z, size.planes, layout.slices) ||
        side->x % layout.element_bytes || size.width % layout.element_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    size_t plane = layout.row_bytes * layout.rows;
    *end = (struct end){.address =
                            array->address + side->z * plane + side->y * layout.row_bytes + side->x,
                        .device = true,
                        .pitch = layout.row_bytes,
                        .plane = plane,
                        .element_bytes = layout.element_bytes};
    return CUDA_SUCCESS;
}

// Where the data of a resolved end lie.
static CUresult find_data(struct end *end, struct size size, bool written) {
    size_t bytes;
    struct arena *arena;
    if (!copy_extent(end->pitch, end->plane, size.width, size.rows, size.planes, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    end->data = memory_data(end->address, bytes, &end->gpu);
    end->hidden = copy_hidden(end->address);
    if (written && !range_writable(end->address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (end->data)
        return CUDA_SUCCESS;
    if (end->device || !end->address || memory_find(end->address, &arena) || arena)
        return CUDA_ERROR_INVALID_VALUE;
    end->data = (unsigned char *)(uintptr_t)end->address;
    end->pageable = true;
    return CUDA_SUCCESS;
}

static CUresult find_end(const struct side *side, struct size size, bool written, bool peers,
                         const struct context *context, struct end *end) {
    CUresult rc;
    switch (side->type) {
    case CU_MEMORYTYPE_HOST:
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
        rc = memory_end(side, size, end);
        break;
    case CU_MEMORYTYPE_ARRAY:
        if (peers)
            context = context_get(side->context);
        rc = context ? array_end(side, size, context, end) : CUDA_ERROR_INVALID_CONTEXT;
        break;
    default:
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    return rc ? rc : find_data(end, size, written);
}

static CUresult find_ends(const CUDA_MEMCPY3D *what, bool peers, const struct context *context,
                          struct end *to, struct end *from) {
    struct size size = {what->WidthInBytes, what->Height, what->Depth};
    struct side to_side = side_to(what), from_side = side_from(what);
    if (what->srcLOD || what->dstLOD || (!peers && (what->reserved0 || what->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = find_end(&to_side, size, true, peers, context, to);
    if (!rc)
        rc = find_end(&from_side, size, false, peers, context, from);
    if (rc)
        return rc;
    bool fits =
        !to->element_bytes || !from->element_bytes || to->element_bytes == from->element_bytes;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- Jobs ----

static enum sim_engine engine_for(const struct end *to, const struct end *from) {
    if (to->gpu < 0 && from->gpu < 0)
        return SIM_ENGINE_NONE;
    if (from->gpu < 0)
        return SIM_ENGINE_H2D;
    return to->gpu == from->gpu ? SIM_ENGINE_COMPUTE : SIM_ENGINE_D2H;
}

// An address of unknown kind is described by what was found there.
static void name_kinds(CUDA_MEMCPY3D *what, const struct end *to, const struct end *from) {
    if (what->dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
        what->dstMemoryType = to->gpu < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        what->dstHost = to->gpu < 0 ? (void *)(uintptr_t)what->dstDevice : NULL;
    }
    if (what->srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
        what->srcMemoryType = from->gpu < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        what->srcHost = from->gpu < 0 ? (const void *)(uintptr_t)what->srcDevice : NULL;
    }
}

// Of two ends that have been found. `stage`: takes the data along at once.
static CUresult make_job(struct context *context, const CUDA_MEMCPY3D *what, const struct end *to,
                         const struct end *from, bool stage, struct job *job) {
    size_t width = what->WidthInBytes, height = what->Height, depth = what->Depth;
    struct task *task = task_make(TASK_COPY, context, stage ? width : 0);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    task->copy.to = (struct shape){.base = to->data, .pitch = to->pitch, .plane = to->plane};
    task->copy.from =
        (struct shape){.base = from->data, .pitch = from->pitch, .plane = from->plane};
    task->copy.width = width;
    task->copy.height = height;
    task->copy.depth = depth;
    task->copy.what = *what;
    name_kinds(&task->copy.what, to, from);
    if (stage) {
        memcpy(task->params, from->data, width);
        task->copy.from.base = task->params;
    }
    *job = (struct job){.engine = engine_for(to, from), .task = task};
    if (from->gpu >= 0 && to->gpu >= 0 && from->gpu != to->gpu)
        job->cost_ns = peer_copy_ns((uint32_t)from->gpu, (uint32_t)to->gpu, width * height * depth);
    else if (job->engine != SIM_ENGINE_NONE)
        job->cost_ns =
            sim_cost_copy(driver.machine, context->card, job->engine, width * height * depth);
    return CUDA_SUCCESS;
}

CUresult copy_job(struct context *context, const CUDA_MEMCPY3D *what, struct job *job) {
    struct end to, from;
    if (!what->WidthInBytes || !what->Height || !what->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = find_ends(what, false, context, &to, &from);
    return rc ? rc : make_job(context, what, &to, &from, false, job);
}

CUresult copy_see_to(struct context *context, uint64_t seq, bool block) {
    if (!block) {
        worker_wake();
        return CUDA_SUCCESS;
    }
    op_run_here(context, seq);
    return op_wait(context, seq);
}

CUresult copy(const CUDA_MEMCPY3D *what, bool peers, struct order order) {
    struct stream *stream;
    CUresult rc = stream_enter(order.stream, order.per_thread, &stream);
    if (rc)
        return rc;
    if (!what->WidthInBytes || !what->Height || !what->Depth)
        return driver_leave(CUDA_SUCCESS);
    struct context *context = stream->context;
    struct end to, from;
    rc = find_ends(what, peers, context, &to, &from);
    if (rc)
        return driver_leave(rc);
    bool captured = stream->capture != NULL;
    if (captured && order.wait == SYNC)
        return driver_leave(capture_refuse(stream));
    bool stage = order.wait == ASYNC && from.pageable && to.gpu >= 0 && what->Height == 1 &&
                 what->Depth == 1 && what->WidthInBytes <= STAGED_BYTES_MAX && !captured;
    struct job job;
    uint64_t seq;
    rc = make_job(context, what, &to, &from, stage, &job);
    if (rc)
        return driver_leave(rc);
    bool looked_at = !(to.hidden && from.hidden && job.engine == SIM_ENGINE_COMPUTE);
    bool block = ((to.pageable || from.pageable) && !stage) || (order.wait == SYNC && looked_at);
    rc = submit(stream, job.engine, job.cost_ns, job.task, NULL, &seq);
    return driver_leave(rc ? rc : copy_see_to(context, seq, block && !captured));
}
