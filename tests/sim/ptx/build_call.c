// Calls: call (results), function, (arguments); and through an address, whose prototype is then
// named.
#include "parser.h"

// One value or .param variable that is passed or received.
static void parse_actual(struct sim_ptx_parser *p, bool is_result, uint32_t *count) {
    struct sim_ptx_module *m = p->module;
    struct sim_ptx_operand o = sim_ptx_parse_operand(p);
    struct sim_ptx_actual actual = {.bytes = o.bytes};
    switch (o.kind) {
    case SIM_PTX_OPERAND_REGISTER:
        actual.ref = o.reg;
        break;
    case SIM_PTX_OPERAND_INTEGER:
        actual.ref = sim_ptx_constant(p, o.integer);
        break;
    case SIM_PTX_OPERAND_FLOAT:
        actual.ref = sim_ptx_constant(p, o.is_single ? o.integer : sim_ptx_from_f64(o.real));
        break;
    case SIM_PTX_OPERAND_SYMBOL:
        actual.in_frame = o.symbol.kind == SIM_PTX_SYMBOL_FRAME_PARAM && o.offset == 0;
        actual.ref = o.symbol.index;
        actual.bytes = o.symbol.count;
        if (actual.in_frame)
            break;
        // fall through
    default:
        sim_ptx_fail(p, 0, "cannot be passed:", o.text, "");
    }
    bool is_literal = o.kind == SIM_PTX_OPERAND_INTEGER || o.kind == SIM_PTX_OPERAND_FLOAT;
    if (is_literal)
        actual.bytes = UINT32_MAX;  // as wide as the parameter
    if ((is_result && is_literal) || o.is_negated || o.has_second)
        sim_ptx_fail(p, 0, "cannot be passed:", o.text, "");
    struct sim_ptx_actual *place = sim_ptx_append(p, &m->actuals, &m->actual_count, sizeof(*place),
                                                  4 * SIM_PTX_INSNS_MAX, "call arguments");
    if (place)
        *place = actual;
    if (++*count > SIM_PTX_PARAMS_MAX)
        sim_ptx_fail(p, 0, "too many arguments", (struct sim_ptx_text){0}, "");
}

static void parse_actuals(struct sim_ptx_parser *p, bool is_result, uint32_t *count) {
    sim_ptx_expect(p, '(');
    if (sim_ptx_accept(p, ')'))
        return;
    do
        parse_actual(p, is_result, count);
    while (sim_ptx_accept(p, ',') && !sim_ptx_failed(p));
    sim_ptx_expect(p, ')');
}

void sim_ptx_build_call(struct sim_ptx_parser *p) {
    struct sim_ptx_module *m = p->module;
    struct sim_ptx_call call = {.first = m->actual_count, .function = UINT32_MAX};
    sim_ptx_take(p, "uni");
    if (p->opcode.count > 0)
        sim_ptx_unknown(p);
    p->element_count = 0;
    if (sim_ptx_at(p, '(')) {
        parse_actuals(p, true, &call.returns);
        sim_ptx_expect(p, ',');
    }
    struct sim_ptx_operand callee = sim_ptx_parse_operand(p);
    uint32_t address = SIM_PTX_OPERAND_ZERO;
    if (callee.kind == SIM_PTX_OPERAND_REGISTER) {
        address = sim_ptx_source(p, &callee, '8');
    } else if (callee.kind == SIM_PTX_OPERAND_SYMBOL &&
               callee.symbol.kind == SIM_PTX_SYMBOL_FUNCTION && callee.offset == 0) {
        call.function = callee.symbol.index;
    } else {
        sim_ptx_fail(p, p->opcode.line, "no function:", callee.text, "");
    }
    if (sim_ptx_accept(p, ',')) {
        if (sim_ptx_at(p, '('))
            parse_actuals(p, false, &call.params);
        else
            sim_ptx_expect_name(p);
        if (sim_ptx_accept(p, ','))
            sim_ptx_expect_name(p);  // the prototype
    }
    sim_ptx_expect(p, ';');
    struct sim_ptx_call *place =
        sim_ptx_append(p, &m->calls, &m->call_count, sizeof(*place), SIM_PTX_INSNS_MAX, "calls");
    if (place)
        *place = call;
    struct sim_ptx_use *use = NULL;
    if (call.function != UINT32_MAX)
        use = sim_ptx_append(p, &p->calls, &p->call_use_count, sizeof(*use), SIM_PTX_INSNS_MAX,
                             "calls");
    if (use)
        *use = (struct sim_ptx_use){p->function, call.function};
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = sim_ptx_run_call;
    i->src[0] = address;
    i->target = m->call_count - 1;
}
