// submit.c: operations appended to streams, and waited for.
//
// What a stream promises becomes dependencies: an operation follows the newest one of its stream;
// in the default stream it follows all blocking streams, too, and they follow it. More than
// SIM_DEPS_MAX dependencies are gathered by joins, operations that cost nothing. In a stream that
// is captured nothing is appended: the task becomes a node.
#include "driver.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Shorter waits yield instead of sleeping: a sleep lasts some 50 us at least.
#define SLEEP_NS_MIN 20000u
#define SLEEP_NS_MAX 100000000u

#define AGAIN ((CUresult)-1)  // waited with the lock dropped: look at everything anew

struct task *task_make(enum task_kind kind, struct context *context, size_t params_bytes) {
    struct task *task = calloc(1, sizeof *task + params_bytes);
    if (task) {
        task->kind = kind;
        task->context = context;
    }
    return task;
}

// Lets time pass, with the lock dropped.
static void pause_ns(uint64_t ns) {
    pthread_mutex_unlock(&driver.lock);
    if (ns < SLEEP_NS_MIN) {
        sched_yield();
    } else {
        ns = ns < SLEEP_NS_MAX ? ns : SLEEP_NS_MAX;
        nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
    }
    pthread_mutex_lock(&driver.lock);
}

// Waits out an operation that is due in ns; UINT64_MAX: when a host function has ended.
static void wait_due(uint64_t ns) {
    if (ns == UINT64_MAX)
        data_wait();
    else
        pause_ns(ns);
}

static CUresult alive(struct context *context, uint64_t id) {
    if (!context->object.live || context->id != id)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context_error(context);
}

// An event keeps the finish of its recording when the ring forgets it.
static void recycle(struct op *op, uint64_t finish_ns) {
    if (op->event)
        op->event->finish_ns = finish_ns;
    op->event = NULL;
}

static CUresult append(struct context *context, const struct sim_work *work, struct task *task,
                       uint64_t *seq) {
    uint64_t next = context->newest + 1, recycled, wait_ns, id = context->id;
    struct op *op = &context->ops[next % SIM_QUEUE_MAX];
    if (context->newest && op->seq && !op->data_done) {
        worker_wake();
        data_wait();
        CUresult rc = alive(context, id);
        return rc ? rc : AGAIN;
    }
    int rc = sim_work_submit(driver.machine, context->machine, work, seq, &recycled, &wait_ns);
    if (rc == EAGAIN) {
        worker_wake();
        wait_due(wait_ns);
        CUresult gone = alive(context, id);
        return gone ? gone : AGAIN;
    }
    if (rc)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    op = &context->ops[*seq % SIM_QUEUE_MAX];
    recycle(op, recycled);
    *op = (struct op){.seq = *seq, .task = task, .context = context};
    for (unsigned i = 0; i < SIM_DEPS_MAX; i++)
        op->deps[i] = work->deps[i];
    context->newest = *seq;
    if (task || !op_data_ready(op))
        todo_append(op);
    else
        op->data_done = 1;
    return CUDA_SUCCESS;
}

// Adds a dependency; a full set is joined into one first.
static CUresult add_dep(struct context *context, struct sim_work *work, unsigned *count,
                        struct sim_dep dep) {
    if (!dep.seq)
        return CUDA_SUCCESS;
    if (*count == SIM_DEPS_MAX) {
        struct sim_work join = {.engine = SIM_ENGINE_NONE};
        memcpy(join.deps, work->deps, sizeof join.deps);
        uint64_t seq;
        CUresult rc = append(context, &join, NULL, &seq);
        if (rc)
            return rc;
        memset(work->deps, 0, sizeof work->deps);
        work->deps[0] = (struct sim_dep){.seq = seq, .context = context->machine};
        *count = 1;
    }
    work->deps[(*count)++] = dep;
    return CUDA_SUCCESS;
}

// The dependencies that the stream's kind implies, and one more.
static CUresult add_deps(struct stream *stream, struct sim_work *work,
                         const struct sim_dep *extra) {
    struct context *context = stream->context;
    unsigned count = 0;
    struct sim_dep own = {.seq = stream->last, .context = context->machine};
    CUresult rc = add_dep(context, work, &count, own);
    if (stream == &context->legacy) {
        for (struct stream *s = context->since_legacy; s && !rc; s = s->next_since)
            rc = add_dep(context, work, &count,
                         (struct sim_dep){.seq = s->last, .context = context->machine});
    } else if (!(stream->flags & CU_STREAM_NON_BLOCKING) && context->legacy.last > stream->last) {
        struct sim_dep legacy = {.seq = context->legacy.last, .context = context->machine};
        rc = rc ? rc : add_dep(context, work, &count, legacy);
    }
    if (!rc && extra)
        rc = add_dep(context, work, &count, *extra);
    return rc;
}

// Appends an operation with the managed pages of its task. Those for which it has no room itself
// are touched by others right before it.
static CUresult append_whole(struct context *context, struct sim_work *work, struct task *task,
                             uint64_t *seq) {
    struct managed_walk walk = {0};
    bool uses = work->engine != SIM_ENGINE_NONE && work->engine != SIM_ENGINE_HOST;
    while (uses && managed_touches(task, &walk, work->touches)) {
        struct sim_work ahead = *work;
        ahead.cost_ns = 0;
        ahead.part = true;
        CUresult rc = append(context, &ahead, NULL, seq);
        if (rc)
            return rc;
        memset(work->deps, 0, sizeof work->deps);
        work->deps[0] = (struct sim_dep){.seq = *seq, .context = context->machine};
    }
    bool empty = managed_task_is_empty(task);
    CUresult rc = append(context, work, empty ? NULL : task, seq);
    if (!rc && empty)
        free(task);
    return rc;
}

void stream_advance(struct stream *stream, uint64_t seq) {
    struct context *context = stream->context;
    stream->last = seq;
    if (stream == &context->legacy) {
        for (struct stream *s = context->since_legacy; s; s = s->next_since)
            s->since_legacy = false;
        context->since_legacy = NULL;
    } else if (!(stream->flags & CU_STREAM_NON_BLOCKING) && !stream->since_legacy) {
        stream->since_legacy = true;
        stream->next_since = context->since_legacy;
        context->since_legacy = stream;
    }
}

CUresult stream_turn(const struct stream *stream) {
    struct context *context = stream->context;
    uint64_t id = context->id;
    CUresult rc = CUDA_SUCCESS;
    while (!rc && context->launching && context->launching != thread_number()) {
        data_wait();
        rc = alive(context, id);
    }
    return rc;
}

CUresult submit(struct stream *stream, enum sim_engine engine, uint64_t cost_ns, struct task *task,
                const struct sim_dep *extra, uint64_t *seq) {
    struct context *context = stream->context;
    *seq = 0;
    if (stream->capture)
        return capture_task(stream, task);
    CUresult rc = capture_implicit(stream);
    if (!rc)
        rc = stream_turn(stream);
    cost_ns = rc ? 0 : fault_cost(engine, task, cost_ns);
    if (!rc) {
        do {
            struct sim_work work = {.engine = engine, .cost_ns = cost_ns};
            rc = add_deps(stream, &work, extra);
            if (!rc)
                rc = append_whole(context, &work, task, seq);
        } while (rc == AGAIN);
    }
    if (rc)
        free(task);
    else
        stream_advance(stream, *seq);
    return rc;
}

CUresult submit_after(struct context *context, uint64_t id, struct job job,
                      const struct sim_dep *deps, size_t count, uint64_t *seq) {
    struct sim_work work = {.engine = job.engine,
                            .cost_ns = fault_cost(job.engine, job.task, job.cost_ns)};
    unsigned used = 0;
    CUresult rc = alive(context, id);
    // What has been joined stays so, however often the queue is full.
    for (size_t i = 0; i < count && !rc; i++)
        do
            rc = add_dep(context, &work, &used, deps[i]);
        while (rc == AGAIN);
    if (!rc)
        do
            rc = append_whole(context, &work, job.task, seq);
        while (rc == AGAIN);
    if (rc)
        free(job.task);
    return rc;
}

// ---- What follows what ----

// Whether an operation comes, by its dependencies, after another one or is that. `visit` marks
// those that have been looked at.
static bool reaches(struct sim_dep from, struct sim_dep target, uint64_t visit) {
    for (;;) {
        if (from.context == target.context && from.seq <= target.seq)
            return from.seq == target.seq;
        struct context *context = from.seq ? driver.by_machine[from.context] : NULL;
        struct op *op = context ? &context->ops[from.seq % SIM_QUEUE_MAX] : NULL;
        if (!op || op->seq != from.seq || op->visit == visit)
            return false;
        op->visit = visit;
        for (unsigned i = 1; i < SIM_DEPS_MAX; i++)
            if (op->deps[i].seq && reaches(op->deps[i], target, visit))
                return true;
        from = op->deps[0];
    }
}

bool stream_follows(const struct stream *stream, struct sim_dep target) {
    const struct context *context = stream->context;
    uint64_t visit = ++driver.ids;
    struct sim_dep from = {.seq = stream->last, .context = context->machine};
    if (reaches(from, target, visit))
        return true;
    if (stream == &context->legacy) {
        for (const struct stream *s = context->since_legacy; s; s = s->next_since) {
            from.seq = s->last;
            if (reaches(from, target, visit))
                return true;
        }
        return false;
    }
    from.seq = context->legacy.last;
    return !(stream->flags & CU_STREAM_NON_BLOCKING) && reaches(from, target, visit);
}

static bool data_done(const struct context *context, uint64_t seq) {
    const struct op *op = &context->ops[seq % SIM_QUEUE_MAX];
    return op->seq != seq || op->data_done;
}

CUresult op_wait(struct context *context, uint64_t seq) {
    uint64_t id = context->id;
    CUresult rc = CUDA_SUCCESS;
    while (seq && !(rc = alive(context, id))) {
        uint64_t finish_ns, wait_ns;
        if (!data_done(context, seq)) {
            worker_wake();
            data_wait();
        } else if (sim_work_look(driver.machine, context->machine, seq, &finish_ns, &wait_ns)) {
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        } else if (finish_ns) {
            break;
        } else {
            wait_due(wait_ns);
        }
    }
    return rc;
}

CUresult op_query(struct context *context, uint64_t seq) {
    uint64_t finish_ns, wait_ns;
    CUresult rc = context_error(context);
    if (rc)
        return rc;
    if (!seq)
        return CUDA_SUCCESS;
    if (!data_done(context, seq)) {
        worker_wake();
        return CUDA_ERROR_NOT_READY;
    }
    if (sim_work_look(driver.machine, context->machine, seq, &finish_ns, &wait_ns))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return finish_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

bool op_done(struct sim_dep dep) {
    struct context *context = dep.seq ? driver.by_machine[dep.context] : NULL;
    uint64_t finish_ns, wait_ns;
    return !context ||
           (data_done(context, dep.seq) &&
            (sim_work_look(driver.machine, dep.context, dep.seq, &finish_ns, &wait_ns) ||
             finish_ns));
}

void op_run_here(struct context *context, uint64_t seq) {
    struct op *op = &context->ops[seq % SIM_QUEUE_MAX];
    if (seq && op->seq == seq && !op->data_done && !op->running && !driver.halted &&
        op_data_ready(op))
        op_run(op);
    if (driver.todo)
        worker_wake();
}

// The newest first: when it is done, few others are left to wait for.
CUresult context_wait(struct context *context) {
    uint64_t target = context->newest, oldest = 0;
    CUresult rc = op_wait(context, target);
    while (!rc && target) {
        if (sim_work_oldest(driver.machine, context->machine, &oldest))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (oldest > target)
            break;
        rc = op_wait(context, oldest);
    }
    if (!rc)
        context_settle(context);
    if (!rc)
        mempools_release();
    return rc ? rc : context->error;
}

void context_settle(struct context *context) {
    uint64_t target = context->newest, id = context->id;
    for (struct op *op = driver.todo; op && context->id == id;) {
        bool pending = op->context == context && op->seq <= target;
        if (pending) {
            worker_wake();
            data_wait();
        }
        op = pending ? driver.todo : op->next;
    }
}
