// Float instructions and conversions, each by its result. What IEEE defines is compared bit for
// bit; approximate instructions within 1e-6.
#include "tests/sim/ptx/test/cases.h"

#include <math.h>

#define NAN32 0x7fffffffull
#define INF32 0x7f800000ull
#define TINY 1ull  // the smallest subnormal

static void test_singles(void) {
    const struct value_case singles[] = {
        {"add.f32 %d4, %a4, %b4;", '4', f(1.5f), f(2.25f), 0, f(3.75f)},
        {"add.rn.f32 %d4, %a4, %b4;", '4', f(1.0f), f(0x1p-24f), 0, f(1.0f)},
        {"add.rp.f32 %d4, %a4, %b4;", '4', f(1.0f), f(0x1p-30f), 0, f(0x1.000002p0f)},
        {"add.rm.f32 %d4, %a4, %b4;", '4', f(1.0f), f(-0x1p-30f), 0, f(0x1.fffffep-1f)},
        {"add.rz.f32 %d4, %a4, %b4;", '4', f(-1.0f), f(0x1p-30f), 0, f(-0x1.fffffep-1f)},
        {"add.f32 %d4, %a4, %b4;", '4', INF32, INF32 | 1ull << 31, 0, NAN32},
        {"add.f32 %d4, %a4, %b4;", '4', TINY, TINY, 0, 2},
        {"add.ftz.f32 %d4, %a4, %b4;", '4', TINY, TINY, 0, 0},
        {"add.sat.f32 %d4, %a4, %b4;", '4', f(0.75f), f(0.75f), 0, f(1.0f)},
        {"add.ftz.sat.f32 %d4, %a4, %b4;", '4', f(-0.75f), f(0.5f), 0, 0},
        {"sub.f32 %d4, %a4, 0f3F800000;", '4', f(3.0f), 0, 0, f(2.0f)},
        {"sub.f32 %d4, %a4, 1.5;", '4', f(3.0f), 0, 0, f(1.5f)},
        {"mul.f32 %d4, %a4, %b4;", '4', f(3.0f), f(-0.1f), 0, f(3.0f * -0.1f)},
        {"mul.ftz.f32 %d4, %a4, %b4;", '4', f(-0x1p-100f), f(0x1p-30f), 0, 1ull << 31},
        {"fma.rn.f32 %d4, %a4, %b4, %c4;", '4', f(0x1.000002p0f), f(0x1.000002p0f), f(-1.0f),
         f(fmaf(0x1.000002p0f, 0x1.000002p0f, -1.0f))},
        {"mad.rn.f32 %d4, %a4, %b4, %c4;", '4', f(2.0f), f(3.0f), f(4.0f), f(10.0f)},
        {"fma.rz.f32 %d4, %a4, %b4, %c4;", '4', f(1.0f), f(1.0f), f(0x1p-30f), f(1.0f)},
        {"fma.rp.f32 %d4, %a4, %b4, %c4;", '4', f(1.0f), f(1.0f), f(0x1p-30f), f(0x1.000002p0f)},
        {"div.rn.f32 %d4, %a4, %b4;", '4', f(1.0f), f(3.0f), 0, f(1.0f / 3.0f)},
        {"div.rz.f32 %d4, %a4, %b4;", '4', f(2.0f), f(3.0f), 0, f(0x1.555554p-1f)},
        {"div.full.f32 %d4, %a4, %b4;", '4', f(1.0f), 0, 0, INF32},
        {"rcp.rn.f32 %d4, %a4;", '4', f(3.0f), 0, 0, f(1.0f / 3.0f)},
        {"rcp.rp.f32 %d4, %a4;", '4', f(3.0f), 0, 0, f(0x1.555556p-2f)},
        {"sqrt.rn.f32 %d4, %a4;", '4', f(2.0f), 0, 0, f(0x1.6a09e6p0f)},
        {"sqrt.rp.f32 %d4, %a4;", '4', f(2.0f), 0, 0, f(0x1.6a09e8p0f)},
        {"sqrt.rn.f32 %d4, %a4;", '4', f(-1.0f), 0, 0, NAN32},
        {"min.f32 %d4, %a4, %b4;", '4', NAN32, f(2.0f), 0, f(2.0f)},
        {"max.f32 %d4, %a4, %b4;", '4', f(2.0f), NAN32, 0, f(2.0f)},
        {"min.f32 %d4, %a4, %b4;", '4', 0, 1ull << 31, 0, 1ull << 31},
        {"max.f32 %d4, %a4, %b4;", '4', 1ull << 31, 0, 0, 0},
        {"max.f32 %d4, %a4, %b4;", '4', f(-1.0f), f(-2.0f), 0, f(-1.0f)},
        {"abs.f32 %d4, %a4;", '4', f(-1.5f), 0, 0, f(1.5f)},
        {"neg.f32 %d4, %a4;", '4', f(1.5f), 0, 0, f(-1.5f)},
        {"copysign.f32 %d4, %a4, %b4;", '4', f(-1.0f), f(3.0f), 0, f(-3.0f)},
        {"testp.finite.f32 %pd, %a4;", 'p', INF32, 0, 0, 0},
        {"testp.subnormal.f32 %pd, %a4;", 'p', TINY, 0, 0, 1},
        {"testp.notanumber.f32 %pd, %a4;", 'p', NAN32, 0, 0, 1},
        {"mov.f32 %d4, 0f3FC00000;", '4', 0, 0, 0, f(1.5f)},
        {"mov.f32 %d4, 0d3FF8000000000000;", '4', 0, 0, 0, f(1.5f)},
        {"neg.f32 %d4, %a4; add.f32 %d4, %d4, -2.5e0;", '4', f(1.0f), 0, 0, f(-3.5f)},
        {"ex2.approx.f32 %d4, %a4;", '4', f(3.0f), 0, 0, f(8.0f)},
        {"lg2.approx.f32 %d4, %a4;", '4', f(8.0f), 0, 0, f(3.0f)},
        {"rsqrt.approx.f32 %d4, %a4;", '4', f(4.0f), 0, 0, f(0.5f)},
        {"rcp.approx.ftz.f32 %d4, %a4;", '4', f(4.0f), 0, 0, f(0.25f)},
        {"sin.approx.f32 %d4, %a4;", '4', 0, 0, 0, 0},
        {"cos.approx.f32 %d4, %a4;", '4', 0, 0, 0, f(1.0f)},
        {"tanh.approx.f32 %d4, %a4;", '4', 0, 0, 0, 0},
    };
    RUN(singles);
}

static void test_doubles(void) {
    const struct value_case doubles[] = {
        {"add.f64 %d8, %a8, %b8;", '8', d(0.1), d(0.2), 0, d(0.1 + 0.2)},
        {"add.rp.f64 %d8, %a8, %b8;", '8', d(1.0), d(0x1p-60), 0, d(1 + 0x1p-52)},
        {"sub.rz.f64 %d8, %a8, %b8;", '8', d(1.0), d(0x1p-60), 0, d(1 - 0x1p-53)},
        {"mul.rn.f64 %d8, %a8, %b8;", '8', d(0.1), d(3.0), 0, d(0.1 * 3.0)},
        {"fma.rn.f64 %d8, %a8, %b8, %c8;", '8', d(0.1), d(10.0), d(-1.0), d(fma(0.1, 10.0, -1.0))},
        {"div.rn.f64 %d8, %a8, 0d4008000000000000;", '8', d(1.0), 0, 0, d(1.0 / 3.0)},
        {"rcp.rn.f64 %d8, %a8;", '8', d(3.0), 0, 0, d(1.0 / 3.0)},
        {"sqrt.rn.f64 %d8, %a8;", '8', d(2.0), 0, 0, d(sqrt(2.0))},
        {"rsqrt.approx.f64 %d8, %a8;", '8', d(4.0), 0, 0, d(0.5)},
        {"rcp.approx.ftz.f64 %d8, %a8;", '8', d(4.0), 0, 0, d(0.25)},
        {"min.f64 %d8, %a8, %b8;", '8', d(-1.0), d(2.0), 0, d(-1.0)},
        {"max.f64 %d8, %a8, %b8;", '8', d(-0.0), d(0.0), 0, 0},
        {"abs.f64 %d8, %a8;", '8', d(-2.5), 0, 0, d(2.5)},
        {"neg.f64 %d8, %a8;", '8', d(2.5), 0, 0, d(-2.5)},
        {"copysign.f64 %d8, %a8, %b8;", '8', d(-0.0), d(2.0), 0, d(-2.0)},
        {"testp.normal.f64 %pd, %a8;", 'p', d(2.0), 0, 0, 1},
        {"testp.infinite.f64 %pd, %a8;", 'p', d(INFINITY), 0, 0, 1},
        {"add.sat.f64 %d8, %a8, %b8;", '8', d(2.0), d(2.0), 0, d(1.0)},
    };
    RUN(doubles);
}

static void test_halves(void) {
    const struct value_case halves[] = {
        {"cvt.f32.f16 %d4, %a2;", '4', 0x3c00, 0, 0, f(1.0f)},
        {"cvt.f32.f16 %d4, %a2;", '4', 0x8001, 0, 0, f(-0x1p-24f)},
        {"cvt.f32.f16 %d4, %a2;", '4', 0x7c00, 0, 0, INF32},
        {"cvt.rn.f16.f32 %d2, %a4;", '2', f(65504.0f), 0, 0, 0x7bff},
        {"cvt.rn.f16.f32 %d2, %a4;", '2', f(65520.0f), 0, 0, 0x7c00},
        {"cvt.rz.f16.f32 %d2, %a4;", '2', f(65535.0f), 0, 0, 0x7bff},
        {"cvt.rm.f16.f32 %d2, %a4;", '2', f(-1e6f), 0, 0, 0xfc00},
        {"cvt.rn.f16.f32 %d2, %a4;", '2', f(0x1p-25f), 0, 0, 0},
        {"cvt.rp.f16.f32 %d2, %a4;", '2', f(0x1p-25f), 0, 0, 1},
        {"cvt.rn.f16.f32 %d2, %a4;", '2', f(0x1.002p0f), 0, 0, 0x3c00},
        {"cvt.rn.f16.f32 %d2, %a4;", '2', f(0x1.006p0f), 0, 0, 0x3c02},
        {"cvt.rn.f16.f32 %d2, %a4;", '2', f(-0.0f), 0, 0, 0x8000},
        {"cvt.rn.f16.f64 %d2, %a8;", '2', d(0.5), 0, 0, 0x3800},
        {"cvt.rn.f16.s32 %d2, %a4;", '2', NEG(3), 0, 0, 0xc200},
        {"cvt.rzi.s32.f16 %d4, %a2;", '4', 0xc200, 0, 0, NEG(3)},
        {"add.f16 %d2, %a2, %b2;", '2', 0x3c00, 0x3c00, 0, 0x4000},
        {"mul.f16 %d2, %a2, %b2;", '2', 0x4200, 0x4200, 0, 0x4880},
        {"sub.f16 %d2, %a2, %b2;", '2', 0x3c00, 0x3c00, 0, 0},
        {"fma.rn.f16 %d2, %a2, %b2, %c2;", '2', 0x4000, 0x4200, 0x3c00, 0x4700},
        {"neg.f16 %d2, %a2;", '2', 0x3c00, 0, 0, 0xbc00},
        {"abs.f16 %d2, %a2;", '2', 0xbc00, 0, 0, 0x3c00},
        {"mov.b16 %d2, %a2; mov.f16 %d2, %d2;", '2', 0x3c00, 0, 0, 0x3c00},
    };
    RUN(halves);
}

static void test_conversions(void) {
    const struct value_case conversions[] = {
        {"cvt.u32.u16 %d4, %a2;", '4', 0x1ffff, 0, 0, 0xffff},
        {"cvt.s32.s16 %d4, %a2;", '4', 0xffff, 0, 0, 0xffffffff},
        {"cvt.s64.s32 %d8, %a4;", '8', 0x80000000, 0, 0, 0xffffffff80000000},
        {"cvt.u64.u32 %d8, %a4;", '8', 0x80000000, 0, 0, 0x80000000},
        {"cvt.s32.s8 %d4, %a4;", '4', 0x1ff, 0, 0, 0xffffffff},
        {"cvt.u8.u32 %d4, %a4;", '4', 0x1ff, 0, 0, 0xff},
        {"cvt.s8.s32 %d4, %a4;", '4', 0x80, 0, 0, 0xffffff80},
        {"cvt.u16.u64 %d2, %a8;", '2', 0x123456789, 0, 0, 0x6789},
        {"cvt.sat.s8.s32 %d4, %a4;", '4', 1000, 0, 0, 127},
        {"cvt.sat.u8.s32 %d4, %a4;", '4', NEG(1), 0, 0, 0},
        {"cvt.sat.u16.u32 %d2, %a4;", '2', 70000, 0, 0, 65535},
        {"cvt.sat.s32.u64 %d4, %a8;", '4', UINT64_MAX, 0, 0, 0x7fffffff},
        {"cvt.sat.s32.s64 %d4, %a8;", '4', 1ull << 63, 0, 0, 0x80000000},
        {"cvt.rn.f32.u32 %d4, %a4;", '4', 0xffffffff, 0, 0, f(4294967296.0f)},
        {"cvt.rz.f32.u32 %d4, %a4;", '4', 0xffffffff, 0, 0, f(4294967040.0f)},
        {"cvt.rn.f32.s64 %d4, %a8;", '4', NEG64(5), 0, 0, f(-5.0f)},
        {"cvt.rp.f32.u64 %d4, %a8;", '4', (1ull << 40) + 1, 0, 0, f(0x1.000002p40f)},
        {"cvt.rn.f64.u64 %d8, %a8;", '8', UINT64_MAX, 0, 0, d(0x1p64)},
        {"cvt.rm.f64.u64 %d8, %a8;", '8', UINT64_MAX, 0, 0, d(0x1.fffffffffffffp63)},
        {"cvt.rn.f64.s32 %d8, %a4;", '8', NEG(7), 0, 0, d(-7.0)},
        {"cvt.rzi.s32.f32 %d4, %a4;", '4', f(-2.75f), 0, 0, NEG(2)},
        {"cvt.rni.s32.f32 %d4, %a4;", '4', f(2.5f), 0, 0, 2},
        {"cvt.rmi.s32.f32 %d4, %a4;", '4', f(-2.25f), 0, 0, NEG(3)},
        {"cvt.rpi.s32.f64 %d4, %a8;", '4', d(2.25), 0, 0, 3},
        {"cvt.rzi.u32.f32 %d4, %a4;", '4', f(-5.0f), 0, 0, 0},
        {"cvt.rzi.u32.f32 %d4, %a4;", '4', f(1e20f), 0, 0, 0xffffffff},
        {"cvt.rzi.s64.f64 %d8, %a8;", '8', d(-1e30), 0, 0, 1ull << 63},
        {"cvt.rzi.u64.f64 %d8, %a8;", '8', d(1e19), 0, 0, 10000000000000000000ull},
        {"cvt.rzi.s32.f32 %d4, %a4;", '4', NAN32, 0, 0, 0},
        {"cvt.rzi.s64.f32 %d8, %a4;", '8', NAN32, 0, 0, 1ull << 63},
        {"cvt.rzi.s8.f32 %d4, %a4;", '4', f(-1000.0f), 0, 0, 0xffffff80},
        {"cvt.rzi.ftz.u32.f32 %d4, %a4;", '4', TINY, 0, 0, 0},
        {"cvt.f64.f32 %d8, %a4;", '8', f(0.1f), 0, 0, d((double)0.1f)},
        {"cvt.rn.f32.f64 %d4, %a8;", '4', d(0.1), 0, 0, f((float)0.1)},
        {"cvt.rz.f32.f64 %d4, %a8;", '4', d(1.0 - 0x1p-30), 0, 0, f(0x1.fffffep-1f)},
        {"cvt.rp.f32.f64 %d4, %a8;", '4', d(1.0 + 0x1p-30), 0, 0, f(0x1.000002p0f)},
        {"cvt.rni.f32.f32 %d4, %a4;", '4', f(3.5f), 0, 0, f(4.0f)},
        {"cvt.rzi.f64.f64 %d8, %a8;", '8', d(-3.7), 0, 0, d(-3.0)},
        {"cvt.sat.f32.f32 %d4, %a4;", '4', f(1.5f), 0, 0, f(1.0f)},
        {"cvt.ftz.f64.f32 %d8, %a4;", '8', TINY, 0, 0, 0},
    };
    RUN(conversions);
}

// Approximate instructions over a range of arguments, against the C library.
static void test_approximations(void) {
    static const struct {
        const char *name;
        double (*exact)(double);
        float from, to;
    } functions[] = {
        {"ex2.approx.f32", exp2, -20, 20},      {"lg2.approx.f32", log2, 0.01f, 1000},
        {"sin.approx.f32", sin, -3, 3},         {"cos.approx.f32", cos, -3, 3},
        {"sqrt.approx.f32", sqrt, 0.01f, 1e6f}, {"tanh.approx.f32", tanh, -4, 4},
    };
    for (size_t k = 0; k < sizeof(functions) / sizeof(functions[0]); k++) {
        char source[1024];
        snprintf(
            source, sizeof(source),
            ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
            ".reg .b64 %%p;\n.reg .f32 %%x;\n.reg .b32 %%t;\n.reg .b64 %%o;\n"
            "ld.param.u64 %%p, [p];\nmov.u32 %%t, %%tid.x;\nmul.wide.u32 %%o, %%t, 4;\n"
            "add.u64 %%p, %%p, %%o;\nld.global.f32 %%x, [%%p];\n%s %%x, %%x;\n"
            "st.global.f32 [%%p], %%x;\nret;\n}\n",
            functions[k].name);
        struct device dev;
        device_init(&dev);
        struct sim_ptx_module *m = load(&dev, source);
        float *values = device_alloc(&dev, 256 * sizeof(*values)), in[256];
        for (int i = 0; i < 256; i++) {
            in[i] = functions[k].from + (functions[k].to - functions[k].from) * (float)i / 255;
            values[i] = in[i];
        }
        uint64_t param = (uintptr_t)values;
        CHECK(launch(&dev, m, "k", (struct dims){1, 256, 0}, NULL, 1, &param) == 0, "%s",
              functions[k].name);
        for (int i = 0; i < 256; i++) {
            double want = functions[k].exact((double)in[i]);
            CHECK(fabs(values[i] - want) <= 1e-6 * fmax(fabs(want), 1e-3), "%s of %g: %g, not %g",
                  functions[k].name, (double)in[i], (double)values[i], want);
        }
        sim_ptx_unload(m);
        device_free(&dev);
    }
}

int main(void) {
    test_singles();
    test_doubles();
    test_halves();
    test_conversions();
    test_approximations();
    return finish("ptx: floats, conversions");
}
