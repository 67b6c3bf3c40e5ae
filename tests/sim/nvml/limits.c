// Limits of device memory that control groups have, where the machine's driver holds them.
#include "query.h"

#include <errno.h>
#include <unistd.h>

// Begins a query about the limits of a card. NVML_NOT_SUPPORTED also where the driver holds none,
// or the card is divided.
static int begin_limits(struct sim_nvml_query *query, const struct nvml_device *device) {
    int code = sim_nvml_begin_device(query, device);
    if (code != NVML_OK) {
        return code;
    }
    bool held = query->config->memory_limits && query->unit < SIM_GPUS_MAX && !query->mig.enabled;
    return held ? NVML_OK : sim_nvml_end(NVML_NOT_SUPPORTED);
}

static int code_of(int error) {
    switch (error) {
    case 0:
        return NVML_OK;
    case ENOENT:
        return NVML_NOT_FOUND;
    case ENOSPC:
        return NVML_INSUFFICIENT_RESOURCES;
    case EIO:
        return NVML_OPERATING_SYSTEM;
    }
    return NVML_UNKNOWN;
}

int nvmlDeviceSetMemoryLimits_v1(struct nvml_device *device,
                                 struct nvml_set_memory_limits *limits) {
    struct sim_nvml_query query;
    int code = begin_limits(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    uint64_t total = query.gpu->memory_bytes + query.gpu->reserved_bytes;
    if (limits == NULL || limits->directory == NULL || limits->soft > limits->hard ||
        (limits->soft > total && limits->soft != NVML_LIMIT_MAX) ||
        (limits->hard > total && limits->hard != NVML_LIMIT_MAX)) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (geteuid() != 0) {
        return sim_nvml_end(NVML_NO_PERMISSION);
    }
    return sim_nvml_end(code_of(
        sim_limit_set(query.machine, query.index, limits->directory, limits->soft, limits->hard)));
}

int nvmlDeviceGetMemoryLimits_v1(struct nvml_device *device, struct nvml_memory_limits *limits) {
    struct sim_nvml_query query;
    int code = begin_limits(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (limits == NULL || limits->directory == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    struct sim_limit limit;
    code = code_of(sim_limit_get(query.machine, query.index, limits->directory, &limit));
    if (code == NVML_OK) {
        limits->soft = limit.soft_bytes;
        limits->hard = limit.hard_bytes;
        limits->used = limit.used_bytes;
    }
    return sim_nvml_end(code);
}
