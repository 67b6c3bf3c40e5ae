// Branches, the ends of threads, and the barriers of a block.
#include "parser.h"

#define NO SIM_PTX_OPERAND_ZERO

static bool opcode_is(struct sim_ptx_parser *p, const char *base) {
    return sim_ptx_text_is(p->opcode.base, base);
}

// A statement of its own handler, without operands or qualifiers.
static bool build_plain(struct sim_ptx_parser *p) {
    static const struct {
        const char *name;
        sim_ptx_run *run;
    } plain[] = {
        {"ret", sim_ptx_run_return},
        {"exit", sim_ptx_run_exit},
        {"trap", sim_ptx_run_trap},
        {"brkpt", sim_ptx_run_trap},
    };
    for (size_t k = 0; k < sizeof(plain) / sizeof(plain[0]); k++) {
        if (!opcode_is(p, plain[k].name))
            continue;
        sim_ptx_take(p, "uni");
        if (p->opcode.count > 0)
            return false;
        if (sim_ptx_expect_operands(p, 0, 0))
            sim_ptx_emit(p)->run = plain[k].run;
        return true;
    }
    return false;
}

static bool build_branch(struct sim_ptx_parser *p) {
    if (!opcode_is(p, "bra"))
        return false;
    sim_ptx_take(p, "uni");
    if (p->opcode.count > 0)
        return false;
    if (!sim_ptx_expect_operands(p, 1, 1))
        return true;
    if (p->operands[0].kind != SIM_PTX_OPERAND_NAME)
        sim_ptx_fail(p, p->opcode.line, "no label:", p->operands[0].text, "");
    sim_ptx_emit(p)->run = sim_ptx_run_branch;
    sim_ptx_use_label(p, p->operands[0].text, p->module->code_count - 1, false);
    return true;
}

// brx.idx index, targets
static bool build_branch_table(struct sim_ptx_parser *p) {
    if (!opcode_is(p, "brx") || !sim_ptx_take(p, "idx"))
        return false;
    sim_ptx_take(p, "uni");
    if (p->opcode.count > 0)
        return false;
    if (!sim_ptx_expect_operands(p, 2, 2))
        return true;
    const struct sim_ptx_symbol *targets = sim_ptx_find(p, p->operands[1].text);
    if (!targets || targets->kind != SIM_PTX_SYMBOL_TARGETS) {
        sim_ptx_fail(p, p->opcode.line, "no branch targets:", p->operands[1].text, "");
        return true;
    }
    uint32_t first = targets->index, count = targets->count;
    uint32_t index = sim_ptx_source(p, &p->operands[0], '4');
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = sim_ptx_run_branch_table;
    i->src[0] = index;
    i->target = first;
    i->offset = count;
    return true;
}

// bar.sync a, b; barrier.arrive a, b; bar.red.popc.u32 d, a, b, p; bar.warp.sync mask
static bool build_barrier(struct sim_ptx_parser *p) {
    bool is_warp = p->opcode.count > 0 && sim_ptx_text_is(p->opcode.qualifiers[0], "warp");
    if (is_warp || (!opcode_is(p, "bar") && !opcode_is(p, "barrier")))
        return false;
    static const struct {
        const char *name;
        uint8_t mode;
    } reductions[] = {
        {"popc", SIM_PTX_BARRIER_POPC}, {"and", SIM_PTX_BARRIER_AND}, {"or", SIM_PTX_BARRIER_OR}};
    sim_ptx_take(p, "cta");
    sim_ptx_take(p, "aligned");
    bool reduces = sim_ptx_take(p, "red"), arrives = !reduces && sim_ptx_take(p, "arrive");
    uint8_t mode = arrives ? SIM_PTX_BARRIER_ARRIVE : SIM_PTX_BARRIER_SYNC;
    if (!reduces && !arrives && !sim_ptx_take(p, "sync"))
        return false;
    for (int k = 0; reduces && mode == SIM_PTX_BARRIER_SYNC && k < 3; k++)
        if (sim_ptx_take(p, reductions[k].name))
            mode = reductions[k].mode;
    if (reduces && (mode == SIM_PTX_BARRIER_SYNC ||
                    !sim_ptx_take(p, mode == SIM_PTX_BARRIER_POPC ? "u32" : "pred")))
        return false;
    if (p->opcode.count > 0)
        return false;
    uint32_t first = reduces ? 1 : 0, last = reduces ? 1 : 0;
    uint32_t min = first + last + (arrives ? 2 : 1);
    if (!sim_ptx_expect_operands(p, min, first + last + 2))
        return true;
    bool has_count = p->operand_count == first + last + 2;
    uint32_t barrier = sim_ptx_source(p, &p->operands[first], '4');
    uint32_t threads = has_count ? sim_ptx_source(p, &p->operands[first + 1], '4') : NO;
    uint32_t brings = reduces ? sim_ptx_source(p, &p->operands[p->operand_count - 1], 'p') : NO;
    uint32_t d =
        reduces ? sim_ptx_destination(p, &p->operands[0], mode == SIM_PTX_BARRIER_POPC ? '4' : 'p')
                : sim_ptx_temporary(p);
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = sim_ptx_run_barrier;
    i->mode = mode;
    i->d = d;
    i->src[0] = barrier;
    i->src[1] = threads;
    i->src[2] = brings;
    i->count = has_count;
    return true;
}

static bool build_sleep(struct sim_ptx_parser *p) {
    if (!opcode_is(p, "nanosleep") || !sim_ptx_take(p, "u32") || p->opcode.count > 0)
        return false;
    if (sim_ptx_expect_operands(p, 1, 1)) {
        sim_ptx_source(p, &p->operands[0], '4');
        sim_ptx_emit(p)->run = sim_ptx_run_yield;
    }
    return true;
}

bool sim_ptx_build_control(struct sim_ptx_parser *p) {
    return build_plain(p) || build_branch(p) || build_branch_table(p) || build_barrier(p) ||
           build_sleep(p);
}
