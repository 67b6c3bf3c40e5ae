// Where cards sit, through the simulated NVML: common ancestors, peers, NVLinks, processors near.
// Cards 0 and 1 are behind one switch, 2 behind another below the same, 3 at the same bridge, 4 on
// the same node, 5 elsewhere. 0 and 3 are linked.
#include "../nvml_abi.h"

#include "../../machine.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS 6u
#define LINKS 2

int check_failures;

static char directory[] = "/tmp/weir-topology-test-XXXXXX";
static char machine_file[64];

static struct sim_config config(void) {
    static const uint8_t paths[CARDS][SIM_PCIE_DEPTH] = {{7, 1, 1}, {7, 1, 1}, {7, 1, 2},
                                                         {7},       {8},       {9}};
    static const int nodes[CARDS] = {0, 0, 0, 0, 0, 1};
    struct sim_config config = {
        .cuda_version = 12020, .gpu_count = CARDS, .scale = 64, .driver_version = "535.309.01"};
    for (unsigned i = 0; i < CARDS; i++) {
        config.gpus[i] = (struct sim_gpu_config){
            .name = "Simulated Test 4GB",
            .uuid = {(uint8_t)(i + 1)},
            .pci_bus = 0x3b + i,
            .numa_node = nodes[i],
            .compute_major = 8,
            .sm_count = 4,
            .clock_khz = 1440000,
            .memory_clock_khz = 1215000,
            .memory_bus_bits = 3072,
            .memory_bytes = 64 << 20,
            .reserved_bytes = 1 << 20,
            .context_bytes = 2 << 20,
            .h2d_bytes_per_s = 400 << 20,
            .d2h_bytes_per_s = 300 << 20,
            .memory_bytes_per_s = 1000000000,
        };
        memcpy(config.gpus[i].pcie_path, paths[i], SIM_PCIE_DEPTH);
    }
    config.nvlinks[0][3] = config.nvlinks[3][0] = LINKS;
    config.nvlink_bytes_per_s = 1000000000;
    return config;
}

static void make_machine(const struct sim_config *config) {
    CHECK_EQUAL(sim_machine_create(machine_file, config), 0);
}

static struct nvml_device *gpu(unsigned index) {
    struct nvml_device *device = NULL;
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_OK);
    return device;
}

static void test_ancestors(void) {
    static const int levels[CARDS] = {0, 10, 20, 30, 40, 50};
    int level = -1;
    for (unsigned i = 1; i < CARDS; i++) {
        CHECK_EQUAL(nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(i), &level), NVML_OK);
        CHECK_EQUAL(level, levels[i]);
        CHECK_EQUAL(nvmlDeviceGetTopologyCommonAncestor(gpu(i), gpu(0), &level), NVML_OK);
        CHECK_EQUAL(level, levels[i]);
        struct nvml_device *list[2] = {NULL, NULL};
        unsigned count = 2;
        CHECK_EQUAL(nvmlDeviceGetTopologyNearestGpus(gpu(0), levels[i], &count, list), NVML_OK);
        CHECK_EQUAL(count, 1);
        CHECK(list[0] == gpu(i) && list[1] == NULL);
    }
    unsigned count = 0;
    CHECK_EQUAL(nvmlDeviceGetTopologyNearestGpus(gpu(5), 50, &count, NULL), NVML_OK);
    CHECK_EQUAL(count, 5);
    CHECK_EQUAL(nvmlDeviceGetTopologyNearestGpus(gpu(5), 51, &count, NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(0), &level), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetTopologyCommonAncestor(gpu(0), NULL, &level), NVML_INVALID_ARGUMENT);
}

static void test_peers(void) {
    // Reads, writes, over NVLink, atomics, proprietary.
    static const int linked[] = {0, 0, 0, 0, 5}, plain[] = {0, 0, 5, 5, 5};
    int status = -1;
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(nvmlDeviceGetP2PStatus(gpu(0), gpu(3), i, &status), NVML_OK);
        CHECK_EQUAL(status, linked[i]);
        CHECK_EQUAL(nvmlDeviceGetP2PStatus(gpu(0), gpu(1), i, &status), NVML_OK);
        CHECK_EQUAL(status, plain[i]);
    }
    CHECK_EQUAL(nvmlDeviceGetP2PStatus(gpu(0), gpu(1), 5, &status), NVML_INVALID_ARGUMENT);
    struct sim_config whole = config();
    CHECK_EQUAL(sim_peer_bytes_per_s(&whole, 0, 3), LINKS * 1000000000);
    CHECK_EQUAL(sim_peer_bytes_per_s(&whole, 0, 1), 300 << 20);
    CHECK_EQUAL(sim_peer_bytes_per_s(&whole, 1, 1), 0);
    CHECK(!sim_peer_ok(&whole, 0, SIM_GPUS_MAX));
}

static void test_links(void) {
    unsigned value = 9;
    struct nvml_pci_info pci;
    for (unsigned link = 0; link < LINKS; link++) {
        CHECK_EQUAL(nvmlDeviceGetNvLinkState(gpu(0), link, &value), NVML_OK);
        CHECK_EQUAL(value, 1);
        CHECK_EQUAL(nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu(0), link, &pci), NVML_OK);
        CHECK(strcmp(pci.bus_id, "00000000:3E:00.0") == 0);
        memset(&pci, 0x5a, sizeof(pci));
        CHECK_EQUAL(nvmlDeviceGetNvLinkRemotePciInfo(gpu(3), link, &pci), NVML_OK);
        CHECK_EQUAL(pci.bus, 0x3b);
        CHECK_EQUAL(pci.bus_id[0], 0x5a);
        CHECK_EQUAL(nvmlDeviceGetNvLinkVersion(gpu(0), link, &value), NVML_OK);
        CHECK_EQUAL(value, 3);
        CHECK_EQUAL(nvmlDeviceGetNvLinkCapability(gpu(0), link, 0, &value), NVML_OK);
        CHECK_EQUAL(value, 1);
        CHECK_EQUAL(nvmlDeviceGetNvLinkCapability(gpu(0), link, 6, &value), NVML_INVALID_ARGUMENT);
    }
    CHECK_EQUAL(nvmlDeviceGetNvLinkState(gpu(0), LINKS, &value), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetNvLinkState(gpu(1), 0, &value), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetNvLinkState(gpu(0), SIM_NVLINKS_MAX, &value), NVML_INVALID_ARGUMENT);
}

// The host's processors are shared out among the nodes, each to one.
static void test_affinity(void) {
    enum { WORDS = 64, BITS = 8 * sizeof(unsigned long) };
    unsigned long memory[WORDS], cpus[2][WORDS];
    CHECK_EQUAL(nvmlDeviceGetMemoryAffinity(gpu(5), WORDS, memory, 0), NVML_OK);
    CHECK_EQUAL(memory[0], 2);
    unsigned node = 7;
    CHECK_EQUAL(nvmlDeviceGetNumaNodeId(gpu(5), &node), NVML_OK);
    CHECK_EQUAL(node, 1);
    CHECK_EQUAL(nvmlDeviceGetMemoryAffinity(gpu(5), WORDS, memory, 2), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetMemoryAffinity(gpu(5), 0, memory, 0), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetCpuAffinityWithinScope(gpu(0), WORDS, cpus[0], 0), NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetCpuAffinity(gpu(5), WORDS, cpus[1]), NVML_OK);
    long count = sysconf(_SC_NPROCESSORS_CONF);
    for (long cpu = 0; cpu < count && cpu < WORDS * BITS; cpu++) {
        unsigned first = cpus[0][cpu / BITS] >> cpu % BITS & 1;
        unsigned second = cpus[1][cpu / BITS] >> cpu % BITS & 1;
        CHECK_EQUAL(first + second, 1);
        struct nvml_device *list[CARDS];
        unsigned near = CARDS;
        CHECK_EQUAL(nvmlSystemGetTopologyGpuSet((unsigned)cpu, &near, list), NVML_OK);
        CHECK_EQUAL(near, first ? 5 : 1);
        CHECK(list[0] == gpu(first ? 0 : 5));
    }
    unsigned near = 0;
    CHECK_EQUAL(nvmlSystemGetTopologyGpuSet((unsigned)count, &near, NULL), NVML_INVALID_ARGUMENT);
}

static void test_hardware(void) {
    unsigned value = 0;
    CHECK_EQUAL(nvmlDeviceGetArchitecture(gpu(0), &value), NVML_OK);
    CHECK_EQUAL(value, 7);
    CHECK_EQUAL(nvmlDeviceGetMemoryBusWidth(gpu(0), &value), NVML_OK);
    CHECK_EQUAL(value, 3072);
    CHECK_EQUAL(nvmlDeviceGetClockInfo(gpu(0), 1, &value), NVML_OK);
    CHECK_EQUAL(value, 1440);
    CHECK_EQUAL(nvmlDeviceGetMaxClockInfo(gpu(0), 2, &value), NVML_OK);
    CHECK_EQUAL(value, 1215);
    CHECK_EQUAL(nvmlDeviceGetClockInfo(gpu(0), 3, &value), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetClockInfo(gpu(0), 4, &value), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetBrand(gpu(0), &value), NVML_OK);
    CHECK_EQUAL(value, 0);
    CHECK_EQUAL(nvmlDeviceGetMultiGpuBoard(gpu(0), &value), NVML_OK);
    CHECK_EQUAL(value, 0);
}

// What the driver keeps is no program's, and used only in the first version's words.
static void test_reserved_memory(void) {
    struct nvml_memory first;
    struct nvml_memory_v2 second = {.version = NVML_MEMORY_V2};
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(gpu(0), &first), NVML_OK);
    CHECK_EQUAL(first.total, 65 << 20);
    CHECK_EQUAL(first.used, 1 << 20);
    CHECK_EQUAL(first.free, 64 << 20);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(gpu(0), &second), NVML_OK);
    CHECK_EQUAL(second.total, 65 << 20);
    CHECK_EQUAL(second.reserved, 1 << 20);
    CHECK_EQUAL(second.used, 0);
    CHECK_EQUAL(second.free, 64 << 20);
}

static void test_no_peers(void) {
    struct sim_config apart = config();
    apart.no_peer_access = 1;
    make_machine(&apart);
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    int status = -1;
    CHECK_EQUAL(nvmlDeviceGetP2PStatus(gpu(0), gpu(3), 0, &status), NVML_OK);
    CHECK_EQUAL(status, 1);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

int main(void) {
    if (mkdtemp(directory) == NULL || setenv("WEIR_SIM", directory, 1) != 0 ||
        sim_machine_path(machine_file, sizeof(machine_file)) != 0) {
        return 1;
    }
    struct sim_config whole = config();
    make_machine(&whole);
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    test_ancestors();
    test_peers();
    test_links();
    test_affinity();
    test_hardware();
    test_reserved_memory();
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
    test_no_peers();
    unlink(machine_file);
    rmdir(directory);
    return check_failures != 0;
}
