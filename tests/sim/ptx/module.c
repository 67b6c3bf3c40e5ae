// Loading, unloading and looking up. See ptx.h.
#include "parser.h"

#include <stdlib.h>

static void free_module(struct sim_ptx_module *m) {
    for (uint32_t k = 0; k < m->function_count; k++)
        free((char *)m->functions[k].info.name);
    for (uint32_t k = 0; k < m->variable_count; k++)
        free((char *)m->variables[k].name);
    free(m->code);
    free(m->slots);
    free(m->lists);
    free(m->formals);
    free(m->actuals);
    free(m->calls);
    free(m->functions);
    free(m->variables);
    free(m);
}

static void free_parser(struct sim_ptx_parser *p) {
    sim_ptx_symbols_free(&p->symbols);
    for (uint32_t k = 0; k < p->data_count; k++)
        free(p->data[k].at);
    free(p->pure);
    free(p->shared);
    free(p->data);
    free(p->data_fixups);
    free(p->constant_fixups);
    free(p->calls);
    free(p->shared_uses);
    free(p->label_uses);
    free(p);
}

static int compare_rows(const void *a, const void *b) {
    return strcmp((*(const struct sim_ptx_pure *const *)a)->name,
                  (*(const struct sim_ptx_pure *const *)b)->name);
}

// Sorts the pure instructions by name for this load.
static bool index_pure(struct sim_ptx_parser *p) {
    const struct sim_ptx_pure *tables[] = {sim_ptx_integer_values, sim_ptx_float_values};
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = 0;
        for (int k = 0; k < 2; k++)
            for (const struct sim_ptx_pure *row = tables[k]; row->name; row++, count++)
                if (pass == 1)
                    p->pure[count] = row;
        p->pure_count = count;
        if (pass == 0)
            p->pure = malloc(count * sizeof(*p->pure));
        if (!p->pure)
            return false;
    }
    qsort(p->pure, p->pure_count, sizeof(*p->pure), compare_rows);
    return true;
}

static void parse(struct sim_ptx_parser *p, const char *text, size_t bytes) {
    p->lexer = (struct sim_ptx_lexer){text, text + bytes, 1};
    if (sim_ptx_symbols_init(&p->symbols) != 0 || !index_pure(p)) {
        sim_ptx_fail_memory(p);
        return;
    }
    if (bytes > SIM_PTX_TEXT_BYTES_MAX)
        sim_ptx_fail(p, 1, "the text is too long", (struct sim_ptx_text){0}, "");
    sim_ptx_advance(p);
    sim_ptx_parse_module(p);
    if (!sim_ptx_failed(p))
        sim_ptx_link(p);
}

int sim_ptx_load(struct sim_ptx_module **module, const char *text, size_t bytes,
                 const struct sim_ptx_memory *memory, char *log) {
    if (log)
        log[0] = '\0';
    if (!module || !text)
        return SIM_PTX_INVALID_VALUE;
    struct sim_ptx_module *m = calloc(1, sizeof(*m));
    struct sim_ptx_parser *p = calloc(1, sizeof(*p));
    if (!m || !p) {
        free(m);
        free(p);
        return SIM_PTX_OUT_OF_MEMORY;
    }
    if (memory)
        m->memory = *memory;
    p->module = m;
    p->log = log;
    parse(p, text, bytes);
    int code = p->code;
    free_parser(p);
    if (code == SIM_PTX_OK)
        *module = m;
    else
        sim_ptx_unload(m);
    return code;
}

void sim_ptx_forget(struct sim_ptx_module *m) {
    if (m)
        free_module(m);
}

void sim_ptx_unload(struct sim_ptx_module *m) {
    for (int space = 0; m && space < 3; space++)
        if (m->placed[space] && m->memory.release)
            m->memory.release(m->memory.user, m->address[space]);
    sim_ptx_forget(m);
}

static bool is_kernel(const struct sim_ptx_function *f) {
    return f->is_entry && f->is_defined;
}

const struct sim_ptx_function *sim_ptx_function(const struct sim_ptx_module *m, const char *name) {
    for (uint32_t k = 0; k < m->function_count; k++)
        if (is_kernel(&m->functions[k]) && strcmp(m->functions[k].info.name, name) == 0)
            return &m->functions[k];
    return NULL;
}

const struct sim_ptx_function *sim_ptx_function_at(const struct sim_ptx_module *m, uint32_t index) {
    for (uint32_t k = 0; k < m->function_count; k++)
        if (is_kernel(&m->functions[k]) && index-- == 0)
            return &m->functions[k];
    return NULL;
}

const struct sim_ptx_variable *sim_ptx_variable(const struct sim_ptx_module *m, const char *name) {
    for (uint32_t k = 0; k < m->variable_count; k++)
        if (strcmp(m->variables[k].name, name) == 0)
            return &m->variables[k];
    return NULL;
}

const struct sim_ptx_variable *sim_ptx_variable_at(const struct sim_ptx_module *m, uint32_t index) {
    return index < m->variable_count ? &m->variables[index] : NULL;
}

const struct sim_ptx_function_info *sim_ptx_info(const struct sim_ptx_function *f) {
    return &f->info;
}

bool sim_ptx_param(const struct sim_ptx_function *f, uint32_t index, struct sim_ptx_param *param) {
    if (index >= f->info.param_count)
        return false;
    *param = f->module->formals[f->formals + f->returns_count + index].place;
    return true;
}
