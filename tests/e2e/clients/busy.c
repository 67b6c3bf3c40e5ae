// busy.c: a program with one mix of launches that measures its busy GPU time by cgo/busy.h.
//
// busy PTX_FILE KEY=VALUE...: says "measured BUSY COVERED WORK LAUNCHES LATER CALLS" in ns and
// numbers when all is done and settled, the last two of the second half of the time, then waits for
// the end of input. Settings: cost (ns of a
// kernel), streams (of each thread), threads, burst (launches in a row), sync (after each burst),
// gap (us from one burst's beginning to the next's), ms (how long), graph (kernels in a graph,
// which is launched in place of a kernel), keys (kernels of so many lengths, by chance), vary
// (kernels of one key are of 1/4 to 7/4 of the length, by chance), grids (so many grids in turn),
// block (ns that each block of a grid takes on top), trouble (busy_trouble.c). busy null THREADS:
// busy_null.c.
#include "busy.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct weir_busy *busy;
CUcontext context;
void *spin;

static struct mix mix = {
    .cost_ns = 5000, .ms = 1000, .streams = 1, .threads = 1, .burst = 1, .keys = 1, .grids = 1};
static uint64_t launched, calls_at_half, launches_at_half;

void need(CUresult code, const char *what) {
    if (!code)
        return;
    printf("wrong %d %s\n", code, what);
    exit(1);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static char ptx[1 << 20];

static void read_ptx(const char *path) {
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(ptx, 1, sizeof(ptx) - 1, file) : 0;
    if (file)
        fclose(file);
    need(bytes == 0, "reading the PTX file");
}

void *load_spin(void) {
    CUmodule module;
    void *function;
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "weir_spin_ns"), "cuModuleGetFunction");
    return function;
}

static void use_device(void) {
    need(cuInit(0), "cuInit");
    need(cuDevicePrimaryCtxRetain(&context, 0), "retain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    spin = load_spin();
}

static void *help(void *nothing) {
    for (;;) {
        uint64_t ns = weir_busy_poll(busy);
        nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
    }
    return nothing;
}

void start_helper(void) {
    pthread_t helper;
    need(pthread_create(&helper, NULL, help, NULL), "pthread_create");
}

CUresult launch(CUstream stream, uint64_t cost_ns, struct weir_busy_kind kind) {
    void *params[] = {&cost_ns};
    struct weir_busy_launch l = weir_busy_begin(busy, context, 0, stream, kind);
    CUresult code = cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    weir_busy_end(busy, &l, code);
    return code;
}

void launch_graph(CUstream stream, CUgraphExec exec) {
    struct weir_busy_launch l =
        weir_busy_begin(busy, context, 0, stream, weir_busy_kind((uintptr_t)exec, 0, 0, 0));
    CUresult code = cuGraphLaunch(exec, stream);
    weir_busy_end(busy, &l, code);
    need(code, "cuGraphLaunch");
}

void sync_stream(CUstream stream) {
    need(cuStreamSynchronize(stream), "cuStreamSynchronize");
    weir_busy_synced(busy, context, stream);
}

static CUgraphExec make_graph(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    weir_busy_capture_begin(busy, context, stream);
    need(cuStreamBeginCapture_v2(stream, 0), "capture");
    for (uint64_t i = 0; i < mix.graph; i++)
        need(launch(stream, mix.cost_ns, weir_busy_kind((uintptr_t)spin, 1, 1, 0)),
             "captured launch");
    need(cuStreamEndCapture(stream, &graph), "end of the capture");
    weir_busy_capture_end(busy, context, stream);
    need(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
    return exec;
}

static uint64_t chance(uint64_t *dice, uint64_t below) {
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    return (*dice >> 33) % below;
}

static void launch_one(CUstream stream, uint64_t *dice, CUgraphExec exec, uint64_t number) {
    if (exec) {
        launch_graph(stream, exec);
        return;
    }
    uint64_t shape = mix.keys > 1 ? chance(dice, mix.keys) : 0;
    uint64_t blocks = 1 + number % mix.grids;
    uint64_t cost_ns = (mix.cost_ns << shape) + mix.block_ns * blocks;
    if (mix.vary)
        cost_ns = cost_ns / 4 + chance(dice, cost_ns * 3 / 2);
    need(launch(stream, cost_ns, weir_busy_kind((uintptr_t)spin, blocks, shape, 0)),
         "cuLaunchKernel");
}

static void wait_until(uint64_t then_ns) {
    struct timespec then = {(time_t)(then_ns / 1000000000), (long)(then_ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL);
}

static void *work(void *number) {
    CUstream streams[STREAMS_MAX];
    uint64_t dice = (uintptr_t)number + 1, i = 0;
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (uint64_t s = 0; s < mix.streams; s++)
        need(cuStreamCreate(&streams[s], NON_BLOCKING), "cuStreamCreate");
    CUgraphExec exec = mix.graph ? make_graph(streams[0]) : NULL;
    uint64_t begin = now_ns(), end = begin + mix.ms * 1000000;
    uint64_t next = begin + mix.gap_us * 1000 * (uintptr_t)number / mix.threads;
    wait_until(next);
    while (now_ns() < end) {
        for (uint64_t b = 0; b < mix.burst; b++) {
            launch_one(streams[i % mix.streams], &dice, exec, i);
            i++;
        }
        for (uint64_t s = 0; s < mix.streams && mix.sync; s++)
            sync_stream(streams[s]);
        next += mix.gap_us * 1000;
        if (mix.gap_us)
            wait_until(next);
        if (!number && !calls_at_half && now_ns() > begin + mix.ms * 500000) {
            launches_at_half = i * mix.threads;
            calls_at_half = weir_busy_calls(busy);
        }
    }
    for (uint64_t s = 0; s < mix.streams; s++)
        sync_stream(streams[s]);
    __atomic_fetch_add(&launched, i, __ATOMIC_RELAXED);
    return NULL;
}

static void read_settings(int count, char **arguments) {
    const struct {
        const char *name;
        uint64_t *at;
    } settings[] = {{"cost", &mix.cost_ns},    {"gap", &mix.gap_us},      {"ms", &mix.ms},
                    {"streams", &mix.streams}, {"threads", &mix.threads}, {"burst", &mix.burst},
                    {"sync", &mix.sync},       {"graph", &mix.graph},     {"keys", &mix.keys},
                    {"vary", &mix.vary},       {"trouble", &mix.trouble}, {"grids", &mix.grids},
                    {"block", &mix.block_ns}};
    for (int i = 0; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        unsigned s = 0, all = sizeof(settings) / sizeof(*settings);
        while (value && s < all &&
               strncmp(arguments[i], settings[s].name, (size_t)(value - arguments[i])))
            s++;
        need(!value || s == all, arguments[i]);
        *settings[s].at = strtoull(value + 1, NULL, 10);
    }
    need(mix.streams < 1 || mix.streams > STREAMS_MAX || mix.threads > THREADS_MAX, "settings");
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS_MAX];
    char line[16];
    if (count == 3 && !strcmp(arguments[1], "null"))
        return measure_cost((unsigned)atoi(arguments[2]));
    read_settings(count - 2, arguments + 2);
    busy = weir_busy_open();
    need(!busy, "weir_busy_open");
    read_ptx(arguments[1]);
    use_device();
    start_helper();
    if (mix.trouble) {
        make_trouble(&mix, now_ns() + mix.ms * 1000000);
        mix.threads = 0;
    }
    for (uint64_t i = 0; i < mix.threads; i++)
        need(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), "pthread_create");
    for (uint64_t i = 0; i < mix.threads; i++)
        pthread_join(threads[i], NULL);
    usleep(700000);  // for the helper
    const struct weir_busytime *time = &busy->gpus[0].time;
    printf("measured %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
           weir_busy_ns(busy, 0), time->covered_ns, time->work_ns, launched,
           launched - launches_at_half, weir_busy_calls(busy) - calls_at_half);
    fflush(stdout);
    return read(STDIN_FILENO, line, sizeof(line)) < 0;
}
