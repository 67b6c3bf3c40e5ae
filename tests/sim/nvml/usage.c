// How full and how busy a GPU is, from the machine's books.
#include "query.h"

// How far back utilisation looks: from one to two of these, or to the last query if that is longer.
#define WINDOW_NS UINT64_C(1000000000)

struct sample {
    uint64_t now_ns;
    uint64_t busy_ns;
    uint64_t copy_ns;  // of both directions
};

// Under NVML's lock. Utilisation is that since `older`.
static struct {
    struct sample older;
    struct sample newer;
} history[SIM_GPUS_MAX];

static bool take_sample(struct sim_machine *machine, unsigned gpu, struct sample *sample) {
    struct sim_gpu_state state;
    if (sim_machine_gpu(machine, gpu, &state) != 0) {
        return false;
    }
    *sample = (struct sample){
        .now_ns = state.now_ns,
        .busy_ns = state.busy_ns,
        .copy_ns = state.copy_ns[0] + state.copy_ns[1],
    };
    return true;
}

void sim_nvml_usage_start(struct sim_machine *machine) {
    unsigned count = sim_machine_config(machine)->gpu_count;
    for (unsigned gpu = 0; gpu < count; gpu++) {
        take_sample(machine, gpu, &history[gpu].newer);
        history[gpu].older = history[gpu].newer;
    }
}

static unsigned percent(uint64_t part, uint64_t whole) {
    if (whole == 0) {
        return 0;
    }
    return part >= whole ? 100 : (unsigned)(part * 100 / whole);
}

// The memory's share is the mean of the two copy engines': the machine does not know how much a
// kernel uses the memory. Neither a divided card nor a MIG device has any.
int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilisation *rates) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    struct sample now;
    if (rates == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    if (query.mig.enabled) {
        return sim_nvml_end(NVML_NOT_SUPPORTED);
    }
    if (!take_sample(query.machine, query.index, &now)) {
        return sim_nvml_end(NVML_UNKNOWN);
    }
    if (now.now_ns - history[query.index].newer.now_ns >= WINDOW_NS) {
        history[query.index].older = history[query.index].newer;
        history[query.index].newer = now;
    }
    const struct sample *base = &history[query.index].older;
    uint64_t window_ns = now.now_ns - base->now_ns;
    rates->gpu_percent = percent(now.busy_ns - base->busy_ns, window_ns);
    rates->memory_percent = percent(now.copy_ns - base->copy_ns, 2 * window_ns);
    return sim_nvml_end(NVML_OK);
}

// Used, free and what the driver keeps for itself add up to the total.
static int read_memory(struct nvml_device *device, struct nvml_memory_v2 *memory) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    uint64_t free_bytes;
    uint64_t total_bytes;
    sim_memory_info(query.machine, query.unit, &free_bytes, &total_bytes);
    sim_limit_clamp(query.machine, query.unit, &free_bytes, &total_bytes);
    *memory = (struct nvml_memory_v2){
        .total = total_bytes + query.gpu->reserved_bytes,
        .reserved = query.gpu->reserved_bytes,
        .free = free_bytes,
        .used = total_bytes - free_bytes,
    };
    return sim_nvml_end(NVML_OK);
}

// The first version counts as used what the driver keeps.
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *to) {
    struct nvml_memory_v2 found;
    int code = read_memory(device, &found);
    if (code == NVML_OK && to == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    if (code == NVML_OK) {
        *to = (struct nvml_memory){
            .total = found.total,
            .free = found.free,
            .used = found.used + found.reserved,
        };
    }
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *to) {
    struct nvml_memory_v2 found;
    int code = read_memory(device, &found);
    if (code != NVML_OK) {
        return code;
    }
    if (to == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    if (to->version != NVML_MEMORY_V2) {
        return NVML_VERSION_MISMATCH;
    }
    found.version = to->version;
    *to = found;
    return NVML_OK;
}

// The window through which the host sees device memory: all of it, and nothing is mapped.
int nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *device, struct nvml_memory *to) {
    struct nvml_memory_v2 found;
    int code = read_memory(device, &found);
    if (code == NVML_OK && to == NULL) {
        return NVML_INVALID_ARGUMENT;
    }
    if (code == NVML_OK) {
        *to = (struct nvml_memory){.total = found.total, .free = found.total, .used = 0};
    }
    return code;
}
