// Tests of limits of control groups, in a hierarchy of version 2 that the test mounts for itself:
// which calls are refused, what a limit holds, and that it outlives everybody. Needs root.
#define _GNU_SOURCE
#include "../nvml_abi.h"

#include "../../machine.h"
#include "check.h"
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define CARD (64 * MIB)
#define CONTEXT (2 * MIB)
#define NAME_BYTES 200

int check_failures;

static char directory[] = "/tmp/weir-limit-test-XXXXXX";
static char machine_file[64];
static char hierarchy[64];
static char home[512];  // where the test itself belongs
static char group[100];
static char below[NAME_BYTES];  // it
static char beside[NAME_BYTES];

static void make_machine(bool limits) {
    struct sim_config config = {
        .gpu_count = 2, .driver_version = "615.10", .memory_limits = limits};
    for (unsigned i = 0; i < config.gpu_count; i++)
        config.gpus[i] = (struct sim_gpu_config){.name = "Simulated Test",
                                                 .uuid = {7, (uint8_t)i},
                                                 .pci_bus = 1 + i,
                                                 .sm_count = 4,
                                                 .memory_bytes = CARD,
                                                 .context_bytes = CONTEXT,
                                                 .h2d_bytes_per_s = 1000000000,
                                                 .d2h_bytes_per_s = 1000000000,
                                                 .memory_bytes_per_s = 1000000000};
    CHECK_EQUAL(sim_machine_create(machine_file, &config), 0);
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
}

static void end_machine(void) {
    CHECK_EQUAL(nvmlShutdown(), NVML_OK);
}

static struct nvml_device *gpu(unsigned index) {
    struct nvml_device *device = NULL;
    CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_OK);
    return device;
}

static int set(unsigned index, const char *path, uint64_t soft, uint64_t hard) {
    struct nvml_set_memory_limits limits = {path, soft, hard};
    return nvmlDeviceSetMemoryLimits_v1(gpu(index), &limits);
}

static int get(unsigned index, const char *path, struct nvml_memory_limits *limits) {
    *limits = (struct nvml_memory_limits){.directory = path};
    return nvmlDeviceGetMemoryLimits_v1(gpu(index), limits);
}

// What the processes of the group hold, as its limit has it.
static uint64_t used(const char *path) {
    struct nvml_memory_limits limits;
    CHECK_EQUAL(get(0, path, &limits), NVML_OK);
    return limits.used;
}

// ---- Groups ----

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good;
}

static void enter(const char *path) {
    char procs[1024];
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
    CHECK(write_text(procs, "0"));
}

// A process of a group with a context and memory on the first card; -1: it was refused something.
static pid_t start_in(const char *path, uint64_t bytes) {
    enter(path);
    pid_t pid = client_start(0, bytes, 0);
    enter(home);
    return pid;
}

// The hierarchy is mounted where only this test sees it.
static bool mount_hierarchy(void) {
    char text[400] = {0};
    snprintf(hierarchy, sizeof(hierarchy), "%s/cgroup", directory);
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mkdir(hierarchy, 0700) != 0 ||
        mount("none", hierarchy, "cgroup2", 0, NULL) != 0)
        return false;
    FILE *own = fopen("/proc/self/cgroup", "r");
    while (own && fgets(text, sizeof(text), own) && strncmp(text, "0::", 3) != 0) {
    }
    if (own)
        fclose(own);
    text[strcspn(text, "\n")] = 0;
    snprintf(home, sizeof(home), "%s%s", hierarchy, strlen(text) > 3 ? text + 3 : "/");
    snprintf(group, sizeof(group), "%s/weir-limit-test-%d", hierarchy, (int)getpid());
    snprintf(below, sizeof(below), "%s/below", group);
    snprintf(beside, sizeof(beside), "%s-beside", group);
    return mkdir(group, 0755) == 0 && mkdir(below, 0755) == 0 && mkdir(beside, 0755) == 0;
}

static void remove_groups(void) {
    rmdir(below);
    rmdir(group);
    rmdir(beside);
    umount(hierarchy);
    rmdir(hierarchy);
}

// ---- Tests ----

static void test_without_limits(void) {
    struct nvml_memory_limits limits;
    make_machine(false);
    CHECK_EQUAL(set(0, group, 0, MIB), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(get(0, group, &limits), NVML_NOT_SUPPORTED);
    pid_t pid = start_in(group, 32 * MIB);
    CHECK(pid > 0);
    client_kill(pid);
    end_machine();
}

static void test_refusals(void) {
    struct nvml_memory_limits limits;
    make_machine(true);
    CHECK_EQUAL(get(0, group, &limits), NVML_NOT_FOUND);
    CHECK_EQUAL(set(0, group, 2 * MIB, MIB), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(set(0, group, 0, CARD + 1), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(set(0, NULL, 0, MIB), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceSetMemoryLimits_v1(gpu(0), NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetMemoryLimits_v1(gpu(0), NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceSetMemoryLimits_v1(NULL, NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(set(0, "/tmp", 0, MIB), NVML_OPERATING_SYSTEM);
    CHECK_EQUAL(set(0, "/no/such/group", 0, MIB), NVML_OPERATING_SYSTEM);
    CHECK_EQUAL(set(0, hierarchy, 0, MIB), NVML_OPERATING_SYSTEM);
    CHECK_EQUAL(get(0, "/no/such/group", &limits), NVML_OPERATING_SYSTEM);
    pid_t pid = fork();
    if (pid == 0)
        _exit(seteuid(65534) == 0 && set(0, group, 0, MIB) == NVML_NO_PERMISSION ? 0 : 1);
    int status = -1;
    CHECK_EQUAL(waitpid(pid, &status, 0), pid);
    CHECK_EQUAL(status, 0);
    end_machine();
}

// Set by a process that dies at once, per card, changed, and taken away.
static void test_set_and_get(void) {
    struct nvml_memory_limits limits;
    make_machine(true);
    pid_t pid = fork();
    if (pid == 0) {
        set(0, group, MIB, 20 * MIB);
        kill(getpid(), SIGKILL);
    }
    CHECK_EQUAL(waitpid(pid, NULL, 0), pid);
    CHECK_EQUAL(get(0, group, &limits), NVML_OK);
    CHECK_EQUAL(limits.soft, MIB);
    CHECK_EQUAL(limits.hard, 20 * MIB);
    CHECK_EQUAL(limits.used, 0);
    CHECK_EQUAL(get(1, group, &limits), NVML_NOT_FOUND);
    CHECK_EQUAL(get(0, below, &limits), NVML_NOT_FOUND);
    CHECK_EQUAL(set(1, group, 0, 8 * MIB), NVML_OK);
    CHECK_EQUAL(set(0, group, 0, 10 * MIB), NVML_OK);
    CHECK_EQUAL(get(0, group, &limits), NVML_OK);
    CHECK_EQUAL(limits.hard, 10 * MIB);
    CHECK_EQUAL(set(0, group, 0, NVML_LIMIT_MAX), NVML_OK);
    CHECK_EQUAL(get(0, group, &limits), NVML_NOT_FOUND);
    CHECK_EQUAL(get(1, group, &limits), NVML_OK);
    CHECK_EQUAL(limits.hard, 8 * MIB);
    end_machine();
}

// Contexts count, and those below; not those beside. What the dead held is free at once.
static void test_holds(void) {
    make_machine(true);
    CHECK_EQUAL(set(0, group, 0, 20 * MIB), NVML_OK);
    CHECK_EQUAL(start_in(group, 19 * MIB), -1);  // its context is 2 more
    pid_t first = start_in(group, 8 * MIB);
    CHECK(first > 0);
    CHECK_EQUAL(used(group), 8 * MIB + CONTEXT);
    CHECK_EQUAL(start_in(below, 9 * MIB), -1);
    pid_t second = start_in(below, 8 * MIB);
    CHECK(second > 0);
    CHECK_EQUAL(used(group), 2 * (8 * MIB + CONTEXT));
    CHECK_EQUAL(start_in(group, 0), -1);
    pid_t third = start_in(beside, 32 * MIB);
    CHECK(third > 0);
    client_kill(first);
    CHECK_EQUAL(used(group), 8 * MIB + CONTEXT);
    first = start_in(group, 4 * MIB);
    CHECK(first > 0);
    CHECK_EQUAL(set(0, group, 0, MIB), NVML_OK);  // less than they hold: they keep it
    CHECK_EQUAL(used(group), 12 * MIB + 2 * CONTEXT);
    CHECK_EQUAL(start_in(group, 0), -1);
    client_kill(first);
    client_kill(second);
    client_kill(third);
    end_machine();
}

// A limit that comes late holds against what is held already, and each of two nested ones holds.
static void test_late_and_nested(void) {
    make_machine(true);
    pid_t pid = start_in(below, 8 * MIB);
    CHECK(pid > 0);
    CHECK_EQUAL(set(0, group, 0, 12 * MIB), NVML_OK);
    CHECK_EQUAL(set(0, below, 0, 40 * MIB), NVML_OK);
    CHECK_EQUAL(used(group), 8 * MIB + CONTEXT);
    CHECK_EQUAL(start_in(below, 4 * MIB), -1);
    client_kill(pid);
    pid = start_in(below, 8 * MIB);
    CHECK(pid > 0);
    client_kill(pid);
    end_machine();
}

// Inside the group the card is as large as the limit.
static void test_reports(void) {
    make_machine(true);
    CHECK_EQUAL(set(0, group, 0, 20 * MIB), NVML_OK);
    pid_t pid = start_in(group, 6 * MIB);
    struct nvml_memory_v2 memory = {.version = NVML_MEMORY_V2};
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(gpu(0), &memory), NVML_OK);
    CHECK_EQUAL(memory.total, CARD);
    CHECK_EQUAL(memory.used, 6 * MIB + CONTEXT);
    enter(group);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(gpu(0), &memory), NVML_OK);
    CHECK_EQUAL(memory.total, 20 * MIB);
    CHECK_EQUAL(memory.free, 20 * MIB - 6 * MIB - CONTEXT);
    CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(gpu(1), &memory), NVML_OK);
    CHECK_EQUAL(memory.total, CARD);
    enter(home);
    client_kill(pid);
    end_machine();
}

// In another group, whose limit it does not count against: says so once it holds the share, and
// goes on when its first holder has let go of it.
static bool import_share(uint64_t share, int held, int dropped) {
    struct sim_machine *machine;
    char byte = 0;
    enter(beside);
    return sim_machine_open(machine_file, &machine) == 0 && sim_process_join(machine) == 0 &&
           sim_share_hold(machine, 0, share, 16 * MIB) == 0 && write(held, &byte, 1) == 1 &&
           read(dropped, &byte, 1) == 1 && sim_memory_take(machine, 0, 4 * MIB) == 0 &&
           sim_memory_take(machine, 0, SIM_GRANULE) == ENOMEM && used(group) == 16 * MIB;
}

// Memory that several hold is that of the group which had it first, even when that has let go of
// it.
static void test_shared(void) {
    struct sim_machine *machine;
    make_machine(true);
    CHECK_EQUAL(set(0, group, 0, 20 * MIB), NVML_OK);
    CHECK_EQUAL(set(0, beside, 0, 4 * MIB), NVML_OK);
    enter(group);
    CHECK_EQUAL(sim_machine_open(machine_file, &machine), 0);
    CHECK_EQUAL(sim_process_join(machine), 0);
    uint64_t share = sim_share_name(machine);
    CHECK_EQUAL(sim_share_hold(machine, 0, share, 24 * MIB), ENOMEM);
    CHECK_EQUAL(sim_share_hold(machine, 0, share, 16 * MIB), 0);
    CHECK_EQUAL(used(group), 16 * MIB);
    enter(home);
    int held[2], dropped[2], status = -1;
    char byte = 0;
    CHECK(pipe(held) == 0 && pipe(dropped) == 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(import_share(share, held[1], dropped[0]) ? 0 : 1);
    close(held[1]);
    close(dropped[0]);
    CHECK_EQUAL(read(held[0], &byte, 1), 1);
    sim_share_drop(machine, share);
    CHECK_EQUAL(write(dropped[1], &byte, 1), 1);
    CHECK_EQUAL(waitpid(pid, &status, 0), pid);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(used(group), 0);
    close(held[0]);
    close(dropped[1]);
    sim_process_leave(machine);
    sim_machine_close(machine);
    end_machine();
}

// Limits of groups that were removed are gone, and so there is room for others.
static void test_room(void) {
    char path[NAME_BYTES + 16];
    make_machine(true);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < SIM_LIMITS_MAX; i++) {
            snprintf(path, sizeof(path), "%s/%u", beside, i);
            CHECK_EQUAL(mkdir(path, 0755), 0);
            CHECK_EQUAL(set(0, path, 0, MIB), NVML_OK);
        }
        CHECK_EQUAL(set(0, group, 0, MIB), NVML_INSUFFICIENT_RESOURCES);
        for (unsigned i = 0; i < SIM_LIMITS_MAX; i++) {
            snprintf(path, sizeof(path), "%s/%u", beside, i);
            CHECK_EQUAL(rmdir(path), 0);
        }
    }
    CHECK_EQUAL(set(0, group, 0, MIB), NVML_OK);
    end_machine();
}

int main(void) {
    if (!mkdtemp(directory) || chmod(directory, 0755) != 0 ||
        setenv("WEIR_SIM", directory, 1) != 0 ||
        sim_machine_path(machine_file, sizeof(machine_file)) != 0)
        return 1;
    if (!mount_hierarchy()) {
        fprintf(stderr,
                "limit_test: skipped: control groups of version 2 cannot be mounted here\n");
        remove_groups();
        rmdir(directory);
        return 0;
    }
    test_without_limits();
    test_refusals();
    test_set_and_get();
    test_holds();
    test_late_and_nested();
    test_reports();
    test_shared();
    test_room();
    remove_groups();
    unlink(machine_file);
    rmdir(directory);
    return check_failures != 0;
}
