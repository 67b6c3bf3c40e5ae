// process.c: the processes of the machine and their contexts.
//
// A process is alive while one thread of it holds the mutex `life` of its slot: the kernel marks
// the mutex when that thread ends, whatever kills it, in whatever pid namespace, and a forked
// child does not count. Nobody ever clears the words of a dead process but the next owner of its
// slot; they are just not counted. So a look needs no lock, and no looker can be in the way.
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <unistd.h>

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
    machine->slot = slot;
    __atomic_store_n(&process->attached, 0, __ATOMIC_RELAXED);
    sim_memory_clear(machine);
    sim_limit_enter(machine);
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        memset(engines->stays[slot], 0, sizeof engines->stays[slot]);
        sim_residency_vacate(&engines->residency, slot);
        if (engines->stays_used <= slot)
            engines->stays_used = slot + 1;
    } while (!sim_unlock(machine, engines));
    process->joined_ns = sim_now_ns();
    process->pid = (int32_t)getpid();
    memset(process->name, 0, sizeof process->name);
    strncpy(process->name, program_invocation_short_name, sizeof process->name - 1);
    uint64_t serial = __atomic_add_fetch(&file->serials, 1, __ATOMIC_SEQ_CST);
    machine->serial = serial;
    __atomic_store_n(&process->serial, serial, __ATOMIC_SEQ_CST);
    return 0;
}

void sim_process_leave(struct sim_machine *machine) {
    machine->serial = 0;
    pthread_mutex_unlock(&machine->file->processes[machine->slot].life);
}

int sim_context_open(struct sim_machine *machine, unsigned gpu, uint32_t *context) {
    const struct sim_process *process = &machine->file->processes[machine->slot];
    int rc = sim_memory_take_context(machine, gpu);
    if (rc)
        return rc;
    uint64_t cookie = __atomic_add_fetch(&machine->cookies, 1, __ATOMIC_SEQ_CST);
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        rc = sim_mig_usable(engines, process->attached, gpu)
                 ? sim_engines_open(engines, machine->slot, machine->serial, cookie, gpu, context)
                 : ENODEV;
    } while (!sim_unlock(machine, engines));
    if (rc)
        sim_memory_give_context(machine, gpu);
    return rc;
}

void sim_context_close(struct sim_machine *machine, uint32_t context) {
    struct sim_engines *engines;
    unsigned gpu = SIM_UNITS_MAX;
    do {
        engines = sim_lock(machine);
        if (engines->contexts[context].serial == machine->serial) {
            gpu = engines->contexts[context].gpu;
            sim_engines_close(engines, context);
            sim_engines_rebuild(engines);
        }
    } while (!sim_unlock(machine, engines));
    if (gpu < SIM_UNITS_MAX)
        sim_memory_give_context(machine, gpu);
}
