// Handles. They are addresses in here, and stand for places in the machine: what is there is looked
// up at each call, so a stale one harms nothing.
#include "query.h"

#define INSTANCE_IDS 16u  // ids of the GPU instances of one card are below

struct nvml_device {
    char unused;
};

struct nvml_gpu_instance {
    char unused;
};

struct nvml_compute_instance {
    char unused;
};

static struct nvml_device devices[SIM_UNITS_MAX];
static struct nvml_gpu_instance instances[SIM_GPUS_MAX][INSTANCE_IDS];
static struct nvml_compute_instance computes[SIM_UNITS_MAX];

struct nvml_device *sim_nvml_handle(unsigned unit) {
    return &devices[unit];
}

unsigned sim_nvml_handle_unit(const struct nvml_device *device) {
    uintptr_t offset = (uintptr_t)device - (uintptr_t)devices;
    return offset < sizeof(devices) ? (unsigned)(offset / sizeof(devices[0])) : SIM_UNITS_MAX;
}

struct nvml_gpu_instance *sim_nvml_instance_handle(unsigned card, unsigned id) {
    return &instances[card][id];
}

bool sim_nvml_instance_of(const struct nvml_gpu_instance *instance, unsigned *card, unsigned *id) {
    uintptr_t offset = (uintptr_t)instance - (uintptr_t)instances;
    if (offset >= sizeof(instances)) {
        return false;
    }
    *card = (unsigned)(offset / sizeof(instances[0]));
    *id = (unsigned)(offset % sizeof(instances[0]) / sizeof(instances[0][0]));
    return true;
}

struct nvml_compute_instance *sim_nvml_compute_handle(unsigned unit) {
    return &computes[unit];
}

unsigned sim_nvml_compute_unit(const struct nvml_compute_instance *compute) {
    uintptr_t offset = (uintptr_t)compute - (uintptr_t)computes;
    return offset < sizeof(computes) ? (unsigned)(offset / sizeof(computes[0])) : SIM_UNITS_MAX;
}
