// See cases.h.
#include "tests/sim/ptx/test/cases.h"

static char text[1 << 20];
static size_t text_bytes;

static void add(const char *part) {
    size_t bytes = strlen(part);
    memcpy(text + text_bytes, part, bytes + 1);
    text_bytes += bytes;
}

static void add_case(const struct value_case *v, int number) {
    char line[512];
    snprintf(line, sizeof(line),
             ".visible .entry k%d(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 o) {\n",
             number);
    add(line);
    add(".reg .pred %pa, %pb, %pc, %pd, %pe;\n.reg .b16 %a2, %b2, %c2, %d2;\n"
        ".reg .b32 %a4, %b4, %c4, %d4, %t4;\n.reg .b64 %a8, %b8, %c8, %d8, %o;\n");
    static const char *const names[] = {"a", "b", "c"};
    for (int k = 0; k < 3; k++) {
        const char *n = names[k];
        snprintf(line, sizeof(line),
                 "ld.param.u64 %%%s8, [%s]; ld.param.u32 %%%s4, [%s]; ld.param.u16 %%%s2, [%s];\n"
                 "and.b32 %%t4, %%%s4, 1; setp.ne.u32 %%p%s, %%t4, 0;\n",
                 n, n, n, n, n, n, n, n);
        add(line);
    }
    add("ld.param.u64 %o, [o]; mov.b64 %d8, 0; setp.ne.u32 %pd, 0, 0;\n");
    add(v->statement);
    switch (v->result) {
    case '2':
        add("\ncvt.u64.u16 %d8, %d2;");
        break;
    case '4':
        add("\ncvt.u64.u32 %d8, %d4;");
        break;
    case 'p':
        add("\nselp.b64 %d8, 1, 0, %pd;");
        break;
    }
    add("\nst.global.u64 [%o], %d8;\nret;\n}\n");
}

void run_cases(const char *what, const struct value_case *cases, int count) {
    struct device dev;
    device_init(&dev);
    text_bytes = 0;
    add(".version 7.0\n.target sm_80\n.address_size 64\n");
    for (int k = 0; k < count; k++)
        add_case(&cases[k], k);
    struct sim_ptx_module *m = load(&dev, text);
    uint64_t *out = device_alloc(&dev, 8);
    for (int k = 0; k < count; k++) {
        const struct value_case *v = &cases[k];
        char name[16];
        snprintf(name, sizeof(name), "k%d", k);
        uint64_t params[] = {v->a, v->b, v->c, (uintptr_t)out};
        int code = launch(&dev, m, name, (struct dims){1, 1, 0}, NULL, 4, params);
        CHECK(code == 0 && *out == v->expected, "%s: %s: code %d, got %#llx, expected %#llx", what,
              v->statement, code, (unsigned long long)*out, (unsigned long long)v->expected);
    }
    sim_ptx_unload(m);
    device_free(&dev);
}
