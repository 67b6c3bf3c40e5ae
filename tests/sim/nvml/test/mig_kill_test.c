// Processes that divide a card at random, and use what they find, are killed and stopped at random:
// nothing is ever half done, and in the end all can be taken away. KILLS and SEED set how many are
// killed and in which order.
#include "check.h"
#include "mig_machine.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define WORKERS 3

static uint64_t seed = 1;

static unsigned roll(uint64_t *state, unsigned sides) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*state >> 33) % sides;
}

// One change at random. All answers but those named are mistakes.
static void change(uint64_t *state) {
    static const unsigned profiles[] = {ONE, ONE_MEDIA, TWO, FOUR};
    struct nvml_gpu_instance *instance = NULL, *list[SLICES];
    struct nvml_compute_instance *made = NULL;
    unsigned count = 0, profile = profiles[roll(state, 4)];
    int code = nvmlDeviceGetGpuInstances(gpu(0), profile, list, &count);
    CHECK_EQUAL(code, NVML_OK);
    if (count > 0 && roll(state, 2) == 0) {
        instance = list[roll(state, count)];
        for (unsigned id = 0; id < SLICES; id++) {
            if (nvmlGpuInstanceGetComputeInstanceById(instance, id, &made) == NVML_OK) {
                nvmlComputeInstanceDestroy(made);
            }
        }
        code = nvmlGpuInstanceDestroy(instance);
        CHECK(code == NVML_OK || code == NVML_IN_USE || code == NVML_INVALID_ARGUMENT ||
              code == NVML_NOT_FOUND);
        return;
    }
    code = nvmlDeviceCreateGpuInstance(gpu(0), profile, &instance);
    CHECK(code == NVML_OK || code == NVML_INSUFFICIENT_RESOURCES);
    if (code == NVML_OK) {
        code = nvmlGpuInstanceCreateComputeInstance(instance, roll(state, 4), &made);
        CHECK(code == NVML_OK || code == NVML_INSUFFICIENT_RESOURCES ||
              code == NVML_NOT_SUPPORTED || code == NVML_INVALID_ARGUMENT ||
              code == NVML_NOT_FOUND);
    }
}

// Changes without end, counted in `*done`; now and then it becomes a user of a MIG device.
static void work(uint64_t state, uint64_t *done) {
    struct sim_machine *machine;
    uint32_t context;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sim_machine_open(machine_file, &machine) || sim_process_join(machine)) {
        _exit(2);
    }
    unsigned unit = sim_mig_unit(0, roll(&state, SLICES));
    if (roll(&state, 3) == 0 && sim_mig_attach(machine, 0, unit) == 0 &&
        sim_context_open(machine, unit, &context) == 0) {
        sim_memory_take(machine, unit, MIB);
    }
    while (check_failures == 0) {
        change(&state);
        __atomic_add_fetch(done, 1, __ATOMIC_RELAXED);
    }
    _exit(1);
}

// No two instances meet, and each MIG device has its GPU instance and its memory.
static void check_state(struct sim_machine *machine) {
    struct sim_mig_state state;
    const struct sim_mig_geometry *geometry = &sim_machine_config(machine)->gpus[0].mig;
    CHECK_EQUAL(sim_mig_look(machine, 0, &state), 0);
    unsigned owner[SLICES] = {0}, media = 0;
    for (unsigned start = 0; start < SLICES; start++) {
        if (state.instance[start] == 0) {
            continue;
        }
        const struct sim_mig_profile *profile = &geometry->profiles[state.instance[start] - 1];
        media += profile->attributes == SIM_MIG_MEDIA;
        for (unsigned i = start; i < start + profile->memory_slices; i++) {
            CHECK_EQUAL(owner[i], 0);
            owner[i] = start + 1;
        }
    }
    CHECK(media <= 1);
    for (unsigned place = 0; place < SLICES; place++) {
        for (unsigned i = 0; i < state.compute[place]; i++) {
            CHECK(place + i < SLICES && owner[place + i] != 0);
            CHECK_EQUAL(owner[place + i], owner[place]);
            CHECK(i == 0 || state.compute[place + i] == 0);
        }
    }
}

static void take_all_away(void) {
    for (unsigned id = 0; id < 16; id++) {
        struct nvml_gpu_instance *instance;
        struct nvml_compute_instance *made;
        if (nvmlDeviceGetGpuInstanceById(gpu(0), id, &instance) != NVML_OK) {
            continue;
        }
        for (unsigned within = 0; within < SLICES; within++) {
            if (nvmlGpuInstanceGetComputeInstanceById(instance, within, &made) == NVML_OK) {
                CHECK_EQUAL(nvmlComputeInstanceDestroy(made), NVML_OK);
            }
        }
        CHECK_EQUAL(nvmlGpuInstanceDestroy(instance), NVML_OK);
    }
}

static pid_t start_worker(uint64_t *state, uint64_t *done) {
    uint64_t own = (uint64_t)roll(state, 1u << 30) << 20 | roll(state, 1u << 20);
    pid_t pid = fork();
    if (pid == 0) {
        work(own, done);
    }
    CHECK(pid > 0);
    return pid;
}

static void test_kills(void) {
    const char *wanted = getenv("KILLS");
    unsigned kills = wanted != NULL ? (unsigned)strtoul(wanted, NULL, 10) : 300;
    uint64_t state = seed;
    uint64_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sim_machine *machine = NULL;
    pid_t workers[WORKERS];
    mig_begin();
    CHECK_EQUAL(sim_machine_open(machine_file, &machine), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = start_worker(&state, done);
    }
    for (unsigned i = 0; i < kills && check_failures == 0; i++) {
        // Let them get on, to a moment that differs, and stop one of them there for a while.
        uint64_t until = __atomic_load_n(done, __ATOMIC_RELAXED) + 1 + roll(&state, 20);
        unsigned stopped = roll(&state, WORKERS), victim = roll(&state, WORKERS);
        bool stop = roll(&state, 8) == 0;
        for (unsigned waits = 0; __atomic_load_n(done, __ATOMIC_RELAXED) < until; waits++) {
            CHECK(waits < 60000);
            usleep(roll(&state, 1000));
        }
        if (stop) {
            kill(workers[stopped], SIGSTOP);
            check_state(machine);
            kill(workers[stopped], SIGCONT);
        }
        kill_child(workers[victim]);
        check_state(machine);
        workers[victim] = start_worker(&state, done);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        kill_child(workers[i]);
    }
    check_state(machine);
    take_all_away();
    check_memory(gpu(0), 64 * MIB, 0);
    compute(create(FOUR, 0, 4), 3);
    sim_machine_close(machine);
    munmap(done, 4096);
    mig_end();
}

int main(void) {
    const char *wanted = getenv("SEED");
    seed = wanted != NULL ? strtoull(wanted, NULL, 10) : (uint64_t)getpid();
    printf("mig_kill_test: SEED=%llu\n", (unsigned long long)seed);
    if (!mig_directory()) {
        return 1;
    }
    test_kills();
    mig_remove();
    return check_failures != 0;
}
