// Which processes have a context on a GPU. All that the simulated GPU runs is compute work of
// processes on their own, so the lists of graphics and MPS processes are empty.
#include "query.h"

// Puts a process at place `at` of a caller's list, in the layout of that list.
typedef void put_process(void *list, unsigned at, uint32_t pid, uint64_t used_bytes);

static void put_v1(void *list, unsigned at, uint32_t pid, uint64_t used_bytes) {
    ((struct nvml_process_v1 *)list)[at] =
        (struct nvml_process_v1){.pid = pid, .used_bytes = used_bytes};
}

static void put_v2(void *list, unsigned at, uint32_t pid, uint64_t used_bytes) {
    ((struct nvml_process *)list)[at] = (struct nvml_process){
        .pid = pid,
        .used_bytes = used_bytes,
        .gpu_instance = NVML_NO_INSTANCE,
        .compute_instance = NVML_NO_INSTANCE,
    };
}

// Lists the live processes with a context, as far as there is room, and counts them all.
static unsigned list_compute(const struct sim_nvml_query *query, void *list, unsigned room,
                             put_process *put) {
    struct sim_process_state process;
    unsigned count = 0;
    for (unsigned slot = 0; sim_machine_process(query->machine, slot, &process) == 0; slot++) {
        const struct sim_process_gpu *on = &process.gpus[query->index];
        if (!process.alive || on->contexts == 0) {
            continue;
        }
        if (count < room) {
            put(list, count, (uint32_t)process.pid, on->allocated_bytes + on->context_bytes);
        }
        count++;
    }
    return count;
}

static int compute(struct nvml_device *device, unsigned *count, void *list, put_process *put) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL || (*count > 0 && list == NULL)) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    unsigned room = *count;
    *count = list_compute(&query, list, room, put);
    return sim_nvml_end(*count <= room ? NVML_OK : NVML_INSUFFICIENT_SIZE);
}

static int nobody(struct nvml_device *device, unsigned *count) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_gpu(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    *count = 0;
    return sim_nvml_end(NVML_OK);
}

int nvmlDeviceGetComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                         struct nvml_process_v1 *list) {
    return compute(device, count, list, put_v1);
}

int nvmlDeviceGetComputeRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                            struct nvml_process *list) {
    return compute(device, count, list, put_v2);
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                            struct nvml_process *list) {
    return compute(device, count, list, put_v2);
}

int nvmlDeviceGetGraphicsRunningProcesses(struct nvml_device *device, unsigned *count,
                                          struct nvml_process_v1 *list) {
    (void)list;
    return nobody(device, count);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                             struct nvml_process *list) {
    (void)list;
    return nobody(device, count);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                             struct nvml_process *list) {
    (void)list;
    return nobody(device, count);
}

int nvmlDeviceGetMPSComputeRunningProcesses(struct nvml_device *device, unsigned *count,
                                            struct nvml_process_v1 *list) {
    (void)list;
    return nobody(device, count);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                               struct nvml_process *list) {
    (void)list;
    return nobody(device, count);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                               struct nvml_process *list) {
    (void)list;
    return nobody(device, count);
}
