// See mig_machine.h.
#include "mig_machine.h"

#include "check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int check_failures;

static char directory[] = "/tmp/weir-mig-test-XXXXXX";
char machine_file[64];

bool mig_directory(void) {
    return mkdtemp(directory) != NULL && setenv("WEIR_SIM", directory, 1) == 0 &&
           sim_machine_path(machine_file, sizeof(machine_file)) == 0;
}

void mig_remove(void) {
    unlink(machine_file);
    rmdir(directory);
}

void mig_make(void) {
    struct sim_config config = {
        .cuda_version = 12020, .gpu_count = 2, .scale = 64, .driver_version = "535.309.01"};
    for (unsigned i = 0; i < config.gpu_count; i++) {
        config.gpus[i] = (struct sim_gpu_config){
            .name = "Simulated Test 4GB",
            .uuid = {0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, (uint8_t)i},
            .pci_bus = 0x3b + i,
            .compute_major = 8,
            .sm_count = 56,
            .memory_bytes = 64 * MIB,
            .context_bytes = CONTEXT,
            .h2d_bytes_per_s = 1000000000,
            .d2h_bytes_per_s = 1000000000,
            .memory_bytes_per_s = 1000000000,
        };
    }
    config.gpus[0].mig = (struct sim_mig_geometry){
        .compute_slices = SLICES,
        .memory_slices = SLICES,
        .profile_count = 4,
        .profiles = {{"1g.1gb", ONE, 0, 1, 1, 15, 4, 0, 14, 0, SLICE},
                     {"1g.1gb+me", ONE_MEDIA, 7, 1, 1, 15, 1, SIM_MIG_MEDIA, 14, 0, SLICE},
                     {"2g.2gb", TWO, 1, 2, 2, 5, 2, 0, 28, 0, 2 * SLICE},
                     {"4g.4gb", FOUR, 3, 4, 4, 1, 1, 0, 56, 0, 4 * SLICE}}};
    CHECK_EQUAL(sim_machine_create(machine_file, &config), 0);
}

struct nvml_device *gpu(unsigned index) {
    struct nvml_device *device = NULL;
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_OK);
    return device;
}

void mig_begin(void) {
    int activation = -1;
    mig_make();
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    CHECK_EQUAL(nvmlDeviceSetMigMode(gpu(0), 1, &activation), NVML_OK);
    CHECK_EQUAL(activation, NVML_OK);
}

void mig_end(void) {
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

struct nvml_gpu_instance *create(unsigned profile, unsigned start, unsigned size) {
    struct nvml_gpu_instance *instance = NULL;
    struct nvml_placement placement = {start, size};
    CHECK_EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), profile, &placement, &instance),
                NVML_OK);
    return instance;
}

struct nvml_compute_instance *compute(struct nvml_gpu_instance *instance, unsigned profile) {
    struct nvml_compute_instance *made = NULL;
    CHECK_EQUAL(nvmlGpuInstanceCreateComputeInstance(instance, profile, &made), NVML_OK);
    return made;
}

void check_memory(struct nvml_device *device, uint64_t total, uint64_t used) {
    struct nvml_memory memory;
    struct nvml_memory_v2 second = {.version = NVML_MEMORY_V2};
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_OK);
    CHECK_EQUAL(memory.total, total);
    CHECK_EQUAL(memory.used, used);
    CHECK_EQUAL(memory.free, total - used);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(device, &second), NVML_OK);
    CHECK_EQUAL(second.total, total);
    CHECK_EQUAL(second.used, used);
}

void kill_child(pid_t pid) {
    if (pid <= 0) {  // kill(-1) would end every process of the machine
        abort();
    }
    kill(pid, SIGKILL);
    CHECK_EQUAL(waitpid(pid, NULL, 0), pid);
}
