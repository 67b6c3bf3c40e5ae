// Operands: what stands between an instruction's name and its semicolon, and how it becomes a
// register or constant.
#include "parser.h"

#include <errno.h>

static const struct {
    const char *name;
    uint16_t number;
    uint8_t bytes;
    bool is_vector;
} specials[] = {
    {"%tid", SIM_PTX_TID, 4, true},
    {"%ntid", SIM_PTX_NTID, 4, true},
    {"%ctaid", SIM_PTX_CTAID, 4, true},
    {"%nctaid", SIM_PTX_NCTAID, 4, true},
    {"%laneid", SIM_PTX_LANEID, 4, false},
    {"%warpid", SIM_PTX_WARPID, 4, false},
    {"%nwarpid", SIM_PTX_NWARPID, 4, false},
    {"%smid", SIM_PTX_SMID, 4, false},
    {"%nsmid", SIM_PTX_NSMID, 4, false},
    {"%gridid", SIM_PTX_GRIDID, 8, false},
    {"%lanemask_eq", SIM_PTX_LANEMASK_EQ, 4, false},
    {"%lanemask_le", SIM_PTX_LANEMASK_LE, 4, false},
    {"%lanemask_lt", SIM_PTX_LANEMASK_LT, 4, false},
    {"%lanemask_ge", SIM_PTX_LANEMASK_GE, 4, false},
    {"%lanemask_gt", SIM_PTX_LANEMASK_GT, 4, false},
    {"%clock", SIM_PTX_CLOCK, 4, false},
    {"%clock_hi", SIM_PTX_CLOCK_HI, 4, false},
    {"%clock64", SIM_PTX_CLOCK64, 8, false},
    {"%globaltimer", SIM_PTX_GLOBALTIMER, 8, false},
    {"%globaltimer_lo", SIM_PTX_GLOBALTIMER_LO, 4, false},
    {"%globaltimer_hi", SIM_PTX_GLOBALTIMER_HI, 4, false},
    {"%dynamic_smem_size", SIM_PTX_DYNAMIC_SMEM, 4, false},
    {"%total_smem_size", SIM_PTX_TOTAL_SMEM, 4, false},
};

static bool parse_special(struct sim_ptx_parser *p, struct sim_ptx_operand *o) {
    for (size_t k = 0; k < sizeof(specials) / sizeof(specials[0]); k++) {
        if (!sim_ptx_text_is(o->text, specials[k].name))
            continue;
        o->kind = SIM_PTX_OPERAND_SPECIAL;
        o->special = specials[k].number;
        o->bytes = specials[k].bytes;
        if (!specials[k].is_vector)
            return true;
        struct sim_ptx_text part = p->token.text;
        if (p->token.kind != SIM_PTX_DOT || part.bytes != 1 || !strchr("xyzw", part.at[0]))
            sim_ptx_unexpected(p, "a component .x, .y or .z");
        else
            o->special += part.at[0] == 'w' ? 3u : (uint32_t)(part.at[0] - 'x');
        sim_ptx_advance(p);
        return true;
    }
    return false;
}

// Where a name ends in digits, as in %r12: the number, and the length of what stands before.
static bool split_number(struct sim_ptx_text name, uint32_t *prefix_bytes, uint32_t *number) {
    uint32_t first = name.bytes;
    while (first > 0 && name.at[first - 1] >= '0' && name.at[first - 1] <= '9')
        first--;
    uint32_t digits = name.bytes - first;
    if (digits == 0 || digits > 8 || first == 0 || (digits > 1 && name.at[first] == '0'))
        return false;
    *prefix_bytes = first;
    *number = 0;
    for (uint32_t k = first; k < name.bytes; k++)
        *number = *number * 10 + (uint32_t)(name.at[k] - '0');
    return true;
}

const struct sim_ptx_symbol *sim_ptx_find(struct sim_ptx_parser *p, struct sim_ptx_text name) {
    if (sim_ptx_failed(p))
        return NULL;
    struct sim_ptx_symbol *exact = sim_ptx_symbol_find(&p->symbols, name);
    const struct sim_ptx_symbol *range = NULL;
    uint32_t prefix_bytes, number;
    if (split_number(name, &prefix_bytes, &number))
        range = sim_ptx_symbol_find(&p->symbols, (struct sim_ptx_text){name.at, prefix_bytes});
    if (range && (range->kind != SIM_PTX_SYMBOL_RANGE || number >= range->count))
        range = NULL;
    if (exact && !(range && range->scope > exact->scope)) {
        if (exact->kind == SIM_PTX_SYMBOL_REGISTER && exact->index == SIM_PTX_NO_SLOT)
            exact->index = sim_ptx_new_register(p);
        return exact->kind != SIM_PTX_SYMBOL_RANGE ? exact : NULL;
    }
    if (!range)
        return NULL;
    uint8_t bytes = range->bytes;
    struct sim_ptx_symbol *made;
    int err = sim_ptx_symbol_add(&p->symbols, range->scope, name, &made);
    if (err) {
        if (err == ENOMEM)
            sim_ptx_fail_memory(p);
        else
            sim_ptx_fail(p, 0, "too many names, at", name, "");
        return NULL;
    }
    made->kind = SIM_PTX_SYMBOL_REGISTER;
    made->bytes = bytes;
    made->index = sim_ptx_new_register(p);
    return made;
}

static void parse_name(struct sim_ptx_parser *p, struct sim_ptx_operand *o) {
    o->text = sim_ptx_expect_name(p);
    if (parse_special(p, o))
        return;
    if (sim_ptx_text_is(o->text, "_")) {
        o->kind = SIM_PTX_OPERAND_SINK;
        return;
    }
    if (sim_ptx_text_is(o->text, "WARP_SZ")) {
        o->kind = SIM_PTX_OPERAND_INTEGER;
        o->integer = SIM_PTX_WARP;
        return;
    }
    const struct sim_ptx_symbol *symbol = sim_ptx_find(p, o->text);
    if (!symbol) {
        o->kind = SIM_PTX_OPERAND_NAME;
        return;
    }
    o->symbol = *symbol;
    if (symbol->kind == SIM_PTX_SYMBOL_REGISTER) {
        o->kind = SIM_PTX_OPERAND_REGISTER;
        o->reg = symbol->index;
        o->bytes = symbol->bytes;
    } else if (symbol->kind <= SIM_PTX_SYMBOL_FRAME_PARAM) {
        o->kind = SIM_PTX_OPERAND_SYMBOL;
    } else {
        o->kind = SIM_PTX_OPERAND_NAME;
    }
}

static void parse_literal(struct sim_ptx_parser *p, struct sim_ptx_operand *o, bool is_negative) {
    const struct sim_ptx_token *t = &p->token;
    o->text = t->text;
    o->integer = t->integer;
    o->real = t->real;
    o->is_single = t->is_single;
    if (t->kind == SIM_PTX_INTEGER) {
        o->kind = SIM_PTX_OPERAND_INTEGER;
        if (is_negative)
            o->integer = -o->integer;
    } else if (t->kind == SIM_PTX_FLOAT) {
        o->kind = SIM_PTX_OPERAND_FLOAT;
        if (is_negative) {
            o->real = -o->real;
            o->integer ^= o->is_single ? 1ull << 31 : 1ull << 63;
        }
    } else {
        sim_ptx_unexpected(p, "an operand");
    }
    sim_ptx_advance(p);
}

// What may follow a base: + number or - number, any times.
static int64_t parse_offset(struct sim_ptx_parser *p) {
    uint64_t offset = 0;
    while (sim_ptx_at(p, '+') || sim_ptx_at(p, '-')) {
        bool is_negative = sim_ptx_accept(p, '-');
        if (!is_negative)
            sim_ptx_advance(p);
        if (sim_ptx_accept(p, '-'))
            is_negative = !is_negative;
        uint64_t value = sim_ptx_expect_integer(p, INT64_MAX);
        offset += is_negative ? -value : value;
    }
    return (int64_t)offset;
}

static void parse_address(struct sim_ptx_parser *p, struct sim_ptx_operand *o) {
    if (p->token.kind == SIM_PTX_NAME) {
        parse_name(p, o);
        if (o->kind != SIM_PTX_OPERAND_REGISTER && o->kind != SIM_PTX_OPERAND_SYMBOL)
            sim_ptx_fail(p, 0, "undeclared:", o->text, "");
    } else {
        bool is_negative = sim_ptx_accept(p, '-');
        parse_literal(p, o, is_negative);
        if (o->kind == SIM_PTX_OPERAND_FLOAT)
            sim_ptx_fail(p, 0, "no address:", o->text, "");
    }
    o->base = o->kind;
    o->kind = SIM_PTX_OPERAND_ADDRESS;
    o->offset = parse_offset(p);
    sim_ptx_expect(p, ']');
}

static void parse_vector(struct sim_ptx_parser *p, struct sim_ptx_operand *o) {
    o->kind = SIM_PTX_OPERAND_VECTOR;
    o->elements = p->element_count;
    do {
        struct sim_ptx_operand element = sim_ptx_parse_operand(p);
        if (element.kind == SIM_PTX_OPERAND_VECTOR || element.kind == SIM_PTX_OPERAND_ADDRESS ||
            o->element_count == SIM_PTX_VECTOR_MAX)
            sim_ptx_fail(p, 0, "bad vector operand", (struct sim_ptx_text){0}, "");
        if (sim_ptx_failed(p))
            return;
        p->elements[p->element_count++] = element;
        o->element_count++;
    } while (sim_ptx_accept(p, ','));
    sim_ptx_expect(p, '}');
}

struct sim_ptx_operand sim_ptx_parse_operand(struct sim_ptx_parser *p) {
    struct sim_ptx_operand o = {0};
    if (sim_ptx_accept(p, '[')) {
        parse_address(p, &o);
        return o;
    }
    if (sim_ptx_accept(p, '{')) {
        if (p->element_count + SIM_PTX_VECTOR_MAX <= sizeof(p->elements) / sizeof(p->elements[0]))
            parse_vector(p, &o);
        else
            sim_ptx_fail(p, 0, "too many operands", (struct sim_ptx_text){0}, "");
        return o;
    }
    o.is_negated = sim_ptx_accept(p, '!');
    bool is_negative = sim_ptx_accept(p, '-');
    if (is_negative || p->token.kind != SIM_PTX_NAME) {
        parse_literal(p, &o, is_negative);
        return o;
    }
    parse_name(p, &o);
    if (o.kind == SIM_PTX_OPERAND_SYMBOL)
        o.offset = parse_offset(p);
    if (sim_ptx_accept(p, '|')) {
        struct sim_ptx_operand second = {0};
        parse_name(p, &second);
        o.has_second = true;
        if (second.kind != SIM_PTX_OPERAND_SINK)
            o.second = sim_ptx_destination(p, &second, 'p');
        else
            o.second = sim_ptx_temporary(p);
    }
    return o;
}

void sim_ptx_parse_operands(struct sim_ptx_parser *p) {
    p->operand_count = p->element_count = 0;
    if (sim_ptx_accept(p, ';'))
        return;
    do {
        if (p->operand_count == SIM_PTX_OPERANDS_MAX)
            sim_ptx_fail(p, p->opcode.line, "too many operands:", p->opcode.whole, "");
        if (sim_ptx_failed(p))
            return;
        p->operands[p->operand_count++] = sim_ptx_parse_operand(p);
    } while (sim_ptx_accept(p, ','));
    sim_ptx_expect(p, ';');
}

static uint32_t bytes_of_letter(char letter) {
    switch (letter) {
    case '1':
        return 1;
    case '2':
    case 'h':
        return 2;
    case '4':
    case 'f':
        return 4;
    case '8':
    case 'd':
        return 8;
    default:
        return 0;  // a predicate
    }
}

char sim_ptx_letter(char kind, uint32_t bytes) {
    if (kind == 'p')
        return 'p';
    if (kind == 'f')
        return bytes == 2 ? 'h' : bytes == 4 ? 'f' : 'd';
    return (char)('0' + bytes);
}

static uint32_t literal(struct sim_ptx_parser *p, const struct sim_ptx_operand *o, char letter) {
    uint32_t bytes = bytes_of_letter(letter);
    bool is_float = letter == 'h' || letter == 'f' || letter == 'd';
    if (o->kind == SIM_PTX_OPERAND_INTEGER) {
        if (is_float)
            sim_ptx_fail(p, p->opcode.line, "an integer where a float should be:", o->text, "");
        if (bytes == 0)
            return sim_ptx_constant(p, o->integer != 0);
        return sim_ptx_constant(p, o->integer & UINT64_MAX >> (64 - 8 * bytes));
    }
    if (bytes == 4)
        return sim_ptx_constant(p, o->is_single ? o->integer : sim_ptx_from_f32((float)o->real));
    if (bytes == 8)
        return sim_ptx_constant(p, sim_ptx_from_f64(o->real));
    if (letter != 'h')
        sim_ptx_fail(p, p->opcode.line, "a float where an integer should be:", o->text, "");
    return sim_ptx_constant(p, sim_ptx_from_f16(o->real));
}

// The address of a variable or function, in its own space.
static uint32_t address_of(struct sim_ptx_parser *p, const struct sim_ptx_operand *o) {
    const struct sim_ptx_symbol *s = &o->symbol;
    uint64_t offset = (uint64_t)o->offset;
    bool is_shared = s->kind == SIM_PTX_SYMBOL_SHARED;
    if (s->kind == SIM_PTX_SYMBOL_PARAM)
        return sim_ptx_constant(p, s->index + offset);
    if (s->kind == SIM_PTX_SYMBOL_FUNCTION) {
        struct sim_ptx_use *use = sim_ptx_append(p, &p->calls, &p->call_use_count, sizeof(*use),
                                                 SIM_PTX_INSNS_MAX, "function addresses");
        if (use)
            *use = (struct sim_ptx_use){p->function, s->index};
        return sim_ptx_constant(p, SIM_PTX_CODE_WINDOW + 16ull * s->index);
    }
    if (s->kind == SIM_PTX_SYMBOL_FRAME || s->kind == SIM_PTX_SYMBOL_FRAME_PARAM) {
        uint32_t d = sim_ptx_temporary(p);
        struct sim_ptx_insn *i = sim_ptx_emit(p);
        i->run = sim_ptx_run_frame_address;
        i->d = d;
        i->offset = (int64_t)(s->index + offset);
        if (s->kind == SIM_PTX_SYMBOL_FRAME_PARAM)
            i->offset |= SIM_PTX_PARAM_IN_FRAME;
        return d;
    }
    uint32_t constant = sim_ptx_own_constant(p, offset);  // to be added to when all is placed
    struct sim_ptx_constant_fixup *fixup =
        sim_ptx_append(p, &p->constant_fixups, &p->constant_fixup_count, sizeof(*fixup),
                       4 * SIM_PTX_INSNS_MAX, "addresses in this module");
    if (fixup)
        *fixup = (struct sim_ptx_constant_fixup){
            p->module->functions[p->function].image + constant / 8, s->index, is_shared};
    struct sim_ptx_use *last =
        p->shared_use_count ? &p->shared_uses[p->shared_use_count - 1] : NULL;
    if (is_shared && !(last && last->user == p->function && last->used == s->index)) {
        struct sim_ptx_use *use =
            sim_ptx_append(p, &p->shared_uses, &p->shared_use_count, sizeof(*use),
                           4 * SIM_PTX_INSNS_MAX, "addresses in this module");
        if (use)
            *use = (struct sim_ptx_use){p->function, s->index};
    }
    return constant;
}

static uint32_t special_value(struct sim_ptx_parser *p, const struct sim_ptx_operand *o) {
    uint32_t d = sim_ptx_temporary(p);
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = sim_ptx_run_special;
    i->d = d;
    i->mode = (uint8_t)o->special;
    return d;
}

static void mismatch(struct sim_ptx_parser *p, const struct sim_ptx_operand *o) {
    sim_ptx_fail(p, p->opcode.line, "operand does not fit the instruction's type:", o->text, "");
}

uint32_t sim_ptx_source(struct sim_ptx_parser *p, const struct sim_ptx_operand *o, char letter) {
    uint32_t bytes = bytes_of_letter(letter);
    uint32_t value = SIM_PTX_OPERAND_ZERO;
    switch (o->kind) {
    case SIM_PTX_OPERAND_REGISTER:
        if (o->bytes != bytes)
            mismatch(p, o);
        value = o->reg;
        break;
    case SIM_PTX_OPERAND_INTEGER:
    case SIM_PTX_OPERAND_FLOAT:
        value = literal(p, o, letter);
        break;
    case SIM_PTX_OPERAND_SPECIAL:
        if (bytes < 2 || (o->bytes == 8) != (bytes == 8))
            mismatch(p, o);
        value = special_value(p, o);
        break;
    case SIM_PTX_OPERAND_SYMBOL:
        if (bytes < 4)
            mismatch(p, o);
        value = address_of(p, o);
        break;
    case SIM_PTX_OPERAND_NAME:
        sim_ptx_fail(p, p->opcode.line, "undeclared:", o->text, "");
        break;
    default:
        sim_ptx_fail(p, p->opcode.line, "bad operand of", p->opcode.whole, "");
    }
    if (o->is_negated) {
        if (letter != 'p')
            mismatch(p, o);
        uint32_t d = sim_ptx_temporary(p);
        const struct sim_ptx_pure *invert = sim_ptx_pure_named(p, "not.pred");
        sim_ptx_emit_value(p, invert->value, d, value, SIM_PTX_OPERAND_ZERO, SIM_PTX_OPERAND_ZERO,
                           SIM_PTX_OPERAND_ZERO);
        return d;
    }
    return value;
}

uint32_t sim_ptx_destination(struct sim_ptx_parser *p, const struct sim_ptx_operand *o,
                             char letter) {
    if (o->kind == SIM_PTX_OPERAND_SINK)
        return sim_ptx_temporary(p);
    if (o->kind == SIM_PTX_OPERAND_NAME)
        sim_ptx_fail(p, p->opcode.line, "undeclared:", o->text, "");
    else if (o->kind != SIM_PTX_OPERAND_REGISTER || o->is_negated)
        sim_ptx_fail(p, p->opcode.line, "the result goes to no register:", p->opcode.whole, "");
    else if (o->bytes != bytes_of_letter(letter))
        mismatch(p, o);
    return o->reg;
}

uint32_t sim_ptx_address(struct sim_ptx_parser *p, const struct sim_ptx_operand *o, uint8_t *space,
                         int64_t *offset) {
    *offset = o->offset;
    if (o->kind != SIM_PTX_OPERAND_ADDRESS) {
        sim_ptx_fail(p, p->opcode.line, "an address in brackets is missing:", p->opcode.whole, "");
        return SIM_PTX_OPERAND_ZERO;
    }
    if (o->base == SIM_PTX_OPERAND_REGISTER) {
        if (o->bytes != 8 && !(o->bytes == 4 && *space != SIM_PTX_AT_GENERIC))
            sim_ptx_fail(p, p->opcode.line, "no address:", o->text, "");
        return o->reg;
    }
    if (o->base == SIM_PTX_OPERAND_INTEGER)
        return sim_ptx_constant(p, o->integer);

    static const uint8_t space_of[] = {
        [SIM_PTX_SYMBOL_VARIABLE] = SIM_PTX_AT_GLOBAL,
        [SIM_PTX_SYMBOL_SHARED] = SIM_PTX_AT_SHARED,
        [SIM_PTX_SYMBOL_FUNCTION] = 0xff,
        [SIM_PTX_SYMBOL_PARAM] = SIM_PTX_AT_PARAM,
        [SIM_PTX_SYMBOL_FRAME] = SIM_PTX_AT_LOCAL,
        [SIM_PTX_SYMBOL_FRAME_PARAM] = SIM_PTX_AT_PARAM,
    };
    uint8_t lies_in = o->base == SIM_PTX_OPERAND_SYMBOL ? space_of[o->symbol.kind] : 0xff;
    bool is_generic_global = *space == SIM_PTX_AT_GENERIC && lies_in == SIM_PTX_AT_GLOBAL;
    if (lies_in != *space && !is_generic_global) {
        sim_ptx_fail(p, p->opcode.line, "not in the instruction's state space:", o->text, "");
        return SIM_PTX_OPERAND_ZERO;
    }
    if (o->symbol.kind == SIM_PTX_SYMBOL_VARIABLE || o->symbol.kind == SIM_PTX_SYMBOL_SHARED) {
        struct sim_ptx_operand variable = *o;
        variable.offset = 0;
        return address_of(p, &variable);
    }
    *offset += o->symbol.index;
    if (o->symbol.kind != SIM_PTX_SYMBOL_PARAM)
        *space = SIM_PTX_AT_FRAME;
    return SIM_PTX_OPERAND_ZERO;
}
