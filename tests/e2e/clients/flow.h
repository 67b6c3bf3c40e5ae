// flow.h: what the files of the program `flow` share: a program that launches as it is told, each
// load in a thread of its own, and says how far each has come even while it is held back.
#ifndef WEIR_E2E_FLOW_H
#define WEIR_E2E_FLOW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../sim/driver/cuda_abi.h"

enum { GPUS_MAX = 8, STREAMS_MAX = 2048, STREAM_OWN = 0, STREAM_LEGACY = 1, STREAM_THREAD = 2 };

// Where a load launches: filled by "init", and read only then.
struct place {
    CUcontext context;
    CUfunction spin;  // weir_spin_ns: takes as long as its parameter says
};
extern struct place places[GPUS_MAX];

// The settings of a load, KEY=VALUE; see flow.c.
struct load {
    uint64_t knot, gpu, cost, gap, burst, sync, streams, stream, graph, times, mode;
};

// One load. The counts are read while its thread goes on.
struct act {
    pthread_t thread;
    struct load load;
    bool used, stop;
    uint64_t passed;    // launches, or rounds of a knot, that came back
    uint64_t last_ns;   // when the last did, of CLOCK_MONOTONIC
    uint64_t worst_ns;  // the longest that one took since somebody asked
    int code;           // the driver's first refusal, which ends the load
};

uint64_t flow_now_ns(void);
void flow_sleep_us(uint64_t us);
bool flow_stops(const struct act *act);

// Keeps the first refusal. True: all is well.
bool flow_good(struct act *act, CUresult code);

// Launches one kernel of so long in a stream of the current context, which is that of `place`.
CUresult flow_spin(const struct place *place, CUstream stream, bool per_thread, uint64_t cost_ns);

// Counts what began then as through.
void flow_count(struct act *act, uint64_t begun_ns);

// flow_knot.c: rounds whose work waits for work that is submitted later.
void flow_knot(struct act *act);

// flow_ways.c: every way of launching, each once in a thread of its own. The number of them; how
// many are through so far, and the first that was refused (NULL: none).
int flow_ways_begin(uint64_t cost_ns);
int flow_ways_through(const char **refused, int *code);

#endif
