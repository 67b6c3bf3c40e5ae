// spinner.c: keeps a simulated GPU busy with kernels of one given length.
//
// spinner PTX_FILE COST_NS: says "ready", begins at the first line of input and goes on to the end
// of input, then "launched COUNT".
#define _GNU_SOURCE
#include "cuda.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LAUNCHES_A_LOOK = 64 };

int main(int count, char **arguments) {
    void *function;
    char line[16];
    int code = count == 3 ? use_gpu(0) : -1;
    if (!code)
        code = load_kernel(arguments[1], "weir_spin_ns", &function);
    uint64_t cost_ns = count == 3 ? strtoull(arguments[2], NULL, 10) : 0;
    void *parameters[] = {&cost_ns};
    long launched = 0;
    if (code) {
        printf("wrong %d\n", code);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
        return 1;
    for (struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN}; poll(&input, 1, 0) == 0;) {
        for (int i = 0; i < LAUNCHES_A_LOOK && !code; i++, launched++)
            code = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
        if (code) {
            printf("wrong %d\n", code);
            return 1;
        }
    }
    printf("launched %ld\n", launched);
    return 0;
}
