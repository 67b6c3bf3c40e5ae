// managed.c: managed memory of this process in the machine (see managed.h), under the lock of the
// engines, of which the residency is part. What a process has allocated is written as a whole, not
// added, so that a change which must be repeated counts once.
//
// Plain memory is decided on as if no card had managed pages; what they may take is reckoned anew
// whenever the books of plain memory have changed, by whoever enters the engines.
#include "engine.h"

#include <errno.h>
#include <unistd.h>

static bool in_use(const struct sim_machine *machine) {
    return __atomic_load_n(&machine->file->managed, __ATOMIC_SEQ_CST);
}

// The card or GPU instance that a GPU's memory is part of.
static unsigned memory_of(const struct sim_file *file, uint32_t slot, unsigned gpu) {
    uint64_t attached = __atomic_load_n(&file->processes[slot].attached, __ATOMIC_ACQUIRE);
    return gpu < SIM_GPUS_MAX ? gpu : sim_attached_instance(attached);
}

// ---- The room of pages ----

static void make_room(struct sim_machine *machine, struct sim_engines *engines, unsigned gpu,
                      unsigned memory) {
    uint64_t total = engines->gpus[gpu].link.memory_bytes;
    uint64_t plain = sim_memory_plain(machine, memory);
    sim_paging_shrink(engines, gpu, memory, plain < total ? total - plain : 0,
                      engines->gpus[gpu].now_ns);
}

void sim_managed_room(struct sim_machine *machine, struct sim_engines *engines) {
    const struct sim_file *file = machine->file;
    uint64_t books = __atomic_load_n(&file->books, __ATOMIC_SEQ_CST) + 1;
    if (engines->plain_books == books)
        return;
    for (uint32_t i = 0; i < engines->active_count; i++)
        if (engines->active[i] < SIM_GPUS_MAX)
            make_room(machine, engines, engines->active[i], engines->active[i]);
    for (uint32_t slot = 0; slot < engines->residency.owners_used; slot++) {
        const struct sim_owner *owner = &engines->residency.owners[slot];
        uint64_t attached = __atomic_load_n(&file->processes[slot].attached, __ATOMIC_ACQUIRE);
        if (owner->serial && owner->memory && sim_attached_unit(attached))
            make_room(machine, engines, sim_attached_unit(attached), owner->memory);
    }
    engines->plain_books = books;
}

void sim_managed_reap(const struct sim_file *file, struct sim_engines *engines) {
    struct sim_residency *r = &engines->residency;
    for (uint32_t slot = 0; slot < r->owners_used; slot++)
        if (r->owners[slot].serial && !sim_process_alive(file, slot, r->owners[slot].serial))
            sim_residency_disown(r, slot);
    engines->plain_books = 0;  // what the dead had is free
}

// On its way in, sim_lock does all of it.
void sim_managed_yield(struct sim_machine *machine) {
    if (in_use(machine))
        while (!sim_unlock(machine, sim_lock(machine)))
            ;
}

uint64_t sim_managed_wait_ns(struct sim_machine *machine, unsigned gpu) {
    struct sim_engines *engines;
    uint64_t wait_ns = 0;
    if (!in_use(machine))
        return 0;
    do {
        engines = sim_lock(machine);
        const struct sim_gpu *state = &engines->gpus[gpu];
        wait_ns = state->evicted_ns > state->now_ns ? state->evicted_ns - state->now_ns : 0;
    } while (!sim_unlock(machine, engines));
    return wait_ns;
}

// A card's pages are also those in its GPU instances.
static uint64_t pages_on(const struct sim_residency *r, unsigned memory) {
    uint64_t pages = 0;
    for (unsigned i = 0; i < SIM_UNITS_MAX; i++)
        if (i == memory || (memory < SIM_GPUS_MAX && sim_mig_card(i) == memory))
            pages += r->lrus[i].pages;
    return pages;
}

uint64_t sim_managed_resident(struct sim_machine *machine, unsigned gpu) {
    struct sim_engines *engines;
    uint64_t bytes = 0;
    if (!in_use(machine))
        return 0;
    unsigned memory = gpu < SIM_GPUS_MAX ? gpu : sim_mig_instance_of(machine, gpu);
    do {
        engines = sim_lock(machine);
        sim_managed_reap(machine->file, engines);
        bytes = pages_on(&engines->residency, memory) * engines->residency.page_bytes;
    } while (!sim_unlock(machine, engines));
    return bytes;
}

// ---- This process's pages ----

// What the machine's processes may have of managed memory, in bytes.
static uint64_t most_bytes(const struct sim_file *file) {
    uint64_t bytes = file->config.host_bytes;
    return bytes ? bytes : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t all_bytes(const struct sim_residency *r, uint32_t but) {
    uint64_t bytes = 0;
    for (uint32_t slot = 0; slot < r->owners_used; slot++)
        for (unsigned i = 0; slot != but && i < SIM_COLUMNS; i++)
            bytes += r->owners[slot].books[i].allocated_bytes;
    return bytes;
}

static uint64_t own_bytes(const struct sim_machine *machine) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < SIM_COLUMNS; i++)
        bytes += machine->managed_bytes[i];
    return bytes;
}

int sim_managed_take(struct sim_machine *machine, unsigned gpu, uint64_t bytes, uint32_t first,
                     uint32_t count) {
    const struct sim_file *file = machine->file;
    uint64_t most = most_bytes(file), own = own_bytes(machine);
    unsigned column = sim_column(gpu);
    struct sim_engines *engines;
    int rc;
    if (!sim_still_here(machine) || bytes > most || own > most - bytes)
        return ENOMEM;
    __atomic_store_n(&machine->file->managed, 1, __ATOMIC_SEQ_CST);
    do {
        engines = sim_lock(machine);
        struct sim_residency *r = &engines->residency;
        sim_managed_reap(file, engines);
        rc = all_bytes(r, machine->slot) > most - bytes - own ? ENOMEM : 0;
        if (!rc) {
            sim_residency_own(r, machine->slot, machine->serial,
                              memory_of(file, machine->slot, SIM_GPUS_MAX));
            rc = sim_residency_begin(r, machine->slot, first, count);
        }
        if (!rc)
            r->owners[machine->slot].books[column].allocated_bytes =
                machine->managed_bytes[column] + bytes;
    } while (!sim_unlock(machine, engines));
    if (!rc)
        machine->managed_bytes[column] += bytes;
    return rc;
}

static bool mine(const struct sim_machine *machine, const struct sim_engines *engines) {
    return machine->serial && engines->residency.owners[machine->slot].serial == machine->serial;
}

void sim_managed_give(struct sim_machine *machine, unsigned gpu, uint64_t bytes, uint32_t first,
                      uint32_t count) {
    unsigned column = sim_column(gpu);
    struct sim_engines *engines;
    machine->managed_bytes[column] -= bytes;
    do {
        engines = sim_lock(machine);
        if (mine(machine, engines)) {
            sim_residency_end(&engines->residency, machine->slot, first, count);
            engines->residency.owners[machine->slot].books[column].allocated_bytes =
                machine->managed_bytes[column];
        }
    } while (!sim_unlock(machine, engines));
}

void sim_managed_host(struct sim_machine *machine, uint32_t first, uint32_t count) {
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        if (mine(machine, engines))
            sim_residency_host(&engines->residency, machine->slot, first, count);
    } while (!sim_unlock(machine, engines));
}

void sim_managed_collapse(struct sim_machine *machine, uint32_t first, uint32_t count,
                          unsigned place) {
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        if (mine(machine, engines))
            sim_residency_collapse(&engines->residency, machine->slot, first, count, place);
    } while (!sim_unlock(machine, engines));
}

void sim_managed_places(struct sim_machine *machine, uint32_t first, uint32_t count,
                        uint32_t *places) {
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        for (uint32_t i = 0; i < count; i++)
            places[i] = mine(machine, engines) && first + i < SIM_MANAGED_PAGES_MAX
                            ? sim_residency_where(&engines->residency, machine->slot, first + i)
                            : 0;
    } while (!sim_unlock(machine, engines));
}

uint32_t sim_managed_where(struct sim_machine *machine, uint32_t page) {
    uint32_t places;
    sim_managed_places(machine, page, 1, &places);
    return places;
}
