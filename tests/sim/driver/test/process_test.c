// process_test.c: several processes on one simulated machine. The test itself never calls the
// driver, so that its children may; it looks at the machine's books. KILLS and SEED as environment.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_child.h"
#include "test_machine.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define START_BYTES (2 * MIB + SIM_GRANULE)  // a context, and the code of its small module

static struct sim_machine *machine;
static unsigned seed;

// ---- What children do ----

static CUfunction spin;

static void start_cuda(void) {
    static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n";
    CUcontext context;
    CUmodule module;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&spin, module, "weir_spin_ns"));
}

static void spin_for(uint64_t ns) {
    void *params[] = {&ns};
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

static uint64_t used_bytes(void) {
    struct sim_gpu_state state;
    CHECK_EQ(sim_machine_gpu(machine, 0, &state), 0);
    return state.used_bytes;
}

// ---- Memory ----

// Allocates by halves until not even one granule is left, and says how much it was.
static void take_all(uint64_t unused) {
    (void)unused;
    uint64_t got = 0;
    CUdeviceptr at;
    start_cuda();
    tell(0);
    wait_for_end();
    for (uint64_t bytes = 16 * MIB; bytes >= SIM_GRANULE;) {
        if (cuMemAlloc_v2(&at, bytes) == CUDA_SUCCESS)
            got += bytes;
        else
            bytes /= 2;
    }
    tell(got);
    for (;;)
        pause();
}

static void two_take_all(void) {
    struct child a = spawn(take_all, 0), b = spawn(take_all, 0);
    hear(a);
    hear(b);
    close(a.to);
    close(b.to);
    CHECK_EQ(hear(a) + hear(b) + 2 * START_BYTES, 64 * MIB);
    CHECK_EQ(used_bytes(), 64 * MIB);
    kill_now(a);
    kill_now(b);
    CHECK_EQ(used_bytes(), 0);
}

static void take_one(uint64_t bytes) {
    CUdeviceptr at;
    start_cuda();
    tell(0);
    wait_for_end();
    tell(cuMemAlloc_v2(&at, bytes) == CUDA_SUCCESS);
    for (;;)
        pause();
}

// Of N that race, exactly those that fit get what they want.
static void race_for_the_last(void) {
    enum { N = 12, FIT = 5 };
    struct child children[N];
    for (unsigned round = 0; round < 10; round++) {
        uint64_t each = (64 * MIB - N * START_BYTES) / FIT / SIM_GRANULE * SIM_GRANULE, got = 0;
        for (unsigned i = 0; i < N; i++)
            children[i] = spawn(take_one, each);
        for (unsigned i = 0; i < N; i++)
            hear(children[i]);
        for (unsigned i = 0; i < N; i++)
            close(children[i].to);
        for (unsigned i = 0; i < N; i++)
            got += hear(children[i]);
        CHECK_EQ(got, FIT);
        CHECK_EQ(used_bytes(), N * START_BYTES + FIT * each);
        for (unsigned i = 0; i < N; i++)
            kill_now(children[i]);
        CHECK_EQ(used_bytes(), 0);
    }
}

// ---- Death ----

// Uses everything there is, for ever.
static void thrash(uint64_t random) {
    CUdeviceptr at[16] = {0};
    CUcontext context;
    uint32_t word = 0;
    unsigned state = (unsigned)random;
    start_cuda();
    tell(0);
    for (unsigned i = 0;; i++) {
        unsigned slot = (unsigned)rand_r(&state) % 16;
        if (at[slot])
            OK(cuMemFree_v2(at[slot]));
        at[slot] = 0;
        if (cuMemAlloc_v2(&at[slot], 1 + (unsigned)rand_r(&state) % 200000) == CUDA_SUCCESS) {
            OK(cuMemsetD32Async(at[slot], i, 1, NULL));
            OK(cuMemcpyDtoHAsync_v2(&word, at[slot], 4, NULL));
        }
        spin_for((unsigned)rand_r(&state) % 3000);
        if (i % 64 == 0 && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS)
            OK(cuCtxDestroy_v2(context));
    }
}

// Holds a pattern and looks again and again whether it is whole.
static void keep(uint64_t unused) {
    (void)unused;
    enum { WORDS = 100000 };
    static uint32_t words[WORDS];
    CUdeviceptr at;
    start_cuda();
    OK(cuMemAlloc_v2(&at, sizeof words));
    fcntl(hear_fd, F_SETFL, O_NONBLOCK);
    tell(0);
    for (uint32_t round = 1; !end_wanted(); round++) {
        OK(cuMemsetD32_v2(at, round, WORDS));
        spin_for(100000);
        OK(cuMemcpyDtoH_v2(words, at, sizeof words));
        for (unsigned i = 0; i < WORDS; i++)
            CHECK_EQ(words[i], round);
    }
}

static void killed(void) {
    const char *given = getenv("KILLS");
    unsigned kills = given ? (unsigned)atoi(given) : 100;
    struct child living = spawn(keep, 0);
    hear(living);
    uint64_t before = used_bytes();
    for (unsigned i = 0; i < kills; i++) {
        struct child victim = spawn(thrash, seed + i);
        hear(victim);
        sleep_us((unsigned)rand() % 3000);
        kill_now(victim);
        close(victim.to);
        CHECK_EQ(used_bytes(), before);  // at the very next look
    }
    finish(living);
    CHECK_EQ(used_bytes(), 0);
}

// A child of a process that uses the GPU has nothing of it, and does not keep it alive.
static void fork_itself(uint64_t unused) {
    (void)unused;
    CUdeviceptr at;
    int n;
    start_cuda();
    OK(cuMemAlloc_v2(&at, MIB));
    pid_t pid = fork();
    if (!pid) {
        bool cut_off = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuMemAlloc_v2(&at, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                       cuDriverGetVersion(&n) == CUDA_SUCCESS;
        tell(cut_off);
        wait_for_end();
        _exit(0);
    }
    OK(cuMemFree_v2(at));
    OK(cuMemAlloc_v2(&at, 2 * MIB));
    tell((uint64_t)pid);
}

static void forked(void) {
    struct child child = spawn(fork_itself, 0);
    uint64_t words[2] = {hear(child), hear(child)};
    CHECK(words[0] == 1 || words[1] == 1);
    int status;
    CHECK_EQ(waitpid(child.pid, &status, 0), child.pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(used_bytes(), 0);  // though its child is there still
    close(child.to);
    close(child.from);
}

// Who has only asked for the version leaves a child everything.
static void ask_and_fork(uint64_t unused) {
    (void)unused;
    int n, status;
    OK(cuDriverGetVersion(&n));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        start_cuda();
        OK(cuCtxSynchronize());
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    start_cuda();
}

static void forked_before_init(void) {
    finish(spawn(ask_and_fork, 0));
    CHECK_EQ(used_bytes(), 0);
}

static void close_everything(uint64_t unused) {
    (void)unused;
    start_cuda();
    int up = fcntl(tell_fd, F_DUPFD, 500), down = fcntl(hear_fd, F_DUPFD, 500);
    for (int fd = 3; fd < 500; fd++)
        close(fd);
    tell_fd = up;
    hear_fd = down;
    CUdeviceptr at;
    OK(cuMemAlloc_v2(&at, MIB));
    spin_for(1000);
    OK(cuCtxSynchronize());
    tell(1);
    wait_for_end();
}

static void descriptors_closed(void) {
    struct child child = spawn(close_everything, 0);
    hear(child);
    CHECK_EQ(used_bytes(), START_BYTES + MIB);
    finish(child);
    CHECK_EQ(used_bytes(), 0);
}

static void execute(uint64_t unused) {
    (void)unused;
    start_cuda();
    tell(1);
    fcntl(hear_fd, F_SETFD, 0);
    dup2(hear_fd, 0);
    execl("/bin/cat", "cat", (char *)NULL);
}

// exec is the end of a process for its GPU.
static void executed(void) {
    struct child child = spawn(execute, 0);
    hear(child);
    for (unsigned i = 0; used_bytes() && i < 5000; i++)
        sleep_us(1000);
    CHECK_EQ(used_bytes(), 0);
    CHECK_EQ(kill(child.pid, 0), 0);
    finish(child);
}

// ---- Stopped processes ----

static void launch_in_order(uint64_t unused) {
    (void)unused;
    CUevent event[2];
    CUdeviceptr at;
    float ms;
    start_cuda();
    OK(cuEventCreate(&event[0], 0));
    OK(cuEventCreate(&event[1], 0));
    fcntl(hear_fd, F_SETFL, O_NONBLOCK);
    tell(0);
    while (!end_wanted()) {
        OK(cuEventRecord(event[0], NULL));
        for (unsigned i = 0; i < 50; i++)
            spin_for(2000);
        OK(cuEventRecord(event[1], NULL));
        OK(cuMemAlloc_v2(&at, 4096));
        OK(cuMemFree_v2(at));
        OK(cuCtxSynchronize());
        // All fifty were done, and none twice.
        OK(cuEventElapsedTime(&ms, event[0], event[1]));
        CHECK(ms >= 0.0999);
    }
}

// Whoever stands still, wherever it was: the others go on, and so does it when it is let.
static void stopped(void) {
    enum { N = 3 };
    struct child living = spawn(launch_in_order, 0), children[N];
    hear(living);
    for (unsigned i = 0; i < N; i++) {
        children[i] = spawn(launch_in_order, 0);
        hear(children[i]);
    }
    struct sim_process_state before, after;
    for (unsigned round = 0; round < 60; round++) {
        for (unsigned i = 0; i < N; i++)
            kill(children[i].pid, SIGSTOP);
        CHECK_EQ(sim_machine_process(machine, 0, &before), 0);
        CHECK_EQ(before.pid, living.pid);
        unsigned looks = 0;
        do {
            sleep_us(5000);
            CHECK_EQ(sim_machine_process(machine, 0, &after), 0);
            CHECK(++looks < 12000);
        } while (after.gpus[0].books.launches < before.gpus[0].books.launches + 100);
        for (unsigned i = 0; i < N; i++)
            kill(children[i].pid, SIGCONT);
        sleep_us((unsigned)rand() % 2000);
    }
    for (unsigned i = 0; i < N; i++)
        finish(children[i]);
    finish(living);
}

// ---- Time ----

// Always has enough to do, in kernels of one length.
static void keep_busy(uint64_t kernel_ns) {
    start_cuda();
    fcntl(hear_fd, F_SETFL, O_NONBLOCK);
    tell(0);
    while (!end_wanted())
        for (unsigned i = 0; i < 64; i++)
            spin_for(kernel_ns);
}

// Shares of the time in which all were busy, from the books.
static void shares(const uint64_t *kernel_ns, unsigned count, double tolerance) {
    struct child children[4];
    for (unsigned i = 0; i < count; i++) {
        children[i] = spawn(keep_busy, kernel_ns[i]);
        hear(children[i]);
    }
    struct sim_process_state state;
    uint64_t busy[4] = {0}, sum = 0;
    for (unsigned looks = 0; sum < 800000000; looks++) {
        CHECK(looks < 12000);
        sleep_us(5000);
        sum = 0;
        for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
            for (unsigned i = 0; i < count; i++)
                if (state.pid == children[i].pid && state.alive)
                    sum += busy[i] = state.gpus[0].books.busy_by_rivals_ns[count - 1];
    }
    for (unsigned i = 0; i < count; i++) {
        kill_now(children[i]);
        close(children[i].to);
    }
    for (unsigned i = 0; i < count; i++) {
        double share = 100.0 * (double)busy[i] / (double)sum;
        printf("  %u us kernels: %.2f %%\n", (unsigned)(kernel_ns[i] / 1000), share);
        CHECK(share > 100.0 / count - tolerance && share < 100.0 / count + tolerance);
    }
}

static void two_share(void) {
    shares((uint64_t[]){1000000, 20000}, 2, 3);
}

static void four_share(void) {
    shares((uint64_t[]){1000000, 20000, 1000000, 20000}, 4, 3);
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    seed = given ? (unsigned)atoi(given) : (unsigned)sim_now_ns();
    printf("SEED=%u\n", seed);
    srand(seed);
    signal(SIGPIPE, SIG_IGN);
    struct sim_config config = test_config();
    machine = test_machine(&config);
    static const struct test tests[] = {
        TEST(stopped),  // first: its living child is in slot 0
        TEST(two_take_all), TEST(race_for_the_last),  TEST(killed),
        TEST(forked),       TEST(forked_before_init), TEST(descriptors_closed),
        TEST(executed),     TEST(two_share),          TEST(four_share),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
