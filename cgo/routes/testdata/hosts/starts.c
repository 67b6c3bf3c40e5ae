// starts.c: what a preloaded library adds to the start of a program that does not use CUDA.
//
// starts ROUNDS PRELOAD PROGRAM [ARGUMENT]...: runs the program in turn without and with the
// library and prints the medians of both and of their difference: of the time from start to end,
// and of the processor time in it, which says more on a busy machine. Nanoseconds.
#include "host.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS_MAX = 10000 };

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double children_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

struct cost {
    double elapsed, processor;
};

// Runs a program to its end, without output. Returns 0, or 1 where it fails.
static int run(char **arguments, char **environment, struct cost *cost) {
    static posix_spawn_file_actions_t quiet;
    static int prepared;
    if (!prepared++) {
        posix_spawn_file_actions_init(&quiet);
        posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&quiet, 1, 2);
    }
    pid_t child;
    int status = -1;
    double elapsed = now_ns(), processor = children_ns();
    if (posix_spawn(&child, arguments[0], &quiet, NULL, arguments, environment) ||
        waitpid(child, &status, 0) != child || status)
        return 1;
    *cost = (struct cost){now_ns() - elapsed, children_ns() - processor};
    return 0;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_median(const char *name, double *values, int count) {
    qsort(values, (size_t)count, sizeof(*values), by_value);
    printf("%s %.0f\n", name, values[count / 2]);
}

int main(int argc, char **argv) {
    static double without[ROUNDS_MAX], with[ROUNDS_MAX], added[ROUNDS_MAX], processor[ROUNDS_MAX];
    static char preload[4096];
    int rounds = argc > 3 ? atoi(argv[1]) : 0;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", argv[2]);
    char *bare[] = {NULL}, *loaded[] = {preload, NULL};
    for (int i = 0; i < rounds; i++) {
        struct cost costs[2];
        if (run(argv + 3, bare, &costs[0]) || run(argv + 3, loaded, &costs[1]))
            return 1;
        without[i] = costs[0].elapsed;
        with[i] = costs[1].elapsed;
        added[i] = with[i] - without[i];
        processor[i] = costs[1].processor - costs[0].processor;
    }
    print_median("without", without, rounds);
    print_median("with", with, rounds);
    print_median("added", added, rounds);
    print_median("processor_added", processor, rounds);
    return 0;
}
