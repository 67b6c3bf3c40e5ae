// The module's level: version, target, linkage, and what debug information surrounds them.
#include "parser.h"

// Reads "6.5" into 65. Minor versions have one digit so far.
static uint32_t version_of(struct sim_ptx_text text) {
    if (text.bytes != 3 || text.at[1] != '.')
        return 0;
    return (uint32_t)(text.at[0] - '0') * 10 + (uint32_t)(text.at[2] - '0');
}

static void parse_version(struct sim_ptx_parser *p) {
    if (!sim_ptx_accept_dot(p, "version")) {
        sim_ptx_fail(p, 0, "the text does not begin with .version", (struct sim_ptx_text){0}, "");
        return;
    }
    uint32_t version = p->token.kind == SIM_PTX_FLOAT ? version_of(p->token.text) : 0;
    if (version == 0)
        sim_ptx_unexpected(p, "a version such as 6.0");
    bool is_too_new = version > SIM_PTX_VERSION_MAX;
    if (is_too_new)
        sim_ptx_fail(p, 0, "PTX version", p->token.text, " is newer than this driver");
    if (is_too_new)
        p->code = SIM_PTX_UNSUPPORTED_VERSION;
    p->module->ptx_version = version;
    sim_ptx_advance(p);
}

static void parse_target(struct sim_ptx_parser *p) {
    do {
        struct sim_ptx_text name = sim_ptx_expect_name(p);
        if (name.bytes < 4 || memcmp(name.at, "sm_", 3) != 0)
            continue;
        uint32_t target = 0;
        for (uint32_t k = 3; k < name.bytes && name.at[k] >= '0' && name.at[k] <= '9' && k < 7; k++)
            target = target * 10 + (uint32_t)(name.at[k] - '0');
        p->module->target = target;
    } while (sim_ptx_accept(p, ','));
}

static void parse_address_size(struct sim_ptx_parser *p) {
    if (sim_ptx_expect_integer(p, 64) != 64)
        sim_ptx_fail(p, 0, "only .address_size 64 is supported", (struct sim_ptx_text){0}, "");
}

// .section name { ... }
static void skip_section(struct sim_ptx_parser *p) {
    while (p->token.kind != SIM_PTX_END && !sim_ptx_at(p, '{'))
        sim_ptx_advance(p);
    while (p->token.kind != SIM_PTX_END && !sim_ptx_at(p, '}'))
        sim_ptx_advance(p);
    sim_ptx_expect(p, '}');
}

static void skip_statement(struct sim_ptx_parser *p) {
    while (p->token.kind != SIM_PTX_END && !sim_ptx_at(p, ';'))
        sim_ptx_advance(p);
    sim_ptx_expect(p, ';');
}

static void parse_declaration(struct sim_ptx_parser *p) {
    bool is_extern = false;
    for (;;) {
        if (sim_ptx_accept_dot(p, "extern"))
            is_extern = true;
        else if (!sim_ptx_accept_dot(p, "visible") && !sim_ptx_accept_dot(p, "weak") &&
                 !sim_ptx_accept_dot(p, "common"))
            break;
    }
    if (sim_ptx_accept_dot(p, "entry"))
        sim_ptx_parse_function(p, true, is_extern);
    else if (sim_ptx_accept_dot(p, "func"))
        sim_ptx_parse_function(p, false, is_extern);
    else if (sim_ptx_accept_dot(p, "global"))
        sim_ptx_parse_variable(p, "global", is_extern);
    else if (sim_ptx_accept_dot(p, "const"))
        sim_ptx_parse_variable(p, "const", is_extern);
    else if (sim_ptx_accept_dot(p, "shared"))
        sim_ptx_parse_variable(p, "shared", is_extern);
    else
        sim_ptx_unexpected(p, "a function or variable");
}

void sim_ptx_parse_module(struct sim_ptx_parser *p) {
    parse_version(p);
    while (p->token.kind != SIM_PTX_END) {
        if (sim_ptx_accept_dot(p, "target"))
            parse_target(p);
        else if (sim_ptx_accept_dot(p, "address_size"))
            parse_address_size(p);
        else if (sim_ptx_at_dot(p, "file") || sim_ptx_at_dot(p, "loc") || sim_ptx_at(p, '@'))
            sim_ptx_skip_line(p);
        else if (sim_ptx_at_dot(p, "section"))
            skip_section(p);
        else if (sim_ptx_at_dot(p, "pragma"))
            skip_statement(p);
        else
            parse_declaration(p);
    }
    if (!sim_ptx_failed(p) && p->module->target == 0)
        sim_ptx_fail(p, 0, "the text has no .target", (struct sim_ptx_text){0}, "");
}
