// What the <<<>>> programs share. Each prints one line and exits with 0 if every result was right.
#ifndef WEIR_SIM_PROGRAMS_PROGRAM_H
#define WEIR_SIM_PROGRAMS_PROGRAM_H

#include "tests/sim/cudart/weir_cuda.h"
#include "tests/sim/programs/reference.h"

#include <stdio.h>
#include <stdlib.h>

static inline void must(cudaError_t err, const char *what) {
    if (err == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, cudaGetErrorString(err), cudaGetErrorName(err));
    exit(1);
}

// A launch reports through the thread's last error.
static inline void must_launch(const char *what) {
    must(cudaGetLastError(), what);
}

template <typename T> T *on_device(size_t count) {
    T *at = nullptr;
    must(cudaMalloc(&at, count * sizeof(T)), "cudaMalloc");
    return at;
}

template <typename T> T *on_host(size_t count) {
    T *at = (T *)calloc(count, sizeof(T));
    if (!at)
        exit(1);
    return at;
}

template <typename T> void to_device(T *device, const T *host, size_t count) {
    must(cudaMemcpy(device, host, count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
}

template <typename T> void to_host(T *host, const T *device, size_t count) {
    must(cudaMemcpy(host, device, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

static inline int verdict(const char *name, size_t results, size_t wrong) {
    printf("%s: %zu results, %zu wrong\n", name, results, wrong);
    return wrong > 0;
}

#endif
