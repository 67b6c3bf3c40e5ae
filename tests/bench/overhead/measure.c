// measure.c: see measure.h.
#define _GNU_SOURCE
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCHES = 15, BATCH_NS = 300000, LEARNS = 100, LEARN_CALLS = 64, LEARN_US = 5000 };

void call_failed(const char *name, int code) {
    printf("failed %s %d\n", name, code);
    fflush(stdout);
    _exit(1);
}

void report(const char *key, double value) {
    printf("%s %.2f\n", key, value);
    fflush(stdout);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

long calls_in(uint64_t ns, void (*calls)(long count)) {
    uint64_t start = now_ns();
    calls(16);
    uint64_t took = now_ns() - start;
    long count = (long)(16 * ns / (took + 1));
    return count < 4 ? 4 : count;
}

void let_learn(void (*calls)(long count)) {
    for (int i = 0; i < LEARNS; i++) {
        calls(LEARN_CALLS);
        usleep(LEARN_US);
    }
}

double cost(void (*calls)(long count)) {
    double each[BATCHES];
    calls(16);
    long count = calls_in(BATCH_NS, calls);
    for (int i = 0; i < BATCHES; i++) {
        uint64_t start = now_ns();
        calls(count);
        each[i] = (double)(now_ns() - start) / (double)count;
    }
    return median(each, BATCHES);
}
