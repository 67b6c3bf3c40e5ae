// Which processes have a context on a GPU, on any of the MIG devices of a card, or on one MIG
// device. The simulated GPU draws nothing, so the lists of graphics processes are empty.
//
// A process whose program has the name of NVIDIA's MPS server stands for one: all that come to its
// GPU after it are its clients, to NVML only; their kernels take turns as ever. From compute
// capability 7.0 on clients are in both lists, each with its own memory. Before that the server has
// the memory of all, and its clients are in the list of MPS processes only, without a figure.
#include "query.h"

#include <string.h>

#define MPS_PROGRAM "nvidia-cuda-mps-server"
#define MPS_CLIENTS_OWN_MEMORY 7  // the compute capability from which on they have it
#define NOT_AVAILABLE UINT64_MAX

enum list { LIST_COMPUTE, LIST_MPS };

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

static bool is_server(const struct sim_process_state *state) {
    return strncmp(state->name, MPS_PROGRAM, sizeof(state->name) - 1) == 0;
}

// The oldest MPS server on the device asked for, and what all of its clients have there.
struct server {
    uint64_t serial;  // UINT64_MAX: there is none
    uint64_t clients_bytes;
};

static struct server find_server(const struct sim_nvml_query *query) {
    struct server server = {.serial = UINT64_MAX};
    struct sim_process_state state;
    struct nvml_process process;
    for (unsigned slot = 0; sim_machine_process(query->machine, slot, &state) == 0; slot++) {
        if (found_on(query, &state, &process) && is_server(&state) &&
            state.serial < server.serial) {
            server.serial = state.serial;
        }
    }
    for (unsigned slot = 0; sim_machine_process(query->machine, slot, &state) == 0; slot++) {
        if (found_on(query, &state, &process) && state.serial > server.serial) {
            server.clients_bytes += process.used_bytes;
        }
    }
    return server;
}

// Whether a process is in a list, and with which memory.
static bool listed_in(enum list list, const struct sim_nvml_query *query,
                      const struct server *server, const struct sim_process_state *state,
                      struct nvml_process *process) {
    bool own_memory = query->gpu->compute_major >= MPS_CLIENTS_OWN_MEMORY;
    if (state->serial > server->serial) {
        process->used_bytes = own_memory ? process->used_bytes : NOT_AVAILABLE;
        return list == LIST_MPS || own_memory;
    }
    if (state->serial == server->serial && !own_memory) {
        process->used_bytes += server->clients_bytes;
    }
    return list == LIST_COMPUTE;
}

// Lists the live processes with a context, as far as there is room, and counts them all.
static unsigned fill(enum list which, const struct sim_nvml_query *query, void *list, unsigned room,
                     put_process *put) {
    struct server server = find_server(query);
    struct sim_process_state state;
    struct nvml_process process;
    unsigned count = 0;
    for (unsigned slot = 0; sim_machine_process(query->machine, slot, &state) == 0; slot++) {
        if (!found_on(query, &state, &process) ||
            !listed_in(which, query, &server, &state, &process)) {
            continue;
        }
        if (count < room) {
            put(list, count, &process);
        }
        count++;
    }
    return count;
}

static int answer(enum list which, struct nvml_device *device, unsigned *count, void *list,
                  put_process *put) {
    struct sim_nvml_query query;
    int code = sim_nvml_begin_device(&query, device);
    if (code != NVML_OK) {
        return code;
    }
    if (count == NULL || (*count > 0 && list == NULL)) {
        return sim_nvml_end(NVML_INVALID_ARGUMENT);
    }
    unsigned room = *count;
    *count = fill(which, &query, list, room, put);
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
    return answer(LIST_COMPUTE, device, count, list, put_v1);
}

int nvmlDeviceGetComputeRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                            struct nvml_process *list) {
    return answer(LIST_COMPUTE, device, count, list, put_v2);
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                            struct nvml_process *list) {
    return answer(LIST_COMPUTE, device, count, list, put_v2);
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
    return answer(LIST_MPS, device, count, list, put_v1);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v2(struct nvml_device *device, unsigned *count,
                                               struct nvml_process *list) {
    return answer(LIST_MPS, device, count, list, put_v2);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct nvml_device *device, unsigned *count,
                                               struct nvml_process *list) {
    return answer(LIST_MPS, device, count, list, put_v2);
}
