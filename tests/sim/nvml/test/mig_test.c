// MIG through the simulated NVML: what calls answer, what changes are refused and how, and whose
// memory and processes instances have.
#include "check.h"
#include "mig_machine.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

// ---- Mode and profiles ----

static void test_mode(void) {
    mig_make();
    CHECK_EQUAL(nvmlInit_v2(), NVML_OK);
    unsigned current = 7, pending = 7, count = 7;
    int activation = 7;
    CHECK_EQUAL(nvmlDeviceGetMigMode(gpu(0), &current, &pending), NVML_OK);
    CHECK_EQUAL(current * 10 + pending, 0);
    CHECK_EQUAL(nvmlDeviceGetMaxMigDeviceCount(gpu(0), &count), NVML_OK);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(nvmlDeviceGetMigMode(gpu(1), &current, &pending), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceSetMigMode(gpu(1), 1, &activation), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceSetMigMode(gpu(0), 2, &activation), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceSetMigMode(gpu(0), 1, NULL), NVML_INVALID_ARGUMENT);
    struct nvml_gpu_instance *instance = NULL;
    CHECK_EQUAL(nvmlDeviceCreateGpuInstance(gpu(0), ONE, &instance), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceSetMigMode(gpu(0), 1, &activation), NVML_OK);
    CHECK_EQUAL(activation, NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetMigMode(gpu(0), &current, &pending), NVML_OK);
    CHECK_EQUAL(current * 10 + pending, 11);
    CHECK_EQUAL(nvmlDeviceGetMaxMigDeviceCount(gpu(0), &count), NVML_OK);
    CHECK_EQUAL(count, SLICES);
    create(ONE, 0, 1);
    CHECK_EQUAL(nvmlDeviceSetMigMode(gpu(0), 0, &activation), NVML_OK);
    CHECK_EQUAL(activation, NVML_IN_USE);
    CHECK_EQUAL(nvmlDeviceGetMigMode(gpu(0), &current, &pending), NVML_OK);
    CHECK_EQUAL(current * 10 + pending, 10);
    mig_end();
}

static void test_profiles(void) {
    mig_begin();
    struct nvml_gpu_instance_profile info;
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfo(gpu(0), 1, &info), NVML_OK);
    CHECK_EQUAL(info.id, TWO);
    CHECK_EQUAL(info.slices, 2);
    CHECK_EQUAL(info.instances, 2);
    CHECK_EQUAL(info.multiprocessors, 28);
    CHECK_EQUAL(info.memory_mib, 28);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfo(gpu(0), 2, &info), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfo(gpu(0), 18, &info), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfo(gpu(0), 1, NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfo(gpu(1), 1, &info), NVML_NOT_SUPPORTED);
    struct nvml_gpu_instance_profile_v2 second = {.version = NVML_GPU_INSTANCE_PROFILE_V2};
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfoV(gpu(0), 7, &second), NVML_OK);
    CHECK_EQUAL(second.id, ONE_MEDIA);
    CHECK_EQUAL(second.decoders, 1);
    CHECK(strcmp(second.name, "MIG 1g.1gb+me") == 0);
    CHECK_EQUAL(second.version, NVML_GPU_INSTANCE_PROFILE_V2);
    struct nvml_gpu_instance_profile_v3 third = {.version = NVML_GPU_INSTANCE_PROFILE_V3};
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfoV(gpu(0), 3,
                                                     (struct nvml_gpu_instance_profile_v2 *)&third),
                NVML_OK);
    CHECK_EQUAL(third.id, FOUR);
    CHECK_EQUAL(third.memory_mib, 56);
    CHECK(strcmp(third.name, "MIG 4g.4gb") == 0);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu(0), FOUR, &second), NVML_OK);
    CHECK_EQUAL(second.slices, 4);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu(0), 9, &second),
                NVML_INVALID_ARGUMENT);
    second.version = 2;
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceProfileInfoV(gpu(0), 7, &second), NVML_VERSION_MISMATCH);

    struct nvml_placement list[SLICES];
    unsigned count = 0;
    CHECK_EQUAL(nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu(0), TWO, NULL, &count), NVML_OK);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(nvmlDeviceGetGpuInstancePossiblePlacements(gpu(0), TWO, list, &count), NVML_OK);
    CHECK_EQUAL(list[1].start * 10 + list[1].size, 22);
    CHECK_EQUAL(nvmlDeviceGetGpuInstancePossiblePlacements(gpu(0), 9, list, &count),
                NVML_INVALID_ARGUMENT);
    mig_end();
}

// ---- Instances ----

static unsigned capacity(unsigned profile) {
    unsigned count = 99;
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(0), profile, &count), NVML_OK);
    return count;
}

static void test_instances(void) {
    mig_begin();
    struct nvml_gpu_instance *two = create(TWO, 2, 2), *found = NULL, *list[SLICES];
    struct nvml_gpu_instance_info info;
    unsigned count = 0;
    CHECK_EQUAL(nvmlGpuInstanceGetInfo(two, &info), NVML_OK);
    CHECK(info.device == gpu(0));
    CHECK_EQUAL(info.id, 2);
    CHECK_EQUAL(info.profile_id, TWO);
    CHECK_EQUAL(info.placement.start * 10 + info.placement.size, 22);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceById(gpu(0), 2, &found), NVML_OK);
    CHECK(found == two);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceById(gpu(0), 3, &found), NVML_NOT_FOUND);
    CHECK_EQUAL(capacity(ONE) * 100 + capacity(TWO) * 10 + capacity(FOUR), 210);

    static const struct nvml_placement taken[] = {{2, 1}, {3, 1}};
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), ONE, &taken[i], &found),
                    NVML_INSUFFICIENT_RESOURCES);
    }
    struct nvml_placement odd = {1, 2}, outside = {4, 1}, wrong = {0, 2}, ok = {1, 1};
    CHECK_EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), TWO, &odd, &found),
                NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), ONE, &outside, &found),
                NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), ONE, &wrong, &found),
                NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceCreateGpuInstanceWithPlacement(gpu(0), ONE_MEDIA, &ok, &found), NVML_OK);
    CHECK_EQUAL(nvmlDeviceCreateGpuInstance(gpu(0), ONE_MEDIA, &found),
                NVML_INSUFFICIENT_RESOURCES);
    CHECK_EQUAL(nvmlDeviceCreateGpuInstance(gpu(0), ONE, &found), NVML_OK);
    CHECK_EQUAL(nvmlDeviceCreateGpuInstance(gpu(0), ONE, &found), NVML_INSUFFICIENT_RESOURCES);
    CHECK_EQUAL(nvmlDeviceGetGpuInstances(gpu(0), ONE, list, &count), NVML_OK);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(nvmlGpuInstanceDestroy(list[0]), NVML_OK);
    CHECK_EQUAL(nvmlGpuInstanceDestroy(list[0]), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlGpuInstanceDestroy(NULL), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlGpuInstanceGetInfo(list[0], &info), NVML_INVALID_ARGUMENT);
    mig_end();
}

// Without a placement the one is chosen that leaves most others possible.
static void test_chosen_placements(void) {
    mig_begin();
    struct nvml_gpu_instance *instance[SLICES];
    struct nvml_gpu_instance_info info;
    static const unsigned profiles[] = {ONE, ONE, TWO}, starts[] = {0, 1, 2};
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQUAL(nvmlDeviceCreateGpuInstance(gpu(0), profiles[i], &instance[i]), NVML_OK);
        CHECK_EQUAL(nvmlGpuInstanceGetInfo(instance[i], &info), NVML_OK);
        CHECK_EQUAL(info.placement.start, starts[i]);
    }
    mig_end();
}

static void test_compute_instances(void) {
    mig_begin();
    struct nvml_gpu_instance *four = create(FOUR, 0, 4);
    struct nvml_compute_instance_profile profile;
    unsigned count = 0;
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceProfileInfo(four, 1, 0, &profile), NVML_OK);
    CHECK_EQUAL(profile.slices, 2);
    CHECK_EQUAL(profile.instances, 2);
    CHECK_EQUAL(profile.multiprocessors, 28);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceProfileInfo(four, 4, 0, &profile),
                NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceProfileInfo(four, 8, 0, &profile),
                NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceProfileInfo(four, 1, 1, &profile),
                NVML_INVALID_ARGUMENT);
    struct nvml_compute_instance_profile_v2 second = {.version = NVML_COMPUTE_INSTANCE_PROFILE_V2};
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceProfileInfoV(four, 1, 0, &second), NVML_OK);
    CHECK(strcmp(second.name, "MIG 2c.4g.4gb") == 0);

    struct nvml_placement last = {2, 2}, list[SLICES];
    struct nvml_compute_instance *half = NULL, *other = NULL;
    CHECK_EQUAL(nvmlGpuInstanceCreateComputeInstanceWithPlacement(four, 1, &last, &half), NVML_OK);
    CHECK_EQUAL(nvmlGpuInstanceCreateComputeInstanceWithPlacement(four, 1, &last, &other),
                NVML_INSUFFICIENT_RESOURCES);
    CHECK_EQUAL(nvmlGpuInstanceCreateComputeInstance(four, 3, &other), NVML_INSUFFICIENT_RESOURCES);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceRemainingCapacity(four, 0, &count), NVML_OK);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstancePossiblePlacements(four, 0, list, &count),
                NVML_OK);
    CHECK_EQUAL(count, 4);
    struct nvml_compute_instance_info info;
    CHECK_EQUAL(nvmlComputeInstanceGetInfo_v2(half, &info), NVML_OK);
    CHECK(info.gpu_instance == four);
    CHECK_EQUAL(info.id, 2);
    CHECK_EQUAL(info.profile_id, 1);
    CHECK_EQUAL(info.placement.start * 10 + info.placement.size, 22);
    CHECK_EQUAL(nvmlComputeInstanceGetInfo(half, &info), NVML_OK);
    CHECK(info.device == gpu(0));
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceById(four, 2, &other), NVML_OK);
    CHECK(other == half);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstanceById(four, 0, &other), NVML_NOT_FOUND);
    CHECK_EQUAL(nvmlGpuInstanceGetComputeInstances(four, 1, &other, &count), NVML_OK);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(nvmlGpuInstanceDestroy(four), NVML_IN_USE);
    CHECK_EQUAL(nvmlComputeInstanceDestroy(half), NVML_OK);
    CHECK_EQUAL(nvmlComputeInstanceDestroy(half), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlGpuInstanceDestroy(four), NVML_OK);
    mig_end();
}

// ---- MIG devices ----

static void test_devices(void) {
    mig_begin();
    struct nvml_device *mig = NULL, *same = NULL, *parent = NULL;
    unsigned number = 9;
    char text[96];
    struct nvml_gpu_instance *two = create(TWO, 0, 2);
    CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0, &mig), NVML_NOT_FOUND);
    struct nvml_compute_instance *made = compute(two, 1);
    compute(create(ONE, 3, 1), 0);
    CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 2, &mig), NVML_NOT_FOUND);
    CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 4, &mig), NVML_INVALID_ARGUMENT);
    CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(1), 0, &mig), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 1, &mig), NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetIndex(mig, &number), NVML_OK);
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(nvmlDeviceIsMigDeviceHandle(mig, &number), NVML_OK);
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(nvmlDeviceIsMigDeviceHandle(gpu(0), &number), NVML_OK);
    CHECK_EQUAL(number, 0);
    CHECK_EQUAL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &parent), NVML_OK);
    CHECK(parent == gpu(0));
    CHECK_EQUAL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu(0), &parent), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetGpuInstanceId(mig, &number), NVML_OK);
    CHECK_EQUAL(number, 6);
    CHECK_EQUAL(nvmlDeviceGetComputeInstanceId(mig, &number), NVML_OK);
    CHECK_EQUAL(number, 0);
    CHECK_EQUAL(nvmlDeviceGetName(mig, text, sizeof(text)), NVML_OK);
    CHECK(strcmp(text, "Simulated Test 4GB MIG 1g.1gb") == 0);
    CHECK_EQUAL(nvmlDeviceGetUUID(mig, text, sizeof(text)), NVML_OK);
    CHECK(strncmp(text, "MIG-", 4) == 0 && strlen(text) == 40);
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID(text, &same), NVML_OK);
    CHECK(same == mig);
    text[39] ^= 1;
    CHECK_EQUAL(nvmlDeviceGetHandleByUUID(text, &same), NVML_NOT_FOUND);
    struct nvml_attributes attributes;
    CHECK_EQUAL(nvmlDeviceGetAttributes_v2(mig, &attributes), NVML_OK);
    CHECK_EQUAL(attributes.multiprocessors * 100 + attributes.memory_mib, 1414);
    CHECK_EQUAL(nvmlDeviceGetAttributes_v2(gpu(0), &attributes), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetPciInfo_v3(mig, &(struct nvml_pci_info){0}), NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetUtilizationRates(mig, &(struct nvml_utilisation){0}),
                NVML_NOT_SUPPORTED);
    CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0, &mig), NVML_OK);
    struct nvml_compute_instance_info info;
    CHECK_EQUAL(nvmlComputeInstanceGetInfo_v2(made, &info), NVML_OK);
    CHECK(info.device == mig);
    CHECK_EQUAL(nvmlComputeInstanceDestroy(made), NVML_OK);
    CHECK_EQUAL(nvmlDeviceGetUUID(mig, text, sizeof(text)), NVML_INVALID_ARGUMENT);
    mig_end();
}

// ---- Users ----

struct user {
    pid_t pid;
    int orders;
};

// A process attached to a MIG device, with a context on it and `bytes`, until it is killed.
static struct user use(unsigned unit, uint64_t bytes) {
    int orders[2], ready[2];
    char byte;
    CHECK_EQUAL(pipe(orders) | pipe(ready), 0);
    struct user user = {fork(), orders[1]};
    if (user.pid == 0) {
        struct sim_machine *machine;
        uint32_t context;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (sim_machine_open(machine_file, &machine) || sim_process_join(machine) ||
            sim_mig_attach(machine, 0, unit) || sim_context_open(machine, unit, &context) ||
            sim_memory_take(machine, unit, bytes) || write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        _exit(read(orders[0], &byte, 1) < 0);
    }
    close(ready[1]);
    close(orders[0]);
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return user;
}

static void test_users(void) {
    mig_begin();
    struct nvml_gpu_instance *instances[2] = {create(ONE, 1, 1), create(TWO, 2, 2)};
    struct nvml_compute_instance *computes[2] = {compute(instances[0], 0),
                                                 compute(instances[1], 1)};
    struct nvml_device *mig[2];
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQUAL(nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), i, &mig[i]), NVML_OK);
    }
    struct user one = use(sim_mig_unit(0, 1), MIB), two = use(sim_mig_unit(0, 2), 3 * MIB);
    check_memory(mig[0], SLICE, CONTEXT + MIB);
    check_memory(mig[1], 2 * SLICE, CONTEXT + 3 * MIB);
    check_memory(gpu(0), 64 * MIB, 2 * CONTEXT + 4 * MIB);
    struct nvml_process list[4];
    struct nvml_process_v1 old[4];
    unsigned count = 4;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), &count, list), NVML_OK);
    CHECK_EQUAL(count, 2);
    CHECK_EQUAL(list[0].pid, one.pid);
    CHECK_EQUAL(list[0].gpu_instance * 10 + list[0].compute_instance, 40);
    CHECK_EQUAL(list[1].gpu_instance * 10 + list[1].compute_instance, 20);
    count = 4;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v2(mig[1], &count, list), NVML_OK);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(list[0].pid, two.pid);
    CHECK_EQUAL(list[0].used_bytes, CONTEXT + 3 * MIB);
    count = 4;
    CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses(mig[0], &count, old), NVML_OK);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(old[0].pid, one.pid);
    count = 4;
    CHECK_EQUAL(nvmlDeviceGetGraphicsRunningProcesses_v3(mig[0], &count, list), NVML_OK);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(nvmlComputeInstanceDestroy(computes[0]), NVML_IN_USE);
    kill_child(one.pid);
    CHECK_EQUAL(nvmlComputeInstanceDestroy(computes[0]), NVML_OK);
    CHECK_EQUAL(nvmlGpuInstanceDestroy(instances[0]), NVML_OK);
    CHECK_EQUAL(nvmlComputeInstanceDestroy(computes[1]), NVML_IN_USE);
    kill_child(two.pid);
    check_memory(gpu(0), 64 * MIB, 0);
    close(one.orders);
    close(two.orders);
    mig_end();
}

int main(void) {
    if (!mig_directory()) {
        return 1;
    }
    test_mode();
    test_profiles();
    test_instances();
    test_chosen_placements();
    test_compute_instances();
    test_devices();
    test_users();
    mig_remove();
    return check_failures != 0;
}
