// Variables: registers, module variables with their initial values, shared and frame variables.
#include "parser.h"

#include <stdlib.h>

#define ALIGN_MAX 65536u
#define SHARED_BYTES_MAX (1u << 30)  // of one declaration; what a launch may use is far less

static uint32_t parse_align(struct sim_ptx_parser *p) {
    uint64_t align = sim_ptx_expect_integer(p, ALIGN_MAX);
    if (align == 0 || (align & (align - 1)) != 0)
        sim_ptx_fail(p, 0, "an alignment is a power of two", (struct sim_ptx_text){0}, "");
    return sim_ptx_failed(p) ? 1 : (uint32_t)align;
}

static void parse_type(struct sim_ptx_parser *p, char *type, uint32_t *bytes) {
    *type = 'b';
    *bytes = 1;
    if (p->token.kind != SIM_PTX_DOT || !sim_ptx_type_of(p->token.text, type, bytes))
        sim_ptx_unexpected(p, "a type");
    sim_ptx_advance(p);
}

// .ptr and what may follow it say what a kernel's pointer refers to: of no consequence here.
static void skip_pointer(struct sim_ptx_parser *p) {
    if (!sim_ptx_accept_dot(p, "ptr"))
        return;
    while (p->token.kind == SIM_PTX_DOT) {
        if (sim_ptx_accept_dot(p, "align"))
            parse_align(p);
        else
            sim_ptx_advance(p);
    }
}

static void parse_dims(struct sim_ptx_parser *p, struct sim_ptx_declarator *d) {
    while (sim_ptx_accept(p, '[')) {
        if (d->dims == sizeof(d->dim) / sizeof(d->dim[0]) || d->is_open)
            sim_ptx_fail(p, 0, "too many dimensions:", d->name, "");
        if (sim_ptx_failed(p))
            return;
        if (sim_ptx_accept(p, ']')) {
            d->is_open = true;
            continue;
        }
        d->dim[d->dims] = (uint32_t)sim_ptx_expect_integer(p, SIM_PTX_VARIABLES_BYTES_MAX);
        d->bytes *= d->dim[d->dims++];
        if (d->bytes > SIM_PTX_VARIABLES_BYTES_MAX)
            sim_ptx_fail(p, 0, "too large:", d->name, "");
        sim_ptx_expect(p, ']');
    }
}

void sim_ptx_parse_declarator(struct sim_ptx_parser *p, struct sim_ptx_declarator *d) {
    *d = (struct sim_ptx_declarator){0};
    if (sim_ptx_accept_dot(p, "align"))
        d->align = parse_align(p);
    parse_type(p, &d->type, &d->element_bytes);
    skip_pointer(p);
    if (d->align < d->element_bytes || d->align == 0)
        d->align = d->element_bytes ? d->element_bytes : 1;
    d->line = p->token.line;
    d->name = sim_ptx_expect_name(p);
    d->bytes = d->element_bytes;
    parse_dims(p, d);
}

void sim_ptx_parse_registers(struct sim_ptx_parser *p) {
    char type;
    uint32_t bytes;
    parse_type(p, &type, &bytes);
    do {
        struct sim_ptx_text name = sim_ptx_expect_name(p);
        bool is_range = sim_ptx_accept(p, '<');
        uint32_t count = 0;
        if (is_range) {
            count = (uint32_t)sim_ptx_expect_integer(p, UINT32_MAX);
            sim_ptx_expect(p, '>');
        }
        struct sim_ptx_symbol *symbol = sim_ptx_declare(
            p, false, name, is_range ? SIM_PTX_SYMBOL_RANGE : SIM_PTX_SYMBOL_REGISTER);
        if (!symbol)
            return;
        symbol->bytes = (uint8_t)bytes;
        symbol->count = count;
        symbol->index = SIM_PTX_NO_SLOT;  // until it is used: many are not
    } while (sim_ptx_accept(p, ','));
    sim_ptx_expect(p, ';');
}

// Room for `bytes` of initial data at `offset` of a variable's; NULL after an error.
static uint8_t *data_at(struct sim_ptx_parser *p, struct sim_ptx_data *data, uint64_t offset,
                        uint64_t bytes) {
    uint64_t end = offset + bytes;
    if (end > data->capacity) {
        uint64_t capacity = data->capacity * 2 > end ? data->capacity * 2 : end + 16;
        if (p->initialised_bytes + end - data->bytes > SIM_PTX_INITIALISED_BYTES_MAX) {
            sim_ptx_fail(p, 0, "too much initial data", (struct sim_ptx_text){0}, "");
            return NULL;
        }
        uint8_t *at = realloc(data->at, capacity);
        if (!at) {
            sim_ptx_fail_memory(p);
            return NULL;
        }
        memset(at + data->capacity, 0, capacity - data->capacity);
        data->at = at;
        data->capacity = capacity;
    }
    if (end > data->bytes) {
        p->initialised_bytes += end - data->bytes;
        data->bytes = end;
    }
    return data->at + offset;
}

// sym, sym+4, generic(sym)+4: an address, with a mask where one byte of it is meant.
static void parse_symbol_value(struct sim_ptx_parser *p, uint32_t data, uint64_t offset,
                               uint32_t bytes, uint64_t mask) {
    struct sim_ptx_text name = sim_ptx_expect_name(p);
    if (sim_ptx_text_is(name, "generic") && sim_ptx_accept(p, '(')) {
        name = sim_ptx_expect_name(p);
        sim_ptx_expect(p, ')');
    }
    const struct sim_ptx_symbol *symbol = sim_ptx_symbol_in(&p->symbols, 0, name);
    if (!symbol ||
        (symbol->kind != SIM_PTX_SYMBOL_VARIABLE && symbol->kind != SIM_PTX_SYMBOL_FUNCTION)) {
        sim_ptx_fail(p, 0, "no variable or function:", name, "");
        return;
    }
    if (symbol->kind == SIM_PTX_SYMBOL_FUNCTION)
        p->module->functions[symbol->index].is_pointed_to = true;
    struct sim_ptx_data_fixup fixup = {
        .data = data,
        .offset = offset,
        .mask = mask,
        .symbol = symbol->index,
        .is_function = symbol->kind == SIM_PTX_SYMBOL_FUNCTION,
        .bytes = (uint8_t)bytes,
        .shift = (uint8_t)__builtin_ctzll(mask),
    };
    while (sim_ptx_at(p, '+') || sim_ptx_at(p, '-')) {
        bool is_negative = sim_ptx_at(p, '-');
        sim_ptx_advance(p);
        if (sim_ptx_accept(p, '-'))
            is_negative = !is_negative;
        uint64_t value = sim_ptx_expect_integer(p, INT64_MAX);
        fixup.addend += is_negative ? -value : value;
    }
    struct sim_ptx_data_fixup *place =
        sim_ptx_append(p, &p->data_fixups, &p->data_fixup_count, sizeof(*place), SIM_PTX_INSNS_MAX,
                       "addresses in initial values");
    if (place)
        *place = fixup;
}

// One element's initial value.
static void parse_value(struct sim_ptx_parser *p, const struct sim_ptx_declarator *d, uint32_t data,
                        uint64_t offset) {
    uint8_t *at = data_at(p, &p->data[data], offset, d->element_bytes);
    if (!at)
        return;
    bool is_negative = sim_ptx_accept(p, '-');
    if (!is_negative && p->token.kind == SIM_PTX_NAME) {
        parse_symbol_value(p, data, offset, d->element_bytes, UINT64_MAX);
        return;
    }
    struct sim_ptx_token t = p->token;
    sim_ptx_advance(p);
    uint64_t bits;
    if (t.kind == SIM_PTX_FLOAT && d->type == 'f') {
        double real = is_negative ? -t.real : t.real;
        bits = d->element_bytes == 2   ? sim_ptx_from_f16(real)
               : d->element_bytes == 4 ? sim_ptx_from_f32((float)real)
                                       : sim_ptx_from_f64(real);
        if (t.is_single && d->element_bytes == 4)
            bits = t.integer ^ (is_negative ? 1ull << 31 : 0);
    } else if (t.kind == SIM_PTX_INTEGER && d->type != 'f') {
        bits = is_negative ? -t.integer : t.integer;
        if (!is_negative && bits != 0 && sim_ptx_accept(p, '(')) {  // mask(symbol)
            parse_symbol_value(p, data, offset, d->element_bytes, bits);
            sim_ptx_expect(p, ')');
            return;
        }
    } else {
        sim_ptx_fail(p, t.line, "bad initial value", t.text, "");
        return;
    }
    memcpy(at, &bits, d->element_bytes);
}

// { ... } for the array of dimensions `level` and deeper that begins at `offset`.
static void parse_values(struct sim_ptx_parser *p, const struct sim_ptx_declarator *d,
                         uint32_t data, uint32_t level, uint64_t offset) {
    uint64_t item_bytes = d->element_bytes;
    for (uint32_t k = level + 1; k < d->dims; k++)
        item_bytes *= d->dim[k];
    // A list without inner braces may fill several dimensions.
    uint64_t end = offset + item_bytes * (level < d->dims ? d->dim[level] : 1);
    sim_ptx_expect(p, '{');
    if (sim_ptx_accept(p, '}'))
        return;
    do {
        bool is_list = sim_ptx_at(p, '{');
        if (is_list && level + 1 >= d->dims)
            sim_ptx_unexpected(p, "a value");
        uint64_t bytes = is_list ? item_bytes : d->element_bytes;
        if (offset + bytes > end)
            sim_ptx_fail(p, 0, "more initial values than elements:", d->name, "");
        if (sim_ptx_failed(p))
            return;
        if (is_list)
            parse_values(p, d, data, level + 1, offset);
        else
            parse_value(p, d, data, offset);
        offset += bytes;
    } while (sim_ptx_accept(p, ','));
    sim_ptx_expect(p, '}');
}

static void parse_initial(struct sim_ptx_parser *p, const struct sim_ptx_declarator *d,
                          uint32_t variable) {
    uint32_t index = p->data_count;
    struct sim_ptx_data *data = sim_ptx_append(p, &p->data, &p->data_count, sizeof(*data),
                                               SIM_PTX_VARIABLES_MAX, "initialised variables");
    if (!data)
        return;
    data->variable = variable;
    if (sim_ptx_at(p, '{'))
        parse_values(p, d, index, 0, 0);
    else
        parse_value(p, d, index, 0);
}

// name[] = { ... }: the outer dimension is the number of values, counted in a copy of the lexer.
static void close_array(struct sim_ptx_parser *p, struct sim_ptx_declarator *d) {
    struct sim_ptx_lexer lexer = p->lexer;
    struct sim_ptx_token t;
    uint32_t depth = 0, count = 0;
    do {
        sim_ptx_lex(&lexer, &t);
        bool is_mark = t.kind == SIM_PTX_PUNCTUATION;
        if (depth == 1 && (count == 0 || (is_mark && t.punctuation == ',')))
            count += !(is_mark && t.punctuation == '}');
        depth += is_mark && t.punctuation == '{';
        depth -= is_mark && t.punctuation == '}' && depth > 0;
    } while (t.kind != SIM_PTX_END && depth > 0);
    d->bytes = (uint64_t)d->element_bytes * count;
    d->dims = 1;
    d->dim[0] = count;
    if (d->bytes > SIM_PTX_VARIABLES_BYTES_MAX)
        sim_ptx_fail(p, 0, "too large:", d->name, "");
}

static void add_variable(struct sim_ptx_parser *p, const struct sim_ptx_declarator *d,
                         enum sim_ptx_space space) {
    struct sim_ptx_module *m = p->module;
    uint32_t index = m->variable_count;
    struct sim_ptx_symbol *symbol =
        sim_ptx_declare(p, p->symbols.depth == 1, d->name, SIM_PTX_SYMBOL_VARIABLE);
    struct sim_ptx_variable *v = sim_ptx_append(p, &m->variables, &m->variable_count, sizeof(*v),
                                                SIM_PTX_VARIABLES_MAX, "variables in this module");
    if (!symbol || !v)
        return;
    symbol->index = index;
    uint32_t align = d->align < SIM_PTX_VARIABLE_ALIGN ? SIM_PTX_VARIABLE_ALIGN : d->align;
    uint64_t at = (p->space_bytes[space] + align - 1) & ~(uint64_t)(align - 1);
    v->space = space;
    v->bytes = d->bytes;
    v->address = at;  // until it is placed
    v->name = strndup(d->name.at, d->name.bytes);
    if (!v->name)
        sim_ptx_fail_memory(p);
    p->space_bytes[space] = at + d->bytes;
    if (p->space_align[space] < align)
        p->space_align[space] = align;
    if (p->space_bytes[space] > SIM_PTX_VARIABLES_BYTES_MAX)
        sim_ptx_fail(p, d->line, "too large, with the variables before:", d->name, "");
    if (sim_ptx_accept(p, '='))
        parse_initial(p, d, index);
}

static void add_shared(struct sim_ptx_parser *p, const struct sim_ptx_declarator *d,
                       bool is_extern) {
    uint32_t index = p->shared_count;
    struct sim_ptx_symbol *symbol =
        sim_ptx_declare(p, p->symbols.depth == 1, d->name, SIM_PTX_SYMBOL_SHARED);
    struct sim_ptx_shared *s = sim_ptx_append(p, &p->shared, &p->shared_count, sizeof(*s),
                                              SIM_PTX_VARIABLES_MAX, "shared variables");
    if (!symbol || !s)
        return;
    symbol->index = index;
    *s = (struct sim_ptx_shared){d->bytes, 0, d->align, is_extern, UINT32_MAX, false};
    if (d->bytes > SHARED_BYTES_MAX)
        sim_ptx_fail(p, d->line, "too large:", d->name, "");
}

// After the word for the state space: `shared`, `global` or `const`.
void sim_ptx_parse_variable(struct sim_ptx_parser *p, const char *space, bool is_extern) {
    bool is_managed = false;
    if (sim_ptx_accept_dot(p, "attribute")) {
        sim_ptx_expect(p, '(');
        is_managed = sim_ptx_accept_dot(p, "managed");
        if (!is_managed)
            sim_ptx_unexpected(p, ".managed");
        sim_ptx_expect(p, ')');
    }
    struct sim_ptx_declarator d;
    sim_ptx_parse_declarator(p, &d);
    bool is_shared = strcmp(space, "shared") == 0;
    bool is_extern_shared = is_shared && (is_extern || d.is_open);
    if (d.type == 'p')
        sim_ptx_fail(p, d.line, "a predicate is no variable:", d.name, "");
    if (is_extern && !is_shared)
        sim_ptx_fail(p, d.line, "defined nowhere, and linking is not supported:", d.name, "");
    if (d.is_open && !is_extern_shared) {
        if (sim_ptx_at(p, '=') && d.dims == 0)
            close_array(p, &d);
        else
            sim_ptx_fail(p, d.line, "has no size:", d.name, "");
    }
    if (sim_ptx_failed(p))
        return;
    if (is_shared)
        add_shared(p, &d, is_extern_shared);
    else
        add_variable(p, &d,
                     is_managed                    ? SIM_PTX_MANAGED
                     : strcmp(space, "const") == 0 ? SIM_PTX_CONST
                                                   : SIM_PTX_GLOBAL);
    sim_ptx_expect(p, ';');
}
