// What a card is for ever, and how it is set up. What the simulated one has none of (temperature,
// power, fans) is not answered at all.
#include "query.h"

// What gives the value for a GPU.
typedef unsigned property(const struct sim_nvml_query *query);

static int answer(struct nvml_device *device, property *value, unsigned *to) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (to == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *to = value(&query);
    return sim_nvml_end(NVML_OK);
}

static unsigned own_index(const struct sim_nvml_query *query) {
    return query->index;
}

static unsigned zero(const struct sim_nvml_query *query) {
    (void)query;
    return 0;
}

static unsigned one(const struct sim_nvml_query *query) {
    (void)query;
    return 1;
}

static unsigned bus_width(const struct sim_nvml_query *query) {
    return query->gpu->memory_bus_bits;
}

// NVML counts architectures: 6 is Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell.
static unsigned architecture(const struct sim_nvml_query *query) {
    uint32_t major = query->gpu->compute_major, minor = query->gpu->compute_minor;
    if (major < 8) {
        return major == 7 && minor < 5 ? 5 : 6;
    }
    return major == 8 ? (minor == 9 ? 8 : 7) : major == 9 ? 9 : 10;
}

// Of a MIG device: its index among those of its card.
int nvmlDeviceGetIndex(struct nvml_device *device, unsigned *index) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (index == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *index = query.index;
    if (query.unit >= SIM_GPUS_MAX) {
        *index = 0;
        for (unsigned place = 0; place < sim_mig_place(query.unit); place++) {
            *index += query.mig.compute[place] != 0;
        }
    }
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned *minor) {
    return answer(device, own_index, minor);
}

// 0: any number of processes and contexts.
int nvmlDeviceGetComputeMode(struct nvml_device *device, unsigned *mode) {
    return answer(device, zero, mode);
}

int nvmlDeviceGetPersistenceMode(struct nvml_device *device, unsigned *enabled) {
    return answer(device, one, enabled);
}

int nvmlDeviceGetDisplayMode(struct nvml_device *device, unsigned *enabled) {
    return answer(device, zero, enabled);
}

int nvmlDeviceGetDisplayActive(struct nvml_device *device, unsigned *enabled) {
    return answer(device, zero, enabled);
}

// 0: unknown. It is nobody's board.
int nvmlDeviceGetBrand(struct nvml_device *device, unsigned *brand) {
    return answer(device, zero, brand);
}

int nvmlDeviceGetMultiGpuBoard(struct nvml_device *device, unsigned *several) {
    return answer(device, zero, several);
}

int nvmlDeviceGetArchitecture(struct nvml_device *device, unsigned *number) {
    return answer(device, architecture, number);
}

int nvmlDeviceGetMemoryBusWidth(struct nvml_device *device, unsigned *bits) {
    return answer(device, bus_width, bits);
}

// Clocks never change: each is always at its most. 0 graphics, 1 multiprocessors, 2 memory.
int nvmlDeviceGetMaxClockInfo(struct nvml_device *device, int clock, unsigned *mhz) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (mhz == NULL || clock < 0 || clock > 3) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    uint32_t khz = clock == 2 ? query.gpu->memory_clock_khz : query.gpu->clock_khz;
    *mhz = khz / 1000;
    return sim_nvml_end(clock < 3 && khz > 0 ? NVML_OK : NVML_NOT_SUPPORTED);
}

int nvmlDeviceGetClockInfo(struct nvml_device *device, int clock, unsigned *mhz) {
    return nvmlDeviceGetMaxClockInfo(device, clock, mhz);
}

int nvmlDeviceGetCudaComputeCapability(struct nvml_device *device, int *major, int *minor) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (major == NULL || minor == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *major = (int)query.gpu->compute_major;
    *minor = (int)query.gpu->compute_minor;
    return sim_nvml_end(NVML_OK);
}
