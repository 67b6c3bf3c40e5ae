// torture.c: threads that launch as often as they can, against a revoker that takes their lease as
// often as it can, for a time.
//
// A launch is stood in for by looks at `draining`, which the revoker sets as soon as the gate says
// that none is under way, until just before it grants again: a look that finds it set is a launch
// that was lost to the revoker. Prints "leases N launches N lost N late N overslept N abandoned N
// inside N closed_us N": how many of each, and how long the lease was closed at most.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

// The longest wait for a thread that is inside.
#define BOUND_MS 20000u
#define THREADS_MAX 256
#define LOOKS_MAX 200
#define STORES 8
#define LAUNCHES_A_LEASE 3
#define AWAIT_NS 5000000u
#define GATED_MIN 20
#define BUSY_NS_MAX 30000000000u
#define FAR_WORDS (8u << 20)

enum { LOCKED = 1, SWAP = 2, CHURN = 4 };

static struct {
    uint32_t threads, ms, flags;
    struct page page;
    uint32_t draining;  // no launch may be under way
    uint32_t stop;
    uint64_t lost, launches;
    uint64_t ended;  // threads that have ended before the end
} run;

static uint64_t far[FAR_WORDS];

// How often each thread has launched, for the revoker to see that they are at it.
static struct { uint64_t launches; } __attribute__((aligned(64))) progress[THREADS_MAX];

// What a program has written before it launches keeps the entry's store waiting in the processor's
// buffer for a while: lines of which no cache has one.
static void write_far(uint64_t *seed) {
    for (int i = 0; i < STORES; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        __atomic_store_n(&far[(*seed >> 24) % FAR_WORDS], *seed, __ATOMIC_RELAXED);
    }
}

static void launch(uint32_t looks) {
    struct weir_pass pass = weir_gate_enter(gate, 0);
    uint32_t lost = 0;
    for (uint32_t i = 0; i < looks; i++)
        lost |= __atomic_load_n(&run.draining, __ATOMIC_ACQUIRE);
    weir_gate_leave(gate, 0, pass);
    if (lost)
        __atomic_fetch_add(&run.lost, 1, __ATOMIC_RELAXED);
}

// A thread of its own for some hundred launches, where threads come and go.
static void *work(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    uint64_t launches = 0, seed = number * 0x9e3779b97f4a7c15u + 1;
    int churn = (run.flags & CHURN) != 0;
    while (!__atomic_load_n(&run.stop, __ATOMIC_ACQUIRE) && !(churn && launches > 300)) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t looks = 1 + (uint32_t)(seed >> 33) % LOOKS_MAX;
        write_far(&seed);
        launch(looks);
        __atomic_store_n(&progress[number].launches, ++launches, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&run.launches, launches, __ATOMIC_RELAXED);
    return NULL;
}

static void *keep_working(void *argument) {
    while (!__atomic_load_n(&run.stop, __ATOMIC_ACQUIRE)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, argument) != 0)
            continue;
        pthread_join(thread, NULL);
        __atomic_fetch_add(&run.ended, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

// Some nanoseconds up to a few microseconds.
static void dawdle(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    for (uint64_t spins = (*seed >> 33) % 64; spins; spins--)
        weir_sys_pause();
}

static uint64_t all_launches(void) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < run.threads; i++)
        sum += __atomic_load_n(&progress[i].launches, __ATOMIC_RELAXED);
    return sum;
}

// Lets some threads be woken up and launch, so that each lease is taken from somebody.
static void await_launches(void) {
    uint64_t before = all_launches(), end_ns = now_ns() + AWAIT_NS;
    while (all_launches() - before < LAUNCHES_A_LEASE && now_ns() < end_ns)
        weir_sys_pause();
}

// Takes the lease and gives the next one. Returns how many launches were under way all the time.
static int turn(uint32_t number, uint64_t *seed) {
    uint32_t swap = run.flags & SWAP ? number % 64 : 0;
    if (swap == 32)  // the new page is what closes the lease
        page_replace(&run.page, closed_lease(number));
    else
        __atomic_store_n(run.page.written, closed_lease(number), __ATOMIC_SEQ_CST);
    int inside = weir_gate_revoke(gate, 0, BOUND_MS);
    if (swap == 63)  // and here threads wait on the old one
        page_replace(&run.page, closed_lease(number));
    if (inside == 0)
        __atomic_store_n(&run.draining, 1, __ATOMIC_RELEASE);
    dawdle(seed);
    __atomic_store_n(&run.draining, 0, __ATOMIC_SEQ_CST);
    page_write(&run.page, open_lease(number + 1));
    return inside != 0;
}

// On a busy machine it takes longer until anybody has met a closed lease.
static int is_over(uint64_t end_ns) {
    uint64_t now = now_ns();
    return now >= end_ns && (__atomic_load_n(&gate->counts.gated, __ATOMIC_RELAXED) >= GATED_MIN ||
                             now >= end_ns + BUSY_NS_MAX);
}

static void revoke_all(void) {
    uint64_t seed = 1, closed_ns_max = 0, inside = 0;
    uint64_t end_ns = now_ns() + run.ms * 1000000ull;
    uint32_t number = 1;
    for (; !is_over(end_ns); number++) {
        await_launches();
        dawdle(&seed);
        uint64_t from_ns = now_ns();
        inside += (uint64_t)turn(number, &seed);
        uint64_t closed_ns = now_ns() - from_ns;
        if (closed_ns > closed_ns_max)
            closed_ns_max = closed_ns;
    }
    printf("leases %u inside %llu closed_us %llu ", number - 1, (unsigned long long)inside,
           (unsigned long long)closed_ns_max / 1000);
}

static int parse(int argc, char **argv) {
    run.threads = 2;
    run.ms = 1000;
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "threads") && i + 1 < argc)
            run.threads = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "ms") && i + 1 < argc)
            run.ms = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "locked"))
            run.flags |= LOCKED;
        else if (!strcmp(argv[i], "swap"))
            run.flags |= SWAP;
        else if (!strcmp(argv[i], "churn"))
            run.flags |= CHURN;
        else
            return 2;
    }
    return run.threads == 0 || run.threads > THREADS_MAX ? 2 : 0;
}

int torture(int argc, char **argv) {
    pthread_t threads[THREADS_MAX];
    if (parse(argc, argv) != 0)
        return 2;
    run.page = page_new();
    page_write(&run.page, open_lease(1));
    gate->wait_ms_max = 60000;
    weir_gate_bind(gate, 0, run.page.seen);
    if (!(run.flags & LOCKED) && weir_gate_register(gate) != 0) {
        printf("no membarrier here\n");
        return 3;
    }
    for (uintptr_t i = 0; i < run.threads; i++)
        if (pthread_create(&threads[i], NULL, run.flags & CHURN ? keep_working : work, (void *)i) !=
            0)
            return 1;
    revoke_all();
    __atomic_store_n(&run.stop, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < run.threads; i++)
        pthread_join(threads[i], NULL);
    printf("launches %llu lost %llu ended %llu late %llu gated %llu ungated %llu overslept %llu "
           "abandoned %llu words %u\n",
           (unsigned long long)run.launches, (unsigned long long)run.lost,
           (unsigned long long)run.ended, (unsigned long long)gate->counts.late,
           (unsigned long long)gate->counts.gated, (unsigned long long)gate->counts.ungated,
           (unsigned long long)gate->counts.overslept, (unsigned long long)gate->counts.abandoned,
           gate->used);
    return 0;
}
