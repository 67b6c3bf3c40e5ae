// hog.c: a CUDA program that takes all GPU time that it can get.
//
// hog KERNEL_US SECONDS: launches kernels of that length for so long, some 100 ms of them at a
// time, and says in the end how many it was and what part of the GPU's time they took.
#define _GNU_SOURCE
#include "gpu.h"

#include <time.h>

CARRY(kernels, DEMO_PTX_SPIN);

enum { BATCH_US = 100000, US_MAX = 1000000 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int arguments, char **argument) {
    const char *usage = "hog KERNEL_US SECONDS, of which the first is at most a million";
    long us = positive(arguments == 3 ? argument[1] : NULL, usage);
    long seconds = positive(argument[2], usage);
    if (us > US_MAX)
        positive(NULL, usage);
    gpu_open("hog");
    void *spin = gpu_kernel(kernels, "weir_spin_ns");
    uint64_t cost_ns = (uint64_t)us * 1000;
    void *parameters[] = {&cost_ns};
    long done = 0, batch = us < BATCH_US ? BATCH_US / us : 1;
    double begun = now();
    while (now() < begun + (double)seconds) {
        for (long i = 0; i < batch; i++)
            must("cuLaunchKernel",
                 cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        must("cuCtxSynchronize", cu.cuCtxSynchronize());
        done += batch;
    }
    double took = now() - begun;
    say("%ld kernels of %ldus in %.1fs: %.1f%% of the GPU's time", done, us, took,
        (double)(done * us) / took / 1e4);
    return 0;
}
