// streamer.c: allocates in streams and launches graphs with memory nodes, under whatever context is
// current, or none.
//
// It reads one command a line and answers each with "ok", "ok NUMBER" or "error CODE":
//   pid                its own
//   context [GPU]      makes a context, which is the current one then; its number
//   use NUMBER         makes one current; -1: none
//   stream             makes a stream; its number
//   unstream NUMBER    ends it
//   async BYTES NUMBER allocates in a stream; default streams are -1 (legacy) and -2 (the thread's)
//   graph BYTES        an executable graph that takes so much and gives it back; its number
//   launch NUMBER NUMBER    launches a graph in a stream
//   fill NUMBER NUMBER sets some memory of a context, in a stream
//   hold NUMBER        what is done in a stream from now on waits for "go"
//   go                 lets all go on
//   sync               waits for the current context
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../sim/driver/cuda_abi.h"

enum { MANY = 64, FILLED_BYTES = 1 << 20 };

static CUcontext contexts[MANY];
static CUstream streams[MANY];
static CUgraphExec graphs[MANY];
static CUdeviceptr filled[MANY];  // memory of each context, as soon as it is used
static CUdeviceptr gate;          // a word of device memory, 1 when all may go on
static int context_count, stream_count, graph_count;

static CUresult make_context(int gpu) {
    CUresult code = cuCtxCreate_v2(&contexts[context_count], 0, gpu);
    if (!code && !gate)
        code = cuMemAlloc_v2(&gate, sizeof(unsigned));
    if (!code && !context_count)
        code = cuMemsetD32_v2(gate, 0, 1);
    return code;
}

static CUstream stream_of(int number) {
    return number < 0 ? (number == -1 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD) : streams[number];
}

// By the capture of an allocation and its end.
static CUresult make_graph(size_t bytes) {
    CUstream stream;
    CUdeviceptr memory;
    CUgraph graph;
    CUresult code = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (!code)
        code = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (!code)
        code = cuMemAllocAsync(&memory, bytes, stream);
    if (!code)
        code = cuMemFreeAsync(memory, stream);
    if (!code)
        code = cuStreamEndCapture(stream, &graph);
    if (!code)
        code = cuGraphInstantiateWithFlags(&graphs[graph_count], graph, 0);
    if (!code)
        code = cuStreamDestroy_v2(stream);
    return code;
}

static CUresult fill(long context, CUstream stream) {
    CUcontext current;
    CUresult code = CUDA_SUCCESS;
    if (!filled[context]) {
        code = cuCtxPushCurrent_v2(contexts[context]);
        if (!code)
            code = cuMemAlloc_v2(&filled[context], FILLED_BYTES);
        cuCtxPopCurrent_v2(&current);
    }
    return code ? code : cuMemsetD8Async(filled[context], 1, FILLED_BYTES, stream);
}

static CUresult let_go(void) {
    CUstream stream;
    CUresult code = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    return code ? code : cuStreamWriteValue32_v2(stream, gate, 1, 0);
}

// *made: the number of what was made, if anything was.
static CUresult obey(const char *name, long a, long b, int *made) {
    CUdeviceptr memory;
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    int *count = NULL;
    if (!strcmp(name, "context") && context_count < MANY) {
        code = make_context((int)a);
        count = &context_count;
    } else if (!strcmp(name, "use")) {
        code = cuCtxSetCurrent(a < 0 ? NULL : contexts[a]);
    } else if (!strcmp(name, "stream") && stream_count < MANY) {
        code = cuStreamCreate(&streams[stream_count], CU_STREAM_NON_BLOCKING);
        count = &stream_count;
    } else if (!strcmp(name, "unstream")) {
        code = cuStreamDestroy_v2(streams[a]);
    } else if (!strcmp(name, "async")) {
        code = cuMemAllocAsync(&memory, (size_t)a, stream_of((int)b));
    } else if (!strcmp(name, "graph") && graph_count < MANY) {
        code = make_graph((size_t)a);
        count = &graph_count;
    } else if (!strcmp(name, "launch")) {
        code = cuGraphLaunch(graphs[a], stream_of((int)b));
    } else if (!strcmp(name, "fill")) {
        code = fill(a, stream_of((int)b));
    } else if (!strcmp(name, "hold")) {
        code = cuStreamWaitValue32_v2(stream_of((int)a), gate, 1, CU_STREAM_WAIT_VALUE_GEQ);
    } else if (!strcmp(name, "go")) {
        code = let_go();
    } else if (!strcmp(name, "sync")) {
        code = cuCtxSynchronize();
    }
    if (!code && count)
        *made = (*count)++;
    return code;
}

int main(void) {
    char line[128], name[32];
    CUresult code = cuInit(0);
    if (code) {
        printf("wrong %d\n", code);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        long a = 0, b = 0;
        int made = -1;
        if (sscanf(line, "%31s %ld %ld", name, &a, &b) < 1)
            continue;
        if (!strcmp(name, "pid"))
            code = CUDA_SUCCESS, made = getpid();
        else
            code = obey(name, a, b, &made);
        if (code)
            printf("error %d\n", code);
        else if (made >= 0)
            printf("ok %d\n", made);
        else
            puts("ok");
        fflush(stdout);
    }
    return 0;
}
