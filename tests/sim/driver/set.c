// set.c: sets of memory to a value, in all their forms.
#include "copy.h"

#include "share.h"

CUresult set_job(struct context *context, const CUDA_MEMSET_NODE_PARAMS *set, struct job *job) {
    size_t element = set->elementSize, width, bytes;
    int gpu;
    if ((element != 1 && element != 2 && element != 4) || set->dst % element || !set->width ||
        !set->height || __builtin_mul_overflow(set->width, element, &width) ||
        (set->height > 1 && (set->pitch < width || set->pitch % element)) ||
        !copy_extent(set->pitch, 0, width, set->height, 1, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned char *data = memory_data(set->dst, bytes, &gpu);
    if (!data || !range_writable(set->dst, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct task *task = task_make(TASK_SET, context, 0);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    task->set.to = (struct shape){.base = data, .pitch = set->pitch};
    task->set.address = set->dst;
    task->set.value = set->value;
    task->set.element = (unsigned)element;
    task->set.count = set->width;
    task->set.height = set->height;
    uint64_t cost =
        sim_cost_copy(driver.machine, context->card, SIM_ENGINE_COMPUTE, width * set->height);
    *job = (struct job){.engine = SIM_ENGINE_COMPUTE, .cost_ns = cost, .task = task};
    return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr to, size_t pitch, uint32_t value, unsigned element, size_t count,
                    size_t height, struct order order) {
    struct stream *stream;
    CUresult rc = stream_enter(order.stream, order.per_thread, &stream);
    if (rc)
        return rc;
    if (!count || !height)
        return driver_leave(CUDA_SUCCESS);
    if (stream->capture && order.wait == SYNC)
        return driver_leave(capture_refuse(stream));
    CUDA_MEMSET_NODE_PARAMS params = {.dst = to,
                                      .pitch = pitch,
                                      .value = value,
                                      .elementSize = element,
                                      .width = count,
                                      .height = height};
    struct job job;
    uint64_t seq;
    bool captured = stream->capture != NULL;
    struct context *context = stream->context;
    rc = set_job(context, &params, &job);
    if (!rc)
        rc = submit(stream, job.engine, job.cost_ns, job.task, NULL, &seq);
    bool block = order.wait == SYNC && !copy_hidden(to) && !captured;
    return driver_leave(rc ? rc : copy_see_to(context, seq, block));
}

static struct order waiting(bool per_thread) {
    return (struct order){.per_thread = per_thread, .wait = SYNC};
}

static struct order in(CUstream stream, bool per_thread) {
    return (struct order){.stream = stream, .per_thread = per_thread, .wait = ASYNC};
}

// The four names of a set of one element size, and of its two-dimensional form.
#define SETS(bits, type)                                                                           \
    API cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                           \
        return set(to, 0, value, bits / 8, count, 1, waiting(false));                              \
    }                                                                                              \
    API cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count) {                      \
        return set(to, 0, value, bits / 8, count, 1, waiting(true));                               \
    }                                                                                              \
    API cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {        \
        return set(to, 0, value, bits / 8, count, 1, in(stream, false));                           \
    }                                                                                              \
    API cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count, CUstream stream) {   \
        return set(to, 0, value, bits / 8, count, 1, in(stream, true));                            \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width,             \
                               size_t height) {                                                    \
        return set(to, pitch, value, bits / 8, width, height, waiting(false));                     \
    }                                                                                              \
    API cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value, size_t width,        \
                                    size_t height) {                                               \
        return set(to, pitch, value, bits / 8, width, height, waiting(true));                      \
    }                                                                                              \
    API cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width,           \
                                 size_t height, CUstream stream) {                                 \
        return set(to, pitch, value, bits / 8, width, height, in(stream, false));                  \
    }                                                                                              \
    API cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value, size_t width,      \
                                      size_t height, CUstream stream) {                            \
        return set(to, pitch, value, bits / 8, width, height, in(stream, true));                   \
    }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)
