// gpu.c: see gpu.h.
#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct driver cu;

static const char *program_name = "demo";

void say(const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    printf("%s: %s\n", program_name, text);
    fflush(stdout);
}

void must(const char *what, int code) {
    if (code) {
        say("%s failed: CUDA error %d", what, code);
        exit(1);
    }
}

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        say("the driver has no %s", name);
        exit(1);
    }
    return function;
}

#define FIND(name) cu.name = (__typeof__(cu.name))find(library, #name)

static void find_all(void *library) {
    FIND(cuInit);
    FIND(cuDeviceGet);
    FIND(cuDeviceGetName);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxCreate_v2);
    FIND(cuCtxSetCurrent);
    FIND(cuCtxSynchronize);
    FIND(cuMemGetInfo_v2);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuMemcpyHtoD_v2);
    FIND(cuMemcpyDtoH_v2);
    FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction);
    FIND(cuLaunchKernel);
}

void gpu_open(const char *program) {
    int device;
    void *context;
    program_name = program;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        say("no CUDA driver: %s", dlerror());
        exit(1);
    }
    find_all(library);
    must("cuInit", cu.cuInit(0));
    must("cuDeviceGet", cu.cuDeviceGet(&device, 0));
    must("cuDevicePrimaryCtxRetain", cu.cuDevicePrimaryCtxRetain(&context, device));
    must("cuCtxSetCurrent", cu.cuCtxSetCurrent(context));
}

void *gpu_kernel(const char *ptx, const char *name) {
    void *module, *function;
    must("cuModuleLoadData", cu.cuModuleLoadData(&module, ptx));
    must("cuModuleGetFunction", cu.cuModuleGetFunction(&function, module, name));
    return function;
}

bool asked_to_finish(int wait_ms) {
    char byte;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, wait_ms) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

long positive(const char *argument, const char *usage) {
    char *end = NULL;
    errno = 0;
    long value = argument ? strtol(argument, &end, 10) : 0;
    if (errno || value < 1 || *end) {
        fprintf(stderr, "usage: %s\n", usage);
        exit(2);
    }
    return value;
}
