// homes.h: where a thread's word could live, and what an entry and a leave cost there (decision
// 13).
#ifndef WEIR_BENCH_HOMES_H
#define WEIR_BENCH_HOMES_H

#include "../overhead/measure.h"

// Prints each home's cost; `added_ns` gives what such launches take more than bare ones, among so
// many threads.
void measure_homes(double (*added_ns)(void (*launches)(long count), int threads));

// The launch that all of them make.
static inline void launch(void) {
    void *parameters[1] = {NULL};
    check("cuLaunchKernel",
          cuLaunchKernel(parameters, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

#endif
