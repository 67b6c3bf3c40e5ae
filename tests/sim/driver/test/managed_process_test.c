// managed_process_test.c: managed memory of several processes on one simulated card: whose pages
// go, and what is left of those that are killed or stopped. The test itself never calls the driver,
// so that its children may; it looks at the machine's books. KILLS and SEED as environment.
#define _GNU_SOURCE
#include "../../engine.h"
#include "../cuda_abi.h"
#include "test.h"
#include "test_child.h"
#include "test_machine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define PAGE 32768u

static struct sim_machine *machine;
static unsigned seed;

// ---- What children do ----

static const char text[] =
    ".version 6.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry weir_spin_ns_on(.param .u64 cost, .param .u64 p, .param .u64 bytes) { ret; }\n"
    // Adds one to the first word of each page.
    ".visible .entry add_one(.param .u64 p, .param .u32 n) {\n"
    "  .reg .u64 %rd<4>; .reg .u32 %r<6>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1,[p]; ld.param.u32 %r1,[n]; mov.u32 %r2,%ctaid.x;\n"
    "  mov.u32 %r3,%tid.x; mad.lo.u32 %r4,%r2,64,%r3; setp.ge.u32 %p1,%r4,%r1; @%p1 bra DONE;\n"
    "  mul.wide.u32 %rd2,%r4,32768; add.u64 %rd3,%rd1,%rd2;\n"
    "  ld.global.u32 %r5,[%rd3]; add.u32 %r5,%r5,1; st.global.u32 [%rd3],%r5;\n"
    "DONE: ret; }\n";

static CUfunction touch_kernel, add_kernel;

static void start_cuda(void) {
    CUcontext context;
    CUmodule module;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, text));
    OK(cuModuleGetFunction(&touch_kernel, module, "weir_spin_ns_on"));
    OK(cuModuleGetFunction(&add_kernel, module, "add_one"));
}

static void touch(CUdeviceptr at, uint64_t bytes) {
    uint64_t cost = 0;
    void *params[] = {&cost, &at, &bytes};
    OK(cuLaunchKernel(touch_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

static void add_one(CUdeviceptr at, uint32_t pages) {
    void *params[] = {&at, &pages};
    OK(cuLaunchKernel(add_kernel, (pages + 63) / 64, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
}

// Orders: how many pages of its memory to touch, or one of these.
#define CHECK_DATA (UINT64_C(1) << 32)
#define PLAIN (UINT64_C(1) << 33)
#define FREE_PLAIN (UINT64_C(1) << 34)

static uint32_t word_of(CUdeviceptr at, unsigned page) {
    return *(volatile uint32_t *)(uintptr_t)(at + (uint64_t)page * PAGE);
}

static void obey(uint64_t bytes) {
    CUdeviceptr at = 0, plain = 0;
    uint32_t rounds = 0;
    start_cuda();
    CUresult rc = cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL);
    tell(rc);
    for (;;) {
        uint64_t order = listen_word();
        if (order == CHECK_DATA) {
            add_one(at, (uint32_t)(bytes / PAGE));
            OK(cuCtxSynchronize());
            rounds++;
            for (unsigned i = 0; i < bytes / PAGE; i++)
                CHECK_EQ(word_of(at, i), rounds);
        } else if (order & PLAIN) {
            rc = cuMemAlloc_v2(&plain, order & ~PLAIN);
        } else if (order == FREE_PLAIN) {
            rc = cuMemFree_v2(plain);
        } else {
            touch(at, order * PAGE);
            OK(cuCtxSynchronize());
        }
        tell(rc);
    }
}

static struct child obeying(uint64_t bytes, uint64_t wanted) {
    struct child child = spawn(obey, bytes);
    CHECK_EQ(hear(child), wanted);
    return child;
}

static uint64_t order(struct child child, uint64_t what) {
    say(child, what);
    return hear(child);
}

static void die(struct child child) {
    kill_now(child);
    close(child.to);
}

static struct sim_managed books_of(struct child child) {
    struct sim_process_state state;
    struct sim_managed found = {0};
    for (unsigned slot = 0; !sim_machine_process(machine, slot, &state); slot++)
        if (state.alive && state.pid == (int32_t)child.pid)
            found = state.gpus[0].managed;
    return found;
}

static struct sim_gpu_state gpu(void) {
    struct sim_gpu_state state;
    CHECK_EQ(sim_machine_gpu(machine, 0, &state), 0);
    return state;
}

// What plain memory leaves, in bytes of whole pages.
static uint64_t room_of_pages(void) {
    struct sim_gpu_state state = gpu();
    uint64_t plain = state.used_bytes - state.resident_bytes;
    return (state.memory_bytes - plain) / PAGE * PAGE;
}

// ---- Whose pages go ----

static void oldest_of_all_goes(void) {
    uint64_t bytes = 40 * MIB, pages = bytes / PAGE;
    struct child a = obeying(bytes, 0), b = obeying(bytes, 0);
    uint64_t room = room_of_pages();
    order(a, CHECK_DATA);
    CHECK_EQ(books_of(a).resident_bytes, bytes);
    order(b, CHECK_DATA);
    CHECK_EQ(books_of(b).resident_bytes, bytes);
    CHECK_EQ(books_of(a).resident_bytes, room - bytes);
    CHECK_EQ(books_of(a).evicted_bytes, 2 * bytes - room);
    CHECK_EQ(gpu().resident_bytes, room);
    CHECK(gpu().used_bytes > 64 * MIB - PAGE);
    // The rest of A is older than all of B, and A's own missing pages come first.
    order(a, pages);
    CHECK_EQ(books_of(a).resident_bytes, bytes);
    CHECK_EQ(books_of(b).resident_bytes, room - bytes);
    order(a, CHECK_DATA);
    order(b, CHECK_DATA);
    finish(a);
    CHECK_EQ(gpu().resident_bytes, bytes);
    finish(b);
    CHECK_EQ(gpu().used_bytes, 0);
}

static void plain_memory_of_another(void) {
    struct child a = obeying(59 * MIB, 0), b = obeying(PAGE, 0);
    order(a, CHECK_DATA);
    CHECK_EQ(books_of(a).resident_bytes, 59 * MIB);
    uint64_t room = room_of_pages();
    CHECK_EQ(order(b, PLAIN | 50 * MIB), CUDA_SUCCESS);
    CHECK_EQ(books_of(a).resident_bytes, room - 50 * MIB);
    CHECK_EQ(order(b, PLAIN | 11 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(order(a, CHECK_DATA), CUDA_SUCCESS);
    CHECK_EQ(books_of(a).resident_bytes, room - 50 * MIB);
    die(b);  // its memory is free at once
    order(a, CHECK_DATA);
    CHECK_EQ(books_of(a).resident_bytes, 59 * MIB);
    finish(a);
}

static void host_memory_is_the_limit(void) {
    struct child a = obeying(100 * MIB, 0);
    struct child b = obeying(28 * MIB + PAGE, CUDA_ERROR_OUT_OF_MEMORY);
    struct child c = obeying(28 * MIB, 0);
    struct child d = obeying(512, CUDA_ERROR_OUT_OF_MEMORY);
    die(a);
    struct child e = obeying(100 * MIB, 0);
    die(e);
    finish(b);
    finish(c);
    finish(d);
}

// ---- The killed and the stopped ----

static void pages_of_the_dead(void) {
    struct child a = obeying(30 * MIB, 0);
    order(a, CHECK_DATA);
    CHECK_EQ(gpu().resident_bytes, 30 * MIB);
    die(a);
    CHECK_EQ(gpu().resident_bytes, 0);
    CHECK_EQ(gpu().used_bytes, 0);
}

static void pages_of_the_stopped(void) {
    struct child a = obeying(40 * MIB, 0), b = obeying(64 * MIB, 0);
    order(a, CHECK_DATA);
    stop_now(a);
    order(b, CHECK_DATA);
    CHECK_EQ(books_of(a).resident_bytes, 0);
    CHECK_EQ(books_of(a).evicted_bytes, 40 * MIB);
    kill(a.pid, SIGCONT);
    order(a, CHECK_DATA);
    CHECK_EQ(books_of(a).resident_bytes, 40 * MIB);
    finish(a);
    finish(b);
}

// Stops with pages half moved, and moves them again when told that the change is lost.
static void stop_while_moving(uint64_t unused) {
    (void)unused;
    struct sim_machine *own;
    char path[4096];
    unsigned tries = 0;
    CHECK_EQ(sim_machine_path(path, sizeof path), 0);
    CHECK_EQ(sim_machine_open(path, &own), 0);
    CHECK_EQ(sim_process_join(own), 0);
    CHECK_EQ(sim_managed_take(own, 0, 200 * PAGE, 0, 200), 0);
    struct sim_engines *engines;
    do {
        struct sim_touch touch = {.count = 200, .kind = SIM_TOUCH_USE};
        struct sim_moved moved = {0};
        engines = sim_lock(own);
        touch.count = tries ? 200 : 150;
        sim_residency_touch(&engines->residency, own->slot, 0, &touch, &moved);
        if (!tries++)
            raise(SIGSTOP);
    } while (!sim_unlock(own, engines));
    tell(tries);
    wait_for_end();
}

static void stopped_while_moving(void) {
    struct child a = obeying(PAGE, 0), b = spawn(stop_while_moving, 0);
    int status;
    CHECK_EQ(waitpid(b.pid, &status, WUNTRACED), b.pid);
    CHECK(WIFSTOPPED(status));
    order(a, CHECK_DATA);  // is not held up
    CHECK_EQ(gpu().resident_bytes, PAGE + books_of(b).resident_bytes);
    kill(b.pid, SIGCONT);
    CHECK_EQ(hear(b), 2);
    CHECK_EQ(books_of(b).resident_bytes, 200 * PAGE);
    CHECK_EQ(gpu().resident_bytes, 201 * PAGE);
    finish(a);
    finish(b);
}

// Allocates, touches, moves and frees for ever, and looks at its data.
static void thrash(uint64_t random) {
    enum { PIECES = 6 };
    CUdeviceptr at[PIECES] = {0}, plain = 0;
    uint32_t pages[PIECES], rounds[PIECES];
    unsigned state = (unsigned)random;
    start_cuda();
    tell(0);
    for (;;) {
        unsigned i = (unsigned)rand_r(&state) % PIECES, what = (unsigned)rand_r(&state) % 10;
        if (!at[i]) {
            pages[i] = 1 + (unsigned)rand_r(&state) % 800;
            rounds[i] = 0;
            if (cuMemAllocManaged(&at[i], (uint64_t)pages[i] * PAGE, CU_MEM_ATTACH_GLOBAL))
                at[i] = 0;  // the host's memory is used up
        } else if (what == 0) {
            OK(cuMemFree_v2(at[i]));
            at[i] = 0;
        } else if (what == 1) {
            OK(cuMemPrefetchAsync(at[i], (uint64_t)pages[i] * PAGE, -1, NULL));
        } else if (what == 2) {
            OK(cuMemPrefetchAsync(at[i], (uint64_t)pages[i] * PAGE, 0, NULL));
        } else if (what == 3 && plain) {
            OK(cuMemFree_v2(plain));
            plain = 0;
        } else if (what == 3 && cuMemAlloc_v2(&plain, 4 * MIB)) {
            plain = 0;
        } else {
            add_one(at[i], pages[i]);
            OK(cuCtxSynchronize());
            rounds[i]++;
            for (unsigned k = 0; k < pages[i]; k++)
                CHECK_EQ(word_of(at[i], k), rounds[i]);
        }
    }
}

// The books of all processes add up to the card's, whatever they are doing.
static void check_books(void) {
    struct sim_engines *engines;
    uint64_t sum, all, room, pages;
    do {
        engines = sim_lock(machine);
        const struct sim_residency *r = &engines->residency;
        sum = 0;
        for (uint32_t slot = 0; slot < r->owners_used; slot++)
            sum += r->owners[slot].books[0].resident_bytes;
        all = r->lrus[0].pages * r->page_bytes;
        pages = r->lrus[0].pages;
        room = r->lrus[0].room;
    } while (!sim_unlock(machine, engines));
    CHECK_EQ(sum, all);
    CHECK(pages <= room);
    CHECK(gpu().used_bytes <= 64 * MIB);
}

static void killed_at_random(void) {
    enum { CHILDREN = 3 };
    const char *given = getenv("KILLS");
    unsigned kills = given ? (unsigned)atoi(given) : 40;
    struct child children[CHILDREN];
    for (unsigned i = 0; i < CHILDREN; i++)
        children[i] = spawn(thrash, seed + i);
    for (unsigned i = 0; i < CHILDREN; i++)
        hear(children[i]);
    for (unsigned i = 0; i < kills; i++) {
        unsigned victim = (unsigned)rand_r(&seed) % CHILDREN;
        sleep_us((unsigned)rand_r(&seed) % 30000);
        die(children[victim]);
        check_books();
        children[victim] = spawn(thrash, (unsigned)rand_r(&seed));
        hear(children[victim]);
        check_books();
    }
    for (unsigned i = 0; i < CHILDREN; i++)
        die(children[i]);
    CHECK_EQ(gpu().resident_bytes, 0);
    CHECK_EQ(gpu().used_bytes, 0);
}

int main(int argc, char **argv) {
    const char *given = getenv("SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)now.tv_nsec;
    printf("SEED=%u\n", seed);
    struct sim_config config = test_config();
    config.host_bytes = 128 * MIB;
    for (unsigned i = 0; i < 2; i++) {
        config.gpus[i].page_bytes = PAGE;
        config.gpus[i].h2d_bytes_per_s = config.gpus[i].d2h_bytes_per_s = 8000u * MIB;
        config.gpus[i].fault_batch_ns = 100;
    }
    machine = test_machine(&config);
    static const struct test tests[] = {
        TEST(oldest_of_all_goes), TEST(plain_memory_of_another), TEST(host_memory_is_the_limit),
        TEST(pages_of_the_dead),  TEST(pages_of_the_stopped),    TEST(stopped_while_moving),
        TEST(killed_at_random),
    };
    int rc = RUN(tests);
    test_machine_remove();
    return rc;
}
