// mig.c: MIG instances of the machine: made, looked at, taken away (mig.h has the rules).
//
// All is done under the lock of the engines, whose state the division is part of. A creation that
// must be repeated, since its region was taken away, finds what it has made by its number; a
// destruction finds that it is gone.
#include "engine.h"

#include <errno.h>
#include <string.h>

#define WORD_BITS 8
#define WORD_VALUE ((1u << WORD_BITS) - 1)

static struct sim_gpu_config *card_of(struct sim_machine *machine, unsigned card) {
    struct sim_config *config = &machine->file->config;
    return card < config->gpu_count ? &config->gpus[card] : NULL;
}

static uint64_t new_number(struct sim_machine *machine) {
    return __atomic_add_fetch(&machine->file->creations, 1, __ATOMIC_SEQ_CST) << WORD_BITS;
}

void sim_mig_read(const struct sim_engines *engines, unsigned card, struct sim_mig_state *state) {
    const struct sim_mig_words *words = &engines->mig[card];
    state->enabled = (words->mode & SIM_MIG_ENABLED) != 0;
    state->pending = (words->mode & SIM_MIG_PENDING) != 0;
    for (unsigned i = 0; i < SIM_MIG_SLICES; i++) {
        state->instance[i] = words->instance[i] & WORD_VALUE;
        state->compute[i] = words->compute[i] & WORD_VALUE;
    }
}

int sim_mig_look(struct sim_machine *machine, unsigned card, struct sim_mig_state *state) {
    if (!card_of(machine, card))
        return EINVAL;
    struct sim_engines *engines;
    do {
        engines = sim_lock(machine);
        sim_mig_read(engines, card, state);
    } while (!sim_unlock(machine, engines));
    return 0;
}

void sim_mig_activate(struct sim_engines *engines) {
    uint32_t count = 0;
    for (; count < engines->gpu_count; count++)
        engines->active[count] = count;
    for (unsigned card = 0; card < engines->gpu_count; card++)
        for (unsigned place = 0; place < SIM_MIG_SLICES; place++)
            if (engines->mig[card].compute[place])
                engines->active[count++] = sim_mig_unit(card, place);
    engines->active_count = count;
}

// ---- Who is attached ----

// Whether a live process is attached to the card as a whole or has contexts on it; or, with a
// unit, to that MIG device.
static bool in_use(struct sim_machine *machine, unsigned card, unsigned unit) {
    const struct sim_file *file = machine->file;
    uint32_t used = __atomic_load_n(&file->processes_used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used; i++) {
        const struct sim_process *process = &file->processes[i];
        uint64_t serial = __atomic_load_n(&process->serial, __ATOMIC_ACQUIRE);
        uint64_t attached = __atomic_load_n(&process->attached, __ATOMIC_SEQ_CST);
        if (!sim_process_alive(file, i, serial))
            continue;
        if (unit ? sim_attached_unit(attached) == unit
                 : (sim_attached_cards(attached) >> card & 1) ||
                       sim_memory_contexts(machine, card, i))
            return true;
    }
    return false;
}

bool sim_mig_usable(const struct sim_engines *engines, uint64_t attached, unsigned gpu) {
    return gpu < SIM_GPUS_MAX ? !(engines->mig[gpu].mode & SIM_MIG_ENABLED)
                              : sim_attached_unit(attached) == gpu;
}

// The number of the GPU instance that a MIG device is in; 0: the MIG device is not there.
static unsigned instance_of(struct sim_machine *machine, const struct sim_engines *engines,
                            unsigned unit) {
    unsigned card = sim_mig_card(unit), place = sim_mig_place(unit);
    if (unit < SIM_GPUS_MAX || !card_of(machine, card) || !engines->mig[card].compute[place])
        return 0;
    struct sim_mig_state state;
    sim_mig_read(engines, card, &state);
    unsigned start = sim_mig_start_of(&card_of(machine, card)->mig, &state, place);
    return start < SIM_MIG_SLICES ? sim_mig_unit(card, start) : 0;
}

// Whether this process is attached to the MIG device, of which all is known then.
static bool is_mine(const struct sim_machine *machine, unsigned unit) {
    return machine->serial &&
           sim_attached_unit(machine->file->processes[machine->slot].attached) == unit;
}

unsigned sim_mig_instance_of(struct sim_machine *machine, unsigned unit) {
    if (is_mine(machine, unit))
        return sim_attached_instance(machine->file->processes[machine->slot].attached);
    struct sim_engines *engines;
    unsigned instance;
    do {
        engines = sim_lock(machine);
        instance = instance_of(machine, engines, unit);
    } while (!sim_unlock(machine, engines));
    return instance;
}

int sim_gpu_describe(struct sim_machine *machine, unsigned gpu, struct sim_gpu_config *config) {
    const struct sim_gpu_config *card = card_of(machine, sim_mig_card(gpu));
    if (!card)
        return EINVAL;
    if (gpu < SIM_GPUS_MAX || is_mine(machine, gpu)) {
        *config = *sim_config_of(machine, gpu);
        return 0;
    }
    struct sim_mig_state state;
    int rc = sim_mig_look(machine, sim_mig_card(gpu), &state);
    if (rc || !state.compute[sim_mig_place(gpu)])
        return EINVAL;
    sim_mig_describe(card, &state, sim_mig_place(gpu), config);
    return 0;
}

// The attachment is written first: whoever looks for it later, under the lock, finds it, and who
// has looked before has by then taken away what is not there any more.
int sim_mig_attach(struct sim_machine *machine, uint32_t cards, unsigned unit) {
    struct sim_process *process = &machine->file->processes[machine->slot];
    struct sim_engines *engines;
    unsigned instance = 0;
    int rc;
    __atomic_store_n(&process->attached, cards | (uint64_t)unit << 16, __ATOMIC_SEQ_CST);
    do {
        engines = sim_lock(machine);
        instance = unit ? instance_of(machine, engines, unit) : 0;
        rc = unit && !instance ? ENODEV : 0;
        for (unsigned card = 0; card < SIM_GPUS_MAX; card++)
            if (cards >> card & 1 && !sim_mig_usable(engines, 0, card))
                rc = ENODEV;
        if (instance) {
            struct sim_mig_state state;
            sim_mig_read(engines, sim_mig_card(unit), &state);
            sim_mig_describe(card_of(machine, sim_mig_card(unit)), &state, sim_mig_place(unit),
                             &machine->device);
        }
    } while (!sim_unlock(machine, engines));
    uint64_t attached = cards | (uint64_t)unit << 16 | (uint64_t)instance << 32;
    __atomic_store_n(&process->attached, rc ? 0 : attached, __ATOMIC_SEQ_CST);
    return rc;
}

// ---- Changes ----

int sim_mig_set_mode(struct sim_machine *machine, unsigned card, bool enabled) {
    const struct sim_gpu_config *config = card_of(machine, card);
    if (!config)
        return EINVAL;
    if (!config->mig.profile_count)
        return ENOTSUP;
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        struct sim_mig_words *words = &engines->mig[card];
        uint64_t now = words->mode & SIM_MIG_ENABLED, wanted = enabled ? SIM_MIG_ENABLED : 0;
        bool busy = in_use(machine, card, 0);
        for (unsigned i = 0; i < SIM_MIG_SLICES; i++)
            busy |= words->instance[i] != 0;
        rc = now != wanted && busy ? EBUSY : 0;
        words->mode = (rc ? now : wanted) | (enabled ? SIM_MIG_PENDING : 0);
    } while (!sim_unlock(machine, engines));
    return rc;
}

// The word that has this number above its value; NULL: none.
static uint64_t *made_before(uint64_t words[SIM_MIG_SLICES], uint64_t number) {
    for (unsigned i = 0; i < SIM_MIG_SLICES; i++)
        if (words[i] && (words[i] & ~(uint64_t)WORD_VALUE) == number)
            return &words[i];
    return NULL;
}

static int create(struct sim_engines *engines, const struct sim_gpu_config *config, unsigned card,
                  unsigned profile, unsigned start, uint64_t number, unsigned *at) {
    struct sim_mig_words *words = &engines->mig[card];
    uint64_t *made = made_before(words->instance, number);
    if (made) {
        *at = (unsigned)(made - words->instance);
        return 0;
    }
    struct sim_mig_state state;
    sim_mig_read(engines, card, &state);
    if (!state.enabled)
        return ENOTSUP;
    if (start == SIM_MIG_ANYWHERE)
        start = sim_mig_best_start(&config->mig, &state, profile);
    if (start >= SIM_MIG_SLICES || sim_mig_fits(&config->mig, &state, profile, start))
        return ENOSPC;
    words->instance[start] = number | (profile + 1);
    *at = start;
    return 0;
}

int sim_mig_create(struct sim_machine *machine, unsigned card, unsigned profile, unsigned start,
                   unsigned *at) {
    const struct sim_gpu_config *config = card_of(machine, card);
    if (!config || profile >= config->mig.profile_count)
        return EINVAL;
    if (start != SIM_MIG_ANYWHERE &&
        (start >= SIM_MIG_SLICES || !(config->mig.profiles[profile].starts >> start & 1)))
        return EINVAL;
    uint64_t number = new_number(machine);
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        rc = create(engines, config, card, profile, start, number, at);
    } while (!sim_unlock(machine, engines));
    return rc;
}

int sim_mig_destroy(struct sim_machine *machine, unsigned card, unsigned start) {
    const struct sim_gpu_config *config = card_of(machine, card);
    if (!config || start >= SIM_MIG_SLICES)
        return EINVAL;
    struct sim_engines *engines;
    uint64_t mine = 0;
    int rc;
    do {
        engines = sim_lock(machine);
        uint64_t *word = &engines->mig[card].instance[start];
        struct sim_mig_state state;
        sim_mig_read(engines, card, &state);
        if (!*word || (mine && *word != mine)) {
            rc = mine ? 0 : ENOENT;
            continue;
        }
        rc = 0;
        for (unsigned place = 0; place < SIM_MIG_SLICES; place++)
            if (state.compute[place] && sim_mig_start_of(&config->mig, &state, place) == start)
                rc = EBUSY;
        if (!rc) {
            mine = *word;
            *word = 0;
        }
    } while (!sim_unlock(machine, engines));
    return rc;
}

static int create_compute(struct sim_engines *engines, const struct sim_gpu_config *config,
                          unsigned card, unsigned start, unsigned slices, unsigned within,
                          uint64_t number, unsigned *at) {
    struct sim_mig_words *words = &engines->mig[card];
    uint64_t *made = made_before(words->compute, number);
    if (made) {
        *at = (unsigned)(made - words->compute);
        sim_mig_activate(engines);
        return 0;
    }
    struct sim_mig_state state;
    sim_mig_read(engines, card, &state);
    if (!state.instance[start])
        return ENOENT;
    unsigned whole = config->mig.profiles[state.instance[start] - 1].compute_slices;
    uint32_t starts = sim_mig_compute_starts(whole, slices);
    if (!starts || (within != SIM_MIG_ANYWHERE && (within >= whole || !(starts >> within & 1))))
        return EINVAL;
    uint32_t free = sim_mig_compute_free(&config->mig, &state, start, slices);
    if (within != SIM_MIG_ANYWHERE)
        free &= 1u << within;
    if (!free)
        return ENOSPC;
    unsigned place = start + (unsigned)__builtin_ctz(free);
    state.compute[place] = (uint8_t)slices;
    struct sim_gpu_config device;
    sim_mig_describe(config, &state, place, &device);
    sim_engines_start(engines, sim_mig_unit(card, place), &device, engines->gpus[0].now_ns);
    __atomic_store_n(&words->compute[place], number | slices, __ATOMIC_RELEASE);
    sim_mig_activate(engines);
    *at = place;
    return 0;
}

int sim_mig_create_compute(struct sim_machine *machine, unsigned card, unsigned start,
                           unsigned slices, unsigned within, unsigned *at) {
    const struct sim_gpu_config *config = card_of(machine, card);
    if (!config || start >= SIM_MIG_SLICES || slices > SIM_MIG_SLICES)
        return EINVAL;
    uint64_t number = new_number(machine);
    struct sim_engines *engines;
    int rc;
    do {
        engines = sim_lock(machine);
        rc = create_compute(engines, config, card, start, slices, within, number, at);
    } while (!sim_unlock(machine, engines));
    return rc;
}

// Contexts that are still in the books of a MIG device belong to the dead.
static void drop_contexts(struct sim_engines *engines, unsigned unit) {
    for (uint32_t i = 0; i < engines->contexts_used; i++)
        if (engines->contexts[i].serial && engines->contexts[i].gpu == unit)
            sim_engines_close(engines, i);
    sim_engines_rebuild(engines);
}

int sim_mig_destroy_compute(struct sim_machine *machine, unsigned card, unsigned place) {
    if (!card_of(machine, card) || place >= SIM_MIG_SLICES)
        return EINVAL;
    struct sim_engines *engines;
    uint64_t mine = 0;
    int rc;
    do {
        engines = sim_lock(machine);
        uint64_t *word = &engines->mig[card].compute[place];
        if (!*word || (mine && *word != mine)) {
            rc = mine ? 0 : ENOENT;
            continue;
        }
        rc = in_use(machine, card, sim_mig_unit(card, place)) ? EBUSY : 0;
        if (!rc) {
            mine = *word;
            drop_contexts(engines, sim_mig_unit(card, place));
            *word = 0;
            sim_mig_activate(engines);
        }
    } while (!sim_unlock(machine, engines));
    return rc;
}
