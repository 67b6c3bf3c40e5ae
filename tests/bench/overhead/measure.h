// measure.h: how calls.c and variants.c measure and say what a driver call costs.
//
// A figure is one line on standard output, "key value"; a call that fails ends the program with a
// line "failed NAME CODE". A cost is the median over batches that are long enough for the clock.
#ifndef WEIR_BENCH_MEASURE_H
#define WEIR_BENCH_MEASURE_H

#include <stddef.h>

#include "driver_calls.h"

// Prints the failure and ends the program.
_Noreturn void call_failed(const char *name, int code);

// `code` is what the driver's function `name` returned.
static inline void check(const char *name, int code) {
    if (__builtin_expect(code != 0, 0))
        call_failed(name, code);
}

void report(const char *key, double value);

double median(double *values, size_t count);

// How many calls take about so many nanoseconds; `calls` makes as many as it is told.
long calls_in(uint64_t ns, void (*calls)(long count));

// Nanoseconds of one call.
double cost(void (*calls)(long count));

// Makes such launches now and then for half a second, by when the library knows what they take: it
// measures some of them, and until then each costs more.
void let_learn(void (*calls)(long count));

// variants.c: reports every form of a launch beside cuLaunchKernel itself.
void measure_variants(void *kernel);

#endif
