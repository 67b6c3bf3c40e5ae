// gate.c: what the gate costs a launch, and what it costs to take a lease away.
//
// A launch is cuLaunchKernel of the null driver, which returns at once. Figures are processor time
// of the launching threads, since other programs may have the processors, too; the bare launch and
// the one through the gate take turns, a figure is the median of their differences, and a promise
// is judged by the best of three such figures. What the revoker takes is wall time.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../cgo/gate.h"
#include "homes.h"

enum {
    THREADS_MAX = 64,
    BATCH = 20000,
    ROUNDS = 15,
    TRIES = 3,
    REVOCATIONS = 300,
    REVOCATIONS_NS = 1000000000,  // beside threads that leave no processor free they take long
    GAP_US = 100,
    SPREAD_MS = 50,
    PROMISED_NS = 10,
};

static struct weir_gate gate;
static uint32_t lease = 2, closed_lease = 3;

static void bare(long count) {
    for (long i = 0; i < count; i++)
        launch();
}

static void gated(long count) {
    for (long i = 0; i < count; i++) {
        struct weir_pass pass = weir_gate_enter(&gate, 0);
        launch();
        weir_gate_leave(&gate, 0, pass);
    }
}

static double processor_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double each_ns(void (*launches)(long count)) {
    double start = processor_ns();
    launches(BATCH);
    return (processor_ns() - start) / BATCH;
}

struct thread {
    pthread_t id;
    void (*launches)(long count);
    double added_ns[ROUNDS];
};

static pthread_barrier_t start_line;

static void *take_turns(void *argument) {
    struct thread *thread = argument;
    bare(BATCH);
    thread->launches(BATCH);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&start_line);
        double bare_ns = each_ns(bare);
        thread->added_ns[i] = each_ns(thread->launches) - bare_ns;
    }
    return NULL;
}

// What these launches take more than bare ones, in ns, while so many threads make them.
static double added_ns(void (*launches)(long count), int count) {
    static struct thread threads[THREADS_MAX];
    static double all[THREADS_MAX * ROUNDS];
    pthread_barrier_init(&start_line, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        threads[i].launches = launches;
        check("pthread_create", pthread_create(&threads[i].id, NULL, take_turns, &threads[i]));
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].id, NULL);
        for (int j = 0; j < ROUNDS; j++)
            all[i * ROUNDS + j] = threads[i].added_ns[j];
    }
    return median(all, (size_t)(count * ROUNDS));
}

static double least_added_ns(void (*launches)(long count), int count) {
    double least = added_ns(launches, count);
    for (int i = 1; i < TRIES; i++) {
        double ns = added_ns(launches, count);
        least = ns < least ? ns : least;
    }
    return least;
}

static int promise(const char *title, double got_ns) {
    int holds = got_ns <= PROMISED_NS;
    printf("promise: %s, promised at most %d ns added, got %.1f ns, holds %s\n", title, PROMISED_NS,
           got_ns, holds ? "yes" : "no");
    return holds;
}

// The barrier, among threads that launch all the time or sleep.

static uint32_t stop;

static void *keep_launching(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        gated(100);
    return argument;
}

static void *keep_sleeping(void *argument) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        weir_sys_futex_wait(&stop, 0, 1000000);
    return argument;
}

static void start_threads(pthread_t *threads, int count, void *(*work)(void *)) {
    __atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < count; i++)
        check("pthread_create", pthread_create(&threads[i], NULL, work, NULL));
}

static void stop_threads(pthread_t *threads, int count) {
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    weir_sys_futex_wake(&stop, INT32_MAX);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

// Of another GPU than the threads use, whose launches are not waited for.
static void measure_revocation(int count, void *(*work)(void *), const char *what) {
    static pthread_t threads[THREADS_MAX];
    static double each_us[REVOCATIONS];
    start_threads(threads, count, work);
    weir_sys_sleep_ms(SPREAD_MS);  // until they are on all processors
    int done = 0;
    for (uint64_t end = now_ns() + REVOCATIONS_NS; done < REVOCATIONS && now_ns() < end;) {
        uint64_t start = now_ns();
        weir_gate_revoke(&gate, 1, 0);
        each_us[done++] = (double)(now_ns() - start) / 1e3;
        weir_sys_futex_wait(&lease, lease, GAP_US);
    }
    stop_threads(threads, count);
    double middle_us = median(each_us, (size_t)done);
    printf("a revocation beside %d that %s: %.2f us, 90th percentile %.2f us\n", count, what,
           middle_us, each_us[done * 9 / 10]);
}

// In a process of its own each time, since a process registers once.
static void measure_registration(int count) {
    static pthread_t threads[THREADS_MAX];
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        start_threads(threads, count, keep_sleeping);
        uint64_t start = now_ns();
        int rc = weir_gate_register(&gate);
        printf("membarrier, registered beside %d threads: %.1f us%s\n", count,
               (double)(now_ns() - start) / 1e3, rc ? " (refused)" : "");
        fflush(stdout);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
}

static int measure_open_gate(void) {
    int rc = weir_gate_register(&gate);
    if (rc != 0) {
        printf("no membarrier here (%d): no promise counts\n", rc);
        return 0;
    }
    int good = promise("gate open, 1 thread", least_added_ns(gated, 1));
    return promise("gate open, 8 threads", least_added_ns(gated, 8)) && good;
}

int main(void) {
    check("cuInit", cuInit(0));
    weir_gate_bind(&gate, 0, &lease);
    weir_gate_bind(&gate, 1, &closed_lease);
    static const int counts[] = {1, 8, THREADS_MAX};
    for (int i = 0; i < 3; i++)
        measure_registration(i ? counts[i] : 0);
    printf("before that, 1 thread: %.1f ns added\n", least_added_ns(gated, 1));
    printf("before that, 8 threads: %.1f ns added\n", least_added_ns(gated, 8));
    int good = measure_open_gate();
    for (int i = 0; i < 3; i++)
        measure_revocation(counts[i], keep_sleeping, "sleep");
    for (int i = 0; i < 3; i++)
        measure_revocation(counts[i], keep_launching, "launch");
    measure_homes(added_ns);
    return !good;
}
