// memop.c: stream memory operations: a stream waits for a word of memory, or writes one.
//
// The operations of one call are one task of the stream, done one after another at its time. A
// wait looks at the word again and again, since anybody may write it: another stream, a kernel,
// the host, another process. Time goes as the words say; but a kernel's data are written as soon
// as what it depends on is, so that a wait for its word may be over before its computed time.
#include "driver.h"

#include <string.h>

#define COUNT_MAX 256u
// Between two looks at a word; it doubles from the first to the last.
#define PAUSE_NS_MIN 20000u
#define PAUSE_NS_MAX 1000000u

struct memops {
    unsigned count, next;
    uint64_t pause_ns;
    CUstreamBatchMemOpParams ops[];
};

static bool wide(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static bool waits(CUstreamBatchMemOpType type) {
    return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

// ---- What is done ----

static bool satisfied(const CUstreamBatchMemOpParams *op, uint64_t word) {
    uint64_t value = op->value.value;
    if (!wide(op->operation))
        value = (uint32_t)value;
    switch (op->value.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // by the cyclic difference
        return wide(op->operation) ? (int64_t)(word - value) >= 0
                                   : (int32_t)((uint32_t)word - (uint32_t)value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
    default:
        return wide(op->operation) ? ~(word | value) != 0 : (uint32_t) ~(word | value) != 0;
    }
}

// One operation. False: it has to wait.
static bool perform(struct context *context, const CUstreamBatchMemOpParams *op) {
    int gpu;
    if (op->operation == CU_STREAM_MEM_OP_BARRIER)
        return true;
    void *word = memory_data(op->value.address, wide(op->operation) ? 8 : 4, &gpu);
    if (!word) {  // it was freed meanwhile
        context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        return true;
    }
    if (waits(op->operation))
        return satisfied(op, wide(op->operation)
                                 ? __atomic_load_n((uint64_t *)word, __ATOMIC_ACQUIRE)
                                 : __atomic_load_n((uint32_t *)word, __ATOMIC_ACQUIRE));
    if (wide(op->operation))
        __atomic_store_n((uint64_t *)word, op->value.value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)word, (uint32_t)op->value.value, __ATOMIC_RELEASE);
    return true;
}

static bool step(struct task *task, uint64_t *wait_ns) {
    struct memops *memops = (struct memops *)task->params;
    for (; memops->next < memops->count && !task->context->error; memops->next++)
        if (!perform(task->context, &memops->ops[memops->next])) {
            *wait_ns = memops->pause_ns;
            if (memops->pause_ns < PAUSE_NS_MAX)
                memops->pause_ns *= 2;
            return false;
        } else {
            memops->pause_ns = PAUSE_NS_MIN;
        }
    return true;
}

// ---- Checks ----

static CUresult check_word(const CUstreamBatchMemOpParams *op) {
    struct arena *arena;
    int gpu;
    uint64_t bytes = wide(op->operation) ? 8 : 4;
    struct block *block = memory_find(op->value.address, &arena);
    bool managed = block && block->kind == BLOCK_MANAGED;
    if (op->value.address % bytes || managed || !memory_data(op->value.address, bytes, &gpu))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult check(const CUstreamBatchMemOpParams *op) {
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        if (op->value.flags & CU_STREAM_WAIT_VALUE_FLUSH)  // attribute 98 says so
            return CUDA_ERROR_NOT_SUPPORTED;
        return op->value.flags > 3 ? CUDA_ERROR_INVALID_VALUE : check_word(op);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return op->value.flags > 1 ? CUDA_ERROR_INVALID_VALUE : check_word(op);
    case CU_STREAM_MEM_OP_BARRIER:
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult memop_job(struct context *context, const CUstreamBatchMemOpParams *ops, unsigned count,
                   struct job *job) {
    if (!ops || !count || count > COUNT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        CUresult rc = check(&ops[i]);
        if (rc)
            return rc;
    }
    struct task *task =
        task_make(TASK_STEP, context, sizeof(struct memops) + count * sizeof ops[0]);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct memops *memops = (struct memops *)task->params;
    task->step.step = step;
    memops->count = count;
    memops->pause_ns = PAUSE_NS_MIN;
    memcpy(memops->ops, ops, count * sizeof ops[0]);
    *job = (struct job){.engine = SIM_ENGINE_HOST, .task = task};
    return CUDA_SUCCESS;
}

const CUstreamBatchMemOpParams *memop_of(const struct task *task, unsigned *count) {
    const struct memops *memops = (const struct memops *)task->params;
    if (task->kind != TASK_STEP || task->step.step != step)
        return NULL;
    *count = memops->count;
    return memops->ops;
}

// ---- Calls ----

static CUresult batch(CUstream handle, bool per_thread, unsigned count,
                      const CUstreamBatchMemOpParams *ops, unsigned flags) {
    struct stream *stream;
    struct job job;
    uint64_t seq;
    CUresult rc = stream_enter(handle, per_thread, &stream);
    if (rc)
        return rc;
    rc = flags ? CUDA_ERROR_INVALID_VALUE : memop_job(stream->context, ops, count, &job);
    if (!rc)
        rc = submit(stream, job.engine, job.cost_ns, job.task, NULL, &seq);
    worker_wake();
    return driver_leave(rc);
}

static CUresult one(CUstream stream, bool per_thread, CUstreamBatchMemOpType type,
                    CUdeviceptr address, uint64_t value, unsigned flags) {
    CUstreamBatchMemOpParams op = {.value = {
                                       .operation = type,
                                       .address = address,
                                       .value = value,
                                       .flags = flags,
                                   }};
    return batch(stream, per_thread, 1, &op, 0);
}

// Both versions of a call, each with its per-thread twin: they differ only in what enables them.
#define TWINS(name, type, bits)                                                                    \
    API name(CUstream stream, CUdeviceptr address, uint##bits##_t value, unsigned int flags) {     \
        return one(stream, false, type, address, value, flags);                                    \
    }                                                                                              \
    API name##_ptsz(CUstream stream, CUdeviceptr address, uint##bits##_t value,                    \
                    unsigned int flags) {                                                          \
        return one(stream, true, type, address, value, flags);                                     \
    }
#define BOTH(name, type, bits) TWINS(name, type, bits) TWINS(name##_v2, type, bits)

BOTH(cuStreamWaitValue32, CU_STREAM_MEM_OP_WAIT_VALUE_32, 32)
BOTH(cuStreamWaitValue64, CU_STREAM_MEM_OP_WAIT_VALUE_64, 64)
BOTH(cuStreamWriteValue32, CU_STREAM_MEM_OP_WRITE_VALUE_32, 32)
BOTH(cuStreamWriteValue64, CU_STREAM_MEM_OP_WRITE_VALUE_64, 64)

#define BATCH(name)                                                                                \
    API name(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,                   \
             unsigned int flags) {                                                                 \
        return batch(stream, false, count, ops, flags);                                            \
    }                                                                                              \
    API name##_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,            \
                    unsigned int flags) {                                                          \
        return batch(stream, true, count, ops, flags);                                             \
    }

BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_v2)
