// watch.c: writes down what a simulated machine's books say of its first GPU, again and again.
//
// watch MACHINE_FILE MS FILE: writes to FILE a row of numbers each MS milliseconds until its input
// ends: when (ns of CLOCK_MONOTONIC), then of each process that the machine has had, by the order
// of its places: its pid, whether it lives, and busy_ns, launches, fault_ns, resident, fault_in,
// populated, prefetch_in, prefetch_out and evicted bytes of the books, which are of one moment;
// then the bytes of its plain memory and contexts, which are looked up just before.
#define _GNU_SOURCE
#include "../../sim/engine.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PROCESSES_MAX = 64 };

struct row {
    uint64_t now_ns;
    unsigned count;
    struct {
        int32_t pid;
        int alive;
        struct sim_books books;
        struct sim_managed managed;
        uint64_t plain;
    } of[PROCESSES_MAX];
};

static uint64_t plain_of(struct sim_machine *machine, unsigned slot) {
    struct sim_process_gpu gpus[SIM_COLUMNS] = {0};
    sim_memory_of(machine, slot, gpus);
    return gpus[0].allocated_bytes + gpus[0].context_bytes;
}

static void look(struct sim_machine *machine, struct row *row) {
    const struct sim_file *file = machine->file;
    struct sim_engines *engines;
    unsigned used = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
    for (unsigned slot = 0; slot < PROCESSES_MAX; slot++)
        row->of[slot].plain = slot < used ? plain_of(machine, slot) : 0;
    do {
        engines = sim_lock(machine);
        sim_engines_advance(engines, sim_now_ns());
        row->now_ns = engines->gpus[0].now_ns;
        row->count = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
        row->count = row->count < PROCESSES_MAX ? row->count : PROCESSES_MAX;
        for (unsigned slot = 0; slot < row->count; slot++) {
            row->of[slot].books = engines->stays[slot][0].books;
            memset(&row->of[slot].managed, 0, sizeof(row->of[slot].managed));
            if (slot < engines->residency.owners_used)
                row->of[slot].managed = engines->residency.owners[slot].books[0];
        }
    } while (!sim_unlock(machine, engines));
    for (unsigned slot = 0; slot < row->count; slot++) {
        const struct sim_process *process = &file->processes[slot];
        uint64_t serial = __atomic_load_n(&process->serial, __ATOMIC_ACQUIRE);
        row->of[slot].pid = process->pid;
        row->of[slot].alive = sim_process_alive(file, slot, serial);
    }
}

static void say(const struct row *row) {
    printf("%" PRIu64, row->now_ns);
    for (unsigned i = 0; i < row->count; i++) {
        const struct sim_books *b = &row->of[i].books;
        const struct sim_managed *m = &row->of[i].managed;
        const uint64_t numbers[] = {b->busy_ns,           b->launches,           m->fault_ns,
                                    m->resident_bytes,    m->fault_in_bytes,     m->populated_bytes,
                                    m->prefetch_in_bytes, m->prefetch_out_bytes, m->evicted_bytes,
                                    row->of[i].plain};
        printf(" %d %d", row->of[i].pid, row->of[i].alive);
        for (unsigned k = 0; k < sizeof(numbers) / sizeof(*numbers); k++)
            printf(" %" PRIu64, numbers[k]);
    }
    putchar('\n');
}

int main(int count, char **arguments) {
    struct sim_machine *machine;
    static struct row row;
    int ms = count == 4 ? atoi(arguments[2]) : 0;
    prctl(PR_SET_TIMERSLACK, 1);
    if (ms < 1 || sim_machine_open(arguments[1], &machine) || !freopen(arguments[3], "we", stdout))
        return 2;
    for (int ended = 0; !ended;) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        look(machine, &row);
        say(&row);
        ended = poll(&input, 1, ms) > 0;
    }
    return 0;
}
