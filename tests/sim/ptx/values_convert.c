// cvt: every pair of integer and float types, with its rounding, saturation and flushing. A float
// of any width passes through a double, which holds each exactly.
#include "values.h"

#include <fenv.h>
#include <math.h>

enum { INTEGRAL = 1, SATURATES = 2, FLUSHES = 4 };

// A conversion as one constant.
union packed {
    struct {
        char to, from;
        uint8_t to_bytes, from_bytes, d_bytes;
        char rounding;
        uint8_t flags, unused;
    } field;
    uint64_t bits;
};

uint64_t sim_ptx_conversion(const struct sim_ptx_conversion *c) {
    union packed p = {
        .field = {
            .to = c->to,
            .from = c->from,
            .to_bytes = c->to_bytes,
            .from_bytes = c->from_bytes,
            .d_bytes = c->d_bytes,
            .rounding = c->rounding,
            .flags = (uint8_t)((c->is_integral ? INTEGRAL : 0) | (c->saturates ? SATURATES : 0) |
                               (c->flushes ? FLUSHES : 0)),
        }};
    return p.bits;
}

static uint64_t truncate_to(uint64_t value, unsigned bytes) {
    return bytes >= 8 ? value : value & ((1ull << 8 * bytes) - 1);
}

static uint64_t sign_extend(uint64_t value, unsigned bytes) {
    unsigned unused_bits = 64 - 8 * bytes;
    return (uint64_t)((int64_t)(value << unused_bits) >> unused_bits);
}

static double round_whole(double value, char rounding) {
    switch (rounding) {
    case 'n':
        return nearbyint(value);
    case 'm':
        return floor(value);
    case 'p':
        return ceil(value);
    default:
        return trunc(value);
    }
}

static int set_rounding(char rounding) {
    int old = fegetround();
    fesetround(rounding == 'z'   ? FE_TOWARDZERO
               : rounding == 'm' ? FE_DOWNWARD
               : rounding == 'p' ? FE_UPWARD
                                 : FE_TONEAREST);
    return old;
}

static double load_float(uint64_t value, unsigned bytes, bool flushes) {
    if (bytes == 2)
        return sim_ptx_f16(value);
    if (bytes == 8)
        return sim_ptx_f64(value);
    return (double)sim_ptx_f32(flushes ? sim_ptx_flush_f32(value, 0, 0, 0) : value);
}

static uint64_t store_float(volatile double value, unsigned bytes, char rounding, bool flushes) {
    if (bytes == 8)
        return sim_ptx_from_f64(value);
    int old = set_rounding(rounding);
    uint64_t out;
    if (bytes == 2) {
        out = sim_ptx_from_f16(value);
    } else {
        volatile float narrow = (float)value;
        out = sim_ptx_from_f32(narrow);
    }
    fesetround(old);
    return flushes && bytes == 4 ? sim_ptx_flush_f32(out, 0, 0, 0) : out;
}

static uint64_t float_to_float(double value, union packed how) {
    if (how.field.flags & INTEGRAL)
        value = round_whole(value, how.field.rounding);
    if (how.field.flags & SATURATES)
        value = value > 0 ? (value < 1 ? value : 1) : 0;
    return store_float(value, how.field.to_bytes, how.field.rounding, how.field.flags & FLUSHES);
}

// Clamps to the range of the type. What a NaN becomes depends on the widths.
static uint64_t float_to_integer(double value, union packed how) {
    unsigned bits = 8 * how.field.to_bytes;
    bool is_signed = how.field.to == 's';
    if (value != value)
        return how.field.from_bytes == 8 || bits == 64 ? 1ull << (bits - 1) : 0;
    value = round_whole(value, how.field.rounding);
    double end = ldexp(1, (int)bits - is_signed);  // the first value above the range
    if (value >= end)
        return UINT64_MAX >> (64 - bits + is_signed);
    if (is_signed)
        return value < -end ? (uint64_t)(int64_t)-end : (uint64_t)(int64_t)value;
    return value <= 0 ? 0 : (uint64_t)value;
}

static uint64_t integer_to_float(uint64_t value, bool is_signed, union packed how) {
    int old = set_rounding(how.field.rounding);
    uint64_t out;
    if (how.field.to_bytes == 4) {
        volatile float narrow = is_signed ? (float)(int64_t)value : (float)value;
        out = sim_ptx_from_f32(narrow);
    } else {
        volatile double wide = is_signed ? (double)(int64_t)value : (double)value;
        out = how.field.to_bytes == 8 ? sim_ptx_from_f64(wide) : sim_ptx_from_f16(wide);
    }
    fesetround(old);
    return out;
}

static uint64_t integer_to_integer(uint64_t value, bool is_signed, union packed how) {
    if (!(how.field.flags & SATURATES))
        return value;
    unsigned bits = 8 * how.field.to_bytes;
    bool negative = is_signed && (int64_t)value < 0;
    bool to_signed = how.field.to == 's';
    uint64_t largest = UINT64_MAX >> (64 - bits + to_signed);
    if (!negative)
        return value < largest ? value : largest;
    if (!to_signed)
        return 0;
    int64_t smallest = -(int64_t)largest - 1;
    return (int64_t)value < smallest ? (uint64_t)smallest : value;
}

uint64_t sim_ptx_convert(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    (void)b, (void)c;
    union packed how = {.bits = d};
    uint64_t out;
    if (how.field.from == 'f') {
        double value = load_float(a, how.field.from_bytes, how.field.flags & FLUSHES);
        if (how.field.to == 'f')
            return float_to_float(value, how);
        out = float_to_integer(value, how);
    } else {
        bool is_signed = how.field.from == 's';
        uint64_t value =
            is_signed ? sign_extend(a, how.field.from_bytes) : truncate_to(a, how.field.from_bytes);
        if (how.field.to == 'f')
            return integer_to_float(value, is_signed, how);
        out = integer_to_integer(value, is_signed, how);
    }
    if (how.field.to == 's')
        out = sign_extend(out, how.field.to_bytes);
    else
        out = truncate_to(out, how.field.to_bytes);
    return truncate_to(out, how.field.d_bytes);
}
