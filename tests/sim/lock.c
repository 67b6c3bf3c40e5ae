// lock.c: the lock of the engines, which neither a killed nor a stopped process can keep.
//
// Killed: the mutex is robust, and the next holder rebuilds what is derived. Stopped: after
// SIM_STEAL_MS a waiter copies the engines to another region of the file, rebuilds them there, and
// makes that region the current one by one compare-and-swap. A holder ends its change in the same
// way, by counting up the same word. So exactly one of the two succeeds: either the change was made
// before the region was taken away, and the thief begins anew; or it was not, and the holder learns
// that it must make it again. What it goes on writing in the old region is read by nobody.
// A stopped process thus costs the others one region, until it goes on; there are SIM_REGIONS.
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <string.h>
#include <time.h>

// How often the dead are looked for on the way into the engines, in ns.
#define REAP_NS 1000000u

int sim_mutex_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    int rc = pthread_mutexattr_init(&attributes);
    if (rc)
        return rc;
    rc = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!rc)
        rc = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!rc)
        rc = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return rc;
}

uint64_t sim_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Locks, or gives up after SIM_STEAL_MS: ETIMEDOUT.
static int lock_or_give_up(pthread_mutex_t *mutex) {
    int rc = pthread_mutex_trylock(mutex);
    if (rc != EBUSY)
        return rc;
#if defined(__SANITIZE_THREAD__)  // which follows no robust mutex through the call below
    for (unsigned i = 0; i < SIM_STEAL_MS * 10 && rc == EBUSY; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        rc = pthread_mutex_trylock(mutex);
    }
    return rc == EBUSY ? ETIMEDOUT : rc;
#else
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SIM_STEAL_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
#endif
}

// The region that a value of `current` names, and the value after one more change in it.
static struct sim_engines *region_of(struct sim_file *file, uint64_t current) {
    return &file->regions[current % SIM_REGIONS];
}

static uint64_t counted(uint64_t current) {
    return current + SIM_REGIONS;
}

// The thread sanitizer is not to see the copying of what its holder may go on writing: a copy from
// which the holder was not kept out is thrown away, or the holder's change is.
#if defined(__SANITIZE_THREAD__)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define RACE_BEGINS AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define RACE_ENDS AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define RACE_BEGINS (void)0
#define RACE_ENDS (void)0
#endif

// Tails go first: an operation that a running holder adds meanwhile does not exist in the copy; nor
// does a MIG device, which counts once its word is set.
static void copy_engines(struct sim_engines *to, const struct sim_engines *from) {
    to->gpu_count = from->gpu_count;
    to->contexts_used = __atomic_load_n(&from->contexts_used, __ATOMIC_ACQUIRE);
    to->stays_used = from->stays_used;
    to->reaped_ns = from->reaped_ns;
    memcpy(to->mig, from->mig, sizeof to->mig);
    memcpy(to->contexts, from->contexts, to->contexts_used * sizeof to->contexts[0]);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(to->gpus, from->gpus, sizeof to->gpus);
    sim_residency_copy(&to->residency, &from->residency);
    to->plain_books = 0;
    memcpy(to->stays, from->stays, to->stays_used * sizeof to->stays[0]);
    for (uint32_t i = 0; i < to->contexts_used; i++)
        if (to->contexts[i].serial)
            memcpy(to->items[i], from->items[i], sizeof to->items[i]);
}

// Takes a region that nobody holds. NULL: a stopped process sits in each of them.
static struct sim_engines *take_spare(struct sim_file *file, const struct sim_engines *used) {
    for (unsigned i = 0; i < SIM_REGIONS; i++) {
        struct sim_engines *spare = &file->regions[i];
        if (spare == used)
            continue;
        int rc = pthread_mutex_trylock(&spare->lock);
        if (rc == EOWNERDEAD)
            rc = pthread_mutex_consistent(&spare->lock);
        if (!rc)
            return spare;
    }
    return NULL;
}

// Moves the engines to another region, if nobody ends a change in this one meanwhile.
static void steal(struct sim_file *file, uint64_t seen) {
    struct sim_engines *used = region_of(file, seen), *spare = take_spare(file, used);
    if (!spare) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return;
    }
    if (__atomic_load_n(&file->current, __ATOMIC_SEQ_CST) == seen) {
        RACE_BEGINS;
        copy_engines(spare, used);
        RACE_ENDS;
        sim_engines_repair(spare);
        uint64_t next = (seen / SIM_REGIONS + 1) * SIM_REGIONS + (uint64_t)(spare - file->regions);
        __atomic_compare_exchange_n(&file->current, &seen, next, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&spare->lock);
}

// Locks the region that is current, whichever that is when the lock is had.
static struct sim_engines *lock_current(struct sim_file *file) {
    for (;;) {
        uint64_t seen = __atomic_load_n(&file->current, __ATOMIC_SEQ_CST);
        struct sim_engines *engines = region_of(file, seen);
        int rc = lock_or_give_up(&engines->lock);
        if (rc == EOWNERDEAD) {
            sim_engines_repair(engines);
            rc = pthread_mutex_consistent(&engines->lock);
        }
        if (rc) {
            // Only where nobody ended a change all the while: a long queue is no reason.
            if (__atomic_load_n(&file->current, __ATOMIC_SEQ_CST) == seen)
                steal(file, seen);
            continue;
        }
        engines->entered = __atomic_load_n(&file->current, __ATOMIC_SEQ_CST);
        if (region_of(file, engines->entered) == engines)
            return engines;
        pthread_mutex_unlock(&engines->lock);
    }
}

// Drops the contexts of processes that have ended.
static void reap(const struct sim_file *file, struct sim_engines *engines) {
    bool found = false;
    for (uint32_t i = 0; i < engines->contexts_used; i++) {
        struct sim_context *context = &engines->contexts[i];
        if (context->serial && !sim_process_alive(file, context->process, context->serial)) {
            sim_engines_close(engines, i);
            found = true;
        }
    }
    if (found)
        sim_engines_rebuild(engines);
    sim_managed_reap(file, engines);
}

struct sim_engines *sim_lock(struct sim_machine *machine) {
    struct sim_engines *engines = lock_current(machine->file);
    uint64_t now = sim_now_ns();
    if (now - engines->reaped_ns >= REAP_NS) {
        reap(machine->file, engines);
        engines->reaped_ns = now;
    }
    sim_engines_advance(engines, now);
    if (__atomic_load_n(&machine->file->managed, __ATOMIC_RELAXED))
        sim_managed_room(machine, engines);
    return engines;
}

bool sim_unlock(struct sim_machine *machine, struct sim_engines *engines) {
    uint64_t entered = engines->entered;
    bool kept = __atomic_compare_exchange_n(&machine->file->current, &entered, counted(entered),
                                            false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&engines->lock);
    return kept;
}
