// churn_context.c: contexts, code and limits.
#include "churn.h"

#include <stdio.h>

// One that nobody else uses, so that its primary context ends with the last of these pairs.
static CUdevice other;

static void find_other(void) {
    int count;
    OK(cuDeviceGetCount, &count);
    OK(cuDeviceGet, &other, count - 1);
}

static void primary(CUstream stream) {
    CUcontext context;
    (void)stream;
    OK(cuDevicePrimaryCtxRetain, &context, other);
    OK(cuDevicePrimaryCtxRelease_v2, other);
}

static void context(CUstream stream) {
    CUcontext own, before;
    (void)stream;
    OK(cuCtxGetCurrent, &before);
    OK(cuCtxCreate_v2, &own, 0, 0);
    OK(cuCtxDestroy_v2, own);
    OK(cuCtxSetCurrent, before);
}

static CUdevResourceDesc processors;

static void describe_processors(void) {
    CUdevResource all, some;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
    OK(cuDevSmResourceSplitByCount, &some, &groups, &all, NULL, 0, 8);
    OK(cuDevResourceGenerateDesc, &processors, &some, 1);
}

static void green(CUstream stream) {
    CUgreenCtx own;
    CUcontext as_context;
    (void)stream;
    OK(cuGreenCtxCreate, &own, processors, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    OK(cuCtxFromGreenCtx, &as_context, own);
    OK(cuGreenCtxDestroy, own);
}

// ---- Code ----

static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .global .b8 variable[4096];\n"
                           ".visible .entry nothing() { ret; }\n";

static void module(CUstream stream) {
    CUmodule handle;
    (void)stream;
    OK(cuModuleLoadData, &handle, code);
    OK(cuModuleUnload, handle);
}

static void library(CUstream stream) {
    CUlibrary handle = NULL;
    (void)stream;
    OK(cuLibraryLoadData, &handle, code, NULL, NULL, 0, NULL, NULL, 0);
    OK(cuLibraryUnload, handle);
}

// ---- Limits ----

static size_t heap_bytes;

static void note_heap(void) {
    OK(cuCtxGetLimit, &heap_bytes, CU_LIMIT_MALLOC_HEAP_SIZE);
}

// All threads set that of the one context.
static void limit(CUstream stream) {
    (void)stream;
    OK(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 2 * heap_bytes);
    OK(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, heap_bytes);
}

const struct kind context_kinds[] = {
    {"context", NULL, context},
    {"primary", find_other, primary},
    {"green", describe_processors, green},
    {"module", NULL, module},
    {"library", NULL, library},
    {"limit", note_heap, limit},
    {NULL, NULL, NULL},
};
