// starts.c: what a preloaded library adds to the start of a program that does not use CUDA.
//
// starts ROUNDS PRELOAD PROGRAM [ARGUMENT]...: runs the program in turn without and with the
// library and prints the median time of both and of their difference, in nanoseconds.
#include "host.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS_MAX = 10000 };

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// Nanoseconds from the start of a program to its end; negative where it fails.
static double run_ns(char **arguments, char **environment) {
    static posix_spawn_file_actions_t quiet;
    static int prepared;
    if (!prepared++) {
        posix_spawn_file_actions_init(&quiet);
        posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    }
    pid_t child;
    int status = -1;
    double start = now_ns();
    if (posix_spawn(&child, arguments[0], &quiet, NULL, arguments, environment) ||
        waitpid(child, &status, 0) != child || status)
        return -1;
    return now_ns() - start;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return values[count / 2];
}

int main(int argc, char **argv) {
    static double without[ROUNDS_MAX], with[ROUNDS_MAX], added[ROUNDS_MAX];
    static char preload[4096];
    int rounds = argc > 3 ? atoi(argv[1]) : 0;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[2]);
    char *bare[] = {NULL}, *loaded[] = {preload, NULL};
    for (int i = 0; i < rounds; i++) {
        without[i] = run_ns(argv + 3, bare);
        with[i] = run_ns(argv + 3, loaded);
        if (without[i] < 0 || with[i] < 0)
            return 1;
        added[i] = with[i] - without[i];
    }
    printf("without %.0f\nwith %.0f\n", median(without, rounds), median(with, rounds));
    printf("added %.0f\n", median(added, rounds));
    return 0;
}
