// Loading: variables and their initial values, parameter layouts, shared memory, look-ups, and the
// errors that a bad text gives.
#include "tests/sim/ptx/test/harness.h"

#define HEAD ".version 6.4\n.target sm_70\n.address_size 64\n"
#define NOTHING ".visible .entry nothing() { ret; }\n"

static const void *variable_at(const struct sim_ptx_module *m, const char *name, uint64_t bytes) {
    const struct sim_ptx_variable *v = sim_ptx_variable(m, name);
    CHECK(v && v->bytes == bytes, "%s: %llu bytes", name, v ? (unsigned long long)v->bytes : 0);
    return v ? (const void *)(uintptr_t)v->address : NULL;
}

static void test_variables(void) {
    static const char text[] = HEAD
        ".visible .global .align 4 .u32 word = 7;\n"
        ".global .align 8 .b8 bytes[12] = {1, 0x2, 03, 0b100, -1};\n"
        ".global .f32 floats[4] = {0f3F800000, 1.5, -2.0};\n"
        ".const .align 8 .f64 wide = 0d3FF8000000000000;\n"
        ".global .u16 open[] = {1, 2, 3};\n"
        ".global .s32 grid[2][3] = {{1, 2}, {4, 5, 6}};\n"
        ".global .u64 pointers[3] = {word, generic(bytes)+4, grid+-4};\n"
        ".global .b8 split[8] = {0xFF(word), 0xFF00(word), 0xFF0000(word), 0xFF000000(word)};\n"
        ".global .attribute(.managed) .align 16 .b8 managed[32];\n"
        ".weak .global .align 256 .b8 zero[70000];\n" NOTHING;
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = load(&dev, text);
    uint64_t word = sim_ptx_variable(m, "word")->address;
    CHECK(*(const uint32_t *)variable_at(m, "word", 4) == 7, "word");
    CHECK(memcmp(variable_at(m, "bytes", 12), "\1\2\3\4\377\0\0", 8) == 0, "bytes");
    CHECK(memcmp(variable_at(m, "floats", 16), (float[]){1, 1.5f, -2, 0}, 16) == 0, "floats");
    CHECK(*(const double *)variable_at(m, "wide", 8) == 1.5, "wide");
    CHECK(memcmp(variable_at(m, "open", 6), (uint16_t[]){1, 2, 3}, 6) == 0, "open");
    CHECK(memcmp(variable_at(m, "grid", 24), (int[]){1, 2, 0, 4, 5, 6}, 24) == 0, "grid");
    const uint64_t *pointers = variable_at(m, "pointers", 24);
    CHECK(pointers[0] == word && pointers[1] == sim_ptx_variable(m, "bytes")->address + 4 &&
              pointers[2] == sim_ptx_variable(m, "grid")->address - 4,
          "pointers");
    CHECK(memcmp(variable_at(m, "split", 8), &(uint64_t){word & 0xffffffff}, 8) == 0, "split");
    CHECK(sim_ptx_variable(m, "managed")->space == SIM_PTX_MANAGED, "managed");
    CHECK(sim_ptx_variable(m, "wide")->space == SIM_PTX_CONST, "const");
    const uint8_t *zero = variable_at(m, "zero", 70000);
    CHECK((uintptr_t)zero % 256 == 0 && zero[0] == 0 && zero[69999] == 0, "zero");
    CHECK(device_live(&dev) == 3, "one allocation a space, not %d", device_live(&dev));
    CHECK(!sim_ptx_variable(m, "absent") && !sim_ptx_variable_at(m, 10), "no such variable");
    CHECK(strcmp(sim_ptx_variable_at(m, 1)->name, "bytes") == 0, "order");
    sim_ptx_unload(m);
    CHECK(device_live(&dev) == 0, "all given back");
    m = load(&dev, text);
    sim_ptx_forget(m);
    CHECK(device_live(&dev) == 3, "none given back");
    device_free(&dev);
}

static void test_functions(void) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = load(
        &dev, HEAD
        ".visible .entry first(.param .u8 a, .param .u64 .ptr .global .align 16 b,\n"
        ".param .align 16 .b8 c[20], .param .f32 d)\n.maxntid 8, 4\n.minnctapersm 2\n{ ret; }\n"
        ".func helper() { ret; }\n.entry second()\n.reqntid 32\n.pragma \"nounroll\";\n"
        "{\n.shared .align 4 .b8 s[100];\nst.shared.u8 [s], 1;\nret;\n}\n");
    const struct sim_ptx_function *f = sim_ptx_function(m, "first");
    const struct sim_ptx_function_info *info = sim_ptx_info(f);
    static const struct sim_ptx_param places[] = {{0, 1, 1}, {8, 8, 8}, {16, 20, 16}, {36, 4, 4}};
    CHECK(info->param_count == 4 && info->params_bytes == 40, "%u", info->params_bytes);
    for (uint32_t k = 0; k < 4; k++) {
        struct sim_ptx_param p;
        CHECK(sim_ptx_param(f, k, &p) && memcmp(&p, &places[k], sizeof(p)) == 0, "parameter %u", k);
    }
    struct sim_ptx_param none;
    CHECK(!sim_ptx_param(f, 4, &none), "a fifth parameter");
    CHECK(info->threads_max == 32 && info->ptx_version == 64 && info->target == 70, "header");
    CHECK(!sim_ptx_function(m, "helper") && !sim_ptx_function_at(m, 2), "kernels only");
    CHECK(sim_ptx_function_at(m, 1) == sim_ptx_function(m, "second"), "order");
    CHECK(sim_ptx_info(sim_ptx_function(m, "second"))->static_shared_bytes == 100, "shared");
    CHECK(info->empty && !sim_ptx_info(sim_ptx_function(m, "second"))->empty, "empty");

    uint8_t params[40] = {0};
    struct sim_ptx_launch l = {
        .grid = {1, 1, 1}, .block = {33, 1, 1}, .params = params, .params_bytes = 40};
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_OUT_OF_RESOURCES, "more threads than .maxntid");
    l.block[0] = 32;
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_OK, "as many as .maxntid");
    l.params_bytes = 39;
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_INVALID_VALUE, "parameters too short");
    l.params_bytes = 40;
    l.grid[1] = 0;
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_INVALID_VALUE, "empty grid");
    l.grid[1] = 65536;
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_INVALID_VALUE, "grid too wide");
    l.grid[1] = 1;
    l.dynamic_shared_bytes = SIM_PTX_SHARED_BYTES_MAX + 1;
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_INVALID_VALUE, "too much shared memory");
    l.dynamic_shared_bytes = 0;
    l.block[1] = 64;
    CHECK(sim_ptx_check(f, &l) == SIM_PTX_INVALID_VALUE, "block too large");
    l.block[1] = 1;
    l.block[0] = 16;
    CHECK(sim_ptx_check(sim_ptx_function(m, "second"), &l) == SIM_PTX_INVALID_VALUE, ".reqntid");
    sim_ptx_unload(m);
    device_free(&dev);
}

// A variable that two kernels reach takes room in both; the rest only where it is used.
static void test_shared_layout(void) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m =
        load(&dev, HEAD ".shared .align 8 .b8 both[64];\n.shared .b8 only_a[1000];\n"
                        ".shared .b8 only_b[2000];\n.shared .b8 unused[5000];\n"
                        ".func touch() {\nst.shared.u8 [both], 1;\nret;\n}\n"
                        ".entry a() {\nst.shared.u8 [only_a], 1;\ncall touch;\nret;\n}\n"
                        ".entry b() {\nst.shared.u8 [only_b], 1;\ncall touch;\nret;\n}\n" NOTHING);
    static const struct {
        const char *kernel;
        uint32_t bytes;
    } expected[] = {{"a", 1064}, {"b", 2064}, {"nothing", 0}};
    for (int k = 0; k < 3; k++) {
        uint32_t bytes = sim_ptx_info(sim_ptx_function(m, expected[k].kernel))->static_shared_bytes;
        CHECK(bytes == expected[k].bytes, "%s: %u", expected[k].kernel, bytes);
    }
    sim_ptx_unload(m);
    device_free(&dev);
}

static void expect_error(const char *text, size_t bytes, int code, const char *words) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = NULL;
    char log[SIM_PTX_LOG_BYTES];
    int got = sim_ptx_load(&m, text, bytes, &dev.memory, log);
    CHECK(got == code && strstr(log, words), "code %d, log \"%s\", expected %d and \"%s\"", got,
          log, code, words);
    if (got == SIM_PTX_OK)
        sim_ptx_unload(m);
    CHECK(device_live(&dev) == 0, "memory kept after an error");
    device_free(&dev);
}

static void test_errors(void) {
#define BODY(body) HEAD ".entry k(.param .u64 p) {\n.reg .b32 %r<4>;\n.reg .pred %p;\n" body "\n}\n"
    static const struct {
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        {BODY("add.u32 %r1, %r2, 1;\nfoo.bar.u32 %r1, %r2;"), SIM_PTX_INVALID_PTX,
         "line 8: unknown instruction 'foo.bar.u32'"},
        {BODY("\n\nadd.approx.f32 %r1, %r2, %r3;"), SIM_PTX_INVALID_PTX,
         "line 9: unknown instruction 'add.approx.f32'"},
        {BODY("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};"),
         SIM_PTX_INVALID_PTX, "unknown instruction 'mma.sync"},
        {BODY("add.u32 %r1, %r2;"), SIM_PTX_INVALID_PTX, "line 7: wrong number of operands"},
        {BODY("add.u64 %r1, %r2, 1;"), SIM_PTX_INVALID_PTX, "does not fit"},
        {BODY("add.u32 %r1, %r9, 1;"), SIM_PTX_INVALID_PTX, "undeclared: '%r9'"},
        {BODY("add.u32 5, %r1, 1;"), SIM_PTX_INVALID_PTX, "goes to no register"},
        {BODY("bra NOWHERE;"), SIM_PTX_INVALID_PTX, "line 7: no such label: 'NOWHERE'"},
        {BODY("{\nL:\n}\nbra L;"), SIM_PTX_INVALID_PTX, "no such label: 'L'"},
        {BODY("L:\nL:"), SIM_PTX_INVALID_PTX, "declared twice: 'L'"},
        {BODY("call absent;"), SIM_PTX_INVALID_PTX, "no function: 'absent'"},
        {BODY("@%r1 ret;"), SIM_PTX_INVALID_PTX, "no predicate: '%r1'"},
        {BODY("ld.shared.u32 %r1, [p];"), SIM_PTX_INVALID_PTX, "state space"},
        {BODY("ld.global.v2.u32 %r1, [0];"), SIM_PTX_INVALID_PTX, "vector operand"},
        {BODY("ret"), SIM_PTX_INVALID_PTX, "line 8: unexpected '}', expected an operand"},
        {BODY("mov.u32 %r1, (3);"), SIM_PTX_INVALID_PTX, "unexpected '(', expected an operand"},
        {BODY("mov.u32 %r1, 18446744073709551616;"), SIM_PTX_INVALID_PTX, "line 7: unexpected"},
        {BODY("mov.u32 %r1, 0x10000000000000000;"), SIM_PTX_INVALID_PTX, "line 7: unexpected"},
        {BODY("mov.u32 %r1, 18446744073709551615;"), SIM_PTX_OK, ""},
        {HEAD ".entry k() { ret;", SIM_PTX_INVALID_PTX, "the text ends"},
        {HEAD ".func f();\n.entry k() {\ncall f;\nret;\n}\n", SIM_PTX_INVALID_PTX,
         "line 6: call of a function that is defined nowhere: 'f'"},
        {HEAD ".func f(.param .b32 a) { ret; }\n.entry k() {\ncall f;\nret;\n}\n",
         SIM_PTX_INVALID_PTX, "arguments do not fit"},
        {HEAD ".entry k() { ret; }\n.entry k() { ret; }\n", SIM_PTX_INVALID_PTX,
         "line 5: defined twice: 'k'"},
        {HEAD ".extern .global .u32 g;\n", SIM_PTX_INVALID_PTX, "linking is not supported"},
        {HEAD ".global .u32 g[2] = {1, 2, 3};\n", SIM_PTX_INVALID_PTX, "more initial values"},
        {HEAD ".global .u32 g = absent;\n", SIM_PTX_INVALID_PTX, "no variable or function"},
        {HEAD ".global .u32 g[0x7fffffff];\n", SIM_PTX_INVALID_PTX, "too large"},
        {HEAD ".global .align 3 .u32 g;\n", SIM_PTX_INVALID_PTX, "power of two"},
        {HEAD ".entry k(.param .b8 a[5000]) { ret; }\n", SIM_PTX_INVALID_PTX,
         "bytes of parameters"},
        {"", SIM_PTX_INVALID_PTX, ".version"},
        {"\177ELF and so on", SIM_PTX_INVALID_PTX, "line 1"},
        {".version 6.4\n.target sm_70\n.address_size 32\n", SIM_PTX_INVALID_PTX, "address_size"},
        {".version 9.9\n.target sm_70\n", SIM_PTX_UNSUPPORTED_VERSION, "9.9"},
        {".version 6.4\n.entry k() { ret; }\n", SIM_PTX_INVALID_PTX, ".target"},
    };
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
        expect_error(cases[k].text, strlen(cases[k].text), cases[k].code, cases[k].words);
    struct sim_ptx_module *m;
    CHECK(sim_ptx_load(&m, NULL, 0, NULL, NULL) == SIM_PTX_INVALID_VALUE, "no text");
    CHECK(sim_ptx_load(&m, HEAD ".global .u32 g;\n", sizeof(HEAD) + 15, NULL, NULL) ==
              SIM_PTX_INVALID_VALUE,
          "variables without memory");
    char nested[400] = HEAD ".entry k() {\n";
    memset(nested + strlen(nested), '{', 200);
    expect_error(nested, strlen(nested), SIM_PTX_INVALID_PTX, "nested too deep");
}

static void test_no_memory(void) {
    struct device dev;
    device_init(&dev);
    dev.fail_allocate = SIM_PTX_OUT_OF_MEMORY;
    struct sim_ptx_module *m;
    char log[SIM_PTX_LOG_BYTES];
    static const char text[] = HEAD ".global .u32 g;\n" NOTHING;
    CHECK(sim_ptx_load(&m, text, sizeof(text), &dev.memory, log) == SIM_PTX_OUT_OF_MEMORY, "%s",
          log);
    device_free(&dev);
}

// Every variable has memory of its own, whatever its alignment.
static void test_variables_apart(void) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m = load(&dev, HEAD ".global .b8 a[3]; .global .b8 b[600];\n"
                                               ".global .align 2048 .b8 c;\n.global .u32 d;\n"
                                               ".const .u32 e; .const .u32 f;\n" NOTHING);
    uint64_t start = sim_ptx_variable(m, "a")->address;
    uint64_t constants = sim_ptx_variable(m, "e")->address;
    CHECK(sim_ptx_variable(m, "b")->address == start + 512, "b");
    CHECK(sim_ptx_variable(m, "c")->address == start + 2048, "c");
    CHECK(sim_ptx_variable(m, "d")->address == start + 2560, "d");
    CHECK(sim_ptx_variable(m, "f")->address == constants + 512, "f");
    sim_ptx_unload(m);
    device_free(&dev);
}

static void test_clusters(void) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m =
        load(&dev, HEAD ".entry a() .reqnctapercluster 4, 2 .maxntid 64 { ret; }\n"
                        ".entry b() .explicitcluster .maxclusterrank 8 { ret; }\n" NOTHING);
    const struct sim_ptx_function_info *a = sim_ptx_info(sim_ptx_function(m, "a"));
    const struct sim_ptx_function_info *b = sim_ptx_info(sim_ptx_function(m, "b"));
    CHECK(a->cluster_required[0] == 4 && a->cluster_required[1] == 2 &&
              a->cluster_required[2] == 1 && !a->cluster_explicit && a->threads_max == 64,
          "a");
    CHECK(b->cluster_required[0] == 0 && b->cluster_explicit, "b");
    sim_ptx_unload(m);
    device_free(&dev);
}

// ---- Several texts as one ----

static char *merge(const char *const *texts, uint32_t count) {
    struct sim_ptx_source sources[4];
    char *text = NULL;
    size_t bytes = 0;
    for (uint32_t k = 0; k < count; k++)
        sources[k] = (struct sim_ptx_source){texts[k], strlen(texts[k])};
    CHECK(sim_ptx_merge(sources, count, &text, &bytes) == SIM_PTX_OK, "merge");
    CHECK(text && strlen(text) == bytes, "bytes");
    return text;
}

// Declared in one and defined in another, both ways round; debug information is gone.
static void test_merge(void) {
    const char *const texts[] = {
        ".version 6.0 .target sm_52, debug .address_size 64\n"
        ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
        ".extern .global .u32 base;\n"
        ".extern .shared .align 4 .b8 room[];\n"
        ".visible .entry k(.param .u64 p) { .reg .u64 %rd; .reg .u32 %r, %s; .reg .pred %q;\n"
        " .loc 1 2 3\n"
        " ld.param.u64 %rd, [p]; ld.global.u32 %r, [base]; setp.ne.u32 %q, %r, 0;\n"
        " { .param .b32 a; .param .b32 b; st.param.b32 [a], %r; call (b), twice, (a);\n"
        "   ld.param.b32 %s, [b]; }\n"
        " @%q st.global.u32 [%rd], %s; ret; }\n"
        ".section .debug_x { .b8 1 }\n",
        HEAD ".file 1 \"x;{.cu\"\n"
             ".weak .global .u32 base = 21; .extern .shared .align 4 .b8 room[];\n"
             "/* } */ .visible .func (.param .b32 r) twice(.param .b32 x) { .reg .u32 %r;\n"
             " ld.param.b32 %r, [x]; add.u32 %r, %r, %r; st.param.b32 [r], %r; ret; }\n",
        HEAD ".weak .global .u32 base = 5; .global .u32 other[2] = {1, 2};\n"};
    for (unsigned order = 0; order < 2; order++) {
        const char *const turned[] = {texts[1], texts[0], texts[2]};
        struct device dev;
        device_init(&dev);
        char *text = merge(order ? turned : texts, 3);
        struct sim_ptx_module *m = load(&dev, text);
        uint32_t *result = device_alloc(&dev, sizeof(*result));
        uint64_t p = (uintptr_t)result;
        const struct sim_ptx_function_info *info = sim_ptx_info(sim_ptx_function(m, "k"));
        CHECK(info->ptx_version == 64 && info->target == 70, "the newest of each");
        CHECK(launch(&dev, m, "k", (struct dims){1, 1, 0}, NULL, 1, &p) == 0, "launch");
        CHECK(*result == 42, "%u", *result);
        CHECK(sim_ptx_variable(m, "other")->bytes == 8, "other");
        sim_ptx_unload(m);
        free(text);
        device_free(&dev);
    }
}

static void test_merge_errors(void) {
    static const char *const bad[] = {".global .u32 g", ".func f() {", ".entry k(.param .u32 a"};
    char *text = NULL;
    size_t bytes;
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        struct sim_ptx_source source = {bad[k], strlen(bad[k])};
        CHECK(sim_ptx_merge(&source, 1, &text, &bytes) == SIM_PTX_INVALID_PTX, "%s", bad[k]);
    }
    // What two texts define is the loader's to refuse.
    static const char twice[] = HEAD ".visible .func f() { ret; }\n";
    const char *const texts[] = {twice, twice};
    text = merge(texts, 2);
    expect_error(text, strlen(text), SIM_PTX_INVALID_PTX, "defined twice");
    free(text);
    text = merge(texts, 0);
    expect_error(text, strlen(text), SIM_PTX_INVALID_PTX, "");
    free(text);
}

// What compilers put around the code: debug information, pragmas, linkage, comments.
static void test_noise(void) {
    struct device dev;
    device_init(&dev);
    struct sim_ptx_module *m =
        load(&dev, "// comment\n.version 7.5 /* a\nb */ .target sm_70, debug\n.address_size 64\n"
                   ".file 1 \"a\\\"b.cu\", 1, 2\n@@DWARF .section .x\n"
                   ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
                   ".visible .entry k() {\n.loc 1 2 3, function_name $L__i, inlined_at 1 2 3\n"
                   "$L__BB0_1: .pragma \"nounroll\";\n.reg .b32 %r, %x;\nmov.u32 %r, 1;\nret;\n}\n"
                   ".section .debug_abbrev\n{\n.b8 1\n.b64 Lfunc_begin0\n$L__x:\n}\n");
    CHECK(launch(&dev, m, "k", (struct dims){1, 1, 0}, NULL, 0, NULL) == 0, "noise");
    sim_ptx_unload(m);
    device_free(&dev);
}

int main(void) {
    test_variables();
    test_functions();
    test_shared_layout();
    test_errors();
    test_no_memory();
    test_noise();
    test_variables_apart();
    test_clusters();
    test_merge();
    test_merge_errors();
    return finish("ptx: modules");
}
