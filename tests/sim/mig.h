// mig.h: cards divided into MIG instances.
//
// A GPU instance takes a run of a card's memory slices, and with it a share of its memory and
// multiprocessors; a compute instance takes a run of the compute slices of its GPU instance. The
// compute instance is what a program sees: a MIG device, with the memory of its GPU instance and an
// engine of its own. What can be made where is the card's geometry. Rules:
//   - the whole division of a card is a handful of words, each set in one step: a process that dies
//     or stops between two of them leaves a division that is valid;
//   - a card is divided, or made whole, only while no process is attached to it, and an instance is
//     taken away only while no process is attached to a MIG device in it;
//   - a process is attached to the cards that it sees, and to one MIG device at most.
// Functions return 0 or an errno value.
#ifndef SIM_MIG_H
#define SIM_MIG_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_MIG_SLICES 8u         // memory slices of a card, at most
#define SIM_MIG_PROFILES_MAX 12u  // of GPU instances, on one card
#define SIM_MIG_ANYWHERE UINT32_MAX
#define SIM_MIG_NAME_BYTES 20u

// What a profile has beside its slices.
enum sim_mig_attribute {
    SIM_MIG_MEDIA = 1 << 0,      // the media engines: one such instance on a card
    SIM_MIG_ALL_MEDIA = 1 << 1,  // all of them, likewise
    SIM_MIG_GRAPHICS = 1 << 2,
};

// A kind of GPU instance.
struct sim_mig_profile {
    char name[SIM_MIG_NAME_BYTES];  // "1g.5gb+me", zero-terminated
    uint32_t id;                    // by which it is named to NVML, as `nvidia-smi mig` shows it
    uint32_t kind;                  // NVML's constant, by which it is asked for
    uint32_t compute_slices;
    uint32_t memory_slices;  // the length of its placements
    uint32_t starts;         // bit n: an instance may begin at memory slice n
    uint32_t instances_max;  // of this profile, at once
    uint32_t attributes;     // enum sim_mig_attribute
    uint32_t sm_count;
    uint32_t reserved;
    uint64_t memory_bytes;
};

// A card's geometry. profile_count 0: the card cannot be divided.
struct sim_mig_geometry {
    uint32_t compute_slices;
    uint32_t memory_slices;
    uint32_t profile_count;
    uint32_t reserved;
    struct sim_mig_profile profiles[SIM_MIG_PROFILES_MAX];
};

// How a card is divided.
struct sim_mig_state {
    uint8_t enabled;
    uint8_t pending;  // what it will be once it is set again on an idle card
    // By memory slice: 1 + the profile of the GPU instance that begins there; 0: none does.
    uint8_t instance[SIM_MIG_SLICES];
    // By first slice of the GPU instance + first compute slice within: the compute slices of the
    // compute instance that begins there; 0: none does. Instances never meet in this.
    uint8_t compute[SIM_MIG_SLICES];
};

struct sim_machine;
struct sim_config;
struct sim_gpu_config;

// Whether a geometry can be: its numbers are within bounds.
bool sim_mig_sane(const struct sim_mig_geometry *geometry);

// ---- Numbers ----

// A MIG device's number among the machine's GPUs, by its card and its place in `compute`.
unsigned sim_mig_unit(unsigned card, unsigned place);
// Back again; a card is its own card.
unsigned sim_mig_card(unsigned unit);
unsigned sim_mig_place(unsigned unit);

// ---- Rules, pure ----

// Where the GPU instance begins that a memory slice belongs to; SIM_MIG_SLICES: to none.
unsigned sim_mig_start_of(const struct sim_mig_geometry *geometry,
                          const struct sim_mig_state *state, unsigned slice);

// Whether a GPU instance can be made. ENOSPC: something is in its way.
int sim_mig_fits(const struct sim_mig_geometry *geometry, const struct sim_mig_state *state,
                 unsigned profile, unsigned start);

// The start that leaves most placements of all profiles possible, the lowest of these;
// SIM_MIG_SLICES where none fits.
unsigned sim_mig_best_start(const struct sim_mig_geometry *geometry,
                            const struct sim_mig_state *state, unsigned profile);

// How many more instances of a profile there could be.
unsigned sim_mig_capacity(const struct sim_mig_geometry *geometry,
                          const struct sim_mig_state *state, unsigned profile);

// Numbers of GPU instances: those of one length follow each other, the longest first.
unsigned sim_mig_instance_id(const struct sim_mig_geometry *geometry, unsigned profile,
                             unsigned start);

// The starts, as bits, that a compute instance of so many slices has in a GPU instance of `whole`
// compute slices; 0: there are none so long.
uint32_t sim_mig_compute_starts(unsigned whole, unsigned slices);

// Where compute instances of so many slices can be made now, as bits, in the GPU instance that
// begins at `start`.
uint32_t sim_mig_compute_free(const struct sim_mig_geometry *geometry,
                              const struct sim_mig_state *state, unsigned start, unsigned slices);

// The MIG device of a compute instance as a GPU: its name, UUID and share of the card.
void sim_mig_describe(const struct sim_gpu_config *card, const struct sim_mig_state *state,
                      unsigned place, struct sim_gpu_config *config);

// ---- The machine's ----

// EINVAL: no such card.
int sim_mig_look(struct sim_machine *machine, unsigned card, struct sim_mig_state *state);

// Divides a card or makes it whole. EBUSY: processes are attached to it or instances are there; the
// mode is pending then. ENOTSUP: it has no geometry.
int sim_mig_set_mode(struct sim_machine *machine, unsigned card, bool enabled);

// Makes a GPU instance at a memory slice or SIM_MIG_ANYWHERE; *at is where. ENOTSUP: MIG is not
// enabled; EINVAL: no such profile or placement; ENOSPC.
int sim_mig_create(struct sim_machine *machine, unsigned card, unsigned profile, unsigned start,
                   unsigned *at);
// ENOENT; EBUSY: compute instances are in it.
int sim_mig_destroy(struct sim_machine *machine, unsigned card, unsigned start);

// Makes a compute instance in the GPU instance that begins at `start`, `within` slices from its
// beginning or SIM_MIG_ANYWHERE; *at is where. ENOENT: no such GPU instance; EINVAL; ENOSPC.
int sim_mig_create_compute(struct sim_machine *machine, unsigned card, unsigned start,
                           unsigned slices, unsigned within, unsigned *at);
// By its place in `compute`. ENOENT; EBUSY: a process is attached to it.
int sim_mig_destroy_compute(struct sim_machine *machine, unsigned card, unsigned place);

// Attaches this process to cards, as bits, and to a MIG device (0: none), once and for its life.
// ENODEV: a card is divided, or the MIG device is gone.
int sim_mig_attach(struct sim_machine *machine, uint32_t cards, unsigned unit);

#endif
