// tenant.c: a program with a working set, which each of its passes uses as a whole. It takes plain
// memory, as programs do that know nothing of swap.
//
// tenant KEY=VALUE...: takes its memory, fills it, says "ready PID" and reads commands, one a line.
// Times are ns of CLOCK_MONOTONIC.
//   fixed BEGIN KERNELS UNTIL [FIRST COUNT]
//                                launches so many, or until then: "done KERNELS END"; each uses of
//                                so many pieces from that one on, in turn; not given: of all
//   bursts KERNELS BEGIN AT...   so many at each AT (ns after BEGIN), one burst after the other:
//   "done"
//                                and how long each took from its AT on
//   check                        "checked", how many bytes, and how many of them are not as filled
// Settings: name (the program's in the machine's books), set (bytes), pieces (allocations of it),
// cost (ns of a kernel), parts (kernels of a pass, each of which uses so many pieces), mark (bytes
// of each MiB that are filled and checked), managed (1: it takes managed memory by itself), plain
// (bytes that it takes besides in small allocations, and frees, in turn, as it works), lock and
// quantum (see lock.h).
#define _GNU_SOURCE
#include "lock.h"

#include "../overhead/driver_calls.h"
#include "../settings/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    PIECES_MAX = 128,
    BATCHES = 3,  // in flight, each with an event behind it
    NON_BLOCKING = 1,
    TIMING_OFF = 2,
    NOT_READY = 600,
    LOOK_NS = 1500000,
    BATCH_NS = 10000000,
    MIB = 1 << 20,
    SMALL = MIB,  // what does not move
    SMALL_MAX = 64,
    SMALL_EVERY = 16,  // batches
};

int cuStreamSynchronize(void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);

static uint64_t set_bytes = 64 << 20, piece_count = 16, cost_ns = 1000000, mark_bytes = MIB,
                managed, quantum_ms = 1000, parts = 1, plain_bytes;
static const char *lock_path;

static void *function, *stream, *events[BATCHES];
static uint64_t pieces[PIECES_MAX], piece_bytes, launched, batches;
static uint64_t first_part, part_count;         // of a pass
static uint64_t small[SMALL_MAX], small_count;  // allocations that are there
static unsigned char block[MIB];

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

// ---- Work ----

static void wait_for(void *event) {
    int code;
    while ((code = cuEventQuery(event)) == NOT_READY)
        wait_until(now_ns() + LOOK_NS);
    need(code, "cuEventQuery");
}

static void finish(void) {
    need(cuStreamSynchronize(stream), "cuStreamSynchronize");
}

// A kernel whose parameters are what it takes and the pieces that it uses.
static void launch(void) {
    void *parameters[1 + 2 * PIECES_MAX] = {&cost_ns};
    uint64_t count = piece_count / parts;
    uint64_t first = (first_part + launched++ % part_count) % parts * count;
    for (uint64_t i = 0; i < count; i++) {
        parameters[1 + 2 * i] = &pieces[first + i];
        parameters[2 + 2 * i] = &piece_bytes;
    }
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel");
}

// Takes what it has of small memory, or gives all of it back.
static void take_or_give(void) {
    bool give = small_count > 0;
    for (; give && small_count; small_count--)
        need(cuMemFree_v2(small[small_count - 1]), "cuMemFree");
    for (; !give && small_count < plain_bytes / SMALL; small_count++)
        need(cuMemAlloc_v2(&small[small_count], SMALL), "cuMemAlloc of small memory");
}

// Launches up to `kernels`, a few batches of them ahead at most, and waits for them. How many there
// were.
static uint64_t run(uint64_t kernels, uint64_t until_ns) {
    uint64_t batch = cost_ns < BATCH_NS ? BATCH_NS / cost_ns : 1, done = 0;
    while (done < kernels && now_ns() < until_ns) {
        lock_need(quantum_ms, finish);
        for (uint64_t i = 0; i < batch && done < kernels; i++, done++)
            launch();
        if (batches % SMALL_EVERY == 0)
            take_or_give();
        void *event = events[batches++ % BATCHES];
        need(cuEventRecord(event, stream), "cuEventRecord");
        wait_for(events[batches % BATCHES]);
    }
    finish();
    lock_end();
    return done;
}

static void obey_fixed(char *words) {
    uint64_t begin, kernels, until;
    first_part = 0, part_count = parts;
    int read = sscanf(words, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &begin,
                      &kernels, &until, &first_part, &part_count);
    need((read != 3 && read != 5) || !part_count, "fixed");
    wait_until(begin);
    uint64_t done = run(kernels, until);
    printf("done %" PRIu64 " %" PRIu64 "\n", done, now_ns());
}

static void obey_bursts(char *words) {
    uint64_t kernels = strtoull(words, &words, 10), begin = strtoull(words, &words, 10);
    uint64_t until = begin + strtoull(words, &words, 10);
    char *next;
    printf("done");
    for (uint64_t at; at = strtoull(words, &next, 10), next != words; words = next) {
        wait_until(begin + at);
        run(kernels, until);
        printf(" %" PRIu64, now_ns() - begin - at);
    }
    printf("\n");
}

// ---- Memory ----

static unsigned char pattern(uint64_t piece, uint64_t at) {
    return (unsigned char)(piece * 31 + at / 4096 * 7 + at % 251);
}

static void fill(uint64_t piece, uint64_t from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        block[i] = pattern(piece, from + i);
}

// Goes through all that is marked.
static void each_mark(void (*do_it)(uint64_t piece, uint64_t from, uint64_t bytes)) {
    for (uint64_t i = 0; i < piece_count; i++)
        for (uint64_t from = 0; from < piece_bytes; from += MIB) {
            uint64_t left = piece_bytes - from;
            do_it(i, from, left < mark_bytes ? left : mark_bytes);
        }
}

static void write_mark(uint64_t piece, uint64_t from, uint64_t bytes) {
    fill(piece, from, bytes);
    need(cuMemcpyHtoD_v2(pieces[piece] + from, block, bytes), "cuMemcpyHtoD");
}

static uint64_t checked_bytes, wrong_bytes;

static void check_mark(uint64_t piece, uint64_t from, uint64_t bytes) {
    static unsigned char back[MIB];
    fill(piece, from, bytes);
    need(cuMemcpyDtoH_v2(back, pieces[piece] + from, bytes), "cuMemcpyDtoH");
    checked_bytes += bytes;
    for (uint64_t i = 0; memcmp(back, block, bytes) && i < bytes; i++)
        wrong_bytes += back[i] != block[i];
}

static void obey_check(void) {
    checked_bytes = wrong_bytes = 0;
    lock_need(UINT32_MAX, finish);
    each_mark(check_mark);
    lock_end();
    printf("checked %" PRIu64 " %" PRIu64 "\n", checked_bytes, wrong_bytes);
}

// ---- The beginning ----

static void read_settings(int count, char **arguments) {
    const struct setting settings[] = {
        {"set", &set_bytes, NULL},   {"pieces", &piece_count, NULL}, {"cost", &cost_ns, NULL},
        {"mark", &mark_bytes, NULL}, {"managed", &managed, NULL},    {"quantum", &quantum_ms, NULL},
        {"parts", &parts, NULL},     {"lock", NULL, &lock_path},     {"plain", &plain_bytes, NULL}};
    const char *wrong =
        settings_read(count, arguments, settings, sizeof(settings) / sizeof(*settings));
    need(wrong != NULL, wrong);
    need(!piece_count || piece_count > PIECES_MAX || !cost_ns || mark_bytes > MIB || !parts ||
             piece_count % parts || plain_bytes > SMALL_MAX * SMALL,
         "settings");
    part_count = parts;
}

// The kernel has a pair of parameters for each of its pieces.
static void load(void) {
    static char ptx[512 + 64 * PIECES_MAX];
    void *module;
    int at = snprintf(ptx, sizeof(ptx),
                      ".version 6.0\n.target sm_70\n.address_size 64\n"
                      ".visible .entry weir_spin_ns_on(.param .u64 cost");
    for (uint64_t i = 0; i < piece_count / parts; i++)
        at += snprintf(ptx + at, sizeof(ptx) - (size_t)at,
                       ", .param .u64 p%" PRIu64 ", .param .u64 b%" PRIu64, i, i);
    snprintf(ptx + at, sizeof(ptx) - (size_t)at, ") { ret; }\n");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "weir_spin_ns_on"), "cuModuleGetFunction");
}

static void prepare(void) {
    need(use_gpu(0), "cuInit");
    load();
    need(cuStreamCreate(&stream, NON_BLOCKING), "cuStreamCreate");
    for (int i = 0; i < BATCHES; i++)
        need(cuEventCreate(&events[i], TIMING_OFF), "cuEventCreate");
    need(lock_path && lock_open(lock_path), "the lock");
    piece_bytes = set_bytes / piece_count;
    for (uint64_t i = 0; i < piece_count; i++)
        need(managed ? cuMemAllocManaged(&pieces[i], piece_bytes, CU_MEM_ATTACH_GLOBAL)
                     : cuMemAlloc_v2(&pieces[i], piece_bytes),
             "cuMemAlloc");
    each_mark(write_mark);
}

int main(int count, char **arguments) {
    static char line[1 << 16];
    read_settings(count - 1, arguments + 1);
    prctl(PR_SET_TIMERSLACK, 1);
    prepare();
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (!strncmp(line, "fixed ", 6))
            obey_fixed(line + 6);
        else if (!strncmp(line, "bursts ", 7))
            obey_bursts(line + 7);
        else if (!strncmp(line, "check", 5))
            obey_check();
        else
            need(1, line);
        fflush(stdout);
    }
    return 0;
}
