// Pure integer, bit and predicate instructions. What wraps is computed in 64 unsigned bits and
// truncated, so that no signed overflow occurs; what depends on sign or width is typed.
//
// Division by zero gives all ones and the remainder the dividend, as on the hardware.
#include "values.h"

typedef uint8_t u8;
typedef uint16_t u16, b16;
typedef uint32_t u32, b32;
typedef uint64_t u64, b64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

static inline u64 divide_unsigned(u64 a, u64 b) {
    return b ? a / b : UINT64_MAX;
}

static inline u64 divide_signed(s64 a, s64 b) {
    if (b == 0)
        return UINT64_MAX;
    return b == -1 ? -(u64)a : (u64)(a / b);
}

static inline u64 remainder_unsigned(u64 a, u64 b) {
    return b ? a % b : a;
}

static inline u64 remainder_signed(s64 a, s64 b) {
    if (b == 0)
        return (u64)a;
    return b == -1 ? 0 : (u64)(a % b);
}

static inline u64 low_mask(unsigned bits) {
    return bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
}

static inline u32 leading_zeros(u64 a, unsigned width) {
    return a ? (u32)__builtin_clzll(a) - (64 - width) : width;
}

static inline u64 reverse_bits(u64 a, unsigned width) {
    u64 out = 0;
    for (unsigned k = 0; k < width; k++)
        out |= (a >> k & 1) << (width - 1 - k);
    return out;
}

// The highest bit that differs from the sign, or all ones; as_shift: how far it is from the top.
static inline u32 find_high(u64 a, bool negative, unsigned width, bool as_shift) {
    u64 bits = (negative ? ~a : a) & low_mask(width);
    if (bits == 0)
        return UINT32_MAX;
    u32 below_top = leading_zeros(bits, width);
    return as_shift ? below_top : width - 1 - below_top;
}

static inline u64 extract(u64 a, u64 position, u64 length, unsigned width, bool is_signed) {
    unsigned first = position & 255, bits = length & 255;
    if (bits == 0)
        return 0;
    unsigned last = first + bits - 1 < width - 1 ? first + bits - 1 : width - 1;
    u64 fill = is_signed && a >> last & 1 ? UINT64_MAX : 0;
    if (first >= width)
        return fill;
    u64 mask = low_mask(last - first + 1);
    return (a >> first & mask) | (fill & ~mask);
}

static inline u64 insert(u64 a, u64 b, u64 position, u64 length, unsigned width) {
    unsigned first = position & 255, bits = length & 255;
    if (first >= width || bits == 0)
        return b;
    u64 mask = low_mask(bits > width - first ? width - first : bits) << first;
    return (b & ~mask) | (a << first & mask);
}

// Four bytes out of the eight of b:a, each chosen by three bits of its selector nibble; the fourth
// bit spreads the chosen byte's sign.
static u32 permute(u32 a, u32 b, u32 selectors) {
    u64 both = (u64)b << 32 | a;
    u32 out = 0;
    for (unsigned k = 0; k < 4; k++) {
        u32 selector = selectors >> 4 * k & 15;
        u32 byte = (u32)(both >> 8 * (selector & 7)) & 0xff;
        if (selector & 8)
            byte = byte & 0x80 ? 0xff : 0;
        out |= byte << 8 * k;
    }
    return out;
}

// The selectors of prmt's named modes, for the low two bits of c.
static const u16 forward_4[4] = {0x3210, 0x4321, 0x5432, 0x6543};
static const u16 backward_4[4] = {0x5670, 0x6701, 0x7012, 0x0123};
static const u16 replicate_8[4] = {0x0000, 0x1111, 0x2222, 0x3333};
static const u16 clamp_left[4] = {0x3210, 0x3211, 0x3222, 0x3333};
static const u16 clamp_right[4] = {0x0000, 0x1110, 0x2210, 0x3210};
static const u16 replicate_16[4] = {0x1010, 0x3232, 0x1010, 0x3232};

static u32 logic3(u32 a, u32 b, u32 c, u32 table) {
    u32 out = 0;
    for (unsigned k = 0; k < 8; k++)
        if (table >> k & 1)
            out |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return out;
}

static inline u64 funnel(u64 a, u64 b, u64 c, bool to_left, bool wraps) {
    u64 both = b << 32 | a;
    u64 shift = wraps ? c & 31 : (c > 32 ? 32 : c);
    return to_left ? both << shift >> 32 : both >> shift;
}

static inline u32 dot4(u64 a, bool a_signed, u64 b, bool b_signed, u64 c) {
    for (unsigned k = 0; k < 32; k += 8) {
        s32 x = a_signed ? (int8_t)(a >> k) : (u8)(a >> k);
        s32 y = b_signed ? (int8_t)(b >> k) : (u8)(b >> k);
        c += (u64)(s64)(x * y);
    }
    return (u32)c;
}

static inline u64 saturate_s32(s64 value) {
    if (value > INT32_MAX)
        return INT32_MAX;
    return value < INT32_MIN ? (u64)INT32_MIN : (u64)value;
}

static inline u64 product_24(u64 a, u64 b, bool is_signed) {
    if (is_signed)
        return (u64)((s64)((s32)(u32)(a << 8) >> 8) * ((s32)(u32)(b << 8) >> 8));
    return (a & 0xffffff) * (b & 0xffffff);
}

#define HIGH_PRODUCT(t) ((u64)((WIDE_##t)a * (WIDE_##t)b >> 8 * sizeof(t)))

#define VALUE(id, name, signature, result, type, ...)                                              \
    static uint64_t id(uint64_t ra, uint64_t rb, uint64_t rc, uint64_t rd) {                       \
        type a = (type)ra, b = (type)rb, c = (type)rc;                                             \
        (void)a, (void)b, (void)c, (void)rd;                                                       \
        return (result)(__VA_ARGS__);                                                              \
    }
#include "values_integer.def"
#undef VALUE
#define VALUE(id, name, signature, ...) {name, signature, id},

const struct sim_ptx_pure sim_ptx_integer_values[] = {
#include "values_integer.def"
    {NULL, NULL, NULL},
};

uint64_t sim_ptx_same(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    (void)b, (void)c, (void)d;
    return a;
}

uint64_t sim_ptx_take_bits(uint64_t a, uint64_t bits, uint64_t first, uint64_t d) {
    (void)d;
    return a >> first & low_mask((unsigned)bits);
}

uint64_t sim_ptx_put_bits(uint64_t a, uint64_t bits, uint64_t first, uint64_t d) {
    u64 mask = low_mask((unsigned)bits) << first;
    return (a & ~mask) | (d << first & mask);
}

#define CARRIES(bytes, type)                                                                       \
    uint64_t sim_ptx_carry_##bytes(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {               \
        (void)d;                                                                                   \
        type sum;                                                                                  \
        return __builtin_add_overflow((type)a, (type)b, &sum) ||                                   \
               __builtin_add_overflow(sum, (type)c, &sum);                                         \
    }                                                                                              \
    uint64_t sim_ptx_borrow_##bytes(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {              \
        (void)d;                                                                                   \
        type rest;                                                                                 \
        return __builtin_sub_overflow((type)a, (type)b, &rest) ||                                  \
               __builtin_sub_overflow(rest, (type)c, &rest);                                       \
    }                                                                                              \
    uint64_t sim_ptx_add_carry_##bytes(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {           \
        (void)d;                                                                                   \
        return (type)(a + b + c);                                                                  \
    }                                                                                              \
    uint64_t sim_ptx_sub_borrow_##bytes(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {          \
        (void)d;                                                                                   \
        return (type)(a - b - c);                                                                  \
    }
CARRIES(4, u32)
CARRIES(8, u64)
