// order.c: work whose order would be another, and for ever, if anybody recorded events in the
// default stream: a launch there, a wait in one stream, and what that waits for in another. None of
// these waits for a later one; but what comes in the default stream after the wait would wait for
// it, and hold back what the other stream gets later.
//
// order PTX_FILE MS: so long after the wait comes what it waits for. Says "done", or "stuck".
#define _GNU_SOURCE
#include "cuda.h"

#include <stdlib.h>
#include <unistd.h>

int cuStreamQuery(void *stream);
int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags);
int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags);
int cuMemsetD32_v2(uint64_t address, unsigned value, size_t count);

enum { PATIENCE_MS = 3000, LOOK_MS = 5 };

static void must(const char *what, int code) {
    if (code) {
        printf("%s: CUDA error %d\n", what, code);
        exit(1);
    }
}

int main(int count, char **arguments) {
    void *waits, *writes, *kernel;
    uint64_t word, cost_ns = 1000;
    void *parameters[] = {&cost_ns};
    if (count != 3)
        return 2;
    must("cuInit", use_gpu(0));
    must("the kernel", load_kernel(arguments[1], "weir_spin_ns", &kernel));
    must("cuStreamCreate", cuStreamCreate(&waits, 0));
    must("cuStreamCreate", cuStreamCreate(&writes, 0));
    must("cuMemAlloc", cuMemAlloc_v2(&word, sizeof(uint32_t)));
    must("cuMemsetD32", cuMemsetD32_v2(word, 0, 1));
    must("cuCtxSynchronize", cuCtxSynchronize());
    must("cuLaunchKernel", cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    must("cuStreamWaitValue32", cuStreamWaitValue32_v2(waits, word, 1, 0));
    usleep((unsigned)atoi(arguments[2]) * 1000);
    must("cuStreamWriteValue32", cuStreamWriteValue32_v2(writes, word, 1, 0));
    for (int ms = 0; ms < PATIENCE_MS; ms += LOOK_MS) {
        if (cuStreamQuery(waits) == CUDA_SUCCESS) {
            puts("done");
            return 0;
        }
        usleep(LOOK_MS * 1000);
    }
    puts("stuck");
    return 0;
}
