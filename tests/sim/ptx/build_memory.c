// Loads, stores, atomics and fences.
#include "parser.h"

#define NO SIM_PTX_OPERAND_ZERO
#define KEY_BYTES_MAX 16

// Qualifiers that say nothing to an interpreter whose memory accesses are all in order, with or
// without a cache.
static void take_cache_hints(struct sim_ptx_parser *p) {
    static const char *const hints[] = {"weak",    "volatile", "relaxed", "acquire", "release",
                                        "acq_rel", "mmio",     "nc",      "ca",      "cg",
                                        "cs",      "lu",       "cv",      "wb",      "wt",
                                        "cta",     "cluster",  "gpu",     "sys"};
    for (size_t k = 0; k < sizeof(hints) / sizeof(hints[0]); k++)
        sim_ptx_take(p, hints[k]);
    struct sim_ptx_opcode *o = &p->opcode;
    for (uint32_t k = 0; k < o->count;) {
        struct sim_ptx_text q = o->qualifiers[k];
        if (q.bytes > 4 && (memcmp(q.at, "L1::", 4) == 0 || memcmp(q.at, "L2::", 4) == 0))
            memmove(&o->qualifiers[k], &o->qualifiers[k + 1],
                    (--o->count - k) * sizeof(o->qualifiers[0]));
        else
            k++;
    }
}

static uint8_t take_space(struct sim_ptx_parser *p) {
    static const struct {
        const char *name;
        uint8_t space;
    } spaces[] = {
        {"global", SIM_PTX_AT_GLOBAL},      {"const", SIM_PTX_AT_GLOBAL},
        {"shared", SIM_PTX_AT_SHARED},      {"shared::cta", SIM_PTX_AT_SHARED},
        {"local", SIM_PTX_AT_LOCAL},        {"param", SIM_PTX_AT_PARAM},
        {"param::entry", SIM_PTX_AT_PARAM}, {"param::func", SIM_PTX_AT_PARAM},
    };
    for (size_t k = 0; k < sizeof(spaces) / sizeof(spaces[0]); k++)
        if (sim_ptx_take(p, spaces[k].name))
            return spaces[k].space;
    return SIM_PTX_AT_GENERIC;
}

// Puts the operands of a vector (or the one scalar) into the module's lists; returns the first
// entry.
static uint32_t list_values(struct sim_ptx_parser *p, const struct sim_ptx_operand *o,
                            uint32_t count, bool is_load, const char letters[]) {
    uint32_t values[SIM_PTX_VECTOR_MAX];
    for (uint32_t k = 0; k < count; k++) {
        const struct sim_ptx_operand *part =
            o->kind == SIM_PTX_OPERAND_VECTOR ? &p->elements[o->elements + k] : o;
        values[k] = is_load ? sim_ptx_destination(p, part, letters[k])
                            : sim_ptx_source(p, part, letters[k]);
    }
    struct sim_ptx_module *m = p->module;
    uint32_t first = m->list_count;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t *entry = sim_ptx_append(p, &m->lists, &m->list_count, sizeof(*entry),
                                         4 * SIM_PTX_INSNS_MAX, "vector operands in this module");
        if (entry)
            *entry = values[k];
    }
    return first;
}

// The letter by which an element is taken: a register may be wider than what is moved.
static char element_letter(struct sim_ptx_parser *p, const struct sim_ptx_operand *part, char kind,
                           uint32_t bytes) {
    if (part->kind != SIM_PTX_OPERAND_REGISTER)
        return sim_ptx_letter(kind, bytes);
    if (part->bytes < bytes || part->bytes == 0)
        sim_ptx_fail(p, p->opcode.line, "register smaller than the type:", part->text, "");
    return sim_ptx_letter('b', part->bytes);
}

static void build_move(struct sim_ptx_parser *p, bool is_load) {
    take_cache_hints(p);
    uint8_t space = take_space(p);
    uint32_t count = sim_ptx_take(p, "v2") ? 2 : sim_ptx_take(p, "v4") ? 4 : 1;
    char kind, letters[SIM_PTX_VECTOR_MAX];
    uint32_t bytes;
    if (p->opcode.count != 1 || !sim_ptx_type_of(p->opcode.qualifiers[0], &kind, &bytes) ||
        kind == 'p' || bytes * count > 16) {
        sim_ptx_unknown(p);
        return;
    }
    if (!sim_ptx_expect_operands(p, 2, 2))
        return;
    const struct sim_ptx_operand *data = &p->operands[is_load ? 0 : 1];
    bool is_vector = data->kind == SIM_PTX_OPERAND_VECTOR;
    if (is_vector != (count > 1) || (is_vector && data->element_count != count)) {
        sim_ptx_fail(p, p->opcode.line, "vector operand expected or not:", p->opcode.whole, "");
        return;
    }
    for (uint32_t k = 0; k < count; k++)
        letters[k] =
            element_letter(p, is_vector ? &p->elements[data->elements + k] : data, kind, bytes);
    int64_t offset;
    uint32_t base = sim_ptx_address(p, &p->operands[is_load ? 1 : 0], &space, &offset);
    uint32_t list = list_values(p, data, count, is_load, letters);
    if (sim_ptx_failed(p))
        return;
    uint32_t first = p->module->lists[list];
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = is_load ? sim_ptx_run_load : sim_ptx_run_store;
    i->src[0] = base;
    i->src[1] = i->d = first;
    i->target = list;
    i->offset = offset;
    i->space = space;
    i->bytes = (uint8_t)bytes;
    i->count = (uint8_t)count;
    i->is_signed = kind == 's';
    i->d_bytes =
        letters[0] >= '0' && letters[0] <= '9' ? (uint8_t)(letters[0] - '0') : (uint8_t)bytes;
}

// atom d, [a], b, c and red [a], b.
static void build_atomic(struct sim_ptx_parser *p, bool is_red) {
    take_cache_hints(p);
    uint8_t space = take_space(p);
    const struct sim_ptx_opcode *o = &p->opcode;
    char key[KEY_BYTES_MAX], kind;
    uint32_t bytes;
    bool compares;
    sim_ptx_atomic *atomic = NULL;
    if (o->count == 2 && o->qualifiers[0].bytes + o->qualifiers[1].bytes + 2 <= sizeof(key)) {
        uint32_t at = o->qualifiers[0].bytes;
        memcpy(key, o->qualifiers[0].at, at);
        key[at++] = '.';
        memcpy(key + at, o->qualifiers[1].at, o->qualifiers[1].bytes);
        key[at + o->qualifiers[1].bytes] = '\0';
        atomic = sim_ptx_atomic_named(key, &compares);
    }
    if (!atomic || (is_red && compares)) {
        sim_ptx_unknown(p);
        return;
    }
    sim_ptx_type_of(o->qualifiers[1], &kind, &bytes);
    uint32_t first = is_red ? 0 : 1, count = first + (compares ? 3 : 2);
    if (!sim_ptx_expect_operands(p, count, count))
        return;
    char letter = sim_ptx_letter(kind, bytes);
    int64_t offset;
    uint32_t base = sim_ptx_address(p, &p->operands[first], &space, &offset);
    uint32_t b = sim_ptx_source(p, &p->operands[first + 1], letter);
    uint32_t c = compares ? sim_ptx_source(p, &p->operands[first + 2], letter) : NO;
    uint32_t d = is_red ? sim_ptx_temporary(p) : sim_ptx_destination(p, &p->operands[0], letter);
    struct sim_ptx_insn *i = sim_ptx_emit(p);
    i->run = sim_ptx_run_atomic;
    i->atomic = atomic;
    i->d = d;
    i->src[0] = base;
    i->src[1] = b;
    i->src[2] = c;
    i->offset = offset;
    i->space = space;
    i->bytes = (uint8_t)bytes;
}

// membar and fence order; prefetches do nothing here.
static bool build_hint(struct sim_ptx_parser *p) {
    struct sim_ptx_text base = p->opcode.base;
    if (sim_ptx_text_is(base, "membar") || sim_ptx_text_is(base, "fence")) {
        static const char *const known[] = {"cta", "gl", "sys", "gpu", "sc", "acq_rel", "cluster"};
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            sim_ptx_take(p, known[k]);
        if (p->opcode.count > 0 || p->operand_count > 0)
            return false;
        sim_ptx_emit(p)->run = sim_ptx_run_fence;
        return true;
    }
    return sim_ptx_text_is(base, "prefetch") || sim_ptx_text_is(base, "prefetchu");
}

bool sim_ptx_build_memory(struct sim_ptx_parser *p) {
    struct sim_ptx_text base = p->opcode.base;
    if (sim_ptx_text_is(base, "ld") || sim_ptx_text_is(base, "ldu"))
        build_move(p, true);
    else if (sim_ptx_text_is(base, "st"))
        build_move(p, false);
    else if (sim_ptx_text_is(base, "atom"))
        build_atomic(p, false);
    else if (sim_ptx_text_is(base, "red"))
        build_atomic(p, true);
    else
        return build_hint(p);
    return true;
}
