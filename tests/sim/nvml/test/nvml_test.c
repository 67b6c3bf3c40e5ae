// Tests of the simulated NVML, linked with it: before and without a machine, identity, memory and
// processes of others, utilisation, forks, and a machine that goes away.
#include "../nvml_abi.h"

#include "../../machine.h"
#include "check.h"
#include "client.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define CARD_BYTES (64 * MIB)
#define CONTEXT_BYTES (2 * MIB)

int check_failures;

static char directory[] = "/tmp/weir-nvml-test-XXXXXX";
static char machine_file[64];

static void make_machine(void) {
    struct sim_config config = {
        .cuda_version = 12020, .gpu_count = 2, .scale = 64, .driver_version = "535.309.01"};
    for (unsigned i = 0; i < config.gpu_count; i++) {
        config.gpus[i] = (struct sim_gpu_config){
            .name = "Simulated Test 4GB",
            .uuid = {0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, (uint8_t)i},
            .pci_bus = 0x3b + i,
            .compute_major = 8,
            .sm_count = 4,
            .memory_bytes = CARD_BYTES,
            .context_bytes = CONTEXT_BYTES,
            .h2d_bytes_per_s = 1000000000,
            .d2h_bytes_per_s = 1000000000,
            .memory_bytes_per_s = 1000000000,
        };
    }
    CHECK_EQUAL(sim_machine_create(machine_file, &config), 0);
}

static struct nvml_device *gpu(unsigned index) {
    struct nvml_device *device = NULL;
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_OK);
    return device;
}

// ---- Without a machine ----

extern int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *degrees);

static void test_uninitialised(void) {
    unsigned count = 7;
    char text[80];
    struct nvml_device *device = NULL;
    CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_UNINITIALISED);
    CHECK_EQUAL(count, 7);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_UNINITIALISED);
    CHECK_EQUAL(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_UNINITIALISED);
    CHECK_EQUAL(nvmlDeviceGetTemperature(NULL, 0, &count), NVML_UNINITIALISED);
    CHECK_EQUAL(nvmlShutdown(), NVML_UNINITIALISED);
    CHECK(strlen(nvmlErrorString(NVML_UNINITIALISED)) > 0);
    CHECK(strcmp(nvmlErrorString(12345), "unknown error") == 0);
}

static void test_no_machine(void) {
    unlink(machine_file);
    CHECK_EQUAL(nvmlInit_v2(), NVML_NO_DRIVER);
    CHECK_EQUAL(nvmlInit(), NVML_NO_DRIVER);
    CHECK_EQUAL(nvmlInitWithFlags(0), NVML_NO_DRIVER);
    test_uninitialised();
}

// ---- Initialisation ----

static unsigned lines_of_maps(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned lines = 0;
    for (int c = getc(maps); c != EOF; c = getc(maps)) {
        lines += c == '\n';
    }
    fclose(maps);
    return lines;
}

static void test_init_counts(void) {
    unsigned count = 0;
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    CHECK_EQUAL(nvmlInit(), NVML_OK);
    CHECK_EQUAL(nvmlInitWithFlags(1), NVML_OK);
    CHECK_EQUAL(nvmlInitWithFlags(64), NVML_INVALID_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(nvmlShutdown(), NVML_OK);
        CHECK_EQUAL(nvmlDeviceGetCount(&count), NVML_OK);
    }
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetCount(&count), NVML_UNINITIALISED);
    int before_fd = dup(0);
    close(before_fd);
    unsigned before_maps = lines_of_maps();
    for (int i = 0; i < 500; i++) {
        CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
        CHECK_EQUAL(nvmlShutdown(), NVML_OK);
    }
    int after_fd = dup(0);
    close(after_fd);
    CHECK_EQUAL(after_fd, before_fd);
    CHECK(lines_of_maps() <= before_maps + 2);
}

// ---- Identity ----

static void test_identity(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    unsigned number = 0;
    int major = 0;
    int minor = 0;
    char text[96];
    CHECK_EQUAL(nvmlDeviceGetCount(&number), NVML_OK);
    CHECK_EQUAL(number, 2);
    CHECK_EQUAL(nvmlSystemGetDriverVersion(text, sizeof(text)), NVML_OK);
    CHECK(strcmp(text, "535.309.01") == 0);
    CHECK_EQUAL(nvmlSystemGetNVMLVersion(text, sizeof(text)), NVML_OK);
    CHECK(strcmp(text, "12.535.309.01") == 0);
    CHECK_EQUAL(nvmlSystemGetCudaDriverVersion(&major), NVML_OK);
    CHECK_EQUAL(major, 12020);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex(2, (struct nvml_device *[1]){NULL}),
                NVML_INVALID_ARGUMENT);

    struct nvml_device *second = gpu(1);
    CHECK_EQUAL(nvmlDeviceGetName(second, text, sizeof(text)), NVML_OK);
    CHECK(strcmp(text, "Simulated Test 4GB") == 0);
    CHECK_EQUAL(nvmlDeviceGetName(second, text, 5), NVML_INSUFFICIENT_SIZE);
    CHECK_EQUAL(nvmlDeviceGetName(second, NULL, 5), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetIndex(second, &number), NVML_OK);
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(nvmlDeviceGetMinorNumber(second, &number), NVML_OK);
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(nvmlDeviceGetCudaComputeCapability(second, &major, &minor), NVML_OK);
    CHECK_EQUAL(major * 10 + minor, 80);
    CHECK_EQUAL(nvmlDeviceGetMigMode(second, &number, (unsigned[1]){5}), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetTemperature(second, 0, &number), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetIndex(NULL, &number), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetIndex((struct nvml_device *)text, &number), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetIndex((struct nvml_device *)((char *)gpu(0) + 15), &number),
                NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

static void test_handles_by_name(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    struct nvml_device *device = NULL;
    char text[80];
    CHECK_EQUAL(nvmlDeviceGetUUID(gpu(1), text, sizeof(text)), NVML_OK);
    CHECK(strcmp(text, "GPU-abcdef01-0203-0405-0607-08090a0b0c01") == 0);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID(text, &device), NVML_OK);
    CHECK(device == gpu(1));
    text[strlen(text) - 1] = '7';
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID(text, &device), NVML_NOT_FOUND);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID(NULL, &device), NVML_INVALID_ARGUMENT);

    char serial[2][32];
    CHECK_EQUAL(nvmlDeviceGetSerial(gpu(0), serial[0], 32), NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetSerial(gpu(1), serial[1], 32), NVML_OK);
    CHECK(strcmp(serial[0], serial[1]) != 0);
    CHECK_EQUAL(nvmlDeviceGetHandleBySerial(serial[1], &device), NVML_OK);
    CHECK(device == gpu(1));

    static const char *const names[] = {"00000000:3C:00.0", "0000:3c:00.0", "3c:00.0", "0:3c:0"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        device = NULL;
        CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId_v2(names[i], &device), NVML_OK);
        CHECK(device == gpu(1));
    }
    static const char *const strangers[] = {
        "", ":", "3c", "0001:3c:00.0", "3c:00.1", "3c:01.0", "00000000:3C:00.0x", "0000:3c:00:0"};
    for (unsigned i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId(strangers[i], &device), NVML_NOT_FOUND);
    }
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

// Each version writes its own length and nothing behind it.
static void test_pci_versions(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    static int (*const versions[])(struct nvml_device *, struct nvml_pci_info *) = {
        nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3};
    static const size_t lengths[] = {32, 36, 68};
    for (unsigned i = 0; i < 3; i++) {
        struct nvml_pci_info pci;
        memset(&pci, 0x5a, sizeof(pci));
        CHECK_EQUAL(versions[i](gpu(1), &pci), NVML_OK);
        CHECK(strcmp(pci.bus_id_legacy, "0000:3C:00.0") == 0);
        CHECK_EQUAL(pci.bus, 0x3c);
        for (size_t at = lengths[i]; at < sizeof(pci); at++) {
            CHECK_EQUAL(((unsigned char *)&pci)[at], 0x5a);
        }
        CHECK(i < 2 || strcmp(pci.bus_id, "00000000:3C:00.0") == 0);
    }
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

// ---- Memory and processes of others ----

static void check_memory(unsigned index, uint64_t used) {
    struct nvml_memory memory;
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(gpu(index), &memory), NVML_OK);
    CHECK_EQUAL(memory.total, CARD_BYTES);
    CHECK_EQUAL(memory.used, used);
    CHECK_EQUAL(memory.free, CARD_BYTES - used);
    struct nvml_memory_v2 second = {.version = NVML_MEMORY_V2};
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(gpu(index), &second), NVML_OK);
    CHECK_EQUAL(second.used + second.reserved + second.free, second.total);
    CHECK_EQUAL(second.used, used);
    second.version = 2;
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(gpu(index), &second), NVML_VERSION_MISMATCH);
}

static void test_memory_and_processes(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    check_memory(0, 0);
    pid_t first = client_start(0, 3 * MIB, 0);
    pid_t second = client_start(0, 5 * MIB, 0);
    pid_t other = client_start(1, MIB, 0);
    CHECK(first > 0 && second > 0 && other > 0);
    check_memory(0, 8 * MIB + 2 * CONTEXT_BYTES);
    check_memory(1, MIB + CONTEXT_BYTES);

    struct nvml_process list[3] = {{0}};
    unsigned count = 3;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), &count, list), NVML_OK);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(list[0].pid, first);
    CHECK_EQUAL(list[0].used_bytes, 3 * MIB + CONTEXT_BYTES);
    CHECK_EQUAL(list[0].gpu_instance, UINT32_MAX);
    CHECK_EQUAL(list[1].pid, second);
    CHECK_EQUAL(list[1].used_bytes, 5 * MIB + CONTEXT_BYTES);
    struct nvml_process_v1 old[2];
    count = 2;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses(gpu(0), &count, old), NVML_OK);
    CHECK_EQUAL(old[1].pid, second);
    CHECK_EQUAL(old[1].used_bytes, 5 * MIB + CONTEXT_BYTES);

    count = 1;
    list[1].pid = 77;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v2(gpu(0), &count, list),
                NVML_INSUFFICIENT_SIZE);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(list[1].pid, 77);
    count = 0;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), &count, NULL),
                NVML_INSUFFICIENT_SIZE);
    count = 2;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), &count, NULL),
                NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetGraphicsRunningProcesses_v3(gpu(0), &count, list), NVML_OK);
    CHECK_EQUAL(count, 0);

    char name[64];
    CHECK_EQUAL(nvmlSystemGetProcessName((unsigned)first, name, sizeof(name)), NVML_OK);
    CHECK(strstr(name, "nvml_test") != NULL);
    client_kill(first);
    CHECK_EQUAL(nvmlSystemGetProcessName((unsigned)first, name, sizeof(name)), NVML_NOT_FOUND);
    count = 3;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), &count, list), NVML_OK);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(list[0].pid, second);
    check_memory(0, 5 * MIB + CONTEXT_BYTES);
    client_kill(second);
    client_kill(other);
    check_memory(0, 0);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

// ---- Utilisation and events ----

// A GPU that has worked without a break since NVML was initialised is busy; an idle one is not.
static void test_utilisation(void) {
    pid_t busy = client_start(0, 0, UINT64_C(60000000000));
    CHECK(busy > 0);
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    struct nvml_utilisation rates[2];
    usleep(20000);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQUAL(nvmlDeviceGetUtilizationRates(gpu(i), &rates[i]), NVML_OK);
    }
    CHECK(rates[0].gpu_percent >= 90 && rates[0].gpu_percent <= 100);
    CHECK_EQUAL(rates[1].gpu_percent, 0);
    CHECK_EQUAL(rates[0].memory_percent, 0);
    client_kill(busy);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

static void test_events(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    struct nvml_event_set *set = NULL;
    struct nvml_event event;
    CHECK_EQUAL(nvmlEventSetCreate(NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlEventSetCreate(&set), NVML_OK);
    CHECK_EQUAL(nvmlDeviceRegisterEvents(gpu(0), NVML_EVENT_XID, set), NVML_OK);
    CHECK_EQUAL(nvmlDeviceRegisterEvents(gpu(0), 1, set), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceRegisterEvents(gpu(0), NVML_EVENT_XID, NULL), NVML_INVALID_ARGUMENT);
    uint64_t start_ns = sim_now_ns();
    CHECK_EQUAL(nvmlEventSetWait_v2(set, &event, 3), NVML_TIMEOUT);
    CHECK(sim_now_ns() - start_ns >= 3000000);
    CHECK_EQUAL(nvmlEventSetWait_v2(set, NULL, 0), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlEventSetFree(set), NVML_OK);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

// ---- Forks, threads, and a machine that goes away ----

#define FORKS 40
#define READERS 3

static bool reading;

static void *read_on(void *unused) {
    (void)unused;
    struct nvml_process list[8];
    while (__atomic_load_n(&reading, __ATOMIC_RELAXED)) {
        unsigned count = 8;
        CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), &count, list), NVML_OK);
        CHECK_EQUAL(count, 1);
    }
    return NULL;
}

// A child forked at any moment of its parent's queries can query too, and shut NVML down.
static void test_forks(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    pid_t client = client_start(0, MIB, 0);
    pthread_t readers[READERS];
    __atomic_store_n(&reading, true, __ATOMIC_RELAXED);
    for (int i = 0; i < READERS; i++) {
        CHECK_EQUAL(pthread_create(&readers[i], NULL, read_on, NULL), 0);
    }
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            int before = check_failures;
            check_memory(0, MIB + CONTEXT_BYTES);
            CHECK_EQUAL(nvmlShutdown(), NVML_OK);
            CHECK_EQUAL(nvmlShutdown(), NVML_UNINITIALISED);
            CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
            check_memory(0, MIB + CONTEXT_BYTES);
            _exit(check_failures != before);
        }
        int status = -1;
        CHECK_EQUAL(waitpid(pid, &status, 0), pid);
        CHECK_EQUAL(status, 0);
    }
    __atomic_store_n(&reading, false, __ATOMIC_RELAXED);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
    }
    client_kill(client);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

// A card that fell off the bus answers nothing, the others do; it may come back.
static void test_lost_card(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    struct nvml_device *lost = gpu(0), *other = NULL;
    struct nvml_memory memory;
    struct sim_machine *machine = NULL;
    unsigned count = 0;
    char text[80];
    CHECK_EQUAL(sim_machine_open(machine_file, &machine), 0);
    CHECK_EQUAL(sim_gpu_lose(machine, 0, 719), 0);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(lost, &memory), NVML_GPU_IS_LOST);
    CHECK_EQUAL(nvmlDeviceGetUUID(lost, text, sizeof(text)), NVML_GPU_IS_LOST);
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(lost, &count, NULL), NVML_GPU_IS_LOST);
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &other), NVML_GPU_IS_LOST);
    CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), NVML_OK);
    CHECK_EQUAL(count, 2);
    check_memory(1, 0);
    CHECK_EQUAL(sim_gpu_lose(machine, 0, 0), 0);
    check_memory(0, 0);
    sim_machine_close(machine);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

static void test_machine_goes_away(void) {
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    struct nvml_device *device = gpu(0);
    struct nvml_memory memory;
    unlink(machine_file);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_GPU_IS_LOST);
    make_machine();
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_GPU_IS_LOST);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo(device, &memory), NVML_OK);
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

int main(void) {
    if (mkdtemp(directory) == NULL || setenv("WEIR_SIM", directory, 1) != 0 ||
        sim_machine_path(machine_file, sizeof(machine_file)) != 0) {
        return 1;
    }
    test_uninitialised();
    test_no_machine();
    make_machine();
    test_init_counts();
    test_identity();
    test_handles_by_name();
    test_pci_versions();
    test_memory_and_processes();
    test_utilisation();
    test_events();
    test_forks();
    test_lost_card();
    test_machine_goes_away();
    unlink(machine_file);
    rmdir(directory);
    return check_failures != 0;
}
