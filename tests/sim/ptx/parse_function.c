// Function headers: name, parameters, results and the directives that follow them.
//
// A kernel's parameters lie in the launch's buffer; those of other functions in the frame, and are
// copied there by the call.
#include "parser.h"

#include <stdlib.h>

static uint64_t align_up(uint64_t value, uint32_t align) {
    return (value + align - 1) & ~(uint64_t)(align - 1);
}

uint32_t sim_ptx_frame_place(struct sim_ptx_parser *p, uint64_t bytes, uint32_t align) {
    if (sim_ptx_failed(p))
        return 0;
    struct sim_ptx_function *f = &p->module->functions[p->function];
    uint64_t at = align_up(p->frame_used, align);
    if (bytes > SIM_PTX_LOCAL_BYTES_MAX || at + bytes > SIM_PTX_LOCAL_BYTES_MAX) {
        sim_ptx_fail(p, 0, "too much local memory", (struct sim_ptx_text){0}, "");
        return 0;
    }
    p->frame_used = (uint32_t)(at + bytes);
    if (f->frame_bytes < p->frame_used)
        f->frame_bytes = p->frame_used;
    return (uint32_t)at;
}

static void place_formal(struct sim_ptx_parser *p, const struct sim_ptx_declarator *d,
                         bool is_register, bool is_param) {
    struct sim_ptx_module *m = p->module;
    struct sim_ptx_formal *formal = sim_ptx_append(p, &m->formals, &m->formal_count,
                                                   sizeof(*formal), UINT32_MAX / 64, "parameters");
    if (!formal)
        return;
    struct sim_ptx_function *f = &m->functions[p->function];
    formal->place = (struct sim_ptx_param){.bytes = (uint32_t)d->bytes, .align = d->align};
    formal->is_register = is_register;
    enum sim_ptx_symbol_kind kind = SIM_PTX_SYMBOL_REGISTER;
    if (is_register) {
        formal->reg = sim_ptx_new_register(p);
    } else if (f->is_entry) {
        kind = SIM_PTX_SYMBOL_PARAM;
        uint64_t at = align_up(f->info.params_bytes, d->align);
        if (at + d->bytes > SIM_PTX_PARAM_BYTES_MAX)
            sim_ptx_fail(p, 0, "too many bytes of parameters", d->name, "");
        formal->place.offset = (uint32_t)at;
        f->info.params_bytes = (uint32_t)(at + d->bytes);
    } else {
        kind = SIM_PTX_SYMBOL_FRAME_PARAM;
        formal->place.offset = sim_ptx_frame_place(p, d->bytes, d->align);
    }
    if (is_param)
        f->info.param_count++;
    else
        f->returns_count++;
    if (sim_ptx_text_is(d->name, "_"))
        return;
    uint32_t index = is_register ? formal->reg : formal->place.offset;
    struct sim_ptx_symbol *symbol = sim_ptx_declare(p, false, d->name, kind);
    if (symbol) {
        symbol->index = index;
        symbol->bytes = (uint8_t)d->element_bytes;
        symbol->count = (uint32_t)d->bytes;
    }
}

// ( .param .u32 a, ... )
static void parse_formals(struct sim_ptx_parser *p, bool is_param) {
    bool is_entry = p->module->functions[p->function].is_entry;
    uint32_t count = 0;
    sim_ptx_expect(p, '(');
    if (sim_ptx_accept(p, ')'))
        return;
    do {
        bool is_register = !is_entry && sim_ptx_accept_dot(p, "reg");
        if (!is_register && !sim_ptx_accept_dot(p, "param"))
            sim_ptx_unexpected(p, ".param");
        struct sim_ptx_declarator d;
        sim_ptx_parse_declarator(p, &d);
        if (++count > SIM_PTX_PARAMS_MAX || d.is_open || d.bytes > SIM_PTX_LOCAL_BYTES_MAX ||
            (d.type == 'p' && !is_register))
            sim_ptx_fail(p, 0, "bad parameter", d.name, "");
        if (sim_ptx_failed(p))
            return;
        place_formal(p, &d, is_register, is_param);
    } while (sim_ptx_accept(p, ','));
    sim_ptx_expect(p, ')');
}

static uint32_t parse_dimensions(struct sim_ptx_parser *p, uint32_t block[3]) {
    uint64_t threads = 1;
    for (int k = 0; k < 3; k++) {
        block[k] = 1;
        if (k == 0 || sim_ptx_accept(p, ','))
            block[k] = (uint32_t)sim_ptx_expect_integer(p, SIM_PTX_BLOCK_THREADS_MAX);
        threads *= block[k];
    }
    if (threads == 0 || threads > SIM_PTX_BLOCK_THREADS_MAX)
        sim_ptx_fail(p, 0, "no such block:", p->token.text, "");
    return (uint32_t)threads;
}

// What stands between the parameters and the body.
static void parse_directives(struct sim_ptx_parser *p) {
    while (p->token.kind == SIM_PTX_DOT) {
        struct sim_ptx_function *f = &p->module->functions[p->function];
        uint32_t block[3];
        if (sim_ptx_accept_dot(p, "maxntid")) {
            f->info.threads_max = parse_dimensions(p, block);
        } else if (sim_ptx_accept_dot(p, "reqntid")) {
            f->info.threads_max = parse_dimensions(p, f->info.block_required);
        } else if (sim_ptx_accept_dot(p, "reqnctapercluster")) {
            parse_dimensions(p, f->info.cluster_required);
        } else if (sim_ptx_accept_dot(p, "explicitcluster")) {
            f->info.cluster_explicit = true;
        } else if (sim_ptx_accept_dot(p, "minnctapersm") || sim_ptx_accept_dot(p, "maxnctapersm") ||
                   sim_ptx_accept_dot(p, "maxnreg") || sim_ptx_accept_dot(p, "maxclusterrank")) {
            sim_ptx_expect_integer(p, UINT32_MAX);
        } else if (sim_ptx_accept_dot(p, "pragma")) {
            while (p->token.kind == SIM_PTX_STRING)
                sim_ptx_advance(p);
            sim_ptx_expect(p, ';');
        } else if (!sim_ptx_accept_dot(p, "noreturn")) {
            sim_ptx_unexpected(p, "the function's body");
        }
    }
}

// Finds the function's entry, or makes one. A definition may follow its declarations.
static bool open_function(struct sim_ptx_parser *p, struct sim_ptx_text name, bool is_entry) {
    struct sim_ptx_module *m = p->module;
    struct sim_ptx_symbol *symbol = sim_ptx_symbol_in(&p->symbols, 0, name);
    if (symbol && (symbol->kind != SIM_PTX_SYMBOL_FUNCTION ||
                   m->functions[symbol->index].is_entry != is_entry)) {
        sim_ptx_fail(p, 0, "declared twice:", name, "");
        return false;
    }
    if (symbol) {
        p->function = symbol->index;
        return true;
    }
    p->function = m->function_count;
    struct sim_ptx_function *f = sim_ptx_append(p, &m->functions, &m->function_count, sizeof(*f),
                                                SIM_PTX_FUNCTIONS_MAX, "functions in this module");
    if (!f)
        return false;
    f->index = p->function;
    f->is_entry = is_entry;
    f->info.name = strndup(name.at, name.bytes);
    if (!f->info.name)
        sim_ptx_fail_memory(p);
    symbol = sim_ptx_declare(p, true, name, SIM_PTX_SYMBOL_FUNCTION);
    if (symbol)
        symbol->index = p->function;
    return symbol != NULL;
}

// Forgets an earlier declaration's formals, so that the header that follows sets them.
static void reset_formals(struct sim_ptx_function *f, const struct sim_ptx_module *m) {
    f->formals = m->formal_count;
    f->info.param_count = f->info.params_bytes = f->returns_count = 0;
    f->frame_bytes = 0;
    f->info.threads_max = SIM_PTX_BLOCK_THREADS_MAX;
}

void sim_ptx_parse_function(struct sim_ptx_parser *p, bool is_entry, bool is_extern) {
    // The name comes after the results, which need the function: look ahead for it.
    struct sim_ptx_lexer lexer_before = p->lexer;
    struct sim_ptx_token token_before = p->token;
    bool has_returns = !is_entry && sim_ptx_at(p, '(');
    if (has_returns) {
        while (p->token.kind != SIM_PTX_END && !sim_ptx_at(p, ')'))
            sim_ptx_advance(p);
        sim_ptx_expect(p, ')');
    }
    uint32_t line = p->token.line;
    struct sim_ptx_text name = sim_ptx_expect_name(p);
    if (sim_ptx_failed(p) || !open_function(p, name, is_entry))
        return;
    if (p->module->functions[p->function].is_defined) {
        bool is_declaration = false;
        while (!sim_ptx_at(p, '{') && !is_declaration && p->token.kind != SIM_PTX_END)
            is_declaration = sim_ptx_accept(p, ';') || (sim_ptx_advance(p), false);
        if (!is_declaration)
            sim_ptx_fail(p, line, "defined twice:", name, "");
        return;
    }
    reset_formals(&p->module->functions[p->function], p->module);
    sim_ptx_begin_frame(p);
    p->frame_used = 0;
    sim_ptx_open_scope(p);
    if (has_returns) {
        struct sim_ptx_lexer lexer_after = p->lexer;
        struct sim_ptx_token token_after = p->token;
        p->lexer = lexer_before;
        p->token = token_before;
        parse_formals(p, false);
        if (!sim_ptx_failed(p)) {
            p->lexer = lexer_after;
            p->token = token_after;
        }
    }
    if (sim_ptx_at(p, '('))
        parse_formals(p, true);
    parse_directives(p);
    if (sim_ptx_at(p, '{') && !is_extern)
        sim_ptx_parse_body(p);
    else
        sim_ptx_expect(p, ';');
    sim_ptx_close_scope(p);
}
