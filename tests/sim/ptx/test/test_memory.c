// State spaces, widths, vectors, atomics, and what bad addresses do.
#include "tests/sim/ptx/test/harness.h"

#include <pthread.h>

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"
#define KERNEL_HEAD                                                                                \
    HEAD ".visible .entry k(.param .u64 p, .param .u64 q) {\n"                                     \
         ".reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>;\n.reg .b64 %d<16>;\n"             \
         ".reg .f32 %f<4>;\nld.param.u64 %d0, [p];\nld.param.u64 %d1, [q];\n"
#define KERNEL(body) KERNEL_HEAD body "\nret;\n}\n"

static const char kernel_head[] = KERNEL_HEAD, kernel_tail[] = "ret;\n}\n";

// Runs a one-thread kernel over 64 words that start as given; returns the code.
static int run(const char *text, uint64_t words[64], struct sim_ptx_outcome *outcome) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = load(&dev, text);
    uint64_t *at = device_alloc(&dev, 64 * 8);
    memcpy(at, words, 64 * 8);
    uint64_t params[] = {(uintptr_t)at, 77};
    int code = launch(&dev, m, "k", (struct dims){1, 1, 64}, outcome, 2, params);
    memcpy(words, at, 64 * 8);
    sim_ptx_unload(m);
    device_free(&dev);
    return code;
}

static void expect(const char *body, uint64_t first, uint64_t second) {
    uint64_t words[64] = {0, 0, 0x8182838485868788, 0x1112131415161718};
    int code = run(body, words, NULL);
    CHECK(code == 0 && words[0] == first && words[1] == second, "code %d, %#llx %#llx in:\n%s",
          code, (unsigned long long)words[0], (unsigned long long)words[1], body);
}

static void test_widths(void) {
    expect(KERNEL("ld.global.u8 %r1, [%d0+16]; st.global.u32 [%d0], %r1;"
                  "ld.global.s8 %d2, [%d0+16]; st.global.u64 [%d0+8], %d2;"),
           0x88, 0xffffffffffffff88);
    expect(KERNEL("ld.global.s16 %r1, [%d0+16]; st.global.u32 [%d0], %r1;"
                  "ld.global.u16 %h1, [%d0+18]; st.global.u16 [%d0+8], %h1;"),
           0xffff8788, 0x8586);
    expect(KERNEL("ld.volatile.global.s32 %d2, [%d0+20]; st.relaxed.gpu.global.u64 [%d0], %d2;"
                  "ld.global.nc.f32 %f1, [%d0+24]; st.cs.global.f32 [%d0+8], %f1;"),
           0xffffffff81828384, 0x15161718);
    expect(KERNEL("ld.global.v2.u32 {%r1, %r2}, [%d0+16]; st.global.v2.u32 [%d0], {%r2, %r1};"
                  "ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%d0+24];"
                  "st.global.v4.u8 [%d0+8], {%h4, %h3, %h2, 5};"),
           0x8586878881828384, 0x5171615);
    expect(KERNEL("ld.global.v2.u64 {_, %d3}, [%d0+16]; st.global.u64 [%d0], %d3;"
                  "add.u64 %d2, %d0, 40; ld.u64 %d4, [%d2+-16]; st.u64 [%d0+8], %d4;"),
           0x1112131415161718, 0x1112131415161718);
}

static void test_spaces(void) {
    expect(HEAD ".const .align 8 .b8 c[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9};\n"
                ".global .u32 g = 40;\n"
                ".visible .entry k(.param .u64 p, .param .u64 q) {\n.reg .b64 %d<8>;\n"
                ".reg .b32 %r<4>;\nld.param.u64 %d0, [p];\nld.const.u64 %d1, [c];\n"
                "st.global.u64 [%d0], %d1;\nmov.u64 %d2, c;\ncvta.const.u64 %d3, %d2;\n"
                "ld.u8 %r1, [%d3+8];\natom.global.add.u32 %r2, [g], %r1;\nld.global.u32 %r3, [g];\n"
                "st.global.u32 [%d0+8], %r3;\nret;\n}\n",
           0x0807060504030201, 49);
    expect(KERNEL(".shared .align 8 .b8 s[64];\nst.shared.u64 [s+8], %d1;\nmov.u32 %r1, s;\n"
                  "ld.shared.u64 %d2, [%r1+8];\nst.global.u64 [%d0], %d2;\nmov.u64 %d3, s;\n"
                  "cvta.shared.u64 %d4, %d3;\nld.u64 %d5, [%d4+8];\nst.global.u64 [%d0+8], %d5;"),
           77, 77);
    expect(
        KERNEL(".local .align 8 .b8 s[64];\nst.local.u64 [s+8], %d1;\nmov.u64 %d3, s;\n"
               "ld.local.u64 %d2, [%d3+8];\nst.global.u64 [%d0], %d2;\ncvta.local.u64 %d4, %d3;\n"
               "ld.u64 %d5, [%d4+8];\ncvta.to.local.u64 %d6, %d4;\nld.local.u64 %d6, [%d6+8];\n"
               "add.u64 %d5, %d5, %d6;\nst.global.u64 [%d0+8], %d5;"),
        77, 154);
    expect(KERNEL("mov.b64 %d2, p;\nld.param.u64 %d3, [%d2+8];\nst.global.u64 [%d0], %d3;\n"
                  "cvta.param.u64 %d4, %d2;\nld.u64 %d5, [%d4+8];\nst.global.u64 [%d0+8], %d5;"),
           77, 77);
    expect(HEAD
           ".extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 fixed[20];\n"
           ".visible .entry k(.param .u64 p, .param .u64 q) {\n.reg .b64 %d<8>;\n"
           ".reg .b32 %r<4>;\nld.param.u64 %d0, [p];\nst.shared.u32 [fixed+16], 5;\n"
           "st.shared.u64 [dyn+56], %d0;\nld.shared.u32 %r1, [fixed+16];\n"
           "mov.u32 %r2, %dynamic_smem_size;\nadd.u32 %r1, %r1, %r2;\nst.global.u32 [%d0], %r1;\n"
           "mov.u32 %r2, %total_smem_size;\nst.global.u32 [%d0+8], %r2;\nret;\n}\n",
           69, 84);
}

static void expect_fault(const char *body, int expected, uint32_t line) {
    uint64_t words[64] = {0};
    struct sim_ptx_outcome outcome;
    int code = run(body, words, &outcome);
    CHECK(code == expected && outcome.line == line, "code %d, line %u in:\n%s", code, outcome.line,
          body);
}

static void test_faults(void) {
    const uint32_t line = 12;  // of the first statement of the body
    expect_fault(KERNEL("ld.global.u32 %r1, [%d0+512];"), SIM_PTX_ILLEGAL_ADDRESS, line);
    expect_fault(KERNEL("\nst.global.u32 [%d0+-4], 1;"), SIM_PTX_ILLEGAL_ADDRESS, line + 1);
    expect_fault(KERNEL("ld.u32 %r1, [0];"), SIM_PTX_ILLEGAL_ADDRESS, line);
    expect_fault(KERNEL("ld.global.u32 %r1, [%d0+2];"), SIM_PTX_MISALIGNED_ADDRESS, line);
    expect_fault(KERNEL("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];"),
                 SIM_PTX_MISALIGNED_ADDRESS, line);
    expect_fault(KERNEL("ld.global.v2.u64 {%d2, %d3}, [%d0+512];"), SIM_PTX_ILLEGAL_ADDRESS, line);
    expect_fault(
        KERNEL(".shared .b8 s[16];\nld.shared.u8 %r1, [s+16];\nld.shared.u8 %r1, [s+400];"),
        SIM_PTX_ILLEGAL_ADDRESS, line + 2);
    expect_fault(KERNEL("mov.u64 %d2, 0x200000000000000; ld.u8 %r1, [%d2];"),
                 SIM_PTX_ILLEGAL_ADDRESS, line);
    expect_fault(KERNEL("mov.u64 %d2, -1; ld.u8 %r1, [%d2];"), SIM_PTX_ILLEGAL_ADDRESS, line);
    expect_fault(KERNEL("mov.u64 %d2, 0x300000000000000; st.u8 [%d2], %r1;"),
                 SIM_PTX_ILLEGAL_ADDRESS, line);
    expect_fault(KERNEL("atom.global.add.u64 %d2, [%d0+4], 1;"), SIM_PTX_MISALIGNED_ADDRESS, line);
    expect_fault(KERNEL("mov.u64 %d2, 0x700000000000000; cvta.to.global.u64 %d3, %d2;\n"
                        "ld.global.u8 %r1, [%d3];"),
                 SIM_PTX_ILLEGAL_ADDRESS, line + 1);
}

static void test_atomics(void) {
    static const struct {
        const char *statement;
        uint64_t before, old, after;
    } cases[] = {
        {"atom.global.add.u32 %r1, [%d0], 5;", 0xffffffff, 0xffffffff, 4},
        {"atom.global.add.u64 %d5, [%d0], %d1;", 1, 1, 78},
        {"atom.add.s32 %r1, [%d0], -5;", 1, 1, 0xfffffffc},
        {"atom.global.add.f32 %r1, [%d0], 0f3F800000;", 0x3f800000, 0x3f800000, 0x40000000},
        {"atom.global.add.f64 %d5, [%d0], 0d3FF0000000000000;", 0x3ff0000000000000,
         0x3ff0000000000000, 0x4000000000000000},
        {"atom.global.inc.u32 %r1, [%d0], 5;", 5, 5, 0},
        {"atom.global.inc.u32 %r1, [%d0], 5;", 4, 4, 5},
        {"atom.global.dec.u32 %r1, [%d0], 5;", 0, 0, 5},
        {"atom.global.dec.u32 %r1, [%d0], 5;", 3, 3, 2},
        {"atom.global.min.s32 %r1, [%d0], -1;", 5, 5, 0xffffffff},
        {"atom.global.min.u32 %r1, [%d0], -1;", 5, 5, 5},
        {"atom.global.max.s64 %d5, [%d0], -1;", 5, 5, 5},
        {"atom.global.max.u64 %d5, [%d0], -1;", 5, 5, UINT64_MAX},
        {"atom.global.exch.b32 %r1, [%d0], 9;", 5, 5, 9},
        {"atom.global.exch.b64 %d5, [%d0], %d1;", 5, 5, 77},
        {"atom.global.cas.b32 %r1, [%d0], 5, 6;", 5, 5, 6},
        {"atom.acq_rel.sys.global.cas.b64 %d5, [%d0], 4, 6;", 5, 5, 5},
        {"atom.global.cas.b16 %h1, [%d0], 5, 6; cvt.u32.u16 %r1, %h1;", 5, 5, 6},
        {"atom.global.and.b32 %r1, [%d0], 6;", 5, 5, 4},
        {"atom.global.or.b64 %d5, [%d0], 2;", 5, 5, 7},
        {"atom.global.xor.b32 %r1, [%d0], 1;", 5, 5, 4},
        {"red.global.add.u32 [%d0], 1; mov.u32 %r1, 5;", 5, 5, 6},
        {"red.relaxed.gpu.global.max.s32 [%d0], 9; mov.u32 %r1, 5;", 5, 5, 9},
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        char text[2048];
        bool is_wide = strstr(cases[k].statement, "%d5") != NULL;
        snprintf(text, sizeof(text), "%s\n%s\n%s\n%s", kernel_head, cases[k].statement,
                 is_wide ? "st.global.u64 [%d0+8], %d5;" : "st.global.u32 [%d0+8], %r1;",
                 kernel_tail);
        uint64_t words[64] = {cases[k].before};
        int code = run(text, words, NULL);
        CHECK(code == 0 && words[0] == cases[k].after && words[1] == cases[k].old,
              "%s: code %d, %#llx, old %#llx", cases[k].statement, code,
              (unsigned long long)words[0], (unsigned long long)words[1]);
    }
}

// Several launches at once, of one module, on the same word.
struct shared_work {
    struct device *dev;
    const struct sim_ptx_module *module;
    uint64_t *sum;
};

static void *add_many(void *argument) {
    struct shared_work *w = argument;
    uint64_t params[] = {(uintptr_t)w->sum, 0};
    CHECK(launch(w->dev, w->module, "k", (struct dims){8, 64, 0}, NULL, 2, params) == 0, "add");
    return NULL;
}

static void test_concurrent(void) {
    struct device dev;
    device_init(&dev);
    struct shared_work w = {&dev, NULL, NULL};
    w.module = load(&dev, KERNEL("red.global.add.u64 [%d0], 3;\nmov.u32 %r1, %tid.x;\n"
                                 "cvt.rn.f32.u32 %f1, 1;\nred.global.add.f32 [%d0+8], %f1;"));
    w.sum = device_alloc(&dev, 16);
    pthread_t threads[4];
    for (int k = 0; k < 4; k++)
        pthread_create(&threads[k], NULL, add_many, &w);
    for (int k = 0; k < 4; k++)
        pthread_join(threads[k], NULL);
    float count;
    memcpy(&count, &w.sum[1], sizeof(count));
    CHECK(w.sum[0] == 4 * 8 * 64 * 3 && count == 4 * 8 * 64, "%llu %g",
          (unsigned long long)w.sum[0], (double)count);
    sim_ptx_unload((struct sim_ptx_module *)w.module);
    device_free(&dev);
}

int main(void) {
    test_widths();
    test_spaces();
    test_faults();
    test_atomics();
    test_concurrent();
    return finish("ptx: memory");
}
