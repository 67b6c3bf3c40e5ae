// busy_trouble.c: launches that are measured while captures, streams and contexts come and go.
//
// Rounds of a few threads until the time is up. Some launch all the time; one captures in streams
// of its own, which no call of ours may make invalid, launches what it has captured, and destroys
// the streams with work in them; with trouble=2 one makes contexts, works in them and destroys
// them. After each round the primary context is reset, every other time with work in it.
#include "busy.h"

#include <pthread.h>
#include <stdlib.h>

enum { ROUND_MS = 300, LAUNCHERS = 2, GRAPH_KERNELS = 5 };
// With others that make contexts and wait for them only calls of the capturing thread must be safe.
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1 };

extern CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
extern CUresult cuCtxDestroy_v2(CUcontext context);

static const struct mix *mix;
static uint64_t round_end_ns;

static void *launcher(void *number) {
    CUstream stream;
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
    for (uint64_t i = 0; now_ns() < round_end_ns; i++) {
        need(launch(stream, mix->cost_ns, weir_busy_kind((uintptr_t)spin, 1, 0, 0)), "launch");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (number && i % 8 == 0 && mix->trouble > 1)
            sync_stream(stream);
    }
    return NULL;
}

static CUgraphExec capture(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    int mode = mix->trouble > 1 ? CAPTURE_THREAD_LOCAL : CAPTURE_GLOBAL;
    weir_busy_capture_begin(busy, context, stream);
    need(cuStreamBeginCapture_v2(stream, mode), "begin of a capture");
    for (int i = 0; i < GRAPH_KERNELS; i++) {
        need(launch(stream, mix->cost_ns, weir_busy_kind((uintptr_t)spin, 1, 0, 0)),
             "captured launch");
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    need(cuStreamEndCapture(stream, &graph), "end of a capture");
    weir_busy_capture_end(busy, context, stream);
    need(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
    need(cuGraphDestroy(graph), "cuGraphDestroy");
    return exec;
}

static void *capturer(void *nothing) {
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int i = 0; now_ns() < round_end_ns; i++) {
        CUstream stream;
        need(cuStreamCreate(&stream, i & 1 ? NON_BLOCKING : 0), "cuStreamCreate");
        CUgraphExec exec = capture(stream);
        for (int launches = 0; launches < 1; launches++)
            launch_graph(stream, exec);
        sync_stream(stream);
        for (int launches = 0; launches < 1; launches++)
            launch_graph(stream, exec);
        // Its work goes on without it.
        weir_busy_stream_end(busy, stream);
        need(cuStreamDestroy_v2(stream), "cuStreamDestroy");
        need(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    }
    return nothing;
}

static void *maker_of_contexts(void *nothing) {
    for (int i = 0; now_ns() < round_end_ns; i++) {
        CUcontext mine;
        CUstream stream;
        need(cuCtxCreate_v2(&mine, 0, 0), "cuCtxCreate");
        need(cuStreamCreate(&stream, 0), "cuStreamCreate");
        void *function = load_spin();
        uint64_t cost_ns = mix->cost_ns;
        void *params[] = {&cost_ns};
        for (int launches = 0; launches < 100; launches++) {
            struct weir_busy_launch l = weir_busy_begin(
                busy, mine, 0, stream, weir_busy_kind((uintptr_t)function, 1, 0, 0));
            CUresult code = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
            weir_busy_end(busy, &l, code);
            need(code, "cuLaunchKernel");
        }
        if (i & 1) {
            need(cuCtxSynchronize(), "cuCtxSynchronize");
            weir_busy_synced(busy, mine, NULL);
        }
        weir_busy_context_end(busy, mine);
        need(cuCtxDestroy_v2(mine), "cuCtxDestroy");
    }
    return nothing;
}

void make_trouble(const struct mix *settings, uint64_t until_ns) {
    pthread_t threads[LAUNCHERS + 2];
    mix = settings;
    for (int round = 0; now_ns() < until_ns; round++) {
        int count = 0;
        round_end_ns = now_ns() + ROUND_MS * UINT64_C(1000000);
        for (; count < LAUNCHERS; count++)
            need(pthread_create(&threads[count], NULL, launcher, (void *)(uintptr_t)count),
                 "pthread_create");
        need(pthread_create(&threads[count++], NULL, capturer, NULL), "pthread_create");
        if (mix->trouble > 1)
            need(pthread_create(&threads[count++], NULL, maker_of_contexts, NULL),
                 "pthread_create");
        while (count)
            pthread_join(threads[--count], NULL);
        if (round & 1)
            need(cuCtxSynchronize(), "cuCtxSynchronize");
        weir_busy_context_end(busy, context);
        need(cuDevicePrimaryCtxReset_v2(0), "reset");
        need(cuDevicePrimaryCtxRetain(&context, 0), "retain");
        need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
        spin = load_spin();
    }
}
