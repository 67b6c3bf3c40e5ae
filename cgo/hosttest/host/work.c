// work.c: launches of the test driver, and commands that make them. A stream is a row of operations
// of which each takes so many microseconds; a function's handle is that number. All streams stand
// still while they are held.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../contexts.h"
#include "../../timed.h"
#include "driver.h"
#include "host.h"

#define STREAMS 4096
#define OPERATIONS 2048u
#define QUEUE 1024u
#define HOGS 16

struct stream {
    uintptr_t handle;
    uint64_t count, done;  // operations
    uint64_t end_ns[OPERATIONS];
};

struct event {
    struct stream *stream;
    uint64_t count;
};

static struct stream streams[STREAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t held, launches, records, deepest, stop;
static pthread_t hogs[HOGS];
static int hog_count;

static uint64_t now_ns(void) {
    return (uint64_t)(now_ms() * 1e6);
}

static struct stream *find(CUstream handle) {
    for (uintptr_t i = (uintptr_t)handle % STREAMS;; i = (i + 1) % STREAMS) {
        if (!streams[i].handle)
            streams[i].handle = (uintptr_t)handle + 1;
        if (streams[i].handle == (uintptr_t)handle + 1)
            return &streams[i];
    }
}

static void advance(struct stream *stream) {
    uint64_t now = now_ns();
    while (!held && stream->done < stream->count &&
           stream->end_ns[stream->done % OPERATIONS] <= now)
        stream->done++;
}

// As many operations may be ahead of one as a driver's queue holds.
CUresult test_work_submit(CUstream handle, uint64_t us) {
    pthread_mutex_lock(&lock);
    struct stream *stream = find(handle);
    advance(stream);
    while (stream->count - stream->done >= QUEUE) {
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        pthread_mutex_lock(&lock);
        advance(stream);
    }
    uint64_t begin = now_ns();
    if (stream->count - stream->done > deepest)
        deepest = (uint32_t)(stream->count - stream->done);
    if (stream->count && stream->end_ns[(stream->count - 1) % OPERATIONS] > begin)
        begin = stream->end_ns[(stream->count - 1) % OPERATIONS];
    stream->end_ns[stream->count++ % OPERATIONS] = begin + us * 1000;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                       void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params;
    (void)extra;
    if (test_graphs_capturing((uintptr_t)stream))
        return CUDA_SUCCESS;
    __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    return test_work_submit(stream, (uintptr_t)function);
}

static CUresult set(CUdeviceptr pointer, unsigned char value, size_t bytes, CUstream stream) {
    (void)pointer, (void)value;
    return test_work_submit(stream, bytes >> 14);
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t us, CUstream stream) {
    (void)to, (void)to_context, (void)from, (void)from_context;
    return test_work_submit(stream, us);
}

static CUresult launch_many(CUDA_LAUNCH_PARAMS *many, unsigned devices, unsigned flags) {
    (void)flags;
    for (unsigned i = 0; i < devices; i++)
        test_work_submit(many[i].hStream, (uintptr_t)many[i].function);
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult record_event(CUevent handle, CUstream on) {
    struct event *event = (struct event *)handle;
    pthread_mutex_lock(&lock);
    records++;
    event->stream = find(on);
    event->count = event->stream->count;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

// Lock held. 0: it has not come. Other tests' events are small numbers, which have.
static uint64_t came_ns(const struct event *event) {
    if ((uintptr_t)event < 65536 || !event->stream || !event->count)
        return 1;
    advance(event->stream);
    return event->stream->done >= event->count
               ? event->stream->end_ns[(event->count - 1) % OPERATIONS]
               : 0;
}

static CUresult query_event(CUevent event) {
    pthread_mutex_lock(&lock);
    uint64_t came = came_ns((struct event *)event);
    pthread_mutex_unlock(&lock);
    return came ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
    pthread_mutex_lock(&lock);
    uint64_t from = came_ns((struct event *)start), to = came_ns((struct event *)end);
    pthread_mutex_unlock(&lock);
    if (!from || !to)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)to - (double)from) / 1e6f;
    return CUDA_SUCCESS;
}

// Of the work here, and of what pools were given.
static CUresult query_stream(CUstream handle) {
    pthread_mutex_lock(&lock);
    struct stream *stream = find(handle);
    advance(stream);
    int busy = stream->done < stream->count;
    pthread_mutex_unlock(&lock);
    return busy || test_pools_busy(handle) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult host_memory(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    *pointer = malloc(bytes);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_host_memory(void *pointer) {
    free(pointer);
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context) {
    test_driver_use_context((uint64_t)(uintptr_t)context);
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(int *mode) {
    *mode = 0;
    return CUDA_SUCCESS;
}

static CUresult destroy_stream(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

void test_work_install(void) {
    INSTALL(cuLaunchKernel, launch);
    INSTALL(cuMemsetD8Async, set);
    INSTALL(cuMemcpyPeerAsync, copy_peer);
    INSTALL(cuLaunchCooperativeKernelMultiDevice, launch_many);
    INSTALL(cuEventCreate, create_event);
    INSTALL(cuEventRecord, record_event);
    INSTALL(cuEventQuery, query_event);
    INSTALL(cuStreamQuery, query_stream);
    INSTALL(cuEventElapsedTime, elapsed);
    INSTALL(cuMemHostAlloc, host_memory);
    INSTALL(cuMemFreeHost, free_host_memory);
    INSTALL(cuCtxSetCurrent, set_current);
    INSTALL(cuThreadExchangeStreamCaptureMode, exchange_mode);
    INSTALL(cuStreamDestroy_v2, destroy_stream);
}

// ---- Commands ----

CUresult test_launch(uint64_t us, uint64_t stream) {
    return weir_cuLaunchKernel((CUfunction)(uintptr_t)us, 1, 1, 1, 1, 1, 1, 0,
                               (CUstream)(uintptr_t)stream, NULL, NULL);
}

struct habit {
    uint64_t us, pause_us, stream, context;
};

static void *keep_launching(void *argument) {
    struct habit habit = *(struct habit *)argument;
    free(argument);
    test_driver_use_context(habit.context);
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        test_launch(habit.us, habit.stream);
        if (habit.pause_us)
            nanosleep(&(struct timespec){.tv_nsec = (long)habit.pause_us * 1000}, NULL);
    }
    return NULL;
}

// A thread that launches until all are stopped: kernels of so long, so much time between them, in
// which stream.
static void start_hog(char **words) {
    struct habit *habit = malloc(sizeof(*habit));
    *habit = (struct habit){number(words[1]), number(words[2]), number(words[3]), 1};
    int rc = hog_count < HOGS ? pthread_create(&hogs[hog_count], NULL, keep_launching, habit) : 1;
    hog_count += rc == 0;
    say(rc, 0);
}

static void stop_hogs(void) {
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < hog_count; i++)
        pthread_join(hogs[i], NULL);
    hog_count = 0;
    __atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
    say(0, 0);
}

// What has happened: launches of the driver and events recorded, what the gate has counted, and how
// many operations there were ahead of one in its stream, at most, since that was last asked.
static void tell(void) {
    struct weir_gate_counts none = {0}, *counts = &none;
    struct weir_state *state = weir_state_page;
    if (state && state->time)
        counts = &state->time->gate.counts;
    pthread_mutex_lock(&lock);
    uint32_t depth = deepest;
    deepest = 0;
    pthread_mutex_unlock(&lock);
    printf("ok %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n",
           __atomic_load_n(&launches, __ATOMIC_RELAXED),
           __atomic_load_n(&records, __ATOMIC_RELAXED), counts->gated, counts->ungated,
           counts->agentless, counts->late, depth);
}

// On both GPUs, whose contexts the library has not seen begin: a copy from one to the other in the
// first one's stream, and a launch.
static CUresult copy_between(uint64_t us) {
    for (uint32_t gpu = 0; gpu < TEST_GPUS; gpu++) {
        struct weir_context record = {.handle = gpu + 1, .gpu = gpu};
        uint32_t place;
        weir_contexts_enter(weir_state_page, &record, &place);
    }
    return weir_cuMemcpyPeerAsync(0, (CUcontext)2, 0, (CUcontext)1, us, NULL);
}

static CUresult launch_on_both(uint64_t us) {
    CUDA_LAUNCH_PARAMS many[TEST_GPUS];
    memset(many, 0, sizeof(many));
    for (uintptr_t i = 0; i < TEST_GPUS; i++) {
        many[i].function = (CUfunction)us;
        many[i].hStream = (CUstream)((i + 1) * 256 + 70);
    }
    return weir_cuLaunchCooperativeKernelMultiDevice(many, TEST_GPUS, 0);
}

int test_work(char **words) {
    if (test_lanes(words))
        return 1;
    if (!strcmp(words[0], "kernel")) {
        say(test_launch(number(words[1]), number(words[2])), 0);
    } else if (!strcmp(words[0], "peer")) {
        say(copy_between(number(words[1])), 0);
    } else if (!strcmp(words[0], "both")) {
        say(launch_on_both(number(words[1])), 0);
    } else if (!strcmp(words[0], "hog")) {
        start_hog(words);
    } else if (!strcmp(words[0], "stop")) {
        stop_hogs();
    } else if (!strcmp(words[0], "hold")) {
        pthread_mutex_lock(&lock);
        held = (uint32_t)number(words[1]);
        pthread_mutex_unlock(&lock);
        say(0, 0);
    } else if (!strcmp(words[0], "worked")) {
        tell();
    } else if (!strcmp(words[0], "begincapture")) {
        say(weir_cuStreamBeginCapture_v2((CUstream)(uintptr_t)number(words[1]), 2), 0);
    } else if (!strcmp(words[0], "endstream")) {
        say(weir_cuStreamDestroy_v2((CUstream)(uintptr_t)number(words[1])), 0);
    } else {
        return 0;
    }
    return 1;
}
