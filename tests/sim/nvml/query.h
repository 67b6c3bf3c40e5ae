// How the functions of the simulated NVML get at the machine.
#pragma once

#include "../machine.h"
#include "nvml_abi.h"

// One query: between sim_nvml_begin and sim_nvml_end no other thread may shut NVML down.
struct sim_nvml_query {
    struct sim_machine *machine;
    const struct sim_config *config;
    // Of the device asked for, with sim_nvml_begin_gpu or sim_nvml_begin_device:
    unsigned index;                    // of the card
    unsigned unit;                     // its number in the machine, or that of the MIG device
    const struct sim_gpu_config *gpu;  // of the card, or of the MIG device
    struct sim_mig_state mig;          // of the card, with sim_nvml_begin_device
    struct sim_gpu_config device;      // where `gpu` of a MIG device lies
};

// Begins a query. NVML_UNINITIALISED; NVML_GPU_IS_LOST where the machine was taken down or replaced
// since it was opened. Only after NVML_OK must sim_nvml_end follow.
int sim_nvml_begin(struct sim_nvml_query *query);

// The same for one card; also NVML_INVALID_ARGUMENT where the handle is none of ours,
// NVML_NOT_SUPPORTED where it is a MIG device's, NVML_GPU_IS_LOST where the card fell off the bus.
int sim_nvml_begin_gpu(struct sim_nvml_query *query, const struct nvml_device *device);

// The same for a card or a MIG device. NVML_INVALID_ARGUMENT also where that was taken away.
int sim_nvml_begin_device(struct sim_nvml_query *query, const struct nvml_device *device);

// Ends a query and returns `code`.
int sim_nvml_end(int code);

// Whether this process may divide cards: root's and, as on a machine of one's own, the owner's of
// the machine file.
bool sim_nvml_may_change(void);

// Called with NVML locked when it is initialised: utilisation is counted from here on.
void sim_nvml_usage_start(struct sim_machine *machine);

// ---- handle.c: handles stand for numbers; they are valid addresses for ever and hold nothing ----

// Of a card or a MIG device by its number in the machine, and back: SIM_UNITS_MAX for no handle.
struct nvml_device *sim_nvml_handle(unsigned unit);
unsigned sim_nvml_handle_unit(const struct nvml_device *device);

// Of a GPU instance by its card and id. False: no handle.
struct nvml_gpu_instance *sim_nvml_instance_handle(unsigned card, unsigned id);
bool sim_nvml_instance_of(const struct nvml_gpu_instance *instance, unsigned *card, unsigned *id);

// Of a compute instance by its MIG device's number; SIM_UNITS_MAX for no handle.
struct nvml_compute_instance *sim_nvml_compute_handle(unsigned unit);
unsigned sim_nvml_compute_unit(const struct nvml_compute_instance *compute);

// ---- mig.c ----

// Begins a query of the card of a GPU instance, which begins at memory slice *start.
int sim_nvml_begin_instance(struct sim_nvml_query *query, const struct nvml_gpu_instance *instance,
                            unsigned *start);
// Begins a query of a card that is divided. NVML_NOT_SUPPORTED where it is not.
int sim_nvml_begin_divided(struct sim_nvml_query *query, const struct nvml_device *device);
// The profile of the GPU instance at a memory slice, and its id.
const struct sim_mig_profile *sim_nvml_profile_at(const struct sim_nvml_query *query,
                                                  unsigned start);
unsigned sim_nvml_instance_id(const struct sim_nvml_query *query, unsigned start);
// What changes of instances return: an errno value as NVML's code.
int sim_nvml_change_code(int error);

// The media engines that a profile has.
unsigned sim_nvml_decoders(const struct sim_mig_profile *profile);
bool sim_nvml_has_media(const struct sim_nvml_query *query, const struct sim_mig_profile *profile);

// ---- device.c ----

// A card's PCI addresses, all of it.
void sim_nvml_describe_pci(const struct sim_gpu_config *gpu, struct nvml_pci_info *pci);

// Copies text with its zero byte. NVML_INVALID_ARGUMENT, NVML_INSUFFICIENT_SIZE.
int sim_nvml_copy_text(const char *from, char *to, unsigned room);
