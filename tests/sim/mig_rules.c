// mig_rules.c: what MIG instances a card can have, and what they are as GPUs: pure functions.
#include "machine.h"

#include <errno.h>
#include <string.h>

bool sim_mig_sane(const struct sim_mig_geometry *geometry) {
    if (geometry->profile_count > SIM_MIG_PROFILES_MAX ||
        geometry->memory_slices > SIM_MIG_SLICES || geometry->compute_slices > SIM_MIG_SLICES)
        return false;
    for (unsigned i = 0; i < geometry->profile_count; i++) {
        const struct sim_mig_profile *profile = &geometry->profiles[i];
        // A compute slice has a memory slice of its own, so that places of MIG devices never meet.
        if (!profile->compute_slices || profile->compute_slices > profile->memory_slices ||
            profile->memory_slices > geometry->memory_slices || !profile->memory_bytes ||
            !profile->starts || !profile->sm_count || profile->name[SIM_MIG_NAME_BYTES - 1] ||
            profile->starts >> (geometry->memory_slices - profile->memory_slices + 1))
            return false;
    }
    return true;
}

unsigned sim_mig_unit(unsigned card, unsigned place) {
    return SIM_GPUS_MAX + card * SIM_MIG_SLICES + place;
}

unsigned sim_mig_card(unsigned unit) {
    return unit < SIM_GPUS_MAX ? unit : (unit - SIM_GPUS_MAX) / SIM_MIG_SLICES;
}

unsigned sim_mig_place(unsigned unit) {
    return (unit - SIM_GPUS_MAX) % SIM_MIG_SLICES;
}

// The profile of the GPU instance that begins at a slice; NULL: none does.
static const struct sim_mig_profile *profile_at(const struct sim_mig_geometry *geometry,
                                                const struct sim_mig_state *state, unsigned start) {
    unsigned number = state->instance[start];
    return number && number <= geometry->profile_count ? &geometry->profiles[number - 1] : NULL;
}

unsigned sim_mig_start_of(const struct sim_mig_geometry *geometry,
                          const struct sim_mig_state *state, unsigned slice) {
    for (unsigned start = 0; start <= slice && start < SIM_MIG_SLICES; start++) {
        const struct sim_mig_profile *profile = profile_at(geometry, state, start);
        if (profile && slice < start + profile->memory_slices)
            return start;
    }
    return SIM_MIG_SLICES;
}

// ---- GPU instances ----

// Whether what is there leaves a further instance of a profile its compute slices, its number and
// its media engines, wherever it would begin.
static bool allowed(const struct sim_mig_geometry *geometry, const struct sim_mig_state *state,
                    unsigned number) {
    const struct sim_mig_profile *profile = &geometry->profiles[number];
    const uint32_t media = SIM_MIG_MEDIA | SIM_MIG_ALL_MEDIA;
    unsigned compute = profile->compute_slices, same = 0;
    for (unsigned start = 0; start < geometry->memory_slices; start++) {
        const struct sim_mig_profile *other = profile_at(geometry, state, start);
        if (!other)
            continue;
        compute += other->compute_slices;
        same += other == profile;
        if (other->attributes & media && profile->attributes & media)
            return false;
    }
    return compute <= geometry->compute_slices && same < profile->instances_max;
}

static bool room(const struct sim_mig_geometry *geometry, const struct sim_mig_state *state,
                 unsigned number, unsigned start) {
    const struct sim_mig_profile *profile = &geometry->profiles[number];
    if (!(profile->starts >> start & 1))
        return false;
    for (unsigned slice = start; slice < start + profile->memory_slices; slice++)
        if (sim_mig_start_of(geometry, state, slice) != SIM_MIG_SLICES)
            return false;
    return true;
}

int sim_mig_fits(const struct sim_mig_geometry *geometry, const struct sim_mig_state *state,
                 unsigned profile, unsigned start) {
    return allowed(geometry, state, profile) && room(geometry, state, profile, start) ? 0 : ENOSPC;
}

// How many placements, of whatever profile, are possible.
static unsigned placements(const struct sim_mig_geometry *geometry,
                           const struct sim_mig_state *state) {
    unsigned count = 0;
    for (unsigned profile = 0; profile < geometry->profile_count; profile++)
        for (unsigned start = 0; start < geometry->memory_slices; start++)
            count += !sim_mig_fits(geometry, state, profile, start);
    return count;
}

unsigned sim_mig_best_start(const struct sim_mig_geometry *geometry,
                            const struct sim_mig_state *state, unsigned profile) {
    unsigned best = SIM_MIG_SLICES, most = 0;
    for (unsigned start = 0; start < geometry->memory_slices; start++) {
        if (sim_mig_fits(geometry, state, profile, start))
            continue;
        struct sim_mig_state after = *state;
        after.instance[start] = (uint8_t)(profile + 1);
        unsigned left = placements(geometry, &after);
        if (best == SIM_MIG_SLICES || left > most) {
            best = start;
            most = left;
        }
    }
    return best;
}

unsigned sim_mig_capacity(const struct sim_mig_geometry *geometry,
                          const struct sim_mig_state *state, unsigned profile) {
    struct sim_mig_state filled = *state;
    unsigned count = 0;
    // Placements of one profile all have the same length and do not overlap in part, so filling
    // from the left finds the most.
    for (unsigned start = 0; start < geometry->memory_slices; start++) {
        if (sim_mig_fits(geometry, &filled, profile, start))
            continue;
        filled.instance[start] = (uint8_t)(profile + 1);
        count++;
    }
    return count;
}

unsigned sim_mig_instance_id(const struct sim_mig_geometry *geometry, unsigned profile,
                             unsigned start) {
    unsigned length = geometry->profiles[profile].memory_slices;
    return geometry->memory_slices / length - 1 + start / length;
}

// ---- Compute instances ----

uint32_t sim_mig_compute_starts(unsigned whole, unsigned slices) {
    if (!slices || slices > whole)
        return 0;
    if (slices == whole)
        return 1;
    // Parts are aligned as the GPU instances of that size are.
    unsigned step = slices <= 2 ? slices : slices <= 4 ? 4 : 8;
    uint32_t starts = 0;
    for (unsigned start = 0; start + slices <= whole; start += step)
        starts |= 1u << start;
    return slices <= 4 ? starts : 0;
}

uint32_t sim_mig_compute_free(const struct sim_mig_geometry *geometry,
                              const struct sim_mig_state *state, unsigned start, unsigned slices) {
    const struct sim_mig_profile *profile = profile_at(geometry, state, start);
    if (!profile)
        return 0;
    uint32_t taken = 0, free = 0;
    for (unsigned i = 0; i < profile->compute_slices; i++)
        taken |= ((1u << (state->compute[start + i] & 15)) - 1) << i;
    uint32_t starts = sim_mig_compute_starts(profile->compute_slices, slices);
    for (unsigned i = 0; i < profile->compute_slices; i++)
        if (starts >> i & 1 && !(taken >> i & ((1u << slices) - 1)))
            free |= 1u << i;
    return free;
}

// ---- A MIG device as a GPU ----

static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

// The same instance of the same card has the same UUID each time, as on hardware. Version 8 is the
// one for values of one's own making (RFC 9562).
static void make_uuid(uint8_t uuid[16], uint64_t instance) {
    uint64_t half[2];
    memcpy(half, uuid, sizeof half);
    half[0] = mix(half[0] ^ mix(instance));
    half[1] = mix(half[1] ^ half[0]);
    memcpy(uuid, half, sizeof half);
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

static void append(char *text, size_t room, const char *more) {
    size_t length = strlen(text);
    strncpy(text + length, more, room - length - 1);
    text[room - 1] = 0;
}

// `part` of `whole` of a figure, at least 1.
static uint64_t share(uint64_t figure, uint64_t part, uint64_t whole) {
    uint64_t result = (uint64_t)((double)figure * (double)part / (double)whole);
    return result ? result : 1;
}

void sim_mig_describe(const struct sim_gpu_config *card, const struct sim_mig_state *state,
                      unsigned place, struct sim_gpu_config *config) {
    const struct sim_mig_geometry *geometry = &card->mig;
    unsigned start = sim_mig_start_of(geometry, state, place);
    const struct sim_mig_profile *profile = profile_at(geometry, state, start % SIM_MIG_SLICES);
    unsigned slices = state->compute[place];
    if (!profile || !slices)
        return;
    *config = *card;
    memset(&config->mig, 0, sizeof config->mig);
    append(config->name, sizeof config->name, " MIG ");
    if (slices < profile->compute_slices) {
        char part[] = {(char)('0' + slices), 'c', '.', 0};
        append(config->name, sizeof config->name, part);
    }
    append(config->name, sizeof config->name, profile->name);
    make_uuid(config->uuid,
              (uint64_t)profile->id << 24 | start << 16 | (uint64_t)(place - start) << 8 | slices);
    config->reserved_bytes = 0;
    config->memory_bytes = profile->memory_bytes / SIM_GRANULE * SIM_GRANULE;
    config->sm_count = (uint32_t)share(profile->sm_count, slices, profile->compute_slices);
    config->thread_ps = share(card->thread_ps, card->sm_count, config->sm_count);
    unsigned part = profile->memory_slices, whole = geometry->memory_slices;
    config->memory_bytes_per_s = share(card->memory_bytes_per_s, part, whole);
    config->h2d_bytes_per_s = share(card->h2d_bytes_per_s, part, whole);
    config->d2h_bytes_per_s = share(card->d2h_bytes_per_s, part, whole);
}
