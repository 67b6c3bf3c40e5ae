// test_machine.c: see test_machine.h.
#define _GNU_SOURCE
#include "test_machine.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64], path[128];

static struct sim_machine *machine;

// The UUID of a GPU: of one that an agent knows, where the environment names such.
static void set_uuid(uint8_t *uuid, unsigned gpu) {
    const char *text = getenv("WEIR_TEST_UUIDS");
    memset(uuid, 0x10 + (int)gpu, 16);
    for (unsigned i = 0; text && i < gpu; i++)
        text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL;
    for (unsigned i = 0; text && i < 16; i++)
        CHECK_EQ(sscanf(text + 2 * i, "%2hhx", &uuid[i]), 1);
}

struct sim_config test_config(void) {
    struct sim_config config = {.gpu_count = 2, .scale = 64, .driver_version = "535.309"};
    for (unsigned i = 0; i < config.gpu_count; i++) {
        struct sim_gpu_config *gpu = &config.gpus[i];
        strcpy(gpu->name, "Simulated GPU");
        set_uuid(gpu->uuid, i);
        gpu->pci_bus = 0x3b + i;
        gpu->numa_node = -1;
        gpu->compute_major = 8;
        gpu->sm_count = 56;
        gpu->clock_khz = 1440000;
        gpu->memory_bytes = 64 * MIB;
        gpu->context_bytes = 2 * MIB;
        gpu->h2d_bytes_per_s = gpu->d2h_bytes_per_s = 400u * MIB;
        gpu->memory_bytes_per_s = 14000u * MIB;
        gpu->copy_latency_ns = 5000;
        gpu->switch_ns = 100000;
        gpu->launch_ns = 2600;
        gpu->kernel_ns = 5000;
        gpu->thread_ps = 100;
    }
    return config;
}

struct sim_machine *test_machine(const struct sim_config *config) {
    strcpy(directory, "/tmp/weir-sim-test-XXXXXX");
    CHECK(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/%s", directory, SIM_FILE);
    CHECK_EQ(sim_machine_create(path, config), 0);
    setenv("WEIR_SIM", directory, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_EQ(sim_machine_open(path, &machine), 0);
    return machine;
}

uint64_t test_used(unsigned gpu) {
    uint64_t bytes;
    CHECK_EQ(sim_memory_used(machine, gpu, &bytes), 0);
    return bytes;
}

struct sim_process_gpu test_books_of(pid_t pid, unsigned gpu) {
    struct sim_process_state state;
    for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
        if (state.pid == pid && state.alive)
            return state.gpus[gpu];
    CHECK(!"no such process");
    return (struct sim_process_gpu){0};
}

void test_machine_remove(void) {
    unlink(path);
    rmdir(directory);
}
