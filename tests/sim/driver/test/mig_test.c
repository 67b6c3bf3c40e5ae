// mig_test.c: cards divided into MIG instances: what a process sees of them, whose memory and whose
// time it uses, and what may be changed while it does. Each process that uses the driver is a
// child.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define CARD 0  // the one that is divided
#define SLICE (14 * MIB)
#define CONTEXT (2 * MIB)

enum { ONE, TWO, FOUR };  // profiles

static struct sim_machine *machine;

static struct sim_config config(void) {
    struct sim_config config = test_config();
    for (unsigned i = 0; i < config.gpu_count; i++)
        config.gpus[i].mig = (struct sim_mig_geometry){
            .compute_slices = 4,
            .memory_slices = 4,
            .profile_count = 3,
            .profiles = {{"1g.1gb", 14, 0, 1, 1, 15, 4, 0, 14, 0, SLICE},
                         {"2g.2gb", 5, 1, 2, 2, 5, 2, 0, 28, 0, 2 * SLICE},
                         {"4g.4gb", 0, 3, 4, 4, 1, 1, 0, 56, 0, 4 * SLICE}}};
    return config;
}

// A fresh machine whose first card is divided.
static void divide(void) {
    struct sim_config c = config();
    machine = test_machine(&c);
    CHECK_EQ(sim_mig_set_mode(machine, CARD, true), 0);
}

// A GPU instance with one compute instance; returns the number of its MIG device.
static unsigned make(unsigned profile, unsigned start) {
    unsigned at, place, slices = 1u << profile;
    CHECK_EQ(sim_mig_create(machine, CARD, profile, start, &at), 0);
    CHECK_EQ(at, start);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, at, slices, SIM_MIG_ANYWHERE, &place), 0);
    return sim_mig_unit(CARD, place);
}

static void uuid_text(unsigned gpu, char text[64]) {
    struct sim_gpu_config found;
    CHECK_EQ(sim_gpu_describe(machine, gpu, &found), 0);
    char *at = text + sprintf(text, gpu < SIM_GPUS_MAX ? "GPU-" : "MIG-");
    for (unsigned i = 0; i < 16; i++)
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", found.uuid[i]);
}

// ---- Children that use the driver ----

struct child {
    pid_t pid;
    int orders, answers;
};

static const char spin_kernel[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n";

static void spin(uint64_t ns) {
    CUmodule module;
    CUfunction function;
    void *params[] = {&ns};
    OK(cuModuleLoadData(&module, spin_kernel));
    OK(cuModuleGetFunction(&function, module, "weir_spin_ns"));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

// What a child tells of its first device.
struct told {
    CUresult result;
    int count;
    unsigned char uuid[16], card_uuid[16];
    size_t total;
    int multiprocessors;
    char name[64];
    size_t left;  // after its context and `bytes`
};

static void serve(int orders, int answers, const char *list, uint64_t bytes, uint64_t spin_ns) {
    struct told told = {0};
    CUcontext context;
    CUdeviceptr at;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (list)
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
    told.result = cuInit(0);
    if (!told.result) {
        CUuuid uuid;
        OK(cuDeviceGetCount(&told.count));
        OK(cuDeviceGetUuid_v2(&uuid, 0));
        memcpy(told.uuid, uuid.bytes, sizeof told.uuid);
        OK(cuDeviceGetUuid(&uuid, 0));
        memcpy(told.card_uuid, uuid.bytes, sizeof told.card_uuid);
        OK(cuDeviceTotalMem_v2(&told.total, 0));
        OK(cuDeviceGetAttribute(&told.multiprocessors, 16, 0));
        OK(cuDeviceGetName(told.name, sizeof told.name, 0));
    }
    if (!told.result && bytes) {
        size_t total;
        OK(cuCtxCreate_v2(&context, 0, 0));
        told.result = cuMemAlloc_v2(&at, bytes);
        OK(cuMemGetInfo_v2(&told.left, &total));
        CHECK_EQ(total, told.total);
    }
    if (spin_ns)
        spin(spin_ns);
    char order;
    CHECK_EQ(write(answers, &told, sizeof told), sizeof told);
    _exit(read(orders, &order, 1) < 0);
}

// Starts a child; its answer comes when it holds what it was told to.
static struct child start(const char *list, uint64_t bytes, uint64_t spin_ns, struct told *told) {
    int orders[2], answers[2];
    CHECK_EQ(pipe2(orders, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(answers, O_CLOEXEC), 0);
    struct child child = {fork(), orders[1], answers[0]};
    CHECK(child.pid >= 0);
    if (!child.pid) {
        close(orders[1]);
        serve(orders[0], answers[1], list, bytes, spin_ns);
    }
    close(orders[0]);
    close(answers[1]);
    CHECK_EQ(read(child.answers, told, sizeof *told), sizeof *told);
    return child;
}

static void end(struct child *child) {
    int status;
    CHECK(child->pid > 0);  // kill(-1) would end every process here
    kill(child->pid, SIGKILL);
    CHECK_EQ(waitpid(child->pid, &status, 0), child->pid);
    close(child->orders);
    close(child->answers);
}

// What a process with this list sees, for which it needs no context.
static struct told ask(const char *list) {
    struct told told;
    struct child child = start(list, 0, 0, &told);
    end(&child);
    return told;
}

static bool sees(const char *list, unsigned gpu) {
    struct sim_gpu_config found;
    CHECK_EQ(sim_gpu_describe(machine, gpu, &found), 0);
    struct told told = ask(list);
    return !told.result && told.count == 1 && !memcmp(told.uuid, found.uuid, sizeof found.uuid);
}

// ---- Tests ----

static void one_mig_device_is_seen(void) {
    divide();
    char first[64], second[64], card[64], other[64], list[160];
    CHECK_EQ(ask("0").result, CUDA_ERROR_NO_DEVICE);  // it has no MIG device
    CHECK_EQ(ask(NULL).count, 1);                     // the other card
    unsigned two = make(TWO, 2), one = make(ONE, 0);
    uuid_text(one, first);
    uuid_text(two, second);
    uuid_text(CARD, card);
    uuid_text(1, other);
    CHECK(sees(NULL, one));  // the first one, and no card beside it
    CHECK(sees("0", one));
    CHECK(sees(card, one));
    CHECK(sees(second, two));
    CHECK(sees(first, one));
    snprintf(list, sizeof list, "%s,%s", second, first);
    CHECK(sees(list, two));
    snprintf(list, sizeof list, "%s,%s", other, second);
    CHECK(sees(list, two));
    CHECK(sees("1", 1));
    CHECK(sees(other, 1));
    second[12] = 0;  // as many digits as tell one from the rest
    CHECK(sees(second, two));
    snprintf(list, sizeof list, "%s,%s", first, first);
    CHECK_EQ(ask(list).result, CUDA_ERROR_NO_DEVICE);
    CHECK_EQ(ask("MIG-").result, CUDA_ERROR_NO_DEVICE);
    CHECK_EQ(ask("MIG-00000000-0000-0000-0000-000000000000").result, CUDA_ERROR_NO_DEVICE);

    struct told told = ask(first);
    CHECK_EQ(told.total, SLICE);
    CHECK_EQ(told.multiprocessors, 14);
    CHECK(!strcmp(told.name, "Simulated GPU MIG 1g.1gb"));
    CHECK(!memcmp(told.card_uuid, sim_machine_config(machine)->gpus[CARD].uuid, 16));
    sim_machine_close(machine);
    test_machine_remove();
}

static uint64_t used(unsigned gpu) {
    uint64_t bytes;
    CHECK_EQ(sim_memory_used(machine, gpu, &bytes), 0);
    return bytes;
}

static void memory_is_the_instances(void) {
    divide();
    char first[64], second[64];
    struct told told;
    unsigned one = make(ONE, 0), two = make(TWO, 2);
    uuid_text(one, first);
    uuid_text(two, second);
    struct child a = start(first, SLICE - CONTEXT, 0, &told);
    OK(told.result);
    CHECK_EQ(told.left, 0);
    struct child b = start(second, MIB, 0, &told);
    OK(told.result);
    CHECK_EQ(told.left, 2 * SLICE - CONTEXT - MIB);
    struct child c = start(second, MIB, 0, &told);
    CHECK_EQ(told.left, 2 * SLICE - 2 * CONTEXT - 2 * MIB);
    CHECK_EQ(used(one), SLICE);
    CHECK_EQ(used(two), 2 * CONTEXT + 2 * MIB);
    CHECK_EQ(used(CARD), SLICE + 2 * CONTEXT + 2 * MIB);
    CHECK_EQ(used(1), 0);
    end(&a);
    CHECK_EQ(used(one), 0);
    struct child d = start(first, SLICE - CONTEXT + 512, 0, &told);
    CHECK_EQ(told.result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(used(one), CONTEXT);
    end(&b);
    end(&c);
    end(&d);
    CHECK_EQ(used(CARD), 0);
    sim_machine_close(machine);
    test_machine_remove();
}

// Two compute instances of one GPU instance share its memory.
static void compute_instances_share_memory(void) {
    divide();
    unsigned at, place[2];
    char text[64];
    struct told told;
    CHECK_EQ(sim_mig_create(machine, CARD, TWO, 0, &at), 0);
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(sim_mig_create_compute(machine, CARD, at, 1, SIM_MIG_ANYWHERE, &place[i]), 0);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, at, 1, SIM_MIG_ANYWHERE, &at), ENOSPC);
    uuid_text(sim_mig_unit(CARD, place[0]), text);
    struct child a = start(text, SLICE, 0, &told);
    CHECK_EQ(told.total, 2 * SLICE);
    CHECK_EQ(told.multiprocessors, 14);
    CHECK(!strcmp(told.name, "Simulated GPU MIG 1c.2g.2gb"));
    uuid_text(sim_mig_unit(CARD, place[1]), text);
    struct child b = start(text, SLICE - 2 * CONTEXT + 512, 0, &told);
    CHECK_EQ(told.result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(told.left, SLICE - 2 * CONTEXT);
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(used(sim_mig_unit(CARD, place[i])), SLICE + 2 * CONTEXT);
    CHECK_EQ(used(CARD), SLICE + 2 * CONTEXT);
    end(&a);
    end(&b);
    sim_machine_close(machine);
    test_machine_remove();
}

// The time for which two processes had work for a GPU, once it has worked for some slices.
static uint64_t contended(unsigned gpu) {
    struct sim_gpu_state state;
    for (unsigned waits = 0;; waits++) {
        CHECK_EQ(sim_machine_gpu(machine, gpu, &state), 0);
        if (state.busy_ns > 5 * 1024000)
            return state.wall_by_rivals_ns[1];
        CHECK(waits < 20000);
        usleep(1000);
    }
}

// Kernels that never end during the test: those of one MIG device take turns, others do not notice.
static void time_is_the_devices(void) {
    divide();
    char first[64], second[64];
    struct told told;
    unsigned one = make(ONE, 0), two = make(ONE, 1);
    uuid_text(one, first);
    uuid_text(two, second);
    const uint64_t long_ns = UINT64_C(600000000000);
    struct child a = start(first, 512, long_ns, &told);
    struct child b = start(second, 512, long_ns, &told);
    struct child c = start(second, 512, long_ns, &told);
    CHECK_EQ(contended(one), 0);
    CHECK(contended(two) > 0);
    struct sim_gpu_state state;
    CHECK_EQ(sim_machine_gpu(machine, CARD, &state), 0);
    CHECK_EQ(state.busy_ns, 0);
    end(&a);
    end(&b);
    end(&c);
    sim_machine_close(machine);
    test_machine_remove();
}

static void nothing_is_taken_away_from_users(void) {
    divide();
    char text[64];
    struct told told;
    struct sim_mig_state state;
    unsigned one = make(ONE, 0), two = make(ONE, 1);
    uuid_text(one, text);
    struct child bare = start(text, 0, 0, &told);  // attached, without a context
    CHECK_EQ(sim_mig_destroy_compute(machine, CARD, 0), EBUSY);
    CHECK_EQ(sim_mig_destroy(machine, CARD, 0), EBUSY);
    CHECK_EQ(sim_mig_set_mode(machine, CARD, false), EBUSY);
    CHECK_EQ(sim_mig_look(machine, CARD, &state), 0);
    CHECK_EQ(state.enabled * 10 + state.pending, 10);
    CHECK_EQ(sim_mig_destroy_compute(machine, CARD, 1), 0);
    CHECK_EQ(sim_mig_destroy(machine, CARD, 1), 0);
    struct sim_gpu_config gone;
    CHECK_EQ(sim_gpu_describe(machine, two, &gone), EINVAL);
    end(&bare);
    struct child user = start(text, MIB, 0, &told);
    CHECK_EQ(sim_mig_destroy_compute(machine, CARD, 0), EBUSY);
    end(&user);
    CHECK_EQ(sim_mig_destroy_compute(machine, CARD, 0), 0);
    CHECK_EQ(sim_mig_destroy(machine, CARD, 0), 0);
    CHECK_EQ(sim_mig_set_mode(machine, CARD, false), 0);
    CHECK_EQ(ask(NULL).count, 2);

    struct child whole = start("0", MIB, 0, &told);
    CHECK_EQ(told.total, 64 * MIB);
    CHECK_EQ(sim_mig_set_mode(machine, CARD, true), EBUSY);
    CHECK_EQ(sim_mig_look(machine, CARD, &state), 0);
    CHECK_EQ(state.enabled * 10 + state.pending, 1);
    unsigned at;
    CHECK_EQ(sim_mig_create(machine, CARD, ONE, 0, &at), ENOTSUP);
    end(&whole);
    CHECK_EQ(sim_mig_set_mode(machine, CARD, true), 0);
    CHECK_EQ(sim_mig_create(machine, CARD, ONE, 0, &at), 0);
    sim_machine_close(machine);
    test_machine_remove();
}

static void wrong_requests(void) {
    divide();
    struct sim_mig_state state;
    unsigned at;
    CHECK_EQ(sim_mig_look(machine, 2, &state), EINVAL);
    CHECK_EQ(sim_mig_set_mode(machine, SIM_GPUS_MAX, true), EINVAL);
    CHECK_EQ(sim_mig_create(machine, CARD, 3, 0, &at), EINVAL);
    CHECK_EQ(sim_mig_create(machine, CARD, TWO, 1, &at), EINVAL);
    CHECK_EQ(sim_mig_create(machine, CARD, ONE, SIM_MIG_SLICES, &at), EINVAL);
    CHECK_EQ(sim_mig_create(machine, 1, ONE, 0, &at), ENOTSUP);
    CHECK_EQ(sim_mig_destroy(machine, CARD, 0), ENOENT);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, 0, 1, 0, &at), ENOENT);
    CHECK_EQ(sim_mig_create(machine, CARD, TWO, 0, &at), 0);
    CHECK_EQ(sim_mig_create(machine, CARD, FOUR, 0, &at), ENOSPC);
    CHECK_EQ(sim_mig_create(machine, CARD, ONE, 1, &at), ENOSPC);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, 0, 3, SIM_MIG_ANYWHERE, &at), EINVAL);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, 0, 1, 2, &at), EINVAL);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, 0, 2, 0, &at), 0);
    CHECK_EQ(sim_mig_create_compute(machine, CARD, 0, 1, 1, &at), ENOSPC);
    CHECK_EQ(sim_mig_destroy_compute(machine, CARD, 1), ENOENT);
    struct sim_config plain = test_config();
    sim_machine_close(machine);
    test_machine_remove();
    machine = test_machine(&plain);
    CHECK_EQ(sim_mig_set_mode(machine, CARD, true), ENOTSUP);
    sim_machine_close(machine);
    test_machine_remove();
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        TEST(one_mig_device_is_seen),           TEST(memory_is_the_instances),
        TEST(compute_instances_share_memory),   TEST(time_is_the_devices),
        TEST(nothing_is_taken_away_from_users), TEST(wrong_requests)};
    return RUN(tests);
}
