// launch.c: what a launch costs in the library, over the null driver: gate, count and measurement
// together.
//
// The library's own files are linked in, and this program plays agent and helper: it writes the
// lease, and attends to the GPU every 5 ms. The bare launch and the one through the library take
// turns; figures are processor time, and the median of their differences.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../cgo/attend.h"

enum {
    THREADS_MAX = 8,
    BATCH = 20000,
    ROUNDS = 15,
    TRIES = 3,
    PROMISED_NS = 10,
    KERNELS = 4,
    LEARN_MS = 500
};

static uint64_t kernels[KERNELS];
static struct weir_control_page *page;
static uint32_t stop;
static CUcontext context;
static unsigned long kinds = 1;  // of kernels, which come in turn; a power of two
static __thread CUstream stream;

// The driver's.
extern cuInit_fn cuInit;
extern cuDevicePrimaryCtxRetain_fn cuDevicePrimaryCtxRetain;
extern cuCtxSetCurrent_fn cuCtxSetCurrent;
extern cuLaunchKernel_fn cuLaunchKernel;
extern CUresult cuStreamCreate(CUstream *stream, unsigned flags);

static cuLaunchKernel_fn *volatile bare_launch = cuLaunchKernel;
static cuLaunchKernel_fn *volatile our_launch = weir_cuLaunchKernel;

static void check(const char *name, int code) {
    if (!code)
        return;
    printf("%s failed: %d\n", name, code);
    exit(1);
}

static void launches(cuLaunchKernel_fn *launch, long count) {
    void *parameters[1] = {NULL};
    for (long i = 0; i < count; i++)
        if (launch((CUfunction)&kernels[(unsigned long)i & (kinds - 1)], 1, 1, 1, 1, 1, 1, 0,
                   stream, parameters, NULL))
            check("cuLaunchKernel", 1);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double each_ns(cuLaunchKernel_fn *launch) {
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    launches(launch, BATCH);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / BATCH;
}

// What the null driver's kernels take.
static CUresult elapsed(float *milliseconds, CUevent start, CUevent end) {
    (void)start, (void)end;
    *milliseconds = 0.005f;
    return CUDA_SUCCESS;
}

// The state as it is once a session is up.
static struct weir_time *set_up(void) {
    struct weir_state *state = weir_sys_map(sizeof(*state));
    CUuuid uuid;
    page = weir_sys_map(sizeof(*page));
    check("cuInit", cuInit(0));
    check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
    check("cuCtxSetCurrent", cuCtxSetCurrent(context));
    WEIR_REAL(cuDeviceGetUuid_v2)(&uuid, 0);
    memcpy(page->gpus[0].uuid, &uuid, sizeof(uuid));
    state->mode = WEIR_MODE_ENFORCED;
    state->usage = weir_sys_map(sizeof(*state->usage));
    state->control = page;
    state->gpu_count = 1;
    state->page_open = state->link_up = 1;
    state->helper = 1;
    state->fd = -1;
    state->contexts_used = 1;
    state->contexts[0].handle = (uint64_t)(uintptr_t)context;
    weir_real_table[WEIR_FN_cuEventElapsedTime] = (void *)elapsed;
    __atomic_store_n(&weir_state_page, state, __ATOMIC_RELEASE);
    return weir_time_make(state);
}

static void *attend(void *argument) {
    struct weir_state *state = argument;
    struct weir_turn look = {.header = {WEIR_MSG_LOOK, sizeof(look), 0}};
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        weir_attend_look(state, &look);
        weir_attend(state);
        weir_sys_sleep_ms(5);
    }
    return NULL;
}

struct thread {
    pthread_t id;
    double added_ns[ROUNDS];
};

static pthread_barrier_t start_line;

static void *take_turns(void *argument) {
    struct thread *thread = argument;
    check("cuCtxSetCurrent", cuCtxSetCurrent(context));
    check("cuStreamCreate", cuStreamCreate(&stream, 0));
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&start_line);
        double bare_ns = each_ns(bare_launch);
        thread->added_ns[i] = each_ns(our_launch) - bare_ns;
    }
    return NULL;
}

static double added_ns(int count) {
    static struct thread threads[THREADS_MAX];
    static double all[THREADS_MAX * ROUNDS];
    pthread_barrier_init(&start_line, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        check("pthread_create", pthread_create(&threads[i].id, NULL, take_turns, &threads[i]));
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
        memcpy(&all[i * ROUNDS], threads[i].added_ns, sizeof(threads[i].added_ns));
    }
    qsort(all, (size_t)(count * ROUNDS), sizeof(*all), by_value);
    return all[count * ROUNDS / 2];
}

static int promise(const char *title, unsigned long kernels_in_turn, int threads) {
    kinds = kernels_in_turn;
    double least_ns = added_ns(threads);
    for (int i = 1; i < TRIES; i++) {
        double ns = added_ns(threads);
        least_ns = ns < least_ns ? ns : least_ns;
    }
    int holds = least_ns <= PROMISED_NS;
    printf("promise: a launch, %s, %lu kernel%s in turn, %d thread%s, promised at most %d ns "
           "added, got %.1f ns, holds %s\n",
           title, kinds, kinds > 1 ? "s" : "", threads, threads > 1 ? "s" : "", PROMISED_NS,
           least_ns, holds ? "yes" : "no");
    return holds;
}

static int promises(const char *title) {
    int good = promise(title, 1, 1);
    good &= promise(title, 1, THREADS_MAX);
    good &= promise(title, KERNELS, 1);
    return good & promise(title, KERNELS, THREADS_MAX);
}

static int promise_calls(struct weir_time *time) {
    uint64_t calls = weir_busy_calls(&time->busy);
    for (int i = 0; i < 100; i++) {
        launches(our_launch, BATCH);
        weir_sys_sleep_ms(1);
    }
    double each = (double)(weir_busy_calls(&time->busy) - calls) * 64 / (100.0 * BATCH);
    printf("promise: our calls of the driver, alone, promised at most 1 to 64 launches, got %.3f, "
           "holds %s\n",
           each, each <= 1 ? "yes" : "no");
    return each <= 1;
}

int main(void) {
    struct weir_time *time = set_up();
    pthread_t helper;
    check("pthread_create", pthread_create(&helper, NULL, attend, time->state));
    kinds = KERNELS;
    // Until it has learned what kernels take, which it does from launches that go on.
    for (int i = 0; i < LEARN_MS / 5; i++) {
        launches(our_launch, BATCH / 10);
        weir_sys_sleep_ms(5);
    }
    int good = promises("gate open");
    good &= promise_calls(time);
    __atomic_store_n(&page->gpus[0].turns, WEIR_TURNS_RIVALS, __ATOMIC_RELEASE);
    __atomic_store_n(&page->gpus[0].window_us, 4000, __ATOMIC_RELEASE);
    __atomic_store_n(&page->gpus[0].lease, 6, __ATOMIC_RELEASE);
    weir_sys_sleep_ms(50);
    good &= promises("a lease held");
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(helper, NULL);
    return !good;
}
