// acrobat_context.c: the acrobat's acts about contexts, code and limits.
#include "acrobat.h"

#include "../../sim/driver/cuda_abi.h"

#include <stdlib.h>

static CUcontext contexts[GPUS_MAX];  // the primary ones; NULL: none

void use_device(int gpu) {
    gpu_now = gpu < GPUS_MAX ? gpu : 0;
    if (contexts[gpu_now])
        cuCtxSetCurrent(contexts[gpu_now]);
}

// "init": the primary context of the device becomes current.
static void do_init(char **words) {
    CUcontext context = NULL;
    (void)words;
    CUresult code = cuInit(0);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&context, gpu_now);
    if (!code)
        code = cuCtxSetCurrent(context);
    if (!code)
        contexts[gpu_now] = context;
    answer_code(code);
}

// "leave": the primary context ends, and all that is in it.
static void do_leave(char **words) {
    (void)words;
    CUresult code = cuDevicePrimaryCtxRelease_v2(gpu_now);
    if (!code) {
        contexts[gpu_now] = NULL;
        forget_all();
        forget_stream();
    }
    answer_code(code);
}

static int free_context(uint64_t context, uint64_t bytes) {
    (void)bytes;
    return (int)cuCtxDestroy_v2((CUcontext)context);
}

// "context": one more, which does not stay current.
static void do_context(char **words) {
    CUcontext context = NULL, popped;
    (void)words;
    CUresult code = cuCtxCreate_v2(&context, 0, gpu_now);
    if (!code)
        code = cuCtxPopCurrent_v2(&popped);
    answer_slot(code, free_context, (uint64_t)context, 0);
}

static int free_module(uint64_t module, uint64_t bytes) {
    (void)bytes;
    return (int)cuModuleUnload((CUmodule)module);
}

static int free_library(uint64_t library, uint64_t bytes) {
    (void)bytes;
    return (int)cuLibraryUnload((CUlibrary)library);
}

// "module PATH", "library PATH"
static void do_module(char **words) {
    CUmodule module = NULL;
    CUresult code = cuModuleLoad(&module, words[1]);
    answer_slot(code, free_module, (uint64_t)module, 0);
}

static void do_library(char **words) {
    CUlibrary library = NULL;
    CUresult code = cuLibraryLoadFromFile(&library, words[1], NULL, NULL, 0, NULL, NULL, 0);
    answer_slot(code, free_library, (uint64_t)library, 0);
}

// "limit WHICH VALUE", by the driver's numbers: 0 stack, 1 printf buffer, 2 heap.
static void do_limit(char **words) {
    answer_code(cuCtxSetLimit((CUlimit)number_of(words[1]), number_of(words[2])));
}

const struct act context_acts[] = {
    {"init", do_init},     {"leave", do_leave},     {"context", do_context},
    {"module", do_module}, {"library", do_library}, {"limit", do_limit},
    {NULL, NULL},
};
