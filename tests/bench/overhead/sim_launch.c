// sim_launch.c: what a launch of a kernel that does nothing costs its caller on the simulated
// driver.
//
// sim_launch PTX_FILE: prints one line, the promise and what was measured: the median over bursts
// that fit into the launch queue, so that no caller waits for the simulated GPU. Fails if it does
// not hold.
#include "driver_calls.h"

#include <stdio.h>
#include <stdlib.h>

enum { BURSTS = 301, BURST = 256, PROMISED_NS = 2000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **arguments) {
    void *function;
    double each[BURSTS];
    int code = count == 2 ? use_gpu(0) : -1;
    if (!code)
        code = load_kernel(arguments[1], "null_kernel", &function);
    for (int burst = 0; burst < BURSTS && !code; burst++) {
        uint64_t start = now_ns();
        for (int i = 0; i < BURST && !code; i++)
            code = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        each[burst] = (double)(now_ns() - start) / BURST;
        if (!code)
            code = cuCtxSynchronize();
    }
    if (code) {
        printf("sim_launch failed: %d\n", code);
        return 1;
    }
    qsort(each, BURSTS, sizeof(*each), by_value);
    double median = each[BURSTS / 2];
    printf("promise: null launch on the simulated driver, promised at most %d ns, got %.0f ns, "
           "holds %s\n",
           PROMISED_NS, median, median <= PROMISED_NS ? "yes" : "no");
    return median > PROMISED_NS;
}
