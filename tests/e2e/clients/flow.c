// flow.c: a program that gives GPUs work as it is told, and goes on answering while its launches
// are held back.
//
// flow PTX_FILE reads one command a line and answers each with "ok NUMBERS", "error CODE" or
// "wrong TEXT":
//   pid                  its own
//   init GPU...          makes contexts; the first one's is the current one
//   play KEY=VALUE...    begins a load; its number
//   passed NUMBER        how many launches of a load are through, and when the last was (ns)
//   worst NUMBER         the longest that one has taken since this was asked last (ns)
//   stop NUMBER          ends a load when its work is done; how many launches there were
//   ways COST            begins every way of launching, once each; how many there are
//   through              how many of them have come back
//   copy                 a copy to the device and back
// Settings of a load: gpu, cost (ns of a kernel), burst (launches in a row), sync (then waits for
// the stream that is next), streams (used in turn), stream (0: own, 1: the legacy default, 2: the
// thread's default), gap (us slept after a burst), graph (so many kernels in one launch), times
// (launches in all; 0: no end), knot (1 to 4: see flow_knot.c) and its mode.
#define _GNU_SOURCE
#include "flow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { ACTS_MAX = 64 };

struct place places[GPUS_MAX];
static struct act acts[ACTS_MAX];
static char ptx[1 << 20];

uint64_t flow_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void flow_sleep_us(uint64_t us) {
    struct timespec wait = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&wait, NULL);
}

bool flow_stops(const struct act *act) {
    return __atomic_load_n(&act->stop, __ATOMIC_ACQUIRE) ||
           (act->load.times && act->passed >= act->load.times);
}

bool flow_good(struct act *act, CUresult code) {
    if (code && !act->code)
        __atomic_store_n(&act->code, code, __ATOMIC_RELEASE);
    return !code;
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                             void **params, void **extra);

CUresult flow_spin(const struct place *place, CUstream stream, bool per_thread, uint64_t cost_ns) {
    void *params[] = {&cost_ns};
    if (per_thread)
        return cuLaunchKernel_ptsz(place->spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    return cuLaunchKernel(place->spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

void flow_count(struct act *act, uint64_t begun_ns) {
    uint64_t now = flow_now_ns();
    if (now - begun_ns > __atomic_load_n(&act->worst_ns, __ATOMIC_RELAXED))
        __atomic_store_n(&act->worst_ns, now - begun_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&act->last_ns, now, __ATOMIC_RELAXED);
    __atomic_fetch_add(&act->passed, 1, __ATOMIC_RELEASE);
}

// ---- Plain loads ----

static CUgraphExec make_graph(struct act *act, const struct place *place, CUstream stream) {
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUresult code = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (uint64_t i = 0; i < act->load.graph && !code; i++)
        code = flow_spin(place, stream, false, act->load.cost);
    if (!code)
        code = cuStreamEndCapture(stream, &graph);
    if (!code)
        code = cuGraphInstantiateWithFlags(&exec, graph, 0);
    flow_good(act, code);
    return exec;
}

static void play(struct act *act) {
    const struct load *load = &act->load;
    const struct place *place = &places[load->gpu];
    CUstream streams[STREAMS_MAX] = {NULL};
    bool per_thread = load->stream == STREAM_THREAD;
    CUresult code = CUDA_SUCCESS;
    for (uint64_t s = 0; s < load->streams && load->stream == STREAM_OWN && !code; s++)
        code = cuStreamCreate(&streams[s], CU_STREAM_NON_BLOCKING);
    CUgraphExec exec = load->graph && !code ? make_graph(act, place, streams[0]) : NULL;
    for (uint64_t round = 0; !code && !act->code && !flow_stops(act); round++) {
        CUstream stream = streams[round % load->streams];
        CUstream next = per_thread ? CU_STREAM_PER_THREAD : streams[(round + 1) % load->streams];
        for (uint64_t b = 0; b < load->burst && !code && !flow_stops(act); b++) {
            uint64_t begun = flow_now_ns();
            code = exec ? cuGraphLaunch(exec, stream)
                        : flow_spin(place, stream, per_thread, load->cost);
            flow_count(act, begun);
        }
        if (load->sync && !code)
            code = cuStreamSynchronize(next);
        if (load->gap)
            flow_sleep_us(load->gap);
    }
    if (flow_good(act, code))
        flow_good(act, cuCtxSynchronize());
}

static void *run(void *argument) {
    struct act *act = argument;
    prctl(PR_SET_TIMERSLACK, 1);
    if (!flow_good(act, cuCtxSetCurrent(places[act->load.gpu].context)))
        return NULL;
    if (act->load.knot)
        flow_knot(act);
    else
        play(act);
    return NULL;
}

// ---- Commands ----

static CUresult init_gpu(int ordinal) {
    CUmodule module;
    struct place *place = &places[ordinal];
    CUdevice device;
    CUresult code = cuDeviceGet(&device, ordinal);
    if (!code)
        code = cuDevicePrimaryCtxRetain(&place->context, device);
    if (!code)
        code = cuCtxSetCurrent(place->context);
    if (!code)
        code = cuModuleLoadData(&module, ptx);
    return code ? code : cuModuleGetFunction(&place->spin, module, "weir_spin_ns");
}

static CUresult init(char *words) {
    CUresult code = cuInit(0);
    int first = -1;
    for (char *word = strtok(words, " "); word && !code; word = strtok(NULL, " ")) {
        int ordinal = atoi(word);
        if (ordinal < 0 || ordinal >= GPUS_MAX)
            return CUDA_ERROR_INVALID_DEVICE;
        code = init_gpu(ordinal);
        if (first < 0)
            first = ordinal;
    }
    return code || first < 0 ? code : cuCtxSetCurrent(places[first].context);
}

static bool read_load(char *words, struct load *load) {
    *load = (struct load){.cost = 1000000, .burst = 1, .streams = 1};
    const struct {
        const char *name;
        uint64_t *at;
    } settings[] = {{"knot", &load->knot},       {"gpu", &load->gpu},       {"cost", &load->cost},
                    {"gap", &load->gap},         {"burst", &load->burst},   {"sync", &load->sync},
                    {"streams", &load->streams}, {"stream", &load->stream}, {"graph", &load->graph},
                    {"times", &load->times},     {"mode", &load->mode}};
    unsigned all = sizeof(settings) / sizeof(*settings);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        unsigned s = 0;
        if (!value)
            return false;
        *value++ = 0;
        while (s < all && strcmp(word, settings[s].name))
            s++;
        if (s == all)
            return false;
        *settings[s].at = strtoull(value, NULL, 10);
    }
    return load->gpu < GPUS_MAX && load->streams > 0 && load->streams <= STREAMS_MAX;
}

static void begin_act(char *words) {
    int number = 0;
    while (number < ACTS_MAX && acts[number].used)
        number++;
    if (number == ACTS_MAX || !read_load(words, &acts[number].load)) {
        printf("wrong load\n");
        return;
    }
    acts[number].used = true;
    if (pthread_create(&acts[number].thread, NULL, run, &acts[number]))
        printf("wrong thread\n");
    else
        printf("ok %d\n", number);
}

static void tell_act(const char *name, struct act *act) {
    bool ends = !strcmp(name, "stop");
    __atomic_store_n(&act->stop, ends, __ATOMIC_RELEASE);
    if (ends)
        pthread_join(act->thread, NULL);
    act->used = !ends;
    int code = __atomic_load_n(&act->code, __ATOMIC_ACQUIRE);
    uint64_t passed = __atomic_load_n(&act->passed, __ATOMIC_ACQUIRE);
    if (code)
        printf("error %d\n", code);
    else if (ends)
        printf("ok %" PRIu64 "\n", passed);
    else if (!strcmp(name, "worst"))
        printf("ok %" PRIu64 "\n", __atomic_exchange_n(&act->worst_ns, 0, __ATOMIC_RELAXED));
    else
        printf("ok %" PRIu64 " %" PRIu64 "\n", passed,
               __atomic_load_n(&act->last_ns, __ATOMIC_RELAXED));
    if (ends)
        *act = (struct act){.used = false};
}

static CUresult copy_there_and_back(void) {
    static CUdeviceptr memory;
    unsigned there = 0x77656972, back = 0;
    CUresult code = memory ? CUDA_SUCCESS : cuMemAlloc_v2(&memory, sizeof there);
    if (!code)
        code = cuMemcpyHtoD_v2(memory, &there, sizeof there);
    if (!code)
        code = cuMemcpyDtoH_v2(&back, memory, sizeof back);
    return code || back == there ? code : CUDA_ERROR_UNKNOWN;
}

static void tell_ways(void) {
    const char *refused = NULL;
    int code, count = flow_ways_through(&refused, &code);
    if (refused)
        printf("wrong %s: %d\n", refused, code);
    else
        printf("ok %d\n", count);
}

static void answer_code(CUresult code) {
    if (code)
        printf("error %d\n", code);
    else
        printf("ok\n");
}

static void obey(const char *name, char *rest) {
    int number = atoi(rest);
    bool known = number >= 0 && number < ACTS_MAX && acts[number].used;
    if (!strcmp(name, "pid"))
        printf("ok %d\n", getpid());
    else if (!strcmp(name, "init"))
        answer_code(init(rest));
    else if (!strcmp(name, "play"))
        begin_act(rest);
    else if (known && (!strcmp(name, "passed") || !strcmp(name, "worst") || !strcmp(name, "stop")))
        tell_act(name, &acts[number]);
    else if (!strcmp(name, "ways"))
        printf("ok %d\n", flow_ways_begin(strtoull(rest, NULL, 10)));
    else if (!strcmp(name, "through"))
        tell_ways();
    else if (!strcmp(name, "copy"))
        answer_code(copy_there_and_back());
    else
        printf("wrong command %s\n", name);
    fflush(stdout);
}

int main(int count, char **arguments) {
    char line[256], *rest;
    FILE *file = count == 2 ? fopen(arguments[1], "re") : NULL;
    if (!file || fread(ptx, 1, sizeof(ptx) - 1, file) == 0) {
        printf("wrong PTX file\n");
        return 1;
    }
    fclose(file);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        rest = line + strcspn(line, " ");
        if (*rest)
            *rest++ = 0;
        obey(line, rest);
    }
    _exit(0);  // what is held back, or never ends, is not waited for
}
