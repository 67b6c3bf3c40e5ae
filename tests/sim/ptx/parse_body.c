// Function bodies: scopes, declarations, labels and guarded instructions.
//
// An instruction may become several. One that is guarded is then preceded by a branch over all of
// them; one that stays single carries the guard itself.
#include "parser.h"

void sim_ptx_open_scope(struct sim_ptx_parser *p) {
    if (sim_ptx_failed(p))
        return;
    if (sim_ptx_scope_open(&p->symbols) != 0) {
        sim_ptx_fail(p, 0, "blocks nested too deep", (struct sim_ptx_text){0}, "");
        return;
    }
    uint32_t scope = p->symbols.depth - 1;
    p->scopes[scope].frame_used = p->frame_used;
    p->scopes[scope].label_use_count = p->label_use_count;
}

// Binds the uses of this scope's labels; the other uses are then those of the scope around it.
void sim_ptx_close_scope(struct sim_ptx_parser *p) {
    if (sim_ptx_failed(p))
        return;
    struct sim_ptx_module *m = p->module;
    uint32_t scope = p->symbols.depth - 1;
    uint32_t kept = p->scopes[scope].label_use_count;
    for (uint32_t k = kept; k < p->label_use_count; k++) {
        struct sim_ptx_label_use *use = &p->label_uses[k];
        const struct sim_ptx_symbol *label = sim_ptx_symbol_in(&p->symbols, scope, use->name);
        if (!label || label->kind != SIM_PTX_SYMBOL_LABEL)
            p->label_uses[kept++] = *use;
        else if (use->in_list)
            m->lists[use->at] = label->index;
        else
            m->code[use->at].target = label->index;
    }
    p->label_use_count = kept;
    p->frame_used = p->scopes[scope].frame_used;
    sim_ptx_scope_close(&p->symbols);
    if (scope == 1 && kept > 0)
        sim_ptx_fail(p, p->label_uses[0].line, "no such label:", p->label_uses[0].name, "");
}

void sim_ptx_use_label(struct sim_ptx_parser *p, struct sim_ptx_text name, uint32_t at,
                       bool in_list) {
    struct sim_ptx_label_use *use =
        sim_ptx_append(p, &p->label_uses, &p->label_use_count, sizeof(*use), SIM_PTX_INSNS_MAX,
                       "branches in this function");
    if (use)
        *use = (struct sim_ptx_label_use){name, at, p->opcode.line, in_list};
}

bool sim_ptx_take(struct sim_ptx_parser *p, const char *qualifier) {
    struct sim_ptx_opcode *o = &p->opcode;
    for (uint32_t k = 0; k < o->count; k++) {
        if (!sim_ptx_text_is(o->qualifiers[k], qualifier))
            continue;
        memmove(&o->qualifiers[k], &o->qualifiers[k + 1],
                (--o->count - k) * sizeof(o->qualifiers[0]));
        return true;
    }
    return false;
}

void sim_ptx_unknown(struct sim_ptx_parser *p) {
    sim_ptx_fail(p, p->opcode.line, "unknown instruction", p->opcode.whole, "");
}

bool sim_ptx_expect_operands(struct sim_ptx_parser *p, uint32_t min, uint32_t max) {
    if (p->operand_count < min || p->operand_count > max)
        sim_ptx_fail(p, p->opcode.line, "wrong number of operands:", p->opcode.whole, "");
    return !sim_ptx_failed(p);
}

static void parse_opcode(struct sim_ptx_parser *p, struct sim_ptx_text base, uint32_t line) {
    p->opcode = (struct sim_ptx_opcode){.base = base, .whole = base, .line = line};
    while (p->token.kind == SIM_PTX_DOT) {
        if (p->opcode.count == SIM_PTX_QUALIFIERS_MAX) {
            sim_ptx_unknown(p);
            return;
        }
        struct sim_ptx_text qualifier = p->token.text;
        p->opcode.qualifiers[p->opcode.count++] = qualifier;
        p->opcode.whole.bytes = (uint32_t)(qualifier.at + qualifier.bytes - base.at);
        sim_ptx_advance(p);
    }
}

// Gives the instructions from `first` on their guard; code[first] was kept free for a branch.
static void guard_instructions(struct sim_ptx_parser *p, uint32_t first, uint32_t guard, bool skips,
                               uint32_t label_uses) {
    struct sim_ptx_module *m = p->module;
    struct sim_ptx_insn *head = &m->code[first];
    uint32_t made = m->code_count - first - 1;
    if (made == 0) {
        m->code_count--;
        return;
    }
    if (made == 1) {
        *head = m->code[first + 1];
        m->code_count--;
        for (uint32_t k = label_uses; k < p->label_use_count; k++)
            if (!p->label_uses[k].in_list)
                p->label_uses[k].at--;
    } else {
        head->run = sim_ptx_run_branch;
        head->target = m->code_count;
        skips = !skips;
    }
    head->guard = guard;
    head->guard_skips = skips;
}

static void parse_instruction(struct sim_ptx_parser *p, struct sim_ptx_text base, uint32_t line,
                              bool is_guarded, uint32_t guard, bool skips) {
    uint32_t first = p->module->code_count, label_uses = p->label_use_count;
    p->temporaries_used = 0;
    parse_opcode(p, base, line);
    if (is_guarded)
        sim_ptx_emit(p);
    if (sim_ptx_text_is(base, "call")) {
        sim_ptx_build_call(p);
    } else {
        sim_ptx_parse_operands(p);
        if (!sim_ptx_failed(p) && !sim_ptx_build_value(p) && !sim_ptx_build_memory(p) &&
            !sim_ptx_build_control(p) && !sim_ptx_build_warp(p))
            sim_ptx_unknown(p);
    }
    if (is_guarded && !sim_ptx_failed(p))
        guard_instructions(p, first, guard, skips, label_uses);
}

// label: .branchtargets a, b; and the prototypes of indirect calls, which the call needs no more.
static void parse_label_directive(struct sim_ptx_parser *p, struct sim_ptx_text name) {
    bool is_targets = sim_ptx_accept_dot(p, "branchtargets");
    struct sim_ptx_symbol *symbol = sim_ptx_declare(
        p, false, name, is_targets ? SIM_PTX_SYMBOL_TARGETS : SIM_PTX_SYMBOL_PROTOTYPE);
    if (!symbol)
        return;
    struct sim_ptx_module *m = p->module;
    symbol->index = m->list_count;
    uint32_t first = m->list_count;
    if (is_targets) {
        do {
            uint32_t *entry = sim_ptx_append(p, &m->lists, &m->list_count, sizeof(*entry),
                                             4 * SIM_PTX_INSNS_MAX, "branch targets");
            struct sim_ptx_text target = sim_ptx_expect_name(p);
            if (entry)
                sim_ptx_use_label(p, target, m->list_count - 1, true);
        } while (sim_ptx_accept(p, ','));
        symbol->count = m->list_count - first;
    }
    while (p->token.kind != SIM_PTX_END && !sim_ptx_at(p, ';'))
        sim_ptx_advance(p);
    sim_ptx_expect(p, ';');
}

static void parse_label(struct sim_ptx_parser *p, struct sim_ptx_text name) {
    p->opcode.line = p->token.line;
    if (sim_ptx_at_dot(p, "branchtargets") || sim_ptx_at_dot(p, "callprototype") ||
        sim_ptx_at_dot(p, "calltargets")) {
        parse_label_directive(p, name);
        return;
    }
    struct sim_ptx_symbol *symbol = sim_ptx_declare(p, false, name, SIM_PTX_SYMBOL_LABEL);
    if (symbol)
        symbol->index = p->module->code_count;
}

static void parse_frame_variable(struct sim_ptx_parser *p, bool is_param) {
    struct sim_ptx_declarator d;
    sim_ptx_parse_declarator(p, &d);
    if (d.is_open || d.type == 'p')
        sim_ptx_fail(p, d.line, "has no size:", d.name, "");
    uint32_t offset = sim_ptx_frame_place(p, d.bytes, d.align);
    struct sim_ptx_symbol *symbol = sim_ptx_declare(
        p, false, d.name, is_param ? SIM_PTX_SYMBOL_FRAME_PARAM : SIM_PTX_SYMBOL_FRAME);
    if (symbol) {
        symbol->index = offset;
        symbol->count = (uint32_t)d.bytes;
    }
    sim_ptx_expect(p, ';');
}

static void parse_directive(struct sim_ptx_parser *p) {
    if (sim_ptx_accept_dot(p, "reg"))
        sim_ptx_parse_registers(p);
    else if (sim_ptx_accept_dot(p, "local"))
        parse_frame_variable(p, false);
    else if (sim_ptx_accept_dot(p, "param"))
        parse_frame_variable(p, true);
    else if (sim_ptx_accept_dot(p, "shared"))
        sim_ptx_parse_variable(p, "shared", false);
    else if (sim_ptx_accept_dot(p, "global"))
        sim_ptx_parse_variable(p, "global", false);
    else if (sim_ptx_accept_dot(p, "const"))
        sim_ptx_parse_variable(p, "const", false);
    else if (sim_ptx_at_dot(p, "loc") || sim_ptx_at_dot(p, "file"))
        sim_ptx_skip_line(p);
    else if (sim_ptx_accept_dot(p, "pragma")) {
        while (p->token.kind == SIM_PTX_STRING || sim_ptx_at(p, ','))
            sim_ptx_advance(p);
        sim_ptx_expect(p, ';');
    } else {
        sim_ptx_unexpected(p, "a statement");
    }
}

static uint32_t parse_guard(struct sim_ptx_parser *p, bool *skips) {
    *skips = sim_ptx_accept(p, '!');
    struct sim_ptx_text name = sim_ptx_expect_name(p);
    const struct sim_ptx_symbol *symbol = sim_ptx_find(p, name);
    if (!symbol || symbol->kind != SIM_PTX_SYMBOL_REGISTER || symbol->bytes != 0) {
        sim_ptx_fail(p, 0, "no predicate:", name, "");
        return SIM_PTX_OPERAND_ONE;
    }
    return symbol->index;
}

static void parse_statement(struct sim_ptx_parser *p) {
    if (p->token.kind == SIM_PTX_DOT) {
        parse_directive(p);
        return;
    }
    uint32_t guard = SIM_PTX_OPERAND_ONE;
    bool is_guarded = sim_ptx_accept(p, '@'), skips = false;
    if (is_guarded)
        guard = parse_guard(p, &skips);
    uint32_t line = p->token.line;
    struct sim_ptx_text base = sim_ptx_expect_name(p);
    if (!is_guarded && sim_ptx_accept(p, ':'))
        parse_label(p, base);
    else if (!sim_ptx_failed(p))
        parse_instruction(p, base, line, is_guarded, guard, skips);
}

// The body, from its opening brace to its closing one, in a scope that the header opened.
void sim_ptx_parse_body(struct sim_ptx_parser *p) {
    struct sim_ptx_module *m = p->module;
    m->functions[p->function].code = m->code_count;
    m->functions[p->function].is_defined = true;
    p->temporary_count = 0;
    p->carry = UINT32_MAX;
    sim_ptx_expect(p, '{');
    uint32_t depth = 1;
    while (depth > 0 && !sim_ptx_failed(p)) {
        if (sim_ptx_accept(p, '{')) {
            sim_ptx_open_scope(p);
            depth++;
        } else if (sim_ptx_accept(p, '}')) {
            if (--depth > 0)
                sim_ptx_close_scope(p);
        } else if (p->token.kind == SIM_PTX_END) {
            sim_ptx_unexpected(p, "a closing brace");
        } else {
            parse_statement(p);
        }
    }
    p->opcode.line = p->token.line;
    sim_ptx_emit(p)->run = sim_ptx_run_return;
}
