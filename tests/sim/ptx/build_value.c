// Instructions that only compute: the pure ones, and those that become a few of them (packing and
// unpacking vectors, combined comparisons, carries, flushing and saturating floats).
#include "parser.h"

#define KEY_BYTES_MAX 64
#define NO SIM_PTX_OPERAND_ZERO

static bool base_is(const struct sim_ptx_parser *p, const char *word) {
    return sim_ptx_text_is(p->opcode.base, word);
}

// The opcode's last qualifier as a type.
static bool last_type(const struct sim_ptx_parser *p, char *kind, uint32_t *bytes) {
    const struct sim_ptx_opcode *o = &p->opcode;
    return o->count > 0 && sim_ptx_type_of(o->qualifiers[o->count - 1], kind, bytes);
}

// Joins parts with dots. Returns false where they are longer than any name.
static bool join(char key[KEY_BYTES_MAX], const struct sim_ptx_text *parts, uint32_t count) {
    size_t at = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (at + parts[k].bytes + 2 > KEY_BYTES_MAX)
            return false;
        if (k > 0)
            key[at++] = '.';
        memcpy(key + at, parts[k].at, parts[k].bytes);
        at += parts[k].bytes;
    }
    key[at] = '\0';
    return true;
}

static const struct sim_ptx_pure *find_pure(struct sim_ptx_parser *p) {
    struct sim_ptx_text parts[SIM_PTX_QUALIFIERS_MAX + 1] = {p->opcode.base};
    memcpy(parts + 1, p->opcode.qualifiers, p->opcode.count * sizeof(parts[0]));
    char key[KEY_BYTES_MAX];
    return join(key, parts, p->opcode.count + 1) ? sim_ptx_pure_named(p, key) : NULL;
}

static void emit_1(struct sim_ptx_parser *p, sim_ptx_value *value, uint32_t d, uint32_t a) {
    sim_ptx_emit_value(p, value, d, a, NO, NO, NO);
}

static void emit_named(struct sim_ptx_parser *p, const char *name, uint32_t d, uint32_t a,
                       uint32_t b, uint32_t c) {
    const struct sim_ptx_pure *pure = sim_ptx_pure_named(p, name);
    if (pure)
        sim_ptx_emit_value(p, pure->value, d, a, b, c, NO);
    else
        sim_ptx_unknown(p);
}

// Moves and selections care for bits only: f32, u32 and s32 are b32.
static void use_bit_type(struct sim_ptx_parser *p) {
    struct sim_ptx_opcode *o = &p->opcode;
    bool is_selection = base_is(p, "slct");
    if (!is_selection && !base_is(p, "mov") && !base_is(p, "selp"))
        return;
    uint32_t which = is_selection ? 0 : o->count - 1;
    char kind;
    uint32_t bytes;
    if (o->count > which && sim_ptx_type_of(o->qualifiers[which], &kind, &bytes) && bytes >= 2)
        o->qualifiers[which] = sim_ptx_text_of(bytes == 2 ? "b16" : bytes == 4 ? "b32" : "b64");
}

// Nearest-even is what an instruction does by itself, and approximations are as good as exact.
static void take_precision(struct sim_ptx_parser *p) {
    static const char *const approximate[] = {"div", "rcp", "sqrt", "rsqrt", "sin",
                                              "cos", "lg2", "ex2",  "tanh"};
    sim_ptx_take(p, "rn");
    for (size_t k = 0; k < sizeof(approximate) / sizeof(approximate[0]); k++)
        if (base_is(p, approximate[k]))
            sim_ptx_take(p, "approx");
    if (base_is(p, "div"))
        sim_ptx_take(p, "full");
}

static bool build_pure(struct sim_ptx_parser *p) {
    char kind = 0;
    uint32_t bytes = 0;
    last_type(p, &kind, &bytes);
    use_bit_type(p);
    bool is_float = kind == 'f';
    bool flushes = is_float && sim_ptx_take(p, "ftz");
    bool saturates = is_float && sim_ptx_take(p, "sat");
    if (is_float)
        take_precision(p);
    const struct sim_ptx_pure *pure = find_pure(p);
    if (!pure || (bytes == 2 && (flushes || saturates)))
        return false;
    uint32_t count = (uint32_t)strlen(pure->signature) - 1, src[4] = {NO, NO, NO, NO};
    if (!sim_ptx_expect_operands(p, count + 1, count + 1))
        return true;
    for (uint32_t k = 0; k < count; k++) {
        char letter = pure->signature[k + 1];
        src[k] = sim_ptx_source(p, &p->operands[k + 1], letter);
        if (flushes && letter == 'f') {
            uint32_t flushed = sim_ptx_temporary(p);
            emit_1(p, sim_ptx_flush_f32, flushed, src[k]);
            src[k] = flushed;
        }
    }
    uint32_t d = sim_ptx_destination(p, &p->operands[0], pure->signature[0]);
    sim_ptx_emit_value(p, pure->value, d, src[0], src[1], src[2], src[3]);
    if (saturates)
        emit_1(p, bytes == 4 ? sim_ptx_saturate_f32 : sim_ptx_saturate_f64, d, d);
    if (flushes && pure->signature[0] == 'f')
        emit_1(p, sim_ptx_flush_f32, d, d);
    return true;
}

// mov.b64 {a, b}, c and mov.b64 c, {a, b}
static void build_vector_move(struct sim_ptx_parser *p, uint32_t bytes) {
    bool packs = p->operands[1].kind == SIM_PTX_OPERAND_VECTOR;
    const struct sim_ptx_operand *vector = &p->operands[packs ? 1 : 0];
    const struct sim_ptx_operand *whole = &p->operands[packs ? 0 : 1];
    uint32_t part_bytes = vector->element_count ? bytes / vector->element_count : 0;
    if (vector->element_count < 2 || part_bytes * vector->element_count != bytes ||
        whole->kind == SIM_PTX_OPERAND_VECTOR) {
        sim_ptx_unknown(p);
        return;
    }
    char letter = sim_ptx_letter('b', bytes), part_letter = sim_ptx_letter('b', part_bytes);
    uint32_t all = sim_ptx_temporary(p), bits = sim_ptx_constant(p, 8 * part_bytes);
    emit_1(p, sim_ptx_same, all, packs ? NO : sim_ptx_source(p, whole, letter));
    for (uint32_t k = 0; k < vector->element_count; k++) {
        const struct sim_ptx_operand *part = &p->elements[vector->elements + k];
        uint32_t first = sim_ptx_constant(p, 8ull * part_bytes * k);
        if (packs)
            sim_ptx_emit_value(p, sim_ptx_put_bits, all, all, bits, first,
                               sim_ptx_source(p, part, part_letter));
        else if (part->kind != SIM_PTX_OPERAND_SINK)
            sim_ptx_emit_value(p, sim_ptx_take_bits, sim_ptx_destination(p, part, part_letter), all,
                               bits, first, NO);
    }
    if (packs)
        emit_1(p, sim_ptx_same, sim_ptx_destination(p, whole, letter), all);
}

static bool build_move(struct sim_ptx_parser *p) {
    char kind;
    uint32_t bytes;
    if (!base_is(p, "mov") || p->opcode.count != 1 || !last_type(p, &kind, &bytes) ||
        !sim_ptx_expect_operands(p, 2, 2))
        return false;
    if (p->operands[0].kind == SIM_PTX_OPERAND_VECTOR ||
        p->operands[1].kind == SIM_PTX_OPERAND_VECTOR) {
        build_vector_move(p, bytes);
        return true;
    }
    return false;  // a pure one
}

// The comparison itself, into a new predicate. Its name ends in the operands' type.
static uint32_t build_comparison(struct sim_ptx_parser *p, struct sim_ptx_text compare,
                                 struct sim_ptx_text type, bool flushes) {
    struct sim_ptx_text parts[3] = {sim_ptx_text_of("setp"), compare, type};
    char key[KEY_BYTES_MAX];
    const struct sim_ptx_pure *pure = join(key, parts, 3) ? sim_ptx_pure_named(p, key) : NULL;
    if (!pure) {
        sim_ptx_unknown(p);
        return NO;
    }
    uint32_t src[2];
    for (int k = 0; k < 2; k++) {
        src[k] = sim_ptx_source(p, &p->operands[k + 1], pure->signature[k + 1]);
        if (flushes && pure->signature[k + 1] == 'f') {
            uint32_t flushed = sim_ptx_temporary(p);
            emit_1(p, sim_ptx_flush_f32, flushed, src[k]);
            src[k] = flushed;
        }
    }
    uint32_t result = sim_ptx_temporary(p);
    sim_ptx_emit_value(p, pure->value, result, src[0], src[1], NO, NO);
    return result;
}

// setp.lt.and.s32 p|q, a, b, c and set.lt.u32.s32 d, a, b. A plain setp is a pure one.
static bool build_set(struct sim_ptx_parser *p) {
    bool is_set = base_is(p, "set");
    bool is_plain = !is_set && p->operand_count == 3 && !p->operands[0].has_second;
    if ((!is_set && !base_is(p, "setp")) || is_plain)
        return false;
    bool flushes = sim_ptx_take(p, "ftz");
    static const char *const combines[][2] = {
        {"and", "and.pred"}, {"or", "or.pred"}, {"xor", "xor.pred"}};
    const char *combine = NULL;
    for (int k = 0; k < 3 && !combine; k++)
        if (sim_ptx_take(p, combines[k][0]))
            combine = combines[k][1];
    const struct sim_ptx_opcode *o = &p->opcode;
    if (o->count != (is_set ? 3u : 2u) ||
        !sim_ptx_expect_operands(p, combine ? 4 : 3, combine ? 4 : 3))
        return false;
    uint32_t result = build_comparison(p, o->qualifiers[0], o->qualifiers[o->count - 1], flushes);
    uint32_t opposite = sim_ptx_temporary(p);
    emit_named(p, "not.pred", opposite, result, NO, NO);
    if (combine) {
        uint32_t with = sim_ptx_source(p, &p->operands[3], 'p');
        uint32_t saved = sim_ptx_temporary(p);  // `with` may be a destination
        emit_1(p, sim_ptx_same, saved, with);
        emit_named(p, combine, result, result, saved, NO);
        emit_named(p, combine, opposite, opposite, saved, NO);
    }
    if (!is_set) {
        uint32_t d = sim_ptx_destination(p, &p->operands[0], 'p');
        emit_1(p, sim_ptx_same, d, result);
        if (p->operands[0].has_second)
            emit_1(p, sim_ptx_same, p->operands[0].second, opposite);
        return true;
    }
    char kind;
    uint32_t bytes;
    if (!sim_ptx_type_of(o->qualifiers[1], &kind, &bytes) || bytes != 4 || kind == 'b')
        return false;
    uint32_t yes = sim_ptx_constant(p, kind == 'f' ? 0x3f800000 : UINT32_MAX);
    emit_named(p, "selp.b32", sim_ptx_destination(p, &p->operands[0], sim_ptx_letter(kind, 4)), yes,
               NO, result);
    return true;
}

// The product of mad and madc, in a new register.
static uint32_t build_product(struct sim_ptx_parser *p, struct sim_ptx_text type, char letter) {
    struct sim_ptx_text parts[3] = {sim_ptx_text_of("mul"), sim_ptx_text_of("lo"), type};
    if (sim_ptx_take(p, "hi"))
        parts[1] = sim_ptx_text_of("hi");
    else if (!sim_ptx_take(p, "lo"))
        sim_ptx_unknown(p);
    char key[KEY_BYTES_MAX];
    uint32_t a = sim_ptx_source(p, &p->operands[1], letter);
    uint32_t b = sim_ptx_source(p, &p->operands[2], letter);
    uint32_t product = sim_ptx_temporary(p);
    if (join(key, parts, 3))
        emit_named(p, key, product, a, b, NO);
    return product;
}

// add.cc, addc, sub.cc, subc, mad.cc, madc: the carry flag is a register of the function.
static bool build_carry(struct sim_ptx_parser *p) {
    bool takes = base_is(p, "addc") || base_is(p, "subc") || base_is(p, "madc");
    bool is_mad = base_is(p, "mad") || base_is(p, "madc");
    bool is_sub = base_is(p, "sub") || base_is(p, "subc");
    if (!takes && !is_mad && !is_sub && !base_is(p, "add"))
        return false;
    bool gives = sim_ptx_take(p, "cc");
    char kind;
    uint32_t bytes;
    if (!(takes || gives) || !last_type(p, &kind, &bytes) || (bytes != 4 && bytes != 8) ||
        kind == 'f')
        return false;
    if (!sim_ptx_expect_operands(p, is_mad ? 4 : 3, is_mad ? 4 : 3))
        return true;
    char letter = sim_ptx_letter('b', bytes);
    uint32_t a, b;
    if (is_mad) {
        a = build_product(p, p->opcode.qualifiers[p->opcode.count - 1], letter);
        b = sim_ptx_source(p, &p->operands[3], letter);
    } else {
        a = sim_ptx_source(p, &p->operands[1], letter);
        b = sim_ptx_source(p, &p->operands[2], letter);
    }
    if (p->opcode.count != 1) {
        sim_ptx_unknown(p);
        return true;
    }
    if (p->carry == UINT32_MAX)
        p->carry = sim_ptx_new_register(p);
    uint32_t in = takes ? p->carry : NO, out = sim_ptx_temporary(p);
    bool wide = bytes == 8;
    sim_ptx_value *carry = wide ? sim_ptx_carry_8 : sim_ptx_carry_4;
    sim_ptx_value *value = wide ? sim_ptx_add_carry_8 : sim_ptx_add_carry_4;
    if (is_sub) {
        carry = wide ? sim_ptx_borrow_8 : sim_ptx_borrow_4;
        value = wide ? sim_ptx_sub_borrow_8 : sim_ptx_sub_borrow_4;
    }
    if (gives)
        sim_ptx_emit_value(p, carry, out, a, b, in, NO);
    sim_ptx_emit_value(p, value, sim_ptx_destination(p, &p->operands[0], letter), a, b, in, NO);
    if (gives)
        emit_1(p, sim_ptx_same, p->carry, out);
    return true;
}

// The rounding of cvt. Returns false for one that the types do not allow.
static bool take_rounding(struct sim_ptx_parser *p, struct sim_ptx_conversion *c) {
    static const char modes[] = "nzmp";
    for (int k = 0; k < 4; k++) {
        char plain[3] = {'r', modes[k], '\0'}, integral[4] = {'r', modes[k], 'i', '\0'};
        bool is_integral = sim_ptx_take(p, integral);
        if (!is_integral && !sim_ptx_take(p, plain))
            continue;
        c->rounding = modes[k];
        c->is_integral = is_integral;
    }
    bool to_float = c->to == 'f', from_float = c->from == 'f';
    if (!to_float && !from_float)
        return c->rounding == 0;
    if (!to_float)
        return c->is_integral;
    bool is_narrowing = !from_float || c->to_bytes < c->from_bytes;
    if (is_narrowing)
        return c->rounding != 0 && !c->is_integral;
    return c->rounding == 0 || c->to_bytes == c->from_bytes;
}

static bool build_convert(struct sim_ptx_parser *p) {
    if (!base_is(p, "cvt"))
        return false;
    struct sim_ptx_conversion c = {0};
    uint32_t to_bytes, from_bytes, n = p->opcode.count;
    if (n < 2 || !sim_ptx_type_of(p->opcode.qualifiers[n - 2], &c.to, &to_bytes) ||
        !last_type(p, &c.from, &from_bytes) || !sim_ptx_expect_operands(p, 2, 2))
        return false;
    c.to_bytes = (uint8_t)to_bytes;
    c.from_bytes = (uint8_t)from_bytes;
    c.saturates = sim_ptx_take(p, "sat");
    c.flushes = sim_ptx_take(p, "ftz");
    if (!take_rounding(p, &c) || p->opcode.count != 2 || !strchr("usf", c.to) ||
        !strchr("usf", c.from))
        return false;
    const struct sim_ptx_operand *d = &p->operands[0], *a = &p->operands[1];
    bool d_fits = d->kind != SIM_PTX_OPERAND_REGISTER || d->bytes >= to_bytes;
    bool a_fits = a->kind != SIM_PTX_OPERAND_REGISTER || a->bytes >= from_bytes;
    if (!d_fits || !a_fits)
        sim_ptx_fail(p, p->opcode.line, "register smaller than the type:", p->opcode.whole, "");
    c.d_bytes = d->kind == SIM_PTX_OPERAND_REGISTER ? d->bytes : c.to_bytes;
    uint32_t a_bytes = a->kind == SIM_PTX_OPERAND_REGISTER ? a->bytes : from_bytes;
    char a_letter = sim_ptx_letter(c.from == 'f' && a_bytes == from_bytes ? 'f' : 'b', a_bytes);
    uint32_t source = sim_ptx_source(p, a, a_letter);
    uint32_t how = sim_ptx_own_constant(p, sim_ptx_conversion(&c));
    sim_ptx_emit_value(p, sim_ptx_convert,
                       sim_ptx_destination(p, d, sim_ptx_letter('b', c.d_bytes)), source, NO, NO,
                       how);
    return true;
}

bool sim_ptx_build_value(struct sim_ptx_parser *p) {
    return build_move(p) || build_set(p) || build_carry(p) || build_convert(p) || build_pure(p) ||
           sim_ptx_failed(p);
}
