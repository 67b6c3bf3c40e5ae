// What all parts of the parser use: errors, tokens, growing arrays, emission.
#include "parser.h"

#include <errno.h>
#include <stdlib.h>

#define QUOTE_BYTES_MAX 80  // of the text, in the log

// Appends to the log as far as it has room.
static void log_add(char *log, const char *text, size_t bytes) {
    size_t have = strlen(log);
    size_t room = SIM_PTX_LOG_BYTES - 1 - have;
    if (bytes > room)
        bytes = room;
    for (size_t k = 0; k < bytes; k++)
        log[have + k] = text[k] >= ' ' && text[k] <= '~' ? text[k] : '?';
    log[have + bytes] = '\0';
}

static void log_add_number(char *log, uint32_t number) {
    char digits[10];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    log_add(log, digits + at, sizeof(digits) - at);
}

struct sim_ptx_text sim_ptx_text_of(const char *word) {
    return (struct sim_ptx_text){word, (uint32_t)strlen(word)};
}

static void stop(struct sim_ptx_parser *p, int code) {
    p->code = code;
    p->token = (struct sim_ptx_token){.kind = SIM_PTX_END, .line = p->token.line};
    p->token.text = (struct sim_ptx_text){p->lexer.end, 0};
    p->lexer.at = p->lexer.end;
}

void sim_ptx_fail(struct sim_ptx_parser *p, uint32_t line, const char *what,
                  struct sim_ptx_text quote, const char *more) {
    if (sim_ptx_failed(p))
        return;
    if (p->log) {
        log_add(p->log, "line ", 5);
        log_add_number(p->log, line ? line : p->token.line);
        log_add(p->log, ": ", 2);
        log_add(p->log, what, strlen(what));
        if (quote.bytes > 0) {
            log_add(p->log, " '", 2);
            log_add(p->log, quote.at,
                    quote.bytes < QUOTE_BYTES_MAX ? quote.bytes : QUOTE_BYTES_MAX);
            log_add(p->log, "'", 1);
        }
        log_add(p->log, more, strlen(more));
    }
    stop(p, SIM_PTX_INVALID_PTX);
}

void sim_ptx_fail_memory(struct sim_ptx_parser *p) {
    if (sim_ptx_failed(p))
        return;
    if (p->log)
        log_add(p->log, "out of host memory", 18);
    stop(p, SIM_PTX_OUT_OF_MEMORY);
}

void sim_ptx_unexpected(struct sim_ptx_parser *p, const char *wanted) {
    if (sim_ptx_failed(p))
        return;
    if (p->token.kind == SIM_PTX_END) {
        sim_ptx_fail(p, 0, "the text ends where there should be ", (struct sim_ptx_text){0},
                     wanted);
        return;
    }
    sim_ptx_fail(p, 0, "unexpected", p->token.text, wanted[0] ? ", expected " : "");
    if (p->log)
        log_add(p->log, wanted, strlen(wanted));
}

void sim_ptx_advance(struct sim_ptx_parser *p) {
    if (!sim_ptx_failed(p))
        sim_ptx_lex(&p->lexer, &p->token);
}

bool sim_ptx_at(const struct sim_ptx_parser *p, char punctuation) {
    return p->token.kind == SIM_PTX_PUNCTUATION && p->token.punctuation == punctuation;
}

bool sim_ptx_at_dot(const struct sim_ptx_parser *p, const char *word) {
    return p->token.kind == SIM_PTX_DOT && sim_ptx_text_is(p->token.text, word);
}

bool sim_ptx_accept(struct sim_ptx_parser *p, char punctuation) {
    bool is_there = sim_ptx_at(p, punctuation);
    if (is_there)
        sim_ptx_advance(p);
    return is_there;
}

bool sim_ptx_accept_dot(struct sim_ptx_parser *p, const char *word) {
    bool is_there = sim_ptx_at_dot(p, word);
    if (is_there)
        sim_ptx_advance(p);
    return is_there;
}

void sim_ptx_expect(struct sim_ptx_parser *p, char punctuation) {
    char wanted[4] = {'\'', punctuation, '\'', '\0'};
    if (!sim_ptx_accept(p, punctuation))
        sim_ptx_unexpected(p, wanted);
}

struct sim_ptx_text sim_ptx_expect_name(struct sim_ptx_parser *p) {
    struct sim_ptx_text name = p->token.text;
    if (p->token.kind != SIM_PTX_NAME)
        sim_ptx_unexpected(p, "a name");
    sim_ptx_advance(p);
    return name;
}

uint64_t sim_ptx_expect_integer(struct sim_ptx_parser *p, uint64_t max) {
    uint64_t value = p->token.integer;
    if (p->token.kind != SIM_PTX_INTEGER)
        sim_ptx_unexpected(p, "a number");
    else if (value > max)
        sim_ptx_fail(p, 0, "number too large:", p->token.text, "");
    sim_ptx_advance(p);
    return sim_ptx_failed(p) ? 0 : value;
}

void sim_ptx_skip_line(struct sim_ptx_parser *p) {
    uint32_t line = p->token.line;
    while (p->token.kind != SIM_PTX_END && p->token.line == line)
        sim_ptx_advance(p);
}

void *sim_ptx_append(struct sim_ptx_parser *p, void *array_pointer, uint32_t *count, size_t size,
                     uint32_t max, const char *what) {
    char *array;
    memcpy(&array, array_pointer, sizeof(array));
    if (sim_ptx_failed(p))
        return NULL;
    if (*count >= max) {
        sim_ptx_fail(p, 0, "too many ", (struct sim_ptx_text){0}, what);
        return NULL;
    }
    if ((*count & (*count - 1)) == 0) {
        array = realloc(array, (*count ? (size_t)*count * 2 : 1) * size);
        if (!array) {
            sim_ptx_fail_memory(p);
            return NULL;
        }
        memcpy(array_pointer, &array, sizeof(array));
    }
    return memset(array + (size_t)(*count)++ * size, 0, size);
}

struct sim_ptx_symbol *sim_ptx_declare(struct sim_ptx_parser *p, bool in_module,
                                       struct sim_ptx_text name, enum sim_ptx_symbol_kind kind) {
    if (sim_ptx_failed(p))
        return NULL;
    struct sim_ptx_symbol *symbol;
    uint32_t scope = in_module ? 0 : p->symbols.depth - 1;
    switch (sim_ptx_symbol_add(&p->symbols, scope, name, &symbol)) {
    case 0:
        symbol->kind = kind;
        return symbol;
    case EEXIST:
        sim_ptx_fail(p, 0, "declared twice:", name, "");
        return NULL;
    case ENOSPC:
        sim_ptx_fail(p, 0, "too many names, at", name, "");
        return NULL;
    default:
        sim_ptx_fail_memory(p);
        return NULL;
    }
}

bool sim_ptx_type_of(struct sim_ptx_text text, char *kind, uint32_t *bytes) {
    static const struct {
        const char *name;
        uint8_t bytes;
    } types[] = {
        {"b32", 4}, {"b64", 8}, {"u32", 4}, {"u64", 8},  {"s32", 4}, {"s64", 8},
        {"f32", 4}, {"f64", 8}, {"b8", 1},  {"b16", 2},  {"u8", 1},  {"u16", 2},
        {"s8", 1},  {"s16", 2}, {"f16", 2}, {"pred", 0},
    };
    for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
        if (sim_ptx_text_is(text, types[k].name)) {
            *kind = types[k].name[0];
            *bytes = types[k].bytes;
            return true;
        }
    }
    return false;
}

struct sim_ptx_insn *sim_ptx_emit(struct sim_ptx_parser *p) {
    struct sim_ptx_module *m = p->module;
    struct sim_ptx_insn *i = sim_ptx_append(p, &m->code, &m->code_count, sizeof(*i),
                                            SIM_PTX_INSNS_MAX, "instructions in this module");
    if (!i)
        i = &p->nowhere;
    *i = (struct sim_ptx_insn){.guard = SIM_PTX_OPERAND_ONE, .line = p->opcode.line};
    for (int k = 0; k < 4; k++)
        i->src[k] = SIM_PTX_OPERAND_ZERO;
    return i;
}

void sim_ptx_emit_value(struct sim_ptx_parser *p, sim_ptx_value *value, uint32_t d, uint32_t a,
                        uint32_t b, uint32_t c, uint32_t e) {
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->value = value;
    i->count = e != SIM_PTX_OPERAND_ZERO ? 4 : c != SIM_PTX_OPERAND_ZERO ? 3 : 2;
    i->d = d;
    i->src[0] = a;
    i->src[1] = b;
    i->src[2] = c;
    i->src[3] = e;
}

// A new slot of the frame with its first value.
static uint32_t new_slot(struct sim_ptx_parser *p, uint64_t value) {
    struct sim_ptx_module *m = p->module;
    if (sim_ptx_failed(p))
        return SIM_PTX_OPERAND_ZERO;
    struct sim_ptx_function *f = &m->functions[p->function];
    if (f->slots == SIM_PTX_SLOTS_MAX) {
        sim_ptx_fail(p, 0, "too many registers in this function", (struct sim_ptx_text){0}, "");
        return SIM_PTX_OPERAND_ZERO;
    }
    uint64_t *slot = sim_ptx_append(p, &m->slots, &m->slot_count, sizeof(*slot),
                                    4 * SIM_PTX_INSNS_MAX, "registers in this module");
    if (!slot)
        return SIM_PTX_OPERAND_ZERO;
    *slot = value;
    return f->slots++ * 8;
}

uint32_t sim_ptx_own_constant(struct sim_ptx_parser *p, uint64_t value) {
    return new_slot(p, value);
}

uint32_t sim_ptx_new_register(struct sim_ptx_parser *p) {
    return new_slot(p, 0);
}

uint32_t sim_ptx_constant(struct sim_ptx_parser *p, uint64_t value) {
    if (value < 2)
        return value ? SIM_PTX_OPERAND_ONE : SIM_PTX_OPERAND_ZERO;
    const struct sim_ptx_module *m = p->module;
    uint32_t *recent = &p->recent[value * 0x9e3779b97f4a7c15ull >> 56];
    if (*recent == SIM_PTX_OPERAND_ZERO ||
        m->slots[m->functions[p->function].image + *recent / 8] != value)
        *recent = new_slot(p, value);
    return *recent;
}

void sim_ptx_begin_frame(struct sim_ptx_parser *p) {
    struct sim_ptx_function *f = &p->module->functions[p->function];
    f->image = p->module->slot_count;
    f->slots = 0;
    new_slot(p, 0);  // SIM_PTX_OPERAND_ZERO
    new_slot(p, 1);  // SIM_PTX_OPERAND_ONE
    memset(p->recent, 0, sizeof(p->recent));
}

uint32_t sim_ptx_temporary(struct sim_ptx_parser *p) {
    if (p->temporaries_used == SIM_PTX_TEMPORARIES_MAX) {
        sim_ptx_fail(p, p->opcode.line, "too many operands:", p->opcode.whole, "");
        return 0;
    }
    if (p->temporaries_used == p->temporary_count)
        p->temporaries[p->temporary_count++] = sim_ptx_new_register(p);
    return p->temporaries[p->temporaries_used++];
}

static int compare_pure(const void *name, const void *entry) {
    return strcmp(name, (*(const struct sim_ptx_pure *const *)entry)->name);
}

const struct sim_ptx_pure *sim_ptx_pure_named(const struct sim_ptx_parser *p, const char *name) {
    const struct sim_ptx_pure **found =
        bsearch(name, p->pure, p->pure_count, sizeof(*p->pure), compare_pure);
    return found ? *found : NULL;
}
