// worker.c: works on the first GPU, kernel after kernel, and says how much it has got done.
//
// worker KERNEL_NS IN_FLIGHT: finds out how much work takes KERNEL_NS here, works alone for a
// moment, and says "alone RATE", kernels a second. Then it is told: "go" begins, "mark" is answered
// by "marked COUNT NS", the kernels that have ended and how long ago it began, "stop" ends it. Then
// it says "turn BEGIN END", in ns of CLOCK_MONOTONIC, for each time that it had the GPU without a
// pause, as far as it can tell: only with one kernel IN_FLIGHT does it see the end of each.
//
// A kernel's length is a number of rounds of dependent arithmetic, not a time: one that is
// interrupted takes longer and does no more. The simulated driver, which knows it by its name,
// takes rounds for nanoseconds and computes nothing.
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventSynchronize(void *event);

enum {
    IN_FLIGHT_MOST = 256,
    TURNS_MOST = 4096,
    TRIAL_ROUNDS = 1000000,  // of the kernels by which the length of a round is found
    TRIAL_BLOCK = 2,     // threads of them, that nobody takes them for the kernels that come then
    TRIALS = 20,         // the first half of them wakes the card
    PAUSE_NS = 1000000,  // so long without a kernel ends a turn
    ALONE_NS = 1000000000,  // how long it works alone
    EVENT_QUIETLY = 2,      // CU_EVENT_DISABLE_TIMING
};

static const char work_kernel[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 8 .u64 kept;\n"
    ".visible .entry weir_spin_ns_work(.param .u64 rounds) {\n"
    ".reg .pred %p<3>;\n.reg .b64 %rd<5>;\n"
    "ld.param.u64 %rd1, [rounds];\n"
    "mov.u64 %rd2, 0;\n"
    "mov.u64 %rd3, %rd1;\n"
    "again:\n"
    "mul.lo.s64 %rd3, %rd3, 6364136223846793005;\n"
    "add.s64 %rd3, %rd3, 1442695040888963407;\n"
    "add.s64 %rd2, %rd2, 1;\n"
    "setp.lt.u64 %p1, %rd2, %rd1;\n"
    "@%p1 bra again;\n"
    "setp.ne.s64 %p2, %rd3, 0;\n"  // almost never: but who compiles it does not know
    "@%p2 bra done;\n"
    "st.global.u64 [kept], %rd3;\n"
    "done:\n"
    "ret;\n}\n";

static struct turn { uint64_t begin, end; } turns[TURNS_MOST];
static unsigned turn_count;

static void *stream, *kernel, *events[IN_FLIGHT_MOST];
static uint64_t rounds = TRIAL_ROUNDS, began_ns;
static unsigned in_flight = 1, block = TRIAL_BLOCK;
static uint64_t ended;  // kernels; the thread that reads input looks at it
static int going, stopping;

static void must(const char *what, int code) {
    if (code) {
        fprintf(stderr, "%s: CUDA error %d\n", what, code);
        exit(1);
    }
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// Launches kernel number `n`, once the one that has its event has ended. When that was asked for:
// its launch has returned at the time that it returns.
static uint64_t launch(uint64_t n) {
    void *parameters[] = {&rounds};
    must("cuLaunchKernel",
         cuLaunchKernel(kernel, 1, 1, 1, block, 1, 1, 0, stream, parameters, NULL));
    uint64_t begin = now_ns();
    must("cuEventRecord", cuEventRecord(events[n % in_flight], stream));
    return begin;
}

static void await(uint64_t n) {
    must("cuEventSynchronize", cuEventSynchronize(events[n % in_flight]));
    __atomic_store_n(&ended, n + 1, __ATOMIC_RELAXED);
}

// Takes a kernel into the present turn, or begins another with it.
static void had(uint64_t begin, uint64_t end) {
    struct turn *last = turn_count ? &turns[turn_count - 1] : NULL;
    if (last && begin < last->end + PAUSE_NS)
        last->end = end;
    else if (turn_count < TURNS_MOST)
        turns[turn_count++] = (struct turn){begin, end};
}

// Works until it is to stop, or a moment is reached; all that it has launched has ended then. The
// number of kernels.
static uint64_t work(uint64_t until_ns) {
    uint64_t n = 0, begin = 0;
    while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED) && (!until_ns || now_ns() < until_ns)) {
        if (n >= in_flight) {
            await(n - in_flight);
            if (in_flight == 1)
                had(begin, now_ns());
        }
        begin = launch(n++);
    }
    for (uint64_t left = n > in_flight ? n - in_flight : 0; left < n; left++)
        await(left);
    return n;
}

// How many rounds take so long: by the shortest of some kernels, once the card is awake.
static uint64_t rounds_in(uint64_t kernel_ns) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < TRIALS; i++) {
        uint64_t start = now_ns();
        launch(0);
        await(0);
        uint64_t took = now_ns() - start;
        if (i >= TRIALS / 2 && took < least)
            least = took;
    }
    uint64_t found = (uint64_t)((double)kernel_ns * TRIAL_ROUNDS / (double)least);
    return found ? found : 1;
}

static void *obey(void *unused) {
    char line[16];
    (void)unused;
    while (fgets(line, sizeof(line), stdin)) {
        if (!strcmp(line, "go\n")) {
            began_ns = now_ns();
            __atomic_store_n(&going, 1, __ATOMIC_RELEASE);
        } else if (!strcmp(line, "mark\n")) {
            uint64_t count = __atomic_load_n(&ended, __ATOMIC_RELAXED);
            printf("marked %lu %lu\n", (unsigned long)count, (unsigned long)(now_ns() - began_ns));
            fflush(stdout);
        } else if (!strcmp(line, "stop\n")) {
            break;
        }
    }
    __atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&going, 1, __ATOMIC_RELEASE);
    return NULL;
}

int main(int count, char **arguments) {
    void *module;
    pthread_t reader;
    uint64_t kernel_ns = count == 3 ? strtoull(arguments[1], NULL, 10) : 0;
    unsigned wanted = count == 3 ? (unsigned)strtoul(arguments[2], NULL, 10) : 0;
    if (kernel_ns == 0 || wanted < 1 || wanted > IN_FLIGHT_MOST) {
        fprintf(stderr, "usage: worker KERNEL_NS IN_FLIGHT, of which there are 1 to %d\n",
                IN_FLIGHT_MOST);
        return 2;
    }
    must("the first GPU", use_gpu(0));
    must("cuStreamCreate", cuStreamCreate(&stream, 0));
    must("cuModuleLoadData", cuModuleLoadData(&module, work_kernel));
    must("cuModuleGetFunction", cuModuleGetFunction(&kernel, module, "weir_spin_ns_work"));
    for (unsigned i = 0; i < wanted; i++)
        must("cuEventCreate", cuEventCreate(&events[i], EVENT_QUIETLY));
    rounds = rounds_in(kernel_ns);
    in_flight = wanted;
    block = 1;
    uint64_t start = now_ns();
    uint64_t done = work(start + ALONE_NS);
    printf("alone %.3f\n", (double)done * 1e9 / (double)(now_ns() - start));
    fflush(stdout);
    turn_count = 0;
    ended = 0;
    if (pthread_create(&reader, NULL, obey, NULL) != 0)
        return 1;
    struct timespec moment = {.tv_nsec = 200000};
    while (!__atomic_load_n(&going, __ATOMIC_ACQUIRE))
        nanosleep(&moment, NULL);
    work(0);
    for (unsigned i = 0; i < turn_count; i++)
        printf("turn %lu %lu\n", (unsigned long)turns[i].begin, (unsigned long)turns[i].end);
    return 0;
}
