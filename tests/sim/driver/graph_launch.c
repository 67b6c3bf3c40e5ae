// graph_launch.c: launches of executable graphs.
//
// A launch is one operation of its stream that consists of many: one that begins it, one for each
// step, with the step's dependencies and the cost that it has alone, and one that ends it. All jobs
// are made before the first is submitted, so a launch happens as a whole or not at all, unless its
// context ends in the middle. Launches of one executable graph follow one another.
#include "graph.h"

#include <stdlib.h>

// What a launch has to submit. Nothing of the graph but its steps is needed any more.
struct flight {
    struct exec *exec;
    struct context *home;  // the stream's
    uint64_t home_id;
    struct job *jobs;      // by step
    struct sim_dep *done;  // the operations of the steps
    struct sim_dep *deps;  // scratch: of one step
    struct sim_dep begin, end;
};

static CUresult context_of(const struct flight *flight, const struct node *node,
                           struct context **context, uint64_t *id) {
    *context = flight->home;
    *id = flight->home_id;
    if (!node || !node->context)
        return CUDA_SUCCESS;
    *context = node->context;
    *id = node->context_id;
    bool alive = node->context->object.live && node->context->id == node->context_id;
    return alive ? node->context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static bool is_event(const struct node *node) {
    return node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ||
           node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

static CUresult make_jobs(struct flight *flight) {
    const struct exec *exec = flight->exec;
    CUresult rc = CUDA_SUCCESS;
    for (uint32_t i = 0; i < exec->step_count && !rc; i++) {
        const struct node *node = exec->steps[i].node;
        struct context *context;
        uint64_t id;
        rc = context_of(flight, node, &context, &id);
        if (!rc && node && is_event(node) &&
            (!node->event->object.live || node->event->id != node->event_id))
            rc = CUDA_ERROR_INVALID_HANDLE;
        if (!rc && node)
            rc = node_job(node, context, &flight->jobs[i]);
    }
    return rc;
}

static void drop_jobs(struct flight *flight, uint32_t from) {
    for (uint32_t i = from; i < flight->exec->step_count; i++)
        free(flight->jobs[i].task);
}

static CUresult prepare(struct flight *flight) {
    const struct exec *exec = flight->exec;
    size_t count = exec->step_count + 1u;
    flight->jobs = calloc(count, sizeof flight->jobs[0]);
    flight->done = calloc(count, sizeof flight->done[0]);
    flight->deps = calloc(count + 1, sizeof flight->deps[0]);
    if (!flight->jobs || !flight->done || !flight->deps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return make_jobs(flight);
}

static void unprepare(struct flight *flight) {
    free(flight->jobs);
    free(flight->done);
    free(flight->deps);
}

// What a step depends on, into `deps`; their number.
static size_t gather(struct flight *flight, const struct step *step) {
    size_t count = 0;
    for (uint32_t i = 0; i < step->dep_count; i++)
        flight->deps[count++] = flight->done[flight->exec->deps[step->deps + i]];
    if (!count)
        flight->deps[count++] = flight->begin;
    const struct node *node = step->node;
    if (node && node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && node->event->seq &&
        !node->event->finish_ns)
        flight->deps[count++] =
            (struct sim_dep){.seq = node->event->seq, .context = node->event->machine};
    return count;
}

static CUresult submit_step(struct flight *flight, uint32_t i) {
    const struct step *step = &flight->exec->steps[i];
    struct context *context;
    uint64_t id, seq;
    CUresult rc = context_of(flight, step->node, &context, &id);
    if (rc) {
        free(flight->jobs[i].task);
        return rc;
    }
    size_t count = gather(flight, step);
    rc = submit_after(context, id, flight->jobs[i], flight->deps, count, &seq);
    if (rc)
        return rc;
    flight->done[i] = (struct sim_dep){.seq = seq, .context = context->machine};
    if (step->node && step->node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
        step->node->event->object.live && step->node->event->id == step->node->event_id)
        event_recorded(step->node->event, context, seq);
    return CUDA_SUCCESS;
}

// Submits all steps and what ends them.
static CUresult submit_steps(struct flight *flight) {
    const struct exec *exec = flight->exec;
    CUresult rc = CUDA_SUCCESS;
    uint32_t done = 0;
    for (; done < exec->step_count && !rc; done++)
        rc = submit_step(flight, done);
    if (rc) {
        drop_jobs(flight, done);
        return rc;
    }
    size_t count = 0;
    for (uint32_t i = 0; i < exec->step_count; i++)
        if (exec->steps[i].last)
            flight->deps[count++] = flight->done[i];
    if (!count)
        flight->deps[count++] = flight->begin;
    struct job end = {.engine = SIM_ENGINE_NONE};
    uint64_t seq;
    rc = submit_after(flight->home, flight->home_id, end, flight->deps, count, &seq);
    if (!rc)
        flight->end = (struct sim_dep){.seq = seq, .context = flight->home->machine};
    return rc;
}

// The whole, with the jobs made. Nobody else submits to the context in the middle.
static CUresult fly(struct flight *flight, struct stream *stream) {
    struct exec *exec = flight->exec;
    struct context *home = flight->home;
    uint64_t seq;
    CUresult rc = submit(stream, SIM_ENGINE_NONE, 0, NULL, &exec->last, &seq);
    if (rc) {
        drop_jobs(flight, 0);
        return rc;
    }
    flight->begin = (struct sim_dep){.seq = seq, .context = home->machine};
    home->launching = thread_number();
    allocations_begin(exec, flight->begin);
    rc = submit_steps(flight);
    if (!home->object.live || home->id != flight->home_id)
        return rc;  // the stream is gone, too
    home->launching = 0;
    pthread_cond_broadcast(&driver.done);
    if (!rc) {
        stream_advance(stream, flight->end.seq);
        allocations_end(exec, flight->end);
        exec->last = flight->end;
    }
    return rc;
}

static CUresult launch(struct exec *exec, struct stream *stream) {
    struct flight flight = {.exec = exec, .home = stream->context, .home_id = stream->context->id};
    CUresult rc = stream_turn(stream);
    if (!rc)
        rc = allocations_check(exec);
    if (rc)
        return rc;
    rc = prepare(&flight);
    if (!rc)
        rc = demands_meet(exec, stream->id);
    if (rc) {
        if (flight.jobs)
            drop_jobs(&flight, 0);
    } else {
        rc = fly(&flight, stream);
        demands_used(exec, flight.end);
    }
    unprepare(&flight);
    worker_wake();
    return rc;
}

static CUresult exec_enter(CUgraphExec handle, CUstream stream_handle, bool per_thread,
                           struct exec **exec, struct stream **stream) {
    CUresult rc = stream_enter(stream_handle, per_thread, stream);
    if (rc)
        return rc;
    *exec = exec_get(handle);
    return *exec ? CUDA_SUCCESS : driver_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult graph_launch(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
    struct exec *exec;
    struct stream *stream;
    CUresult rc = exec_enter(handle, stream_handle, per_thread, &exec, &stream);
    if (rc)
        return rc;
    if (stream->capture)
        return driver_leave(capture_graph(stream, exec));
    exec->flights++;  // it may be destroyed while the lock is dropped
    rc = launch(exec, stream);
    exec->flights--;
    if (exec->doomed && !exec->flights)
        exec_end(exec);
    return driver_leave(rc);
}

API cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return graph_launch(exec, stream, false);
}

API cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return graph_launch(exec, stream, true);
}

CUresult exec_upload(struct exec *exec, struct stream *stream) {
    if (stream->capture)
        return capture_refuse(stream);
    CUresult rc = demands_meet(exec, stream->id);
    if (!rc)
        demands_used(exec, exec->last);
    return rc;
}

static CUresult upload(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
    struct exec *exec;
    struct stream *stream;
    CUresult rc = exec_enter(handle, stream_handle, per_thread, &exec, &stream);
    return rc ? rc : driver_leave(exec_upload(exec, stream));
}

API cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, false);
}

API cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return upload(exec, stream, true);
}
