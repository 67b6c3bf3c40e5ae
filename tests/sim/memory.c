// memory.c: the books of device memory: what each process has for itself, and what several share.
//
// All of it is one ledger. Each process has two ledgers of its own in the machine file; one word,
// `books`, says whose is in force. A change is made in a copy, in the ledger of its maker that is
// not in force, and comes into force by one compare-and-swap of `books`, of which no value comes
// twice. So a change happens as a whole or not at all, whatever instruction its maker dies or stops
// at; nobody waits for anybody; and whoever was overtaken begins again. What the dead have written
// stays in the ledger, and does not count.
//
// Invariants of a ledger: holds are in the order of their shares, those of one share in the order
// in which they were taken; a process has one hold of a share; a share has its size and GPU from
// its first hold. No sum of what the living hold ever exceeds the GPU's memory.
#include "engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEDGERS (2 * SIM_PROCESSES_MAX)
#define PATIENCE 16       // how often one is overtaken before asking the others to wait
#define TURN_NS 2000000u  // how long they do, at most
#define WAIT_NS 50000u

// A change, and who makes it.
struct change {
    int (*apply)(const struct change *change, struct sim_ledger *ledger);
    const struct sim_machine *machine;
    unsigned column;  // of the account
    unsigned under;   // the card or GPU instance whose memory it is
    int contexts;     // more or fewer
    uint64_t bytes;
    uint64_t share;
    uint32_t home;  // the control group that a new share counts against
};

// ---- The ledger in force ----

// One's attempts at reading or changing the ledger.
struct attempts {
    unsigned count;
    uint64_t turn;  // 0: the others were not asked to wait
};

// Begins an attempt. Who has been overtaken often asks the others to wait; the others do, so long
// as he is not standing still himself.
static void attempt(struct sim_file *file, struct attempts *attempts) {
    if (attempts->count++ % PATIENCE == PATIENCE - 1) {
        attempts->turn = sim_now_ns() + TURN_NS;
        __atomic_store_n(&file->turn, attempts->turn, __ATOMIC_RELAXED);
    }
    for (unsigned i = 0;; i++) {
        uint64_t until = __atomic_load_n(&file->turn, __ATOMIC_RELAXED);
        if (!until || until == attempts->turn)
            return;
        uint64_t now = sim_now_ns();
        if (until <= now || until > now + TURN_NS)
            return;
        if (i < 10)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
    }
}

static void attempts_end(struct sim_file *file, struct attempts *attempts) {
    if (attempts->turn)
        __atomic_compare_exchange_n(&file->turn, &attempts->turn, 0, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
}

// A reader that is overtaken by a writer reads a mixture, which is thrown away.
static void copy_words(void *to, const void *from, size_t bytes) {
    uint64_t *out = to;
    const uint64_t *in = from;
    for (size_t i = 0; i < bytes / sizeof *in; i++)
        out[i] = __atomic_load_n(&in[i], __ATOMIC_RELAXED);
}

static uint32_t at_most(const uint32_t *count, uint32_t most) {
    uint32_t value = __atomic_load_n(count, __ATOMIC_RELAXED);
    return value < most ? value : most;
}

static void copy_ledger(const struct sim_file *file, struct sim_ledger *to,
                        const struct sim_ledger *from) {
    to->processes = at_most(&from->processes, SIM_PROCESSES_MAX);
    to->hold_count = at_most(&from->hold_count, SIM_HOLDS_MAX);
    for (unsigned column = 0; column < SIM_COLUMNS; column++)
        if (column < file->config.gpu_count || column == SIM_GPUS_MAX)
            copy_words(to->accounts[column], from->accounts[column],
                       to->processes * sizeof to->accounts[0][0]);
    copy_words(to->holds, from->holds, to->hold_count * sizeof to->holds[0]);
}

// Copies the ledger in force, and returns the value of `books` of which the copy is.
static uint64_t snapshot(struct sim_file *file, struct sim_ledger *to, struct attempts *attempts) {
    for (;;) {
        attempt(file, attempts);
        uint64_t books = __atomic_load_n(&file->books, __ATOMIC_ACQUIRE);
        copy_ledger(file, to, &file->ledgers[books % LEDGERS]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&file->books, __ATOMIC_RELAXED) == books)
            return books;
    }
}

// Makes a change come into force, or returns why it cannot be made.
static int make(struct sim_machine *machine, struct change *change) {
    struct sim_file *file = machine->file;
    struct attempts attempts = {0};
    int rc;
    change->machine = machine;
    pthread_mutex_lock(&machine->ledger_lock);
    for (;;) {
        uint64_t mine = 2 * machine->slot;
        mine += __atomic_load_n(&file->books, __ATOMIC_ACQUIRE) % LEDGERS == mine;
        uint64_t seen = snapshot(file, &file->ledgers[mine], &attempts);
        rc = change->apply(change, &file->ledgers[mine]);
        uint64_t next = (seen / LEDGERS + 1) * LEDGERS + mine;
        if (rc || __atomic_compare_exchange_n(&file->books, &seen, next, false, __ATOMIC_SEQ_CST,
                                              __ATOMIC_SEQ_CST))
            break;
    }
    attempts_end(file, &attempts);
    pthread_mutex_unlock(&machine->ledger_lock);
    return rc;
}

const struct sim_ledger *sim_ledger_look(struct sim_machine *machine) {
    struct attempts attempts = {0};
    pthread_mutex_lock(&machine->ledger_lock);
    if (!machine->ledger)
        machine->ledger = malloc(sizeof *machine->ledger);
    if (machine->ledger) {
        snapshot(machine->file, machine->ledger, &attempts);
        attempts_end(machine->file, &attempts);
    }
    return machine->ledger;
}

void sim_ledger_look_end(struct sim_machine *machine) {
    pthread_mutex_unlock(&machine->ledger_lock);
}

// ---- Sums ----

static bool alive(const struct sim_file *file, uint32_t slot) {
    uint64_t serial = __atomic_load_n(&file->processes[slot].serial, __ATOMIC_ACQUIRE);
    return sim_process_alive(file, slot, serial);
}

static unsigned instance_of(const struct sim_file *file, uint32_t slot) {
    return sim_attached_instance(
        __atomic_load_n(&file->processes[slot].attached, __ATOMIC_ACQUIRE));
}

// Whether memory of a card or GPU instance is part of another's: of itself, or of its card.
static bool within(unsigned under, unsigned gpu) {
    return under == gpu || (under >= SIM_GPUS_MAX && sim_mig_card(under) == gpu);
}

// The place behind the holds of the share that has one at `i`, and which of them is the oldest of a
// live process (the place behind, too: none).
static uint32_t group_end(const struct sim_file *file, const struct sim_ledger *ledger, uint32_t i,
                          uint32_t *oldest) {
    uint64_t share = ledger->holds[i].share;
    bool found = false;
    for (; i < ledger->hold_count && ledger->holds[i].share == share; i++)
        if (!found && alive(file, ledger->holds[i].slot)) {
            found = true;
            *oldest = i;
        }
    if (!found)
        *oldest = i;
    return i;
}

uint64_t sim_memory_sum(const struct sim_file *file, const struct sim_ledger *ledger, unsigned gpu,
                        uint64_t group) {
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < ledger->processes; slot++) {
        uint64_t own = gpu < SIM_GPUS_MAX ? ledger->accounts[gpu][slot].bytes : 0;
        uint64_t divided = ledger->accounts[SIM_GPUS_MAX][slot].bytes;
        if (!(own || divided) || !alive(file, slot) || !sim_limit_member(file, slot, group))
            continue;
        sum += own + (divided && within(instance_of(file, slot), gpu) ? divided : 0);
    }
    for (uint32_t i = 0, oldest; i < ledger->hold_count;) {
        const struct sim_hold *hold = &ledger->holds[i];
        i = group_end(file, ledger, i, &oldest);
        if (oldest < i && within(hold->under, gpu) && (!group || hold->group == (uint32_t)group))
            sum += hold->bytes;
    }
    return sum;
}

static bool fits(const struct change *change, const struct sim_ledger *ledger) {
    uint64_t total = sim_config_of(change->machine, change->column)->memory_bytes;
    uint64_t used = sim_memory_sum(change->machine->file, ledger, change->under, 0);
    return used <= total && change->bytes <= total - used &&
           sim_limit_fits(change->machine, ledger, change->under, change->bytes);
}

// ---- A process's own memory ----

static struct change change_of(const struct sim_machine *machine, unsigned gpu, uint64_t bytes) {
    uint64_t attached = machine->file->processes[machine->slot].attached;
    return (struct change){.column = sim_column(gpu),
                           .under = gpu < SIM_GPUS_MAX ? gpu : sim_attached_instance(attached),
                           .bytes = bytes};
}

static struct sim_account *account_of(const struct change *change, struct sim_ledger *ledger) {
    return &ledger->accounts[change->column][change->machine->slot];
}

static int apply_take(const struct change *change, struct sim_ledger *ledger) {
    if (!sim_still_here(change->machine) || !fits(change, ledger))
        return ENOMEM;
    account_of(change, ledger)->bytes += change->bytes;
    account_of(change, ledger)->contexts += (uint32_t)change->contexts;
    return 0;
}

static int apply_give(const struct change *change, struct sim_ledger *ledger) {
    if (!sim_still_here(change->machine))
        return ESRCH;
    account_of(change, ledger)->bytes -= change->bytes;
    account_of(change, ledger)->contexts += (uint32_t)change->contexts;
    return 0;
}

static int change_own(struct sim_machine *machine, unsigned gpu, uint64_t bytes, int contexts,
                      int (*apply)(const struct change *, struct sim_ledger *)) {
    struct change change = change_of(machine, gpu, bytes);
    change.contexts = contexts;
    change.apply = apply;
    return make(machine, &change);
}

// Managed pages were not asked whether there is room, and have to go now.
static int taken(struct sim_machine *machine, int rc) {
    if (!rc)
        sim_managed_yield(machine);
    return rc;
}

int sim_memory_take(struct sim_machine *machine, unsigned gpu, uint64_t bytes) {
    sim_limit_enter(machine);
    return taken(machine, change_own(machine, gpu, bytes, 0, apply_take));
}

void sim_memory_give(struct sim_machine *machine, unsigned gpu, uint64_t bytes) {
    change_own(machine, gpu, bytes, 0, apply_give);
}

int sim_memory_take_context(struct sim_machine *machine, unsigned gpu) {
    uint64_t bytes = sim_config_of(machine, gpu)->context_bytes;
    sim_limit_enter(machine);
    return taken(machine, change_own(machine, gpu, bytes, 1, apply_take));
}

void sim_memory_give_context(struct sim_machine *machine, unsigned gpu) {
    change_own(machine, gpu, sim_config_of(machine, gpu)->context_bytes, -1, apply_give);
}

// ---- Shares ----

// The first hold of a share, or where it would be.
static uint32_t first_hold(const struct sim_ledger *ledger, uint64_t share) {
    uint32_t low = 0, high = ledger->hold_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (ledger->holds[middle].share < share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Drops the holds that a predicate names, in their order.
static void sweep(const struct change *change, struct sim_ledger *ledger,
                  bool (*gone)(const struct change *, const struct sim_hold *)) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ledger->hold_count; i++)
        if (!gone(change, &ledger->holds[i]))
            ledger->holds[kept++] = ledger->holds[i];
    ledger->hold_count = kept;
}

static bool is_dead(const struct change *change, const struct sim_hold *hold) {
    return !alive(change->machine->file, hold->slot);
}

static bool is_mine(const struct change *change, const struct sim_hold *hold) {
    return hold->slot == change->machine->slot && (!change->share || hold->share == change->share);
}

// Adds a hold of this process behind all others of the share.
static int add_hold(const struct change *change, struct sim_ledger *ledger) {
    uint32_t i = first_hold(ledger, change->share);
    uint32_t group = change->home;
    for (; i < ledger->hold_count && ledger->holds[i].share == change->share; i++)
        group = ledger->holds[i].group;
    if (ledger->hold_count == SIM_HOLDS_MAX)
        return ENOSPC;
    memmove(&ledger->holds[i + 1], &ledger->holds[i],
            (ledger->hold_count++ - i) * sizeof ledger->holds[0]);
    ledger->holds[i] = (struct sim_hold){.share = change->share,
                                         .bytes = change->bytes,
                                         .under = (uint16_t)change->under,
                                         .slot = (uint16_t)change->machine->slot,
                                         .group = group};
    return 0;
}

static int apply_move(const struct change *change, struct sim_ledger *ledger) {
    if (!sim_still_here(change->machine))
        return ESRCH;
    sweep(change, ledger, is_dead);
    uint32_t first = first_hold(ledger, change->share);
    if (first < ledger->hold_count && ledger->holds[first].share == change->share)
        return EEXIST;
    account_of(change, ledger)->bytes -= change->bytes;
    return add_hold(change, ledger);
}

static int apply_hold(const struct change *change, struct sim_ledger *ledger) {
    if (!sim_still_here(change->machine))
        return ENOMEM;
    sweep(change, ledger, is_dead);
    uint32_t first = first_hold(ledger, change->share), i = first;
    for (; i < ledger->hold_count && ledger->holds[i].share == change->share; i++) {
        const struct sim_hold *hold = &ledger->holds[i];
        if (hold->bytes != change->bytes || hold->under != change->under)
            return EINVAL;
        if (hold->slot == change->machine->slot)
            return EEXIST;
    }
    if (i == first && !fits(change, ledger))
        return ENOMEM;
    return add_hold(change, ledger);
}

static int apply_drop(const struct change *change, struct sim_ledger *ledger) {
    if (!sim_still_here(change->machine))
        return ESRCH;
    sweep(change, ledger, is_mine);
    return 0;
}

uint64_t sim_share_name(struct sim_machine *machine) {
    return __atomic_add_fetch(&machine->file->shares, 1, __ATOMIC_SEQ_CST);
}

int sim_share_move(struct sim_machine *machine, unsigned gpu, uint64_t share, uint64_t bytes) {
    struct change change = change_of(machine, gpu, bytes);
    change.home = sim_limit_home(machine, gpu);
    change.apply = apply_move;
    change.share = share;
    return make(machine, &change);
}

int sim_share_hold(struct sim_machine *machine, unsigned gpu, uint64_t share, uint64_t bytes) {
    struct change change = change_of(machine, gpu, bytes);
    change.apply = apply_hold;
    change.share = share;
    sim_limit_enter(machine);
    change.home = sim_limit_home(machine, gpu);
    return share ? taken(machine, make(machine, &change)) : EINVAL;
}

void sim_share_drop(struct sim_machine *machine, uint64_t share) {
    struct change change = {.apply = apply_drop, .share = share};
    if (share)
        make(machine, &change);
}

bool sim_share_held(struct sim_machine *machine, uint64_t share) {
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    bool held = false;
    if (ledger) {
        uint32_t first = first_hold(ledger, share), oldest;
        held = first < ledger->hold_count && ledger->holds[first].share == share &&
               group_end(machine->file, ledger, first, &oldest) > oldest;
    }
    sim_ledger_look_end(machine);
    return held;
}

// ---- Joining ----

static int apply_clear(const struct change *change, struct sim_ledger *ledger) {
    uint32_t slot = change->machine->slot;
    sweep(change, ledger, is_mine);
    // Accounts from `processes` on have never been written in this copy.
    uint32_t from = slot < ledger->processes ? slot : ledger->processes;
    for (unsigned column = 0; column < SIM_COLUMNS; column++)
        memset(&ledger->accounts[column][from], 0,
               (slot + 1 - from) * sizeof ledger->accounts[0][0]);
    if (ledger->processes <= slot)
        ledger->processes = slot + 1;
    return 0;
}

void sim_memory_clear(struct sim_machine *machine) {
    make(machine, &(struct change){.apply = apply_clear});
}

// ---- Looking ----

int sim_memory_used(struct sim_machine *machine, unsigned gpu, uint64_t *bytes) {
    unsigned under = gpu < SIM_GPUS_MAX ? gpu : sim_mig_instance_of(machine, gpu);
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    *bytes = ledger ? sim_memory_sum(machine->file, ledger, under, 0) : 0;
    sim_ledger_look_end(machine);
    return ledger ? 0 : ENOMEM;
}

uint64_t sim_memory_plain(struct sim_machine *machine, unsigned under) {
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    uint64_t bytes = ledger ? sim_memory_sum(machine->file, ledger, under, 0) : 0;
    sim_ledger_look_end(machine);
    return bytes;
}

void sim_memory_info(struct sim_machine *machine, unsigned gpu, uint64_t *free_bytes,
                     uint64_t *total_bytes) {
    uint64_t used;
    struct sim_gpu_config config;
    sim_memory_used(machine, gpu, &used);
    used += sim_managed_resident(machine, gpu);
    *total_bytes = sim_gpu_describe(machine, gpu, &config) ? 0 : config.memory_bytes;
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
}

uint32_t sim_memory_contexts(struct sim_machine *machine, unsigned gpu, uint32_t slot) {
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    bool known = ledger && slot < ledger->processes;
    uint32_t contexts = known ? ledger->accounts[sim_column(gpu)][slot].contexts : 0;
    sim_ledger_look_end(machine);
    return contexts;
}

void sim_memory_users(struct sim_machine *machine, unsigned gpu, uint32_t *contexts,
                      uint32_t *processes) {
    const struct sim_file *file = machine->file;
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    *contexts = *processes = 0;
    for (uint32_t slot = 0; ledger && slot < ledger->processes; slot++) {
        uint64_t attached = __atomic_load_n(&file->processes[slot].attached, __ATOMIC_ACQUIRE);
        uint32_t count = ledger->accounts[sim_column(gpu)][slot].contexts;
        bool there = gpu < SIM_GPUS_MAX || sim_attached_unit(attached) == gpu;
        if (!count || !there || !alive(file, slot))
            continue;
        *contexts += count;
        ++*processes;
    }
    sim_ledger_look_end(machine);
}

void sim_memory_of(struct sim_machine *machine, uint32_t slot,
                   struct sim_process_gpu gpus[SIM_COLUMNS]) {
    const struct sim_file *file = machine->file;
    const struct sim_ledger *ledger = sim_ledger_look(machine);
    uint32_t hold_count = ledger ? ledger->hold_count : 0;
    for (unsigned i = 0; ledger && slot < ledger->processes && i < SIM_COLUMNS; i++) {
        const struct sim_account *account = &ledger->accounts[i][slot];
        unsigned card = i < SIM_GPUS_MAX ? i : sim_mig_card(instance_of(file, slot));
        gpus[i].contexts = account->contexts;
        gpus[i].context_bytes = account->contexts * file->config.gpus[card].context_bytes;
        gpus[i].allocated_bytes = account->bytes - gpus[i].context_bytes;
    }
    for (uint32_t i = 0, oldest; i < hold_count;) {
        uint32_t from = i;
        i = group_end(file, ledger, i, &oldest);
        for (; from < i; from++) {
            const struct sim_hold *hold = &ledger->holds[from];
            struct sim_process_gpu *gpu = &gpus[sim_column(hold->under)];
            if (hold->slot != slot)
                continue;
            gpu->shared_bytes += from == oldest ? hold->bytes : 0;
            gpu->allocated_bytes += from == oldest ? hold->bytes : 0;
            gpu->imported_bytes += from == oldest ? 0 : hold->bytes;
        }
    }
    sim_ledger_look_end(machine);
}
