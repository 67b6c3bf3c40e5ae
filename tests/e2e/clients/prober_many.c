// prober_many.c: the prober's commands about several contexts, threads and processes:
//   context GPU          one more context on a GPU, which becomes current; its number, from 1 on
//   current NUMBER       makes it current; 0: what "init" has made
//   destroy NUMBER       and all its memory with it
//   turns NUMBER MS      a thread that makes the context current and uses its memory, one after the
//                        other, for so long
//   await                waits for all such threads: the first one's code that is not 0
//   peer TO FROM         copies between memory of two contexts, by their numbers
//   fork                 a child that asks for memory: its code
#define _GNU_SOURCE
#include "prober.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONTEXTS_MAX = 16, TURNS_MAX = 16 };

static const char ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry weir_spin_ns_on(.param .u64 cost, .param .u64 p, "
                          ".param .u64 bytes) { ret; }\n";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUcontext context;
    CUfunction function;
} kernels[CONTEXTS_MAX];
static CUcontext contexts[CONTEXTS_MAX];  // by number; 0 is the first that had a kernel
static int context_count = 1;

static struct turn {
    pthread_t thread;
    CUcontext context;
    uint64_t ms;
    CUresult code;
} turns[TURNS_MAX];
static int turn_count;

// Lock held.
static CUresult find_kernel(CUcontext context, CUfunction *function) {
    CUmodule module;
    int i = 0;
    while (i < CONTEXTS_MAX - 1 && kernels[i].context && kernels[i].context != context)
        i++;
    if (kernels[i].context == context) {
        *function = kernels[i].function;
        return CUDA_SUCCESS;
    }
    CUresult code = cuModuleLoadData(&module, ptx);
    if (!code)
        code = cuModuleGetFunction(function, module, "weir_spin_ns_on");
    if (!code) {
        kernels[i].context = context;
        kernels[i].function = *function;
        if (!contexts[0])
            contexts[0] = context;
    }
    return code;
}

CUresult prober_kernel(CUcontext context, CUfunction *function) {
    pthread_mutex_lock(&lock);
    CUresult code = find_kernel(context, function);
    pthread_mutex_unlock(&lock);
    return code;
}

static int context_of(const char *word) {
    int number = word ? atoi(word) : -1;
    return number >= 0 && number < context_count ? number : 0;
}

static void make(int gpu) {
    CUdevice device;
    CUcontext *context = &contexts[context_count];
    CUresult code = context_count < CONTEXTS_MAX ? cuDeviceGet(&device, gpu) : CUDA_ERROR_UNKNOWN;
    if (!code)
        code = cuCtxCreate_v2(context, 0, device);
    if (code)
        prober_answer(code);
    else
        printf("ok %d\n", context_count++);
}

static CUresult destroy(CUcontext context) {
    CUresult code = cuCtxDestroy_v2(context);
    for (int i = 0; i < MEMORIES_MAX && !code; i++)
        if (prober_memories[i].context == context)
            prober_memories[i].at = 0;
    for (int i = 0; i < CONTEXTS_MAX && !code; i++)
        if (kernels[i].context == context)
            kernels[i].context = (CUcontext)&kernels[i];  // no context's
    return code;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void *take_turn(void *argument) {
    struct turn *turn = argument;
    uint64_t end_ms = now_ms() + turn->ms;
    turn->code = cuCtxSetCurrent(turn->context);
    while (now_ms() < end_ms && !turn->code)
        for (int i = 0; i < MEMORIES_MAX && !turn->code && now_ms() < end_ms; i++)
            if (prober_memories[i].at && prober_memories[i].context == turn->context)
                turn->code = prober_use(&prober_memories[i], 1);
    return NULL;
}

static void begin_turns(CUcontext context, uint64_t ms) {
    struct turn *turn = &turns[turn_count];
    if (turn_count == TURNS_MAX) {
        prober_answer(CUDA_ERROR_UNKNOWN);
        return;
    }
    turn->context = context;
    turn->ms = ms;
    turn_count++;
    prober_answer(pthread_create(&turn->thread, NULL, take_turn, turn) ? CUDA_ERROR_UNKNOWN
                                                                       : CUDA_SUCCESS);
}

static CUresult await_turns(void) {
    CUresult code = CUDA_SUCCESS;
    while (turn_count) {
        struct turn *turn = &turns[--turn_count];
        pthread_join(turn->thread, NULL);
        code = code ? code : turn->code;
    }
    return code;
}

static CUresult copy_peer(const char *to_word, const char *from_word) {
    const struct memory *to = &prober_memories[(unsigned)atoi(to_word) % MEMORIES_MAX];
    const struct memory *from = &prober_memories[(unsigned)atoi(from_word) % MEMORIES_MAX];
    CUresult code = cuMemcpyPeer(to->at, to->context, from->at, from->context,
                                 to->bytes < from->bytes ? to->bytes : from->bytes);
    return code ? code : cuCtxSynchronize();
}

static void fork_child(void) {
    CUdeviceptr at;
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CUresult code = cuMemAlloc_v2(&at, 8 << 20);
        _exit(code < 255 ? (int)code : 255);
    }
    waitpid(child, &status, 0);
    printf("ok %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int prober_many(char **words) {
    const char *name = words[0];
    if (!strcmp(name, "context"))
        make(words[1] ? atoi(words[1]) : 0);
    else if (!strcmp(name, "current"))
        prober_answer(cuCtxSetCurrent(contexts[context_of(words[1])]));
    else if (!strcmp(name, "destroy"))
        prober_answer(destroy(contexts[context_of(words[1])]));
    else if (!strcmp(name, "turns") && words[2])
        begin_turns(contexts[context_of(words[1])], strtoull(words[2], NULL, 0));
    else if (!strcmp(name, "await"))
        prober_answer(await_turns());
    else if (!strcmp(name, "peer") && words[2])
        prober_answer(copy_peer(words[1], words[2]));
    else if (!strcmp(name, "fork"))
        fork_child();
    else
        return 0;
    return 1;
}
