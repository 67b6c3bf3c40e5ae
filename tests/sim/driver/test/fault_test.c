// fault_test.c: armed faults: the text that names them, calls that fail at their n-th use, kernels
// that never end, cards that fall off the bus. Each case runs in a process of its own.
#define _GNU_SOURCE
#include "../../layout.h"
#include "../cuda_abi.h"
#include "test.h"
#include "test_child.h"
#include "test_machine.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

static struct sim_machine *machine;

// ---- Text ----

static int parse(const char *text, struct sim_fault *fault) {
    return sim_fault_parse(text, (uint32_t)strlen(text), fault);
}

static void reads_text(void) {
    struct sim_fault fault;
    CHECK_EQ(parse("cuMemAlloc:3=2", &fault), 0);
    CHECK(!strcmp(fault.function, "cuMemAlloc"));
    CHECK_EQ(fault.nth, 3);
    CHECK_EQ(fault.times, 1);
    CHECK_EQ(fault.code, 2);
    CHECK_EQ(parse("kernel", &fault), 0);
    CHECK_EQ(fault.nth, 1);
    CHECK_EQ(fault.code, 999);
    CHECK_EQ(parse("cuMemFree:2+=700", &fault), 0);
    CHECK_EQ(fault.times, 0);
    CHECK_EQ(parse("cuMemFree_v2:5*2", &fault), 0);
    CHECK_EQ(fault.nth, 5);
    CHECK_EQ(fault.times, 2);
    static const char *const bad[] = {
        "",      ":3",        "cuInit:", "cuInit:0", "cuInit=", "a b",    "a:1*0",
        "a:1=0", "a:1=10000", "a:1=2=3", "a:1x",     "a:+=",    "a:-1=2", "a:99999999999999=2"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_EQ(parse(bad[i], &fault), EINVAL);
    char name[100];
    memset(name, 'a', sizeof name);
    CHECK_EQ(sim_fault_parse(name, sizeof name, &fault), EINVAL);
}

static void names_functions(void) {
    struct sim_fault base, exact;
    CHECK_EQ(parse("cuMemcpyHtoD", &base), 0);
    CHECK_EQ(parse("cuMemcpyHtoD_v2", &exact), 0);
    CHECK(sim_fault_means(&base, "cuMemcpyHtoD"));
    CHECK(sim_fault_means(&base, "cuMemcpyHtoD_v2"));
    CHECK(sim_fault_means(&base, "cuMemcpyHtoD_v2_ptds"));
    CHECK(!sim_fault_means(&base, "cuMemcpyHtoDAsync_v2"));
    CHECK(!sim_fault_means(&exact, "cuMemcpyHtoD"));
    CHECK(sim_fault_means(&exact, "cuMemcpyHtoD_v2_ptds"));
    CHECK(!sim_fault_means(&exact, "cuMemcpyHtoD_v20x"));
}

// ---- Arming ----

static uint32_t arm(const char *text) {
    struct sim_fault fault;
    uint32_t id;
    CHECK_EQ(parse(text, &fault), 0);
    CHECK_EQ(sim_fault_arm(machine, &fault, &id), 0);
    return id;
}

static void arms_and_clears(void) {
    struct sim_fault fault = {.function = "cuInit", .nth = 1, .code = 1};
    uint32_t ids[SIM_FAULTS_MAX], more;
    uint64_t used;
    const uint32_t *attention = sim_fault_attention(machine);
    CHECK_EQ(*attention, 0);
    for (unsigned i = 0; i < SIM_FAULTS_MAX; i++)
        CHECK_EQ(sim_fault_arm(machine, &fault, &ids[i]), 0);
    CHECK_EQ(sim_fault_arm(machine, &fault, &more), ENOSPC);
    CHECK_EQ(*attention, 1);
    for (unsigned i = 0; i < SIM_FAULTS_MAX; i++) {
        CHECK_EQ(sim_fault_look(machine, ids[i], &fault, &used), 0);
        CHECK_EQ(used, 0);
        CHECK_EQ(sim_fault_clear(machine, ids[i]), 0);
        CHECK_EQ(sim_fault_clear(machine, ids[i]), ENOENT);
        CHECK_EQ(sim_fault_look(machine, ids[i], &fault, &used), ENOENT);
    }
    CHECK_EQ(*attention, 0);
    fault.nth = 0;
    CHECK_EQ(sim_fault_arm(machine, &fault, &more), EINVAL);
    memset(fault.function, 'x', sizeof fault.function);
    CHECK_EQ(sim_fault_arm(machine, &fault, &more), EINVAL);
    CHECK_EQ(sim_gpu_lose(machine, 2, 999), EINVAL);
}

// ---- Calls that fail ----

static CUcontext context;
static CUfunction spin;

// A child has no mapping of the machine but its own.
static void open_machine(void) {
    char path[4096];
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &machine), 0);
}

static void start_cuda(void) {
    static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n";
    CUmodule module;
    open_machine();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&spin, module, "weir_spin_ns"));
}

static void in_child(void (*run)(uint64_t)) {
    struct child child = spawn(run, 0);
    finish(child);
    for (uint32_t id = 0; id < SIM_FAULTS_MAX; id++)
        sim_fault_clear(machine, id);
}

static void nth_use(uint64_t unused) {
    (void)unused;
    CUdeviceptr at;
    uint64_t used;
    struct sim_fault fault;
    start_cuda();
    OK(cuMemAlloc_v2(&at, 1));  // before it was armed
    uint32_t id = arm("cuMemAlloc:2*2=2"), other = arm("cuMemFree_v2:1+=700");
    OK(cuMemAlloc_v2(&at, 1));
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&at, 1));
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(cuMemFree_v2(at), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_EQ(sim_fault_look(machine, id, &fault, &used), 0);
    CHECK_EQ(used, 4);
    CHECK_EQ(sim_fault_clear(machine, other), 0);
    OK(cuMemFree_v2(at));
}

static void nth_use_fails(void) {
    in_child(nth_use);
}

// Arguments of all kinds arrive where they should while faults are armed.
static void passed_on(uint64_t unused) {
    (void)unused;
    CUdeviceptr at;
    CUstream stream;
    uint64_t cost = 0;
    void *params[] = {&cost}, *got = NULL;
    uint32_t words[4] = {1, 2, 3, 4}, back[4] = {0};
    start_cuda();
    arm("cuProfilerStop");
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemAlloc_v2(&at, 16));
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    OK(cuMemcpyHtoDAsync_v2(at, words, 16, stream));
    OK(cuMemcpyDtoHAsync_v2(back, at, 16, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(!memcmp(words, back, 16));
    // Whichever way a function is found, its fault is met.
    OK(cuGetProcAddress("cuMemAlloc", &got, 12000, 0));
    CHECK_EQ((uintptr_t)got, (uintptr_t)cuMemAlloc_v2);
    arm("cuMemAlloc=2");
    CHECK_EQ(((CUresult(*)(CUdeviceptr *, size_t))got)(&at, 1), CUDA_ERROR_OUT_OF_MEMORY);
    if (!fork()) {
        int n;
        CHECK_EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
        _exit(0);
    }
    int status;
    CHECK(wait(&status) > 0);
    CHECK_EQ(status, 0);
}

static void arguments_are_passed_on(void) {
    in_child(passed_on);
}

static void named_process(uint64_t unused) {
    (void)unused;
    CUdeviceptr at;
    uint32_t id;
    struct sim_fault fault = {.function = "cuMemAlloc", .nth = 1, .code = 2};
    start_cuda();
    strcpy(fault.process, "another");
    CHECK_EQ(sim_fault_arm(machine, &fault, &id), 0);
    fault.process[0] = 0;
    fault.pid = (int32_t)getppid();
    CHECK_EQ(sim_fault_arm(machine, &fault, &id), 0);
    OK(cuMemAlloc_v2(&at, 1));
    strncpy(fault.process, program_invocation_short_name, sizeof fault.process - 1);
    fault.pid = (int32_t)getpid();
    CHECK_EQ(sim_fault_arm(machine, &fault, &id), 0);
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_OUT_OF_MEMORY);
}

static void only_in_named_processes(void) {
    in_child(named_process);
}

static void init_fails(uint64_t unused) {
    (void)unused;
    int n;
    CHECK_EQ(cuInit(0), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
}

static void cuda_does_not_start(void) {
    arm("cuInit=999");
    in_child(init_fails);
}

static void own_environment(uint64_t unused) {
    (void)unused;
    CUdeviceptr at;
    setenv("WEIR_SIM_FAULT", "cuMemAlloc_v2:2=2,cuCtxSynchronize:1+=719", 1);
    start_cuda();
    OK(cuMemAlloc_v2(&at, 1));
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    OK(cuMemAlloc_v2(&at, 1));
}

static void bad_environment(uint64_t unused) {
    (void)unused;
    setenv("WEIR_SIM_FAULT", "cuMemAlloc_v2:2=2,cuNoSuchFunction=1", 1);
    CHECK_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE);
}

static void environment(void) {
    in_child(own_environment);
    in_child(bad_environment);
}

// ---- Kernels and cards ----

static void *lose_later(void *unused) {
    usleep(30000);
    CHECK_EQ(sim_gpu_lose(machine, 0, CUDA_ERROR_LAUNCH_FAILED), 0);
    return unused;
}

static CUresult launch(uint64_t cost) {
    void *params[] = {&cost};
    return cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

static void endless(uint64_t unused) {
    (void)unused;
    pthread_t thread;
    start_cuda();
    arm("kernel:2");
    OK(launch(1000));
    OK(cuCtxSynchronize());
    OK(launch(1000));
    usleep(20000);
    CHECK_EQ(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    // Whoever waits for it hears of the card's end.
    CHECK(!pthread_create(&thread, NULL, lose_later, NULL));
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    CHECK(!pthread_join(thread, NULL));
    CHECK_EQ(sim_gpu_lose(machine, 0, 0), 0);
}

static void kernel_never_ends(void) {
    in_child(endless);
    struct sim_gpu_state state;
    CHECK_EQ(sim_machine_gpu(machine, 0, &state), 0);
    CHECK_EQ(state.used_bytes, 0);
}

static void lost(uint64_t unused) {
    (void)unused;
    CUcontext other, again;
    CUdeviceptr at;
    CUstream stream;
    CUevent event;
    start_cuda();
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    OK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_EQ(sim_gpu_lose(machine, 0, CUDA_ERROR_UNKNOWN), 0);
    CHECK_EQ(sim_gpu_lost(machine, 0), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(launch(0), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_UNKNOWN);
    CHECK_EQ(cuCtxCreate_v2(&again, 0, 0), CUDA_ERROR_UNKNOWN);
    // Another card goes on.
    OK(cuCtxPushCurrent_v2(other));
    OK(cuMemAlloc_v2(&at, 1));
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent_v2(NULL));
    // It comes back, but not what was on it.
    CHECK_EQ(sim_gpu_lose(machine, 0, 0), 0);
    CHECK_EQ(sim_gpu_lost(machine, 0), 0);
    CHECK_EQ(cuMemAlloc_v2(&at, 1), CUDA_ERROR_UNKNOWN);
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&at, 1));
}

static void card_falls_off_the_bus(void) {
    in_child(lost);
}

int main(int argc, char **argv) {
    struct sim_config config = test_config();
    machine = test_machine(&config);
    static const struct test tests[] = {
        TEST(reads_text),
        TEST(names_functions),
        TEST(arms_and_clears),
        TEST(nth_use_fails),
        TEST(arguments_are_passed_on),
        TEST(only_in_named_processes),
        TEST(cuda_does_not_start),
        TEST(environment),
        TEST(kernel_never_ends),
        TEST(card_falls_off_the_bus),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
