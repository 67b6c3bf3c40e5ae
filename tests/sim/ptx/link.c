// After the text: calls are checked against their functions, shared memory is laid out, variables
// are placed in device memory and filled.
//
// Shared variables have fixed offsets, also in functions that several kernels call: those that more
// than one kernel can reach come first, and each kernel's own follow in the same room. Dynamic
// shared memory begins where the largest kernel ends.
#include "parser.h"

#include <stdlib.h>

#define NOBODY UINT32_MAX
#define MANY (UINT32_MAX - 1)
#define DYNAMIC_ALIGN 128u
#define ZEROS_BYTES 16384u

bool sim_ptx_call_fits(const struct sim_ptx_module *m, const struct sim_ptx_call *call,
                       const struct sim_ptx_function *f) {
    if (call->returns != f->returns_count || call->params != f->info.param_count)
        return false;
    for (uint32_t k = 0; k < call->returns + call->params; k++) {
        const struct sim_ptx_actual *actual = &m->actuals[call->first + k];
        const struct sim_ptx_formal *formal = &m->formals[f->formals + k];
        bool is_value = formal->is_register || !actual->in_frame;
        if (is_value && formal->place.bytes > 8)
            return false;
        bool is_literal = actual->bytes == UINT32_MAX && !actual->in_frame;
        if (!is_literal && actual->bytes != formal->place.bytes)
            return false;
    }
    return true;
}

static void check_calls(struct sim_ptx_parser *p) {
    struct sim_ptx_module *m = p->module;
    for (uint32_t k = 0; k < m->code_count && !sim_ptx_failed(p); k++) {
        struct sim_ptx_insn *i = &m->code[k];
        if (i->run != sim_ptx_run_call || m->calls[i->target].function == UINT32_MAX)
            continue;
        const struct sim_ptx_call *call = &m->calls[i->target];
        const struct sim_ptx_function *f = &m->functions[call->function];
        struct sim_ptx_text name = sim_ptx_text_of(f->info.name);
        if (!f->is_defined && strcmp(f->info.name, "__assertfail") == 0)
            i->run = sim_ptx_run_assert;
        else if (!f->is_defined)
            sim_ptx_fail(p, i->line, "call of a function that is defined nowhere:", name, "");
        else if (f->is_entry)
            sim_ptx_fail(p, i->line, "call of a kernel:", name, "");
        else if (!sim_ptx_call_fits(m, call, f))
            sim_ptx_fail(p, i->line, "arguments do not fit the function", name, "");
    }
}

// reach[a] holds a bit for every function that `a` may call, itself included, over any way.
struct reach {
    uint64_t *bits;
    uint32_t words;
};

static bool reaches(const struct reach *r, uint32_t from, uint32_t to) {
    return r->bits[(size_t)from * r->words + to / 64] >> (to % 64) & 1;
}

static void add_reach(struct reach *r, uint32_t from, uint32_t to) {
    r->bits[(size_t)from * r->words + to / 64] |= 1ull << (to % 64);
}

static bool find_reach(struct sim_ptx_parser *p, struct reach *r) {
    const struct sim_ptx_module *m = p->module;
    uint32_t count = m->function_count;
    r->words = (count + 63) / 64;
    r->bits = calloc((size_t)count * r->words + 1, sizeof(*r->bits));
    if (!r->bits) {
        sim_ptx_fail_memory(p);
        return false;
    }
    for (uint32_t k = 0; k < count; k++)
        add_reach(r, k, k);
    for (uint32_t k = 0; k < p->call_use_count; k++)
        add_reach(r, p->calls[k].user, p->calls[k].used);
    // What a variable points to may be called by any kernel.
    for (uint32_t f = 0; f < count; f++)
        for (uint32_t e = 0; m->functions[f].is_pointed_to && e < count; e++)
            if (m->functions[e].is_entry)
                add_reach(r, e, f);
    for (uint32_t via = 0; via < count; via++)
        for (uint32_t from = 0; from < count; from++)
            for (uint32_t w = 0; reaches(r, from, via) && w < r->words; w++)
                r->bits[(size_t)from * r->words + w] |= r->bits[(size_t)via * r->words + w];
    return true;
}

// Which kernel reaches each function: one, NOBODY or MANY.
static uint32_t *find_kernels(struct sim_ptx_parser *p, const struct reach *r) {
    const struct sim_ptx_module *m = p->module;
    uint32_t *kernel = malloc(((size_t)m->function_count + 1) * sizeof(*kernel));
    if (!kernel) {
        sim_ptx_fail_memory(p);
        return NULL;
    }
    for (uint32_t f = 0; f < m->function_count; f++) {
        kernel[f] = NOBODY;
        for (uint32_t e = 0; e < m->function_count && kernel[f] != MANY; e++)
            if (m->functions[e].is_entry && reaches(r, e, f))
                kernel[f] = kernel[f] == NOBODY ? e : MANY;
    }
    return kernel;
}

static uint64_t place(uint64_t at, struct sim_ptx_shared *s) {
    s->offset = (at + s->align - 1) & ~(uint64_t)(s->align - 1);
    return s->offset + s->bytes;
}

// Marks who uses which variable, and which functions use one that several kernels share.
static void mark_users(struct sim_ptx_parser *p, const uint32_t *kernel) {
    struct sim_ptx_module *m = p->module;
    for (uint32_t k = 0; k < p->shared_use_count; k++) {
        struct sim_ptx_shared *s = &p->shared[p->shared_uses[k].used];
        uint32_t user = kernel[p->shared_uses[k].user];
        if (user == NOBODY)
            continue;
        s->user = !s->is_used || s->user == user ? user : MANY;
        s->is_used = true;
    }
    for (uint32_t k = 0; k < p->shared_use_count; k++)
        if (p->shared[p->shared_uses[k].used].user == MANY)
            m->functions[p->shared_uses[k].user].uses_shared = true;
}

static void lay_shared_out(struct sim_ptx_parser *p, const struct reach *r,
                           const uint32_t *kernel) {
    struct sim_ptx_module *m = p->module;
    uint64_t common = 0, largest = 0;
    mark_users(p, kernel);
    for (uint32_t k = 0; k < p->shared_count; k++)
        if (!p->shared[k].is_dynamic && p->shared[k].user == MANY)
            common = place(common, &p->shared[k]);
    uint64_t *end = calloc((size_t)m->function_count + 1, sizeof(*end));
    if (!end) {
        sim_ptx_fail_memory(p);
        return;
    }
    for (uint32_t k = 0; k < p->shared_count; k++) {
        struct sim_ptx_shared *s = &p->shared[k];
        if (!s->is_dynamic && s->user < MANY)
            end[s->user] = place(end[s->user] > common ? end[s->user] : common, s);
    }
    for (uint32_t e = 0; e < m->function_count; e++) {
        for (uint32_t f = 0; end[e] < common && f < m->function_count; f++)
            if (m->functions[f].uses_shared && m->functions[e].is_entry && reaches(r, e, f))
                end[e] = common;
        largest = end[e] > largest ? end[e] : largest;
        m->functions[e].info.static_shared_bytes =
            end[e] < UINT32_MAX ? (uint32_t)end[e] : UINT32_MAX;
    }
    free(end);
    m->dynamic_shared_offset = (largest + DYNAMIC_ALIGN - 1) & ~(uint64_t)(DYNAMIC_ALIGN - 1);
    for (uint32_t k = 0; k < p->shared_count; k++)
        if (p->shared[k].is_dynamic)
            p->shared[k].offset = m->dynamic_shared_offset;
}

static void link_shared(struct sim_ptx_parser *p) {
    struct reach r;
    if (sim_ptx_failed(p) || !find_reach(p, &r))
        return;
    uint32_t *kernel = find_kernels(p, &r);
    if (kernel)
        lay_shared_out(p, &r, kernel);
    free(kernel);
    free(r.bits);
}

static void fail_with(struct sim_ptx_parser *p, int code, const char *what) {
    sim_ptx_fail(p, 0, what, (struct sim_ptx_text){0}, "");
    p->code = code;
}

static bool write_device(struct sim_ptx_parser *p, uint64_t address, const void *data,
                         uint64_t bytes) {
    const struct sim_ptx_memory *memory = &p->module->memory;
    int code = memory->write(memory->user, address, data, bytes);
    if (code != 0)
        fail_with(p, code, "writing the module's variables failed");
    return code == 0;
}

// Takes room for the variables of a space and clears it.
static void place_space(struct sim_ptx_parser *p, enum sim_ptx_space space) {
    static const uint8_t zeros[ZEROS_BYTES];
    struct sim_ptx_module *m = p->module;
    uint64_t bytes = p->space_bytes[space];
    if (bytes == 0 || sim_ptx_failed(p))
        return;
    if (!m->memory.allocate || !m->memory.write) {
        fail_with(p, SIM_PTX_INVALID_VALUE, "the module has variables, but there is no memory");
        return;
    }
    int code =
        m->memory.allocate(m->memory.user, space, bytes, p->space_align[space], &m->address[space]);
    if (code != 0) {
        fail_with(p, code, "no memory for the module's variables");
        return;
    }
    m->placed[space] = true;
    for (uint64_t at = 0; at < bytes; at += ZEROS_BYTES)
        if (!write_device(p, m->address[space] + at, zeros,
                          bytes - at < ZEROS_BYTES ? bytes - at : ZEROS_BYTES))
            return;
}

static void fill_variables(struct sim_ptx_parser *p) {
    const struct sim_ptx_module *m = p->module;
    for (uint32_t k = 0; k < p->data_fixup_count && !sim_ptx_failed(p); k++) {
        const struct sim_ptx_data_fixup *fixup = &p->data_fixups[k];
        uint64_t address = fixup->is_function ? SIM_PTX_CODE_WINDOW + 16ull * fixup->symbol
                                              : m->variables[fixup->symbol].address;
        uint64_t value = ((address + fixup->addend) & fixup->mask) >> fixup->shift;
        memcpy(p->data[fixup->data].at + fixup->offset, &value, fixup->bytes);
    }
    for (uint32_t k = 0; k < p->data_count && !sim_ptx_failed(p); k++)
        if (p->data[k].bytes > 0)
            write_device(p, m->variables[p->data[k].variable].address, p->data[k].at,
                         p->data[k].bytes);
}

static void link_variables(struct sim_ptx_parser *p) {
    struct sim_ptx_module *m = p->module;
    for (enum sim_ptx_space space = SIM_PTX_GLOBAL; space <= SIM_PTX_MANAGED; space++)
        place_space(p, space);
    for (uint32_t k = 0; k < m->variable_count; k++)
        m->variables[k].address += m->address[m->variables[k].space];
    fill_variables(p);
    for (uint32_t k = 0; k < p->constant_fixup_count && !sim_ptx_failed(p); k++) {
        const struct sim_ptx_constant_fixup *fixup = &p->constant_fixups[k];
        m->slots[fixup->slot] +=
            fixup->is_shared ? p->shared[fixup->index].offset : m->variables[fixup->index].address;
    }
}

static bool ends_at_once(const struct sim_ptx_insn *i) {
    return i->guard == SIM_PTX_OPERAND_ONE && !i->guard_skips &&
           (i->run == sim_ptx_run_return || i->run == sim_ptx_run_exit);
}

void sim_ptx_link(struct sim_ptx_parser *p) {
    struct sim_ptx_module *m = p->module;
    check_calls(p);
    link_shared(p);
    link_variables(p);
    for (uint32_t k = 0; k < m->function_count; k++) {
        struct sim_ptx_function *f = &m->functions[k];
        f->module = m;
        f->info.registers = f->slots < 16 ? 16 : f->slots > 255 ? 255 : f->slots;
        f->info.local_bytes = f->frame_bytes;
        f->info.ptx_version = m->ptx_version;
        f->info.target = m->target;
        f->info.empty = f->is_defined && ends_at_once(&m->code[f->code]);
    }
}
