// churn.c: takes and gives back one kind of memory after the other, from eight threads at once.
//
// churn PAIRS [KIND...]: so many pairs of each kind and thread, of all kinds or of those named. A
// tenth of them comes first, each thread beginning with another kind; then it prints "warm" and
// waits for a line. The rest goes kind by kind, all threads at the same; after each it prints
// "kind NAME" with what memory the process has gained, and the processor time that it took in
// milliseconds. At the end it prints "done" and waits for a line again. After "warm" and "done"
// come, in bytes: memory resident, memory of malloc in use, address space, descriptors (their
// number), and free and total memory as the driver tells them.
#include "churn.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS_MAX = 64 };

static const struct kind *kinds[KINDS_MAX];
static int kind_count;
static CUcontext context;
static long pairs;
static pthread_barrier_t line;

void check(const char *call, CUresult code) {
    if (!code)
        return;
    printf("failed %s %d\n", call, code);
    fflush(stdout);
    _exit(1);
}

// ---- What the process has ----

struct belongings {
    size_t resident, heap, mapped, descriptors;
};

static size_t count_descriptors(void) {
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count - 3;  // the directory itself, and its two dots
}

static struct belongings belongings(void) {
    struct belongings now = {.descriptors = count_descriptors()};
    struct mallinfo2 heap = mallinfo2();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%zu %zu", &now.mapped, &now.resident) != 2)
        _exit(1);
    fclose(file);
    now.mapped *= page;
    now.resident *= page;
    now.heap = heap.uordblks + heap.hblkhd;
    return now;
}

static long processor_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static void wait_for_line(void) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
        ;
}

// With nothing under way and nothing kept in reserve.
static void report(const char *word) {
    size_t free_bytes, total_bytes;
    CUmemoryPool pool;
    OK(cuCtxSynchronize, );
    OK(cuDeviceGetDefaultMemPool, &pool, 0);
    OK(cuMemPoolTrimTo, pool, 0);
    OK(cuDeviceGraphMemTrim, 0);
    OK(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    struct belongings now = belongings();
    printf("%s %zu %zu %zu %zu %zu %zu\n", word, now.resident, now.heap, now.mapped,
           now.descriptors, free_bytes, total_bytes);
    fflush(stdout);
    wait_for_line();
}

// ---- The threads ----

static void *work(void *argument) {
    int first = (int)(intptr_t)argument * kind_count / CHURN_THREADS;
    CUstream stream;
    OK(cuCtxSetCurrent, context);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < kind_count; i++)
        for (long j = 0; j < pairs / 10; j++)
            kinds[(first + i) % kind_count]->pair(stream);
    OK(cuStreamSynchronize, stream);
    for (int i = 0; i < kind_count; i++) {
        pthread_barrier_wait(&line);
        pthread_barrier_wait(&line);
        for (long j = pairs / 10; j < pairs; j++)
            kinds[i]->pair(stream);
        OK(cuStreamSynchronize, stream);
    }
    pthread_barrier_wait(&line);
    OK(cuStreamDestroy_v2, stream);
    return NULL;
}

// Leads the threads through the kinds one by one.
static void measure(void) {
    pthread_barrier_wait(&line);
    report("warm");
    for (int i = 0; i < kind_count; i++) {
        struct belongings before = belongings();
        long began = processor_ms();
        pthread_barrier_wait(&line);
        pthread_barrier_wait(&line);
        struct belongings after = belongings();
        printf("kind %s %zd %zd %zd\n", kinds[i]->name, after.resident - before.resident,
               after.heap - before.heap, processor_ms() - began);
        fflush(stdout);
    }
}

// ---- The beginning ----

static void add_kinds(const struct kind *some, char **names) {
    for (; some->name; some++) {
        char **name = names;
        while (*name && strcmp(*name, some->name) != 0)
            name++;
        if ((*names && !*name) || kind_count == KINDS_MAX)
            continue;
        kinds[kind_count++] = some;
    }
}

// Starts the lender, a process of its own: before this one uses the driver. What ends it.
static int borrow(char *program) {
    int to[2], from[2];
    if (pipe(to) || pipe(from))
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {program, "lend", NULL};
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        execv(program, arguments);
        _exit(1);
    }
    close(to[0]);
    close(from[1]);
    if (pid < 0 || read(from[0], &lent, sizeof(lent)) != sizeof(lent)) {
        printf("failed lender\n");
        fflush(stdout);
        _exit(1);
    }
    close(from[0]);
    return to[1];
}

int main(int count, char **arguments) {
    pthread_t threads[CHURN_THREADS];
    if (count == 2 && !strcmp(arguments[1], "lend"))
        return lend();
    if (count < 2 || (pairs = atol(arguments[1])) < 10)
        return 2;
    add_kinds(memory_kinds, arguments + 2);
    add_kinds(shared_kinds, arguments + 2);
    add_kinds(context_kinds, arguments + 2);
    int lender = count == 2 ? borrow(arguments[0]) : -1;
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    for (int i = 0; i < kind_count; i++)
        if (kinds[i]->prepare)
            kinds[i]->prepare();
    pthread_barrier_init(&line, NULL, CHURN_THREADS + 1);
    for (intptr_t i = 0; i < CHURN_THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            _exit(1);
    measure();
    for (int i = 0; i < CHURN_THREADS; i++)
        pthread_join(threads[i], NULL);
    report("done");
    if (lender >= 0)
        close(lender);
    while (wait(NULL) > 0)
        ;
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    return 0;
}
