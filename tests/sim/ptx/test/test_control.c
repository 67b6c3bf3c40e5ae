// Branches, calls, barriers, warp instructions, and how a launch ends early.
#include "tests/sim/ptx/test/harness.h"

#include <pthread.h>

#define HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"
// A kernel of which each thread leaves %d1 at out[its index in the grid].
#define REGISTERS                                                                                  \
    ".reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<16>;\n.reg .f32 %f<8>;\n"                  \
    "ld.param.u64 %d0, [out];\nmov.u32 %r0, %tid.x;\nmov.u64 %d1, 0;\n"
#define STORE                                                                                      \
    "mov.u32 %r30, %ctaid.x;\nmov.u32 %r31, %ntid.x;\nmad.lo.u32 %r31, %r30, %r31, %r0;\n"         \
    "mul.wide.u32 %d15, %r31, 8;\nadd.u64 %d15, %d0, %d15;\nst.global.u64 [%d15], %d1;\nret;\n}\n"
#define ENTRY ".visible .entry k(.param .u64 out) {\n"
#define KERNEL(body) HEAD ENTRY REGISTERS body "\n" STORE

#define OUT_MAX 2048

static int run(const char *text, struct dims dims, uint64_t out[OUT_MAX],
               struct sim_ptx_outcome *outcome) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = load(&dev, text);
    uint64_t *at = device_alloc(&dev, OUT_MAX * 8), param = (uintptr_t)at;
    int code = launch(&dev, m, "k", dims, outcome, 1, &param);
    memcpy(out, at, OUT_MAX * 8);
    sim_ptx_unload(m);
    device_free(&dev);
    return code;
}

typedef uint64_t expected(uint32_t thread);

static void expect(const char *what, const char *text, struct dims dims, expected *value) {
    static uint64_t out[OUT_MAX];
    struct sim_ptx_outcome outcome;
    int code = run(text, dims, out, &outcome);
    CHECK(code == 0, "%s: code %d at line %u", what, code, outcome.line);
    for (uint32_t k = 0; code == 0 && k < dims.grid * dims.block; k++)
        CHECK(out[k] == value(k), "%s: thread %u: %llu, not %llu", what, k,
              (unsigned long long)out[k], (unsigned long long)value(k));
}

static uint64_t triangle(uint32_t t) {
    return (uint64_t)t * (t + 1) / 2;
}

static uint64_t fibonacci(uint32_t t) {
    uint64_t a = 0, b = 1, next;
    for (uint32_t k = 0; k < t % 16; k++, a = b, b = next)
        next = a + b;
    return a;
}

static uint64_t times_three(uint32_t t) {
    return 3ull * t;
}

static uint64_t table_value(uint32_t t) {
    static const uint64_t values[] = {10, 20, 30};
    return values[t % 3];
}

static void test_flow(void) {
    expect("loop with scoped labels",
           KERNEL("mov.u32 %r1, 0;\n{\n.reg .pred %p1;\nL: setp.gt.u32 %p1, %r1, %r0;\n@%p1 bra "
                  "DONE;\ncvt.u64.u32 %d2, %r1;\nadd.u64 %d1, %d1, %d2;\nadd.u32 %r1, %r1, 1;\n"
                  "bra.uni L;\nDONE:\n}\n{\nbra L;\nL:\n}"),
           (struct dims){1, 96, 0}, triangle);
    expect(
        "branch table",
        KERNEL("T: .branchtargets A, B, C;\nrem.u32 %r1, %r0, 3;\nbrx.idx %r1, T;\n"
               "A: mov.u64 %d1, 10;\nbra E;\nB: mov.u64 %d1, 20;\nbra E;\nC: mov.u64 %d1, 30;\nE:"),
        (struct dims){1, 7, 0}, table_value);
}

#define FIB                                                                                        \
    ".func (.param .b64 out) fib(.param .b32 n) {\n.reg .pred %p;\n.reg .b32 %r<4>;\n"             \
    ".reg .b64 %d<4>;\nld.param.u32 %r0, [n];\nsetp.lt.u32 %p, %r0, 2;\ncvt.u64.u32 %d0, %r0;\n"   \
    "@%p bra DONE;\nsub.u32 %r1, %r0, 1;\n{\n.param .b32 a;\n.param .b64 r;\nst.param.b32 [a], "   \
    "%r1;\ncall.uni (r), fib, (a);\nld.param.b64 %d1, [r];\n}\nsub.u32 %r1, %r0, 2;\n{\n.param "   \
    ".b32 a;\n.param .b64 r;\nst.param.b32 [a], %r1;\ncall.uni (r), fib, (a);\nld.param.b64 %d2, " \
    "[r];\n}\nadd.u64 %d0, %d1, %d2;\nDONE: st.param.b64 [out], %d0;\nret;\n}\n"

static void test_calls(void) {
    expect("recursion",
           HEAD FIB ENTRY REGISTERS "and.b32 %r1, %r0, 15;\n{\n.param .b32 a;\n.param .b64 r;\n"
                                    "st.param.b32 [a], %r1;\ncall (r), fib, (a);\n"
                                    "ld.param.b64 %d1, [r];\n}\n" STORE,
           (struct dims){1, 20, 0}, fibonacci);
    expect("call through a pointer in a variable",
           HEAD FIB ".global .u64 table[2] = {fib, 0};\n" ENTRY REGISTERS
                    "and.b32 %r1, %r0, 15;\nld.global.u64 %d2, [table];\n{\n.param .b32 a;\n.param "
                    ".b64 r;\nst.param.b32 [a], %r1;\nP: .callprototype (.param .b64 _) _ (.param "
                    ".b32 _);\ncall (r), %d2, (a), P;\nld.param.b64 %d1, [r];\n}\n" STORE,
           (struct dims){1, 20, 0}, fibonacci);
    expect("register parameters and literals",
           HEAD ".func (.reg .u64 r) f(.reg .u32 a, .reg .u64 b) {\ncvt.u64.u32 r, a;\n"
                "mul.lo.u64 r, r, b;\nret;\n}\n" ENTRY REGISTERS "call (%d1), f, (%r0, 3);\n" STORE,
           (struct dims){1, 40, 0}, times_three);
    expect("structure passed and returned",
           HEAD ".func (.param .align 8 .b8 r[24]) g(.param .align 8 .b8 a[24]) {\n.reg .b64 "
                "%d<8>;\nmov.b64 %d0, a;\nld.param.u64 %d1, [%d0+16];\nmul.lo.u64 %d1, %d1, 3;\n"
                "st.param.u64 [r+8], %d1;\nret;\n}\n" ENTRY REGISTERS
                "cvt.u64.u32 %d2, %r0;\n{\n.param .align 8 .b8 a[24];\n.param .align 8 .b8 r[24];\n"
                "st.param.u64 [a+16], %d2;\ncall (r), g, (a);\nld.param.u64 %d1, [r+8];\n}\n" STORE,
           (struct dims){1, 66, 0}, times_three);
}

static void expect_end(const char *what, const char *text, struct dims dims, int expected_code) {
    static uint64_t out[OUT_MAX];
    struct sim_ptx_outcome outcome;
    int code = run(text, dims, out, &outcome);
    CHECK(code == expected_code && outcome.line > 0, "%s: code %d, line %u", what, code,
          outcome.line);
}

static void test_ends(void) {
    expect_end("trap", KERNEL("trap;"), (struct dims){1, 1, 0}, SIM_PTX_LAUNCH_FAILED);
    expect_end("assert",
               HEAD
               ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param "
               ".b64 d, .param .b64 e);\n" ENTRY REGISTERS
               "{ .param .b64 a; .param .b32 c; call __assertfail, (a, a, c, a, a); }\n" STORE,
               (struct dims){1, 1, 0}, SIM_PTX_ASSERT);
    expect_end("endless loop", KERNEL("L: bra L;"), (struct dims){1, 1, 0}, SIM_PTX_TIMEOUT);
    expect_end("endless recursion",
               HEAD ".func f() {\ncall f;\nret;\n}\n" ENTRY REGISTERS "call f;\n" STORE,
               (struct dims){1, 1, 0}, SIM_PTX_STACK_ERROR);
    expect_end("call of no function",
               KERNEL("P: .callprototype _ ();\nmov.u64 %d2, 4096;\ncall %d2, P;"),
               (struct dims){1, 1, 0}, SIM_PTX_INVALID_PC);
    expect_end("threads at two barriers",
               KERNEL("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nbar.sync 1;\nbra B;\nA: bar.sync "
                      "2;\nB:"),
               (struct dims){1, 64, 0}, SIM_PTX_LAUNCH_FAILED);
    expect_end("a barrier of more threads than come",
               KERNEL("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nbar.sync 1, 64;\nA:"),
               (struct dims){1, 64, 0}, SIM_PTX_LAUNCH_FAILED);
    expect_end("barrier number 16", KERNEL("mov.u32 %r1, 16;\nbarrier.sync %r1;"),
               (struct dims){1, 32, 0}, SIM_PTX_LAUNCH_FAILED);
    expect_end("a mask without the lane itself", KERNEL("vote.sync.all.pred %p1, %p2, 1;"),
               (struct dims){1, 2, 0}, SIM_PTX_LAUNCH_FAILED);
}

static void *cancel_soon(void *flag) {
    volatile int *cancel = flag;
    *cancel = 1;
    return NULL;
}

static void test_cancel(void) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = load(&dev, KERNEL("L: bra L;"));
    volatile int cancel = 0;
    uint64_t param = 0;
    struct sim_ptx_launch l = {.grid = {1, 1, 1},
                               .block = {256, 1, 1},
                               .params = &param,
                               .params_bytes = 8,
                               .memory = &dev.memory,
                               .cancel = &cancel};
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_soon, (void *)&cancel);
    CHECK(sim_ptx_launch(sim_ptx_function(m, "k"), &l, NULL) == SIM_PTX_TIMEOUT, "cancel");
    pthread_join(thread, NULL);
    sim_ptx_unload(m);
    device_free(&dev);
}

static uint64_t next_thread(uint32_t t) {
    return (t + 1) % 96;
}

static uint64_t sum_of_96(uint32_t t) {
    (void)t;
    return 96 * 95 / 2;
}

static uint64_t barrier_results(uint32_t t) {
    (void)t;
    return 48 + 1000 + 0;
}

static uint64_t spin_result(uint32_t t) {
    (void)t;
    return 1;
}

static void test_barriers(void) {
    expect("exchange through shared memory",
           KERNEL(".shared .b32 s[96];\nmov.u32 %r1, s;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r3, %r1, "
                  "%r2;\nst.shared.u32 [%r3], %r0;\nbar.sync 0;\nadd.u32 %r4, %r0, 1;\nrem.u32 "
                  "%r4, %r4, 96;\nshl.b32 %r4, %r4, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, "
                  "[%r4];\ncvt.u64.u32 %d1, %r5;"),
           (struct dims){1, 96, 0}, next_thread);
    expect(
        "exited threads are not waited for; producers arrive",
        KERNEL(".shared .b32 s;\nsetp.ne.u32 %p1, %r0, 0;\n@!%p1 st.shared.u32 [s], 0;\nbar.sync "
               "0;\nred.shared.add.u32 [s], %r0;\nbarrier.arrive 3, 192;\nbar.sync 3, 192;\n"
               "ld.shared.u32 %r5, [s];\ncvt.u64.u32 %d1, %r5;"),
        (struct dims){1, 96, 0}, sum_of_96);
    expect(
        "reductions at a barrier",
        KERNEL("and.b32 %r1, %r0, 1;\nsetp.ne.u32 %p1, %r1, 0;\nbar.red.popc.u32 %r2, 0, %p1;\n"
               "bar.red.or.pred %p2, 1, %p1;\nbar.red.and.pred %p3, 2, %p1;\nselp.u32 %r3, 1000, "
               "0, %p2;\nselp.u32 %r4, 5000, 0, %p3;\nadd.u32 %r2, %r2, %r3;\nadd.u32 %r2, %r2, "
               "%r4;\ncvt.u64.u32 %d1, %r2;"),
        (struct dims){2, 96, 0}, barrier_results);
    expect("threads that spin for a later one",
           KERNEL(".shared .b32 s;\nsetp.eq.u32 %p1, %r0, 63;\n@%p1 st.shared.u32 [s], 1;\nL: "
                  "ld.volatile.shared.u32 %r1, [s];\nsetp.ne.u32 %p2, %r1, 1;\n@%p2 bra L;\n"
                  "cvt.u64.u32 %d1, %r1;"),
           (struct dims){1, 64, 0}, spin_result);
}

static uint64_t shuffled(uint32_t t) {
    uint32_t lane = t % 32;
    uint32_t up = lane >= 2 ? lane - 2 : lane, down = lane < 31 ? lane + 1 : lane;
    uint32_t segment_idx = (lane & 24) | 3;
    return up + 100ull * down + 10000ull * (lane ^ 5) + 1000000ull * segment_idx +
           100000000ull * (lane < 31);
}

static uint64_t voted(uint32_t t) {
    (void)t;
    return 0xaaaaaaaa + 2 * (1ull << 33);
}

static uint64_t matched(uint32_t t) {
    return (0x11111111u << t % 4) + (0xffull << 32);
}

static uint64_t reduced(uint32_t t) {
    (void)t;
    return 496 + 1000 * 31ull + 0xfffffff0ull * 100000;
}

static uint64_t active(uint32_t t) {
    return t % 2 ? 0xaaaaaaaa : 0xffffffff;
}

static void test_warps(void) {
    expect(
        "shfl",
        KERNEL("shfl.sync.up.b32 %r1, %r0, 2, 0, -1;\nshfl.sync.down.b32 %r2|%p1, %r0, 1, 31, "
               "-1;\nshfl.sync.bfly.b32 %r3, %r0, 5, 31, -1;\nshfl.sync.idx.b32 %r4, %r0, 3, "
               "0x181f, 0xffffffff;\nand.b32 %r1, %r1, 31;\nand.b32 %r2, %r2, 31;\nand.b32 %r3, "
               "%r3, 31;\nand.b32 %r4, %r4, 31;\nmad.lo.u32 %r1, %r2, 100, %r1;\nmad.lo.u32 %r1, "
               "%r3, 10000, %r1;\nmad.lo.u32 %r1, %r4, 1000000, %r1;\nselp.u32 %r5, 100000000, "
               "0, %p1;\nadd.u32 %r1, %r1, %r5;\ncvt.u64.u32 %d1, %r1;"),
        (struct dims){1, 64, 0}, shuffled);
    expect(
        "vote",
        KERNEL("and.b32 %r1, %r0, 1;\nsetp.ne.u32 %p1, %r1, 0;\nvote.sync.ballot.b32 %r2, %p1, "
               "-1;\ncvt.u64.u32 %d1, %r2;\nvote.sync.any.pred %p2, %p1, -1;\nvote.sync.all.pred "
               "%p3, %p1, -1;\nvote.sync.uni.pred %p4, %p2, -1;\n@%p2 add.u64 %d1, %d1, "
               "0x200000000;\n@%p3 add.u64 %d1, %d1, 1;\n@%p4 add.u64 %d1, %d1, 0x200000000;"),
        (struct dims){1, 64, 0}, voted);
    expect(
        "match",
        KERNEL("and.b32 %r1, %r0, 3;\nmatch.any.sync.b32 %r2, %r1, -1;\ncvt.u64.u32 %d1, %r2;\n"
               "match.all.sync.b64 %r3|%p1, %d0, 0xffffffff;\nshr.u32 %r3, %r3, 24;\ncvt.u64.u32 "
               "%d2, %r3;\nshl.b64 %d2, %d2, 32;\n@%p1 add.u64 %d1, %d1, %d2;"),
        (struct dims){1, 32, 0}, matched);
    expect(
        "redux",
        KERNEL("and.b32 %r9, %r0, 31;\nredux.sync.add.u32 %r1, %r9, -1;\nredux.sync.max.s32 %r2, "
               "%r9, -1;\nsub.u32 %r3, %r9, 16;\nredux.sync.min.s32 %r3, %r3, -1;\nmul.wide.u32 "
               "%d2, %r2, 1000;\ncvt.u64.u32 %d1, %r1;\nadd.u64 %d1, %d1, %d2;\nmul.wide.u32 "
               "%d2, %r3, 100000;\nadd.u64 %d1, %d1, %d2;"),
        (struct dims){1, 64, 0}, reduced);
    expect("activemask in a divergent branch",
           KERNEL("activemask.b32 %r1;\ncvt.u64.u32 %d1, %r1;\nand.b32 %r1, %r0, 1;\nsetp.eq.u32 "
                  "%p1, %r1, 0;\n@%p1 bra L;\nactivemask.b32 %r1;\ncvt.u64.u32 %d1, %r1;\n"
                  "vote.sync.any.pred %p2, %p1, %r1;\nL: bar.warp.sync -1;"),
           (struct dims){1, 32, 0}, active);
}

static uint64_t specials(uint32_t t) {
    uint32_t lane = t % 40 % 32;
    return lane + 100ull * (t % 40 / 32) + 1000ull * (t / 40) + 10000ull * 3 + 100000ull * 40 +
           ((uint64_t)(1u << lane) << 32);
}

static void test_specials(void) {
    expect(
        "special registers",
        KERNEL("mov.u32 %r1, %laneid;\nmov.u32 %r2, %warpid;\nmad.lo.u32 %r1, %r2, 100, %r1;\n"
               "mad.lo.u32 %r1, %ctaid.x, 1000, %r1;\nmad.lo.u32 %r1, %nctaid.x, 10000, %r1;\n"
               "mad.lo.u32 %r1, %ntid.x, 100000, %r1;\nmov.u32 %r3, %lanemask_eq;\nmov.b64 %d1, "
               "{%r1, %r3};\nmov.u64 %d2, %globaltimer;\nsetp.eq.u64 %p1, %d2, 0;\n@%p1 trap;\n"
               "mov.u32 %r4, %tid.y;\nsetp.ne.u32 %p1, %r4, 0;\n@%p1 trap;\nmov.u32 %r5, %smid;\n"
               "setp.ge.u32 %p1, %r5, %nsmid;\n@%p1 trap;\nnanosleep.u32 5;"),
        (struct dims){3, 40, 0}, specials);
}

// A barrier of the whole grid, in global memory: each block's first thread counts itself and waits
// for all; then each thread reads what the next block's has written before.
#define GRID_BARRIER                                                                               \
    ".version 6.4\n.target sm_70\n.address_size 64\n"                                              \
    ".visible .entry meet(.param .u64 p, .param .u64 count) {\n"                                   \
    ".reg .u64 %d<6>; .reg .u32 %r<12>; .reg .pred %p<3>;\n"                                       \
    "ld.param.u64 %d1, [p]; ld.param.u64 %d2, [count];\n"                                          \
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;\n"  \
    "mad.lo.u32 %r5, %r1, %r2, %r3; mul.wide.u32 %d3, %r5, 4; add.u64 %d3, %d1, %d3;\n"            \
    "add.u32 %r6, %r5, 7; st.global.u32 [%d3], %r6;\n"                                             \
    "bar.sync 0; setp.ne.u32 %p1, %r3, 0; @%p1 bra WAIT;\n"                                        \
    "membar.gl; atom.global.add.u32 %r7, [%d2], 1;\n"                                              \
    "SPIN: ld.volatile.global.u32 %r7, [%d2]; setp.lt.u32 %p1, %r7, %r4; @%p1 bra SPIN;\n"         \
    "WAIT: bar.sync 0;\n"                                                                          \
    "add.u32 %r8, %r1, 1; rem.u32 %r8, %r8, %r4; mad.lo.u32 %r8, %r8, %r2, %r3;\n"                 \
    "mul.wide.u32 %d4, %r8, 4; add.u64 %d4, %d1, %d4; ld.global.u32 %r9, [%d4];\n"                 \
    "mad.lo.u32 %r10, %r4, %r2, %r5; mul.wide.u32 %d5, %r10, 4; add.u64 %d5, %d1, %d5;\n"          \
    "st.global.u32 [%d5], %r9; ret; }\n"

static void test_together(void) {
    enum { BLOCKS = 20, THREADS = 70 };
    struct device dev;
    device_init(&dev);
    uint32_t *words = device_alloc(&dev, 2 * BLOCKS * THREADS * sizeof(*words));
    uint32_t *count = device_alloc(&dev, sizeof(*count));
    struct sim_ptx_module *m = load(&dev, GRID_BARRIER);
    uint64_t params[] = {(uintptr_t)words, (uintptr_t)count};
    struct sim_ptx_launch l = {.grid = {BLOCKS, 1, 1},
                               .block = {THREADS, 1, 1},
                               .params = params,
                               .params_bytes = sizeof(params),
                               .memory = &dev.memory,
                               .instructions_max = 10u << 20,
                               .together = true};
    struct sim_ptx_outcome outcome;
    const struct sim_ptx_function *f = sim_ptx_function(m, "meet");
    *count = 0;
    CHECK(sim_ptx_launch(f, &l, &outcome) == SIM_PTX_OK, "together");
    CHECK(*count == BLOCKS, "%u blocks", *count);
    for (uint32_t k = 0; k < BLOCKS * THREADS; k++)
        CHECK(words[BLOCKS * THREADS + k] == (k + THREADS) % (BLOCKS * THREADS) + 7, "thread %u",
              k);
    // One after the other they never meet.
    *count = 0;
    l.together = false;
    CHECK(sim_ptx_launch(f, &l, &outcome) == SIM_PTX_TIMEOUT, "in order");
    CHECK(*count == 1, "%u blocks", *count);
    // An error says which block and thread it was; more blocks than can be there are refused.
    l.together = true;
    params[0] += sizeof(*words) * (2 * BLOCKS * THREADS - 5);
    *count = 0;
    CHECK(sim_ptx_launch(f, &l, &outcome) == SIM_PTX_ILLEGAL_ADDRESS, "bad address");
    CHECK(outcome.block[0] == 0 && outcome.thread[0] == 5, "block %u, thread %u", outcome.block[0],
          outcome.thread[0]);
    l.grid[0] = 1u << 20;
    CHECK(sim_ptx_launch(f, &l, &outcome) == SIM_PTX_OUT_OF_RESOURCES, "too many");
    sim_ptx_unload(m);
    device_free(&dev);
}

int main(void) {
    test_together();
    test_flow();
    test_calls();
    test_ends();
    test_cancel();
    test_barriers();
    test_warps();
    test_specials();
    return finish("ptx: control, barriers, warps");
}
