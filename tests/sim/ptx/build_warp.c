// Instructions of a whole warp: shfl, vote, match, redux, bar.warp, activemask.
//
// All become one form: sources value, lane or bound, clamp, member mask; a result of the row's
// letter; perhaps a predicate beside it.
#include "parser.h"

#define NO SIM_PTX_OPERAND_ZERO

static const struct warp_row {
    const char *name;
    const char *signature;  // result (or '-'), then the sources before the member mask
    uint8_t mode;
    bool may_have_second;  // d|p
} rows[] = {
    {"shfl.sync.up.b32", "4444", SIM_PTX_SHFL_UP, true},
    {"shfl.sync.down.b32", "4444", SIM_PTX_SHFL_DOWN, true},
    {"shfl.sync.bfly.b32", "4444", SIM_PTX_SHFL_BFLY, true},
    {"shfl.sync.idx.b32", "4444", SIM_PTX_SHFL_IDX, true},
    {"vote.sync.all.pred", "pp", SIM_PTX_VOTE_ALL, false},
    {"vote.sync.any.pred", "pp", SIM_PTX_VOTE_ANY, false},
    {"vote.sync.uni.pred", "pp", SIM_PTX_VOTE_UNI, false},
    {"vote.sync.ballot.b32", "4p", SIM_PTX_VOTE_BALLOT, false},
    {"match.any.sync.b32", "44", SIM_PTX_MATCH_ANY, false},
    {"match.any.sync.b64", "48", SIM_PTX_MATCH_ANY, false},
    {"match.all.sync.b32", "44", SIM_PTX_MATCH_ALL, true},
    {"match.all.sync.b64", "48", SIM_PTX_MATCH_ALL, true},
    {"redux.sync.add.u32", "44", SIM_PTX_REDUX_ADD, false},
    {"redux.sync.add.s32", "44", SIM_PTX_REDUX_ADD, false},
    {"redux.sync.min.u32", "44", SIM_PTX_REDUX_MIN, false},
    {"redux.sync.max.u32", "44", SIM_PTX_REDUX_MAX, false},
    {"redux.sync.min.s32", "44", SIM_PTX_REDUX_MIN, false},
    {"redux.sync.max.s32", "44", SIM_PTX_REDUX_MAX, false},
    {"redux.sync.and.b32", "44", SIM_PTX_REDUX_AND, false},
    {"redux.sync.or.b32", "44", SIM_PTX_REDUX_OR, false},
    {"redux.sync.xor.b32", "44", SIM_PTX_REDUX_XOR, false},
    {"bar.warp.sync", "-", SIM_PTX_WARP_SYNC, false},
};

static bool name_is(const struct sim_ptx_opcode *o, const char *name) {
    size_t bytes = strlen(name);
    return o->whole.bytes == bytes && memcmp(o->whole.at, name, bytes) == 0;
}

static void build_row(struct sim_ptx_parser *p, const struct warp_row *row) {
    uint32_t sources = (uint32_t)strlen(row->signature) - 1;
    uint32_t first = row->signature[0] == '-' ? 0 : 1;
    uint32_t src[4] = {NO, NO, NO, NO};
    if (!sim_ptx_expect_operands(p, first + sources + 1, first + sources + 1))
        return;
    for (uint32_t k = 0; k < sources; k++)
        src[k] = sim_ptx_source(p, &p->operands[first + k], row->signature[k + 1]);
    src[3] = sim_ptx_source(p, &p->operands[first + sources], '4');
    uint32_t d =
        first ? sim_ptx_destination(p, &p->operands[0], row->signature[0]) : sim_ptx_temporary(p);
    if (p->operands[0].has_second && !row->may_have_second)
        sim_ptx_fail(p, p->opcode.line, "has no second result:", p->opcode.whole, "");
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = sim_ptx_run_warp;
    i->mode = row->mode;
    i->d = d;
    memcpy(i->src, src, sizeof(src));
    i->has_second = p->operands[0].has_second;
    i->target = p->operands[0].second;
    i->bytes = row->signature[1] == '8' ? 8 : 4;
    i->is_signed = p->opcode.whole.at[p->opcode.whole.bytes - 3] == 's';
}

bool sim_ptx_build_warp(struct sim_ptx_parser *p) {
    if (name_is(&p->opcode, "activemask.b32")) {
        if (sim_ptx_expect_operands(p, 1, 1)) {
            uint32_t d = sim_ptx_destination(p, &p->operands[0], '4');
            struct sim_ptx_insn *i = sim_ptx_emit(p);
            i->run = sim_ptx_run_active;
            i->d = d;
        }
        return true;
    }
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        if (!name_is(&p->opcode, rows[k].name))
            continue;
        build_row(p, &rows[k]);
        return true;
    }
    return false;
}
