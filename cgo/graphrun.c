// graphrun.c: uploads and launches of graphs. Memory nodes take memory of the device then; all
// graphs of a device share it, so it is charged as one reserve (reserve.h).
//
// What a launch will add is known to nobody but the driver: graphs use each other's memory, and a
// launch cannot be undone. But an upload does all that a launch in the same stream will need, and
// its memory, not being in use, can be given back. So a graph is uploaded first where it was not
// launched in that stream before, or memory was given back since; the upload is what is refused. (A
// driver may still have to take memory at the launch itself, where it has given that of an idle
// stream away meanwhile: that is charged afterwards, or given back at the next occasion.)
//
// A graph without memory nodes costs one look into a filter.
#include "graph.h"
#include "hooks.h"
#include "note.h"
#include "timed.h"
#include "used.h"

struct run {
    struct weir_state *state;
    CUgraphExec exec;
    CUstream stream;
    int per_thread;  // the default stream is each thread's own
};

// A stream by a word that no other stream of the process ever has: its handle may be given to
// another, and a default stream is each context's or thread's own. 0 where the driver does not tell
// (before 12.0): then a graph is uploaded before each launch.
static uint64_t stream_name(const struct run *run) {
    unsigned long long id = 0;
    CUresult result = (run->per_thread ? WEIR_REAL(cuStreamGetId_ptsz)
                                       : WEIR_REAL(cuStreamGetId))(run->stream, &id);
    return result == CUDA_SUCCESS ? (uint64_t)id + 1 : 0;
}

static uint64_t trims(const struct weir_state *state, uint64_t gpus) {
    uint64_t sum = 0;
    for (; gpus; gpus &= gpus - 1)
        sum += __atomic_load_n(&state->gpus[__builtin_ctzll(gpus)].graph_trims, __ATOMIC_RELAXED);
    return sum;
}

static int is_capturing(const struct run *run) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return (run->per_thread ? WEIR_REAL(cuStreamIsCapturing_ptsz) : WEIR_REAL(cuStreamIsCapturing))(
               run->stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult call_upload(const struct run *run) {
    return (run->per_thread ? WEIR_REAL(cuGraphUpload_ptsz)
                            : WEIR_REAL(cuGraphUpload))(run->exec, run->stream);
}

// What takes time is this alone; a graph is a kernel to the scheduler.
static CUresult timed_launch(cuGraphLaunch_fn *real, CUgraphExec exec, CUstream stream,
                             int per_thread) {
    struct weir_timed op;
    weir_timed_begin(&op, stream, per_thread, (uint64_t)(uintptr_t)exec, 0, 0, WEIR_TIMED_GATED);
    weir_used_graph(op.launch.lane, exec);
    return weir_timed_end(&op, real(exec, stream));
}

static CUresult call_launch(const struct run *run) {
    return timed_launch(run->per_thread ? WEIR_REAL(cuGraphLaunch_ptsz) : WEIR_REAL(cuGraphLaunch),
                        run->exec, run->stream, run->per_thread);
}

static void note_driver(const struct run *run, const struct weir_graph_needs *needs,
                        CUresult result) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        weir_note(run->state, WEIR_NOTE_BIT_DRIVER_OOM, (uint32_t)__builtin_ctzll(needs->gpus),
                  needs->largest_bytes);
}

// One try to upload a graph within the cap. The growths go on, unless it fails; it is undone by
// giving back what nobody uses.
static CUresult try_upload(const struct run *run, const struct weir_graph_needs *needs, int finally,
                           struct weir_growths *growths) {
    CUresult result = weir_growths_begin(growths, run->state, needs->gpus, 1);
    if (result == CUDA_SUCCESS)
        result = weir_growths_prepare(growths, needs->largest_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t trims_before = trims(run->state, needs->gpus);
    result = call_upload(run);
    note_driver(run, needs, result);
    if (result == CUDA_SUCCESS)
        result = weir_growths_cover(growths, finally);
    if (result != CUDA_SUCCESS)
        weir_growths_undone(growths);
    else
        weir_exec_settled(run->state, weir_exec_handle(run->exec), stream_name(run), trims_before);
    return result;
}

// Where there is no room, other graphs' unused memory is given back together with that of the first
// try; so there is a second one.
static CUresult upload(const struct run *run, const struct weir_graph_needs *needs,
                       struct weir_growths *growths) {
    CUresult result = try_upload(run, needs, 0, growths);
    return result == CUDA_ERROR_NOT_READY ? try_upload(run, needs, 1, growths) : result;
}

// Begins what a launch needs: beside others, where the graph has all its memory already.
static CUresult prepare(const struct run *run, const struct weir_exec *exec,
                        struct weir_growths *growths) {
    uint64_t name = stream_name(run);
    if (!name || exec->stream != name)
        return upload(run, &exec->needs, growths);
    CUresult result = weir_growths_begin(growths, run->state, exec->needs.gpus, 0);
    if (result != CUDA_SUCCESS || exec->trims == trims(run->state, exec->needs.gpus))
        return result;
    weir_growths_undone(growths);
    return upload(run, &exec->needs, growths);
}

static CUresult launch(const struct run *run, const struct weir_exec *exec) {
    struct weir_growths growths;
    CUresult result = prepare(run, exec, &growths);
    if (result != CUDA_SUCCESS)
        return result;
    result = call_launch(run);
    note_driver(run, &exec->needs, result);
    weir_growths_end(&growths);
    return result;
}

// Finds out whether an upload or launch may be charged for, and for what.
static int is_charged(struct run *run, struct weir_exec *exec) {
    return weir_enforced(&run->state) &&
           weir_exec_recall(run->state, weir_exec_handle(run->exec), exec) && !is_capturing(run);
}

static CUresult do_launch(struct run run) {
    struct weir_exec exec;
    return is_charged(&run, &exec) ? launch(&run, &exec) : call_launch(&run);
}

static CUresult do_upload(struct run run) {
    struct weir_exec exec;
    struct weir_growths growths;
    if (!is_charged(&run, &exec))
        return call_upload(&run);
    CUresult result = upload(&run, &exec.needs, &growths);
    if (result == CUDA_SUCCESS)
        weir_growths_end(&growths);
    return result;
}

CUresult weir_graph_upload(CUgraphExec exec, CUstream stream, int per_thread) {
    return do_upload((struct run){NULL, exec, stream, per_thread});
}

static WEIR_RARE CUresult launch_slow(cuGraphLaunch_fn *real, CUgraphExec exec, CUstream stream,
                                      int per_thread) {
    return weir_exec_may_allocate(exec) ? do_launch((struct run){NULL, exec, stream, per_thread})
                                        : timed_launch(real, exec, stream, per_thread);
}

// As launches of kernels (launch.c): what nearly all are in one line, and without a call.
static inline CUresult launch_quick(cuGraphLaunch_fn *real, CUgraphExec exec, CUstream stream,
                                    int per_thread) {
    struct weir_quick quick;
    if (__builtin_expect(
            weir_exec_may_allocate(exec) ||
                !weir_quick_begin(&quick, stream, per_thread, (uint64_t)(uintptr_t)exec, 0, 0),
            0))
        return launch_slow(real, exec, stream, per_thread);
    return weir_quick_end(&quick, real(exec, stream));
}

CUresult weir_cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    return launch_quick(WEIR_REAL(cuGraphLaunch), exec, stream, 0);
}

CUresult weir_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    return launch_quick(WEIR_REAL(cuGraphLaunch_ptsz), exec, stream, 1);
}

CUresult weir_cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return weir_exec_may_allocate(exec) ? do_upload((struct run){NULL, exec, stream, 0})
                                        : WEIR_REAL(cuGraphUpload)(exec, stream);
}

CUresult weir_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return weir_exec_may_allocate(exec) ? do_upload((struct run){NULL, exec, stream, 1})
                                        : WEIR_REAL(cuGraphUpload_ptsz)(exec, stream);
}
