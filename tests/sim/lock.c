// lock.c: the lock of the engines, which neither a killed nor a stopped process can keep.
//
// Killed: the mutex is robust, and the next holder rebuilds what is derived. Stopped: after
// SIM_STEAL_MS a waiter copies the engines to another region of the file, rebuilds them there and
// makes that region the current one. The stopped holder may go on writing to the old region, which
// nobody reads; when it unlocks it learns that its change may be lost, and does it again.
// A process that is stopped in the very act of stealing holds the others up until it goes on.
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

static struct timespec steal_time(void) {
    uint64_t at = sim_now_ns() + SIM_STEAL_MS * UINT64_C(1000000);
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000u),
                             .tv_nsec = (long)(at % 1000000000u)};
}

// What a running holder changes meanwhile is either copied or done again by it. Tails go first:
// an operation that comes later than its tail does not exist.
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread")))
#endif
static void
copy_engines(struct sim_engines *to, const struct sim_engines *from) {
    to->gpu_count = from->gpu_count;
    to->contexts_used = __atomic_load_n(&from->contexts_used, __ATOMIC_ACQUIRE);
    to->stays_used = from->stays_used;
    to->reaped_ns = from->reaped_ns;
    memcpy(to->contexts, from->contexts, to->contexts_used * sizeof to->contexts[0]);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    memcpy(to->gpus, from->gpus, sizeof to->gpus);
    memcpy(to->stays, from->stays, to->stays_used * sizeof to->stays[0]);
    for (uint32_t i = 0; i < to->contexts_used; i++)
        if (to->contexts[i].serial)
            memcpy(to->items[i], from->items[i], sizeof to->items[i]);
}

// Takes a region that nobody holds. NULL: a stopped process sits in each of them.
static struct sim_engines *take_spare(struct sim_file *file, unsigned used) {
    for (unsigned i = 0; i < SIM_REGIONS; i++) {
        if (i == used)
            continue;
        int rc = pthread_mutex_trylock(&file->regions[i].lock);
        if (rc == EOWNERDEAD)
            rc = pthread_mutex_consistent(&file->regions[i].lock);
        if (!rc)
            return &file->regions[i];
    }
    return NULL;
}

static void steal(struct sim_file *file, uint64_t seen) {
    int rc = pthread_mutex_trylock(&file->steal_lock);
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(&file->steal_lock);
    if (rc) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return;
    }
    uint64_t current = __atomic_load_n(&file->current, __ATOMIC_ACQUIRE);
    if (current == seen) {
        unsigned from = (unsigned)(seen & (SIM_STEALING - 1));
        // From here on a holder that unlocks knows that it must do its change again.
        __atomic_store_n(&file->current, seen | SIM_STEALING, __ATOMIC_SEQ_CST);
        struct sim_engines *spare = take_spare(file, from);
        uint64_t next = seen & ~(uint64_t)SIM_STEALING;
        if (spare) {
            copy_engines(spare, &file->regions[from]);
            sim_engines_rebuild(spare);
            next = ((seen >> 8) + 1) << 8 | (uint64_t)(spare - file->regions);
            pthread_mutex_unlock(&spare->lock);
        }
        __atomic_store_n(&file->current, next, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&file->steal_lock);
}

// Locks the region that is current, whichever that is when the lock is had.
static struct sim_engines *lock_current(struct sim_file *file) {
    for (;;) {
        uint64_t seen = __atomic_load_n(&file->current, __ATOMIC_ACQUIRE);
        struct sim_engines *engines = &file->regions[seen & (SIM_STEALING - 1)];
        if (seen & SIM_STEALING) {
            steal(file, seen);
            continue;
        }
        int rc = pthread_mutex_trylock(&engines->lock);
        if (rc == EBUSY) {
            struct timespec until = steal_time();
            rc = pthread_mutex_clocklock(&engines->lock, CLOCK_MONOTONIC, &until);
        }
        if (rc == EOWNERDEAD) {
            sim_engines_rebuild(engines);
            rc = pthread_mutex_consistent(&engines->lock);
        }
        if (rc) {
            steal(file, seen);
        } else if (__atomic_load_n(&file->current, __ATOMIC_SEQ_CST) == seen) {
            return engines;
        } else {
            pthread_mutex_unlock(&engines->lock);
        }
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
}

struct sim_engines *sim_lock(struct sim_machine *machine) {
    struct sim_engines *engines = lock_current(machine->file);
    uint64_t now = sim_now_ns();
    if (now - engines->reaped_ns >= REAP_NS) {
        reap(machine->file, engines);
        engines->reaped_ns = now;
    }
    sim_engines_advance(engines, now);
    return engines;
}

bool sim_unlock(struct sim_machine *machine, struct sim_engines *engines) {
    // Full barrier: either the thief sees our change, or we see the thief.
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint64_t current = __atomic_load_n(&machine->file->current, __ATOMIC_SEQ_CST);
    bool kept = !(current & SIM_STEALING) && &machine->file->regions[current & 0x7f] == engines;
    pthread_mutex_unlock(&engines->lock);
    return kept;
}
