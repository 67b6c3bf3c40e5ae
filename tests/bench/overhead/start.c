// start.c: a CUDA program's first steps: find the driver, cuInit and, unless its argument is
// "init", one context.
//
// It prints two times of CLOCK_MONOTONIC in nanoseconds, before dlopen and after cuInit, then makes
// its context, prints when it was made, and waits until its standard input ends, so that many of
// them can be alive together.
#define _GNU_SOURCE
#include "driver_calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int init_fn(unsigned flags);
typedef int retain_fn(void **context, int device);

int main(int count, char **arguments) {
    char byte;
    void *context;
    int init_only = count > 1 && !strcmp(arguments[1], "init");
    uint64_t start = now_ns();
    void *handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    init_fn *init = handle ? (init_fn *)dlsym(handle, "cuInit") : NULL;
    retain_fn *retain = handle ? (retain_fn *)dlsym(handle, "cuDevicePrimaryCtxRetain") : NULL;
    if (!init || !retain || init(0))
        return 1;
    uint64_t end = now_ns();
    char line[64];
    int length = snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long)start,
                          (unsigned long long)end);
    // One write, so that lines of many processes on one pipe stay whole.
    if (write(STDOUT_FILENO, line, (size_t)length) != length || (!init_only && retain(&context, 0)))
        return 1;
    length = snprintf(line, sizeof(line), "context %llu\n", (unsigned long long)now_ns());
    if (!init_only && write(STDOUT_FILENO, line, (size_t)length) != length)
        return 1;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}
