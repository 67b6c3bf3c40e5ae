// Pure float instructions, IEEE exact: built without contraction and with the rounding mode
// respected (-ffp-contract=off -frounding-math). A launch runs in the default floating environment;
// the rows with another rounding change it for one operation. Approximate instructions are rounded
// from the double result, which is closer than the hardware's.
#include "values.h"

#include <fenv.h>
#include <math.h>

// Rounds x + y to odd, so that a later rounding to fewer bits is as if done once.
static double add_to_odd(double x, double y) {
    double sum = x + y;
    double high = sum - x;
    double error = (x - (sum - high)) + (y - high);
    uint64_t bits = sim_ptx_from_f64(sum);
    if (error != 0 && isfinite(sum) && (bits & 1) == 0)
        bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
    return sim_ptx_f64(bits);
}

double sim_ptx_f16(uint64_t value) {
    unsigned exponent = value >> 10 & 31, fraction = value & 1023;
    double magnitude = exponent == 0    ? ldexp(fraction, -24)
                       : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                                        : ldexp(1024 + fraction, (int)exponent - 25);
    return value & 0x8000 ? -magnitude : magnitude;
}

uint64_t sim_ptx_from_f16(double value) {
    if (value != value)
        return 0x7fff;
    uint64_t sign = signbit(value) ? 0x8000 : 0;
    if (isinf(value) || value == 0)
        return sign | (value == 0 ? 0 : 0x7c00);
    int exponent;
    frexp(value, &exponent);
    int step = exponent - 11 < -24 ? -24 : exponent - 11;  // the weight of the last place
    uint64_t units = (uint64_t)fabs(nearbyint(ldexp(value, -step)));
    uint64_t bits = ((uint64_t)(step + 24) << 10) + units;  // a carry moves into the exponent
    if (bits < 0x7c00)
        return sign | bits;
    int mode = fegetround();
    bool stays_finite =
        mode == FE_TOWARDZERO || (mode == FE_UPWARD && sign) || (mode == FE_DOWNWARD && !sign);
    return sign | (stays_finite ? 0x7bff : 0x7c00);
}

// The smaller or larger of two; a number wins over a NaN, and -0 is smaller than +0.
#define PICK(type)                                                                                 \
    static inline type pick_##type(type a, type b, bool larger) {                                  \
        if (a != a)                                                                                \
            return b;                                                                              \
        if (b != b)                                                                                \
            return a;                                                                              \
        if (a == b)                                                                                \
            return (signbit(a) != 0) != larger ? a : b;                                            \
        return (a < b) != larger ? a : b;                                                          \
    }
PICK(float)
PICK(double)

// Evaluates an expression of a, b, c in another rounding mode. The copies are volatile, so that the
// compiler moves no operation across the changes of mode.
#define IN_MODE(mode, type, ...)                                                                   \
    int old_mode = fegetround();                                                                   \
    fesetround(mode);                                                                              \
    volatile type x = a, y = b, z = c;                                                             \
    volatile type result;                                                                          \
    {                                                                                              \
        type a = x, b = y, c = z;                                                                  \
        (void)a, (void)b, (void)c;                                                                 \
        result = (__VA_ARGS__);                                                                    \
    }                                                                                              \
    fesetround(old_mode);

#define SINGLE_SOURCES                                                                             \
    float a = sim_ptx_f32(ra), b = sim_ptx_f32(rb), c = sim_ptx_f32(rc);                           \
    (void)a, (void)b, (void)c, (void)rd;
#define DOUBLE_SOURCES                                                                             \
    double a = sim_ptx_f64(ra), b = sim_ptx_f64(rb), c = sim_ptx_f64(rc);                          \
    (void)a, (void)b, (void)c, (void)rd;
#define HALF_SOURCES                                                                               \
    double a = sim_ptx_f16(ra), b = sim_ptx_f16(rb), c = sim_ptx_f16(rc);                          \
    (void)a, (void)b, (void)c, (void)rd;
#define FUNCTION(id) static uint64_t id(uint64_t ra, uint64_t rb, uint64_t rc, uint64_t rd)

#define SINGLE(id, name, signature, ...)                                                           \
    FUNCTION(id) {                                                                                 \
        SINGLE_SOURCES return sim_ptx_from_f32(__VA_ARGS__);                                       \
    }
#define DOUBLE(id, name, signature, ...)                                                           \
    FUNCTION(id) {                                                                                 \
        DOUBLE_SOURCES return sim_ptx_from_f64(__VA_ARGS__);                                       \
    }
#define SINGLE_MODE(id, name, signature, mode, ...)                                                \
    FUNCTION(id) {                                                                                 \
        SINGLE_SOURCES IN_MODE(mode, float, __VA_ARGS__) return sim_ptx_from_f32(result);          \
    }
#define DOUBLE_MODE(id, name, signature, mode, ...)                                                \
    FUNCTION(id) {                                                                                 \
        DOUBLE_SOURCES IN_MODE(mode, double, __VA_ARGS__) return sim_ptx_from_f64(result);         \
    }
#define HALF(id, name, signature, ...)                                                             \
    FUNCTION(id) {                                                                                 \
        HALF_SOURCES return sim_ptx_from_f16(__VA_ARGS__);                                         \
    }
#define SINGLE_TEST(id, name, signature, ...)                                                      \
    FUNCTION(id) {                                                                                 \
        SINGLE_SOURCES return (__VA_ARGS__) ? 1 : 0;                                               \
    }
#define DOUBLE_TEST(id, name, signature, ...)                                                      \
    FUNCTION(id) {                                                                                 \
        DOUBLE_SOURCES return (__VA_ARGS__) ? 1 : 0;                                               \
    }
#define RAW(id, name, signature, ...)                                                              \
    FUNCTION(id) {                                                                                 \
        (void)ra, (void)rb, (void)rc, (void)rd;                                                    \
        return __VA_ARGS__;                                                                        \
    }
#include "values_float.def"
#undef SINGLE
#undef DOUBLE
#undef SINGLE_MODE
#undef DOUBLE_MODE
#undef HALF
#undef SINGLE_TEST
#undef DOUBLE_TEST
#undef RAW
#define SINGLE(id, name, signature, ...) {name, signature, id},
#define DOUBLE SINGLE
#define SINGLE_MODE SINGLE
#define DOUBLE_MODE SINGLE
#define HALF SINGLE
#define SINGLE_TEST SINGLE
#define DOUBLE_TEST SINGLE
#define RAW SINGLE

const struct sim_ptx_pure sim_ptx_float_values[] = {
#include "values_float.def"
    {NULL, NULL, NULL},
};

uint64_t sim_ptx_flush_f32(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    (void)b, (void)c, (void)d;
    return (a & 0x7f800000) == 0 ? a & 0x80000000 : a;
}

uint64_t sim_ptx_saturate_f32(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    (void)b, (void)c, (void)d;
    float f = sim_ptx_f32(a);
    return f > 0 ? sim_ptx_from_f32(f < 1 ? f : 1) : 0;
}

uint64_t sim_ptx_saturate_f64(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    (void)b, (void)c, (void)d;
    double f = sim_ptx_f64(a);
    return f > 0 ? sim_ptx_from_f64(f < 1 ? f : 1) : 0;
}
