// load.c: a program with one kind of load for a simulated GPU, whose figures are read from the
// machine's books.
//
// load PTX_FILE KEY=VALUE...: says "ready", reads "BEGIN END" in ns of CLOCK_MONOTONIC, launches
// from the one to the other, says "done ROUNDS PROCESSOR_NS" and waits for the end of input. A
// round is `burst` launches in turn over `streams`. Settings: name (the program's in the books),
// cost (ns of a kernel), graph (kernels in a graph, which is launched in place of a kernel), wait
// (after each round, for its end), gap (us of sleep after that), ahead (us of work in flight at
// most where nobody waits; 0: as much as the driver takes), more (factor of `burst`, between) from
// and to (ms after BEGIN).
//
// Where it is ahead enough it sleeps and looks now and then whether the GPU has done: the simulated
// driver's own waits take processor time.
#define _GNU_SOURCE
#include "../overhead/driver_calls.h"
#include "../settings/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    STREAMS_MAX = 16,
    BATCHES = 3,  // in flight, each with an event behind it
    NON_BLOCKING = 1,
    TIMING_OFF = 2,
    NOT_READY = 600,
    LOOK_NS = 300000,
    AHEAD_KERNELS = 750,  // fewer than the driver's queue takes
};

int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuStreamSynchronize(void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);

static uint64_t cost_ns = 1000000, graph_kernels, streams_used = 1, burst = 1, wait_each, gap_us,
                ahead_us = 12000, more = 1, from_ms, to_ms;

static void *function, *exec, *streams[STREAMS_MAX], *events[BATCHES];
static uint64_t begin_ns, end_ns, launched;

static void need(int code, const char *what) {
    if (!code)
        return;
    printf("wrong %d %s\n", code, what);
    exit(1);
}

static void wait_until(uint64_t then_ns) {
    struct timespec then = {(time_t)(then_ns / 1000000000), (long)(then_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL))
        ;
}

static void wait_for(void *event) {
    int code;
    while ((code = cuEventQuery(event)) == NOT_READY)
        wait_until(now_ns() + LOOK_NS);
    need(code, "cuEventQuery");
}

static void launch_kernel(void *stream) {
    void *parameters[] = {&cost_ns};
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
}

static void make_graph(void) {
    void *graph;
    need(cuStreamBeginCapture_v2(streams[0], 0), "cuStreamBeginCapture");
    for (uint64_t i = 0; i < graph_kernels; i++)
        launch_kernel(streams[0]);
    need(cuStreamEndCapture(streams[0], &graph), "cuStreamEndCapture");
    need(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
}

static void launch(void) {
    void *stream = streams[launched++ % streams_used];
    if (exec)
        need(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    else
        launch_kernel(stream);
}

static uint64_t burst_now(void) {
    uint64_t ms = (now_ns() - begin_ns) / 1000000;
    return ms >= from_ms && ms < to_ms ? burst * more : burst;
}

// Rounds with a wait behind each.
static uint64_t run_waiting(void) {
    uint64_t rounds = 0;
    for (; now_ns() < end_ns; rounds++) {
        for (uint64_t left = burst_now(); left; left--)
            launch();
        for (uint64_t i = 0; i < streams_used; i++)
            need(cuStreamSynchronize(streams[i]), "cuStreamSynchronize");
        if (gap_us)
            wait_until(now_ns() + gap_us * 1000);
    }
    return rounds;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// Rounds that nobody waits for, but for what keeps no more than `ahead` in flight: the events
// behind every so many launches, on the first stream.
static uint64_t run_ahead(void) {
    uint64_t kernels = exec ? graph_kernels : 1, batches = 0, rounds = 0;
    uint64_t batch = least(ahead_us * 1000 / cost_ns, AHEAD_KERNELS) / BATCHES / kernels;
    batch = batch ? batch : 1;
    for (; now_ns() < end_ns; rounds++)
        for (uint64_t left = burst_now(); left; left--) {
            launch();
            if (!ahead_us || launched % batch)
                continue;
            void *event = events[batches % BATCHES];
            if (batches++ >= BATCHES)
                wait_for(event);
            need(cuEventRecord(event, streams[0]), "cuEventRecord");
        }
    return rounds;
}

// The processor time of this process so far, what others did in it included.
static uint64_t processor_ns(void) {
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
}

static void read_settings(int count, char **arguments) {
    const struct setting settings[] = {
        {"cost", &cost_ns, NULL},         {"graph", &graph_kernels, NULL},
        {"streams", &streams_used, NULL}, {"burst", &burst, NULL},
        {"wait", &wait_each, NULL},       {"gap", &gap_us, NULL},
        {"ahead", &ahead_us, NULL},       {"more", &more, NULL},
        {"from", &from_ms, NULL},         {"to", &to_ms, NULL}};
    const char *wrong =
        settings_read(count, arguments, settings, sizeof(settings) / sizeof(*settings));
    need(wrong != NULL, wrong);
    need(!streams_used || streams_used > STREAMS_MAX || !burst || !more || !cost_ns, "settings");
}

static void prepare(const char *ptx) {
    need(use_gpu(0), "cuInit");
    need(load_kernel(ptx, "weir_spin_ns", &function), "the PTX file");
    for (uint64_t i = 0; i < streams_used; i++)
        need(cuStreamCreate(&streams[i], NON_BLOCKING), "cuStreamCreate");
    for (int i = 0; i < BATCHES; i++)
        need(cuEventCreate(&events[i], TIMING_OFF), "cuEventCreate");
    if (graph_kernels)
        make_graph();
}

int main(int count, char **arguments) {
    char line[64] = "";
    need(count < 2, "arguments");
    read_settings(count - 2, arguments + 2);
    prctl(PR_SET_TIMERSLACK, 1);
    prepare(arguments[1]);
    puts("ready");
    fflush(stdout);
    need(!fgets(line, sizeof(line), stdin), "the beginning");
    need(sscanf(line, "%" SCNu64 " %" SCNu64, &begin_ns, &end_ns) != 2, "the beginning");
    wait_until(begin_ns);
    uint64_t rounds = wait_each ? run_waiting() : run_ahead();
    printf("done %" PRIu64 " %" PRIu64 "\n", rounds, processor_ns());
    fflush(stdout);
    return read(STDIN_FILENO, line, sizeof(line)) < 0;
}
