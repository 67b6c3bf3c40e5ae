// The pure instructions: functions of up to four register values, and the table that names them.
//
// A name is the instruction without its qualifiers for flushing, saturating floats and
// approximation, which the parser handles, and without `.rn`: "add.f32", "mul.wide.s32",
// "setp.lt.u64". A signature has one letter for the result and one for each source: p predicate, 1
// 2 4 8 integers or bits of that many bytes, h f d floats of 2, 4, 8 bytes.
#ifndef WEIR_SIM_PTX_VALUES_H
#define WEIR_SIM_PTX_VALUES_H

#include "module.h"

#include <string.h>

struct sim_ptx_pure {
    const char *name;
    const char *signature;
    sim_ptx_value *value;
};

// The rows of one table end with a NULL name.
extern const struct sim_ptx_pure sim_ptx_integer_values[];
extern const struct sim_ptx_pure sim_ptx_float_values[];

// cvt: `d` describes the conversion, made by sim_ptx_conversion. The result fills the register.
struct sim_ptx_conversion {
    char to, from;  // 'u', 's' or 'f'
    uint8_t to_bytes, from_bytes;
    uint8_t d_bytes;   // of the destination register
    char rounding;     // 'n' nearest even, 'z' zero, 'm' down, 'p' up; 0: as the types imply
    bool is_integral;  // .rni and its kin: a float to a whole number
    bool saturates, flushes;
};
sim_ptx_value sim_ptx_convert;
uint64_t sim_ptx_conversion(const struct sim_ptx_conversion *);

// Subnormals to zero of the same sign; into [0, 1], NaN to 0.
sim_ptx_value sim_ptx_flush_f32, sim_ptx_saturate_f32, sim_ptx_saturate_f64;
// b bits of a from bit c on, zero-extended; a with b bits replaced by those of d from bit c on.
sim_ptx_value sim_ptx_take_bits, sim_ptx_put_bits;
sim_ptx_value sim_ptx_same;
// The carry out of a + b + c and the borrow out of a - b - c, where c is 0 or 1.
sim_ptx_value sim_ptx_carry_4, sim_ptx_carry_8, sim_ptx_borrow_4, sim_ptx_borrow_8;
sim_ptx_value sim_ptx_add_carry_4, sim_ptx_add_carry_8, sim_ptx_sub_borrow_4, sim_ptx_sub_borrow_8;

static inline float sim_ptx_f32(uint64_t value) {
    uint32_t bits = (uint32_t)value;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

// Every NaN that an instruction makes is the hardware's one.
static inline uint64_t sim_ptx_from_f32(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return f != f ? 0x7fffffffu : bits;
}

static inline double sim_ptx_f64(uint64_t value) {
    double f;
    memcpy(&f, &value, sizeof(f));
    return f;
}

static inline uint64_t sim_ptx_from_f64(double f) {
    uint64_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

double sim_ptx_f16(uint64_t value);
// Rounds once, in the rounding mode of the thread. Exact for doubles that hold an exact result.
uint64_t sim_ptx_from_f16(double value);

#endif
