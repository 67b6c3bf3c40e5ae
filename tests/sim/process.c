// process.c: the processes of the machine and the device memory that they hold.
//
// A process is alive while one thread of it holds the mutex `life` of its slot: the kernel marks
// the mutex when that thread ends, whatever kills it, in whatever pid namespace, and a forked
// child does not count. Nobody ever clears the words of a dead process but the next owner of its
// slot; they are just not counted. So a look needs no lock, and no looker can be in the way.
//
// A taker writes what it asks for beside what it holds, adds up all, and keeps it only if the sum
// fits. It is refused only on a sum of what is surely held, with no change while it was taken.
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// How often a taker yields to others that take at the same moment before it is refused.
#define TAKE_TRIES 1000

// The word that the kernel marks is the first one of glibc's mutex.
static bool life_held(const pthread_mutex_t *life) {
    unsigned word = (unsigned)__atomic_load_n(&life->__data.__lock, __ATOMIC_ACQUIRE);
    return word && !(word & FUTEX_OWNER_DIED);
}

bool sim_process_alive(const struct sim_file *file, uint32_t slot, uint64_t serial) {
    const struct sim_process *process = &file->processes[slot];
    return serial && __atomic_load_n(&process->serial, __ATOMIC_ACQUIRE) == serial &&
           life_held(&process->life);
}

bool sim_still_here(const struct sim_machine *machine) {
    return sim_process_alive(machine->file, machine->slot, machine->serial);
}

// The slot to try next: the first that was never used, else that of the process dead for longest.
static uint32_t free_slot(const struct sim_file *file) {
    uint32_t used = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
    uint32_t best = SIM_PROCESSES_MAX;
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < used; i++) {
        uint64_t serial = __atomic_load_n(&file->processes[i].serial, __ATOMIC_ACQUIRE);
        if (!life_held(&file->processes[i].life) && serial < oldest) {
            oldest = serial;
            best = i;
        }
    }
    return used < SIM_PROCESSES_MAX ? used : best;
}

// Takes the life of a slot. False: somebody else was faster.
static bool claim(struct sim_file *file, uint32_t slot) {
    struct sim_process *process = &file->processes[slot];
    uint64_t serial = __atomic_load_n(&process->serial, __ATOMIC_ACQUIRE);
    // The words of the dead must not count from the moment the slot lives again.
    if (life_held(&process->life) ||
        (serial && !__atomic_compare_exchange_n(&process->serial, &serial, 0, false,
                                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)))
        return false;
    int rc = pthread_mutex_trylock(&process->life);
    if (rc == EOWNERDEAD)
        rc = pthread_mutex_consistent(&process->life);
    if (rc)
        return false;
    uint32_t used = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
    while (used <= slot && !__atomic_compare_exchange_n(&file->processes_used, &used, slot + 1,
                                                        false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    return true;
}

int sim_process_join(struct sim_machine *machine) {
    struct sim_file *file = machine->file;
    uint32_t slot;
    do {
        slot = free_slot(file);
        if (slot == SIM_PROCESSES_MAX)
            return EUSERS;
    } while (!claim(file, slot));
    struct sim_process *process = &file->processes[slot];
    for (unsigned gpu = 0; gpu < SIM_GPUS_MAX; gpu++) {
        __atomic_store_n(&file->held[gpu][slot], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&file->taking[gpu][slot], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&file->contexts[gpu][slot], 0, __ATOMIC_RELAXED);
    }
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        memset(engines->stays[slot], 0, sizeof engines->stays[slot]);
        if (engines->stays_used <= slot)
            engines->stays_used = slot + 1;
    } while (!sim_unlock(machine, engines));
    process->joined_ns = sim_now_ns();
    process->pid = (int32_t)getpid();
    memset(process->name, 0, sizeof process->name);
    strncpy(process->name, program_invocation_short_name, sizeof process->name - 1);
    uint64_t serial = __atomic_add_fetch(&file->serials, 1, __ATOMIC_SEQ_CST);
    machine->slot = slot;
    machine->serial = serial;
    __atomic_store_n(&process->serial, serial, __ATOMIC_SEQ_CST);
    return 0;
}

// What all live processes hold, and with `taking` also what they ask for. `taking` is read first:
// what moves from there to `held` meanwhile is counted twice rather than not at all.
static uint64_t sum_used(const struct sim_file *file, unsigned gpu, bool taking) {
    uint64_t sum = 0;
    uint32_t used = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t serial = __atomic_load_n(&file->processes[i].serial, __ATOMIC_ACQUIRE);
        if (!sim_process_alive(file, i, serial))
            continue;
        if (taking)
            sum += __atomic_load_n(&file->taking[gpu][i], __ATOMIC_SEQ_CST);
        sum += __atomic_load_n(&file->held[gpu][i], __ATOMIC_SEQ_CST);
    }
    return sum;
}

int sim_memory_take(struct sim_machine *machine, unsigned gpu, uint64_t bytes) {
    struct sim_file *file = machine->file;
    uint64_t total = file->config.gpus[gpu].memory_bytes;
    uint64_t *taking = &file->taking[gpu][machine->slot];
    uint64_t *held = &file->held[gpu][machine->slot];
    if (bytes > total)
        return ENOMEM;
    for (int i = 0; i < TAKE_TRIES && sim_still_here(machine); i++) {
        __atomic_add_fetch(taking, bytes, __ATOMIC_SEQ_CST);
        if (sum_used(file, gpu, true) <= total) {
            __atomic_add_fetch(&file->changes[gpu], 1, __ATOMIC_SEQ_CST);
            __atomic_add_fetch(held, bytes, __ATOMIC_SEQ_CST);
            __atomic_sub_fetch(taking, bytes, __ATOMIC_SEQ_CST);
            return 0;
        }
        __atomic_sub_fetch(taking, bytes, __ATOMIC_SEQ_CST);
        uint64_t changes = __atomic_load_n(&file->changes[gpu], __ATOMIC_SEQ_CST);
        uint64_t sure = sum_used(file, gpu, false);
        if (sure + bytes > total &&
            changes == __atomic_load_n(&file->changes[gpu], __ATOMIC_SEQ_CST))
            return ENOMEM;
        // Another takes at this moment: let one of us be first, by a delay that differs.
        if (i < 10)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 1000 + 100 * (long)(machine->serial % 97)},
                      NULL);
    }
    return ENOMEM;
}

void sim_memory_give(struct sim_machine *machine, unsigned gpu, uint64_t bytes) {
    struct sim_file *file = machine->file;
    if (!sim_still_here(machine))
        return;
    __atomic_add_fetch(&file->changes[gpu], 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&file->held[gpu][machine->slot], bytes, __ATOMIC_SEQ_CST);
}

int sim_memory_used(const struct sim_machine *machine, unsigned gpu, uint64_t *bytes) {
    const struct sim_file *file = machine->file;
    for (int i = 0; i < TAKE_TRIES; i++) {
        uint64_t changes = __atomic_load_n(&file->changes[gpu], __ATOMIC_SEQ_CST);
        *bytes = sum_used(file, gpu, false);
        // Twice the same: what was being changed during the first sum is in the second.
        if (sum_used(file, gpu, false) == *bytes &&
            changes == __atomic_load_n(&file->changes[gpu], __ATOMIC_SEQ_CST))
            return 0;
        if (i % 16 == 15)
            sched_yield();
    }
    return EAGAIN;
}

void sim_memory_info(struct sim_machine *machine, unsigned gpu, uint64_t *free_bytes,
                     uint64_t *total_bytes) {
    uint64_t used;
    sim_memory_used(machine, gpu, &used);
    *total_bytes = machine->file->config.gpus[gpu].memory_bytes;
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
}

static void count_context(struct sim_machine *machine, unsigned gpu, int by) {
    __atomic_add_fetch(&machine->file->contexts[gpu][machine->slot], (uint32_t)by,
                       __ATOMIC_SEQ_CST);
}

int sim_context_open(struct sim_machine *machine, unsigned gpu, uint32_t *context) {
    uint64_t bytes = machine->file->config.gpus[gpu].context_bytes;
    int rc = sim_memory_take(machine, gpu, bytes);
    if (rc)
        return rc;
    count_context(machine, gpu, 1);
    uint64_t cookie = __atomic_add_fetch(&machine->cookies, 1, __ATOMIC_SEQ_CST);
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        rc = sim_engines_open(engines, machine->slot, machine->serial, cookie, gpu, context);
    } while (!sim_unlock(machine, engines));
    if (rc) {
        count_context(machine, gpu, -1);
        sim_memory_give(machine, gpu, bytes);
    }
    return rc;
}

void sim_context_close(struct sim_machine *machine, uint32_t context) {
    struct sim_engines *engines;
    unsigned gpu = SIM_GPUS_MAX;
    do {
        engines = sim_lock(machine);
        if (engines->contexts[context].serial == machine->serial) {
            gpu = engines->contexts[context].gpu;
            sim_engines_close(engines, context);
            sim_engines_rebuild(engines);
        }
    } while (!sim_unlock(machine, engines));
    if (gpu < SIM_GPUS_MAX) {
        count_context(machine, gpu, -1);
        sim_memory_give(machine, gpu, machine->file->config.gpus[gpu].context_bytes);
    }
}
