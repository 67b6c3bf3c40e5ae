// Which processes have a context on a GPU, on any of the MIG devices of a card, or on one MIG
// device. All that the simulated GPU runs is compute work of processes on their own, so the lists
// of graphics and MPS processes are empty.
#include "query.h"

// Puts a process at place `at` of a caller's list, in the layout of that list.
typedef void put_process(void *list, unsigned at, const struct nvml_process *process);

static void put_v1(void *list, unsigned at, const struct nvml_process *process) {
    ((struct nvml_process_v1 *)list)[at] =
        (struct nvml_process_v1){.pid = process->pid, .used_bytes = process->used_bytes};
}

static void put_v2(void *list, unsigned at, const struct nvml_process *process) {
    ((struct nvml_process *)list)[at] = *process;
}

// What a process has on the device asked for. False: nothing.
static bool found_on(const struct sim_nvml_query *query, const struct sim_process_state *state,
                     struct nvml_process *process) {
    bool on_card = query->unit < SIM_GPUS_MAX;
    bool in_mig = state->unit != 0 &&
                  (on_card ? sim_mig_card(state->unit) == query->unit : state->unit == query->unit);
    if (!on_card && !in_mig) {
        return false;
    }
    const struct sim_process_gpu *on = &state->gpus[in_mig ? SIM_GPUS_MAX : query->unit];
    *process = (struct nvml_process){
        .pid = (uint32_t)state->pid,
        .used_bytes = on->allocated_bytes + on->context_bytes,
        .gpu_instance = NVML_NO_INSTANCE,
        .compute_instance = NVML_NO_INSTANCE,
    };
    unsigned place = in_mig ? sim_mig_place(state->unit) : 0;
    unsigned start = sim_mig_start_of(&query->config->gpus[query->index].mig, &query->mig, place);
    if (in_mig && start < SIM_MIG_SLICES) {
        process->gpu_instance = sim_nvml_instance_id(query, start);
        process->compute_instance = place - start;
    }
    return state->alive && on->contexts != 0;
}

// Lists the live processes with a context, as far as there is room, and counts them all.
static unsigned list_compute(const struct sim_nvml_query *query, void *list, unsigned room,
                             put_process *put) {
    struct sim_process_state state;
    struct nvml_process process;
    unsigned count = 0;
    for (unsigned slot = 0; sim_machine_process(query->machine, slot, &state) == 0; slot++) {
        if (!found_on(query, &state, &process)) {
            continue;
        }
        if (count < room) {
            put(list, count, &process);
        }
        count++;
    }
    return count;
}

static int compute(struct nvml_device *device, unsigned *count, void *list, put_process *put) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
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
    int code = sim_nvml_begin_device(&query, device);
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
