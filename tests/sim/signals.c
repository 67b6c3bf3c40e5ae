// signals.c: events that several processes know: of each, which operation recorded it last.
//
// A signal is one slot of a table, the property of the process that made it and free when that has
// ended. The recording is one word, and a context's operations are never numbered twice: so whoever
// reads the word can ask for that operation, whatever has become of it.
#include "engine.h"

#include <errno.h>

#define SEQ_BITS 54

_Static_assert(SIM_CONTEXTS_MAX <= 1u << (64 - SEQ_BITS), "a context's number beside a seq");
_Static_assert(SIM_PROCESSES_MAX <= 1u << 10, "a slot's number in an owner");

static uint64_t owner_of(const struct sim_machine *machine) {
    return machine->serial << 10 | machine->slot;
}

static bool is_free(const struct sim_file *file, uint64_t owner) {
    return !owner || !sim_process_alive(file, owner & 1023, owner >> 10);
}

static struct sim_signal *signal_of(struct sim_machine *machine,
                                    const struct sim_signal_name *name) {
    struct sim_signal *signal =
        name->index < SIM_SIGNALS_MAX ? &machine->file->signals[name->index] : NULL;
    bool same = signal && name->id && __atomic_load_n(&signal->id, __ATOMIC_ACQUIRE) == name->id;
    return same ? signal : NULL;
}

int sim_signal_make(struct sim_machine *machine, struct sim_signal_name *name) {
    for (uint32_t i = 0; i < SIM_SIGNALS_MAX; i++) {
        struct sim_signal *signal = &machine->file->signals[i];
        uint64_t owner = __atomic_load_n(&signal->owner, __ATOMIC_ACQUIRE);
        if (!is_free(machine->file, owner) ||
            !__atomic_compare_exchange_n(&signal->owner, &owner, owner_of(machine), false,
                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            continue;
        *name = (struct sim_signal_name){.index = i, .id = sim_share_name(machine)};
        // Who knows the slot under its last name must not see the new recordings.
        __atomic_store_n(&signal->id, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&signal->recording, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&signal->id, name->id, __ATOMIC_SEQ_CST);
        return 0;
    }
    return ENOSPC;
}

void sim_signal_drop(struct sim_machine *machine, const struct sim_signal_name *name) {
    struct sim_signal *signal = signal_of(machine, name);
    if (signal && signal->owner == owner_of(machine)) {
        __atomic_store_n(&signal->id, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&signal->owner, 0, __ATOMIC_SEQ_CST);
    }
}

int sim_signal_record(struct sim_machine *machine, const struct sim_signal_name *name,
                      uint32_t context, uint64_t seq) {
    struct sim_signal *signal = signal_of(machine, name);
    if (!signal)
        return ENOENT;
    __atomic_store_n(&signal->recording, (uint64_t)context << SEQ_BITS | seq, __ATOMIC_SEQ_CST);
    return 0;
}

int sim_signal_look(struct sim_machine *machine, const struct sim_signal_name *name,
                    struct sim_dep *recording) {
    const struct sim_signal *signal = signal_of(machine, name);
    if (!signal)
        return ENOENT;
    uint64_t word = __atomic_load_n(&signal->recording, __ATOMIC_SEQ_CST);
    *recording = (struct sim_dep){.seq = word & ((UINT64_C(1) << SEQ_BITS) - 1),
                                  .context = (uint32_t)(word >> SEQ_BITS)};
    return 0;
}

bool sim_work_ended(struct sim_machine *machine, struct sim_dep work) {
    struct sim_engines *engines;
    bool ended;
    if (!work.seq || work.context >= SIM_CONTEXTS_MAX)
        return true;
    do {
        engines = sim_lock(machine);
        struct sim_item *item = engines->contexts[work.context].serial
                                    ? sim_engines_item(engines, work.context, work.seq)
                                    : NULL;
        ended = !item || item->finish_ns;
    } while (!sim_unlock(machine, engines));
    return ended;
}
