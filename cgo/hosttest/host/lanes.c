// lanes.c: commands that launch in many threads and streams, of which each pair has a lane.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../timed.h"
#include "driver.h"
#include "host.h"

#define THREADS 256u
#define CONTEXT_STREAMS 256u  // a stream's number is its context's times this, and its own
#define FIRST_STREAM 16u
// Stacks are taken in turn, so that a thread's pointer is not the one before's.
#define STACKS 2048u
#define STACK_BYTES (1u << 20)

struct crew {
    uint64_t context, streams, us;
    pthread_barrier_t all;  // each has launched in each
};

static void spread(const struct crew *crew) {
    for (uint64_t i = 0; i < crew->streams; i++)
        test_launch(crew->us, crew->context * CONTEXT_STREAMS + FIRST_STREAM + i);
}

static void *work(void *argument) {
    struct crew *crew = argument;
    test_driver_use_context(crew->context);
    spread(crew);
    pthread_barrier_wait(&crew->all);
    return NULL;
}

// A stack for one more thread; NULL: the host's own.
static void *stack(void) {
    static char *stacks;
    static unsigned turn;
    if (!stacks) {
        void *at = mmap(NULL, (size_t)STACKS * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        stacks = at == MAP_FAILED ? NULL : at;
    }
    return stacks ? stacks + (size_t)(turn++ % STACKS) * STACK_BYTES : NULL;
}

static int start(pthread_t *thread, struct crew *crew) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    void *own = stack();
    if (own)
        pthread_attr_setstack(&attributes, own, STACK_BYTES);
    int rc = pthread_create(thread, &attributes, work, crew);
    pthread_attr_destroy(&attributes);
    return rc;
}

// So many threads at once launch in each of so many streams of a context.
static int run_crew(unsigned count, struct crew *crew) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&crew->all, NULL, count);
    for (unsigned i = 0; i < count; i++)
        if (start(&threads[i], crew))
            abort();
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crew->all);
    return 0;
}

// The lanes that were ever in use, and the launches that had none.
static void tell(void) {
    const struct weir_state *state = weir_state_page;
    const struct weir_busy *busy = state && state->time ? &state->time->busy : NULL;
    printf("ok %u %" PRIu64 "\n", busy ? WEIR_GET(busy->lanes_used) : 0,
           busy ? WEIR_GET(busy->unmeasured) : 0);
}

int test_lanes(char **words) {
    if (!strcmp(words[0], "spread")) {  // threads (0: this one), streams, context, us
        uint64_t count = number(words[1]);
        struct crew crew = {
            .context = number(words[3]), .streams = number(words[2]), .us = number(words[4])};
        if (count)
            run_crew(count < THREADS ? (unsigned)count : THREADS, &crew);
        else
            spread(&crew);
        say(0, 0);
    } else if (!strcmp(words[0], "churn")) {  // rounds of threads, threads, streams, us
        struct crew crew = {.context = 1, .streams = number(words[3]), .us = number(words[4])};
        for (uint64_t i = 0; i < number(words[1]); i++)
            run_crew((unsigned)number(words[2]), &crew);
        say(0, 0);
    } else if (!strcmp(words[0], "lanes")) {
        tell();
    } else {
        return 0;
    }
    return 1;
}
