// How the functions of the simulated NVML get at the machine.
#pragma once

#include "../machine.h"
#include "nvml_abi.h"

// One query: between sim_nvml_begin and sim_nvml_end no other thread may shut NVML down.
struct sim_nvml_query {
    struct sim_machine *machine;
    const struct sim_config *config;
    const struct sim_gpu_config *gpu;  // of the device asked for, with sim_nvml_begin_gpu
    unsigned index;                    // likewise
};

// Begins a query. NVML_UNINITIALISED; NVML_GPU_IS_LOST where the machine was taken down or replaced
// since it was opened. Only after NVML_OK must sim_nvml_end follow.
int sim_nvml_begin(struct sim_nvml_query *query);

// The same for one device; also NVML_INVALID_ARGUMENT where the handle is none of ours.
int sim_nvml_begin_gpu(struct sim_nvml_query *query, const struct nvml_device *device);

// Ends a query and returns `code`.
int sim_nvml_end(int code);

// Called with NVML locked when it is initialised: utilisation is counted from here on.
void sim_nvml_usage_start(struct sim_machine *machine);

// The handle of GPU `index`, which must be there, and back: SIM_GPUS_MAX for what is no handle.
struct nvml_device *sim_nvml_handle(unsigned index);
unsigned sim_nvml_handle_index(const struct nvml_device *device);

// Copies text with its zero byte. NVML_INVALID_ARGUMENT, NVML_INSUFFICIENT_SIZE.
int sim_nvml_copy_text(const char *from, char *to, unsigned room);
