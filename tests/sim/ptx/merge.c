// Linking: several texts become one, which the loader then takes as any other.
//
// The texts are cut into their statements at module level, which come out again in an order in
// which everything is declared before it is used: functions' declarations, variables, functions.
// What one text only declares another may define. Debug information is dropped. A name that two
// texts define is the loader's to refuse, except where it is weak: then the first counts.
#include "lex.h"
#include "module.h"

#include <stdlib.h>
#include <string.h>

enum statement_kind { DROPPED, DECLARATION, VARIABLE, EXTERN_VARIABLE, EXTERN_SHARED, DEFINITION };

struct statement {
    enum statement_kind kind;
    bool is_weak;
    struct sim_ptx_text name;
    const char *at;
    size_t bytes;
};

struct merge {
    struct statement *statements;
    uint32_t count, capacity;
    uint32_t version, target;     // the highest
    struct sim_ptx_text targets;  // the words of the text with that target
};

// ---- Cutting a text ----

static int add(struct merge *m, const struct statement *statement) {
    if (m->count == m->capacity) {
        uint32_t capacity = m->capacity ? m->capacity * 2 : 64;
        void *grown = realloc(m->statements, capacity * sizeof(*m->statements));
        if (!grown)
            return SIM_PTX_OUT_OF_MEMORY;
        m->statements = grown;
        m->capacity = capacity;
    }
    m->statements[m->count++] = *statement;
    return SIM_PTX_OK;
}

static bool is_dot(const struct sim_ptx_token *t, const char *word) {
    return t->kind == SIM_PTX_DOT && sim_ptx_text_is(t->text, word);
}

static bool is_mark(const struct sim_ptx_token *t, char mark) {
    return t->kind == SIM_PTX_PUNCTUATION && t->punctuation == mark;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// 6.5 is 65. What is no version counts as none: the loader says so.
static void note_version(struct merge *m, const struct sim_ptx_token *t) {
    struct sim_ptx_text text = t->text;
    if (text.bytes != 3 || !is_digit(text.at[0]) || text.at[1] != '.' || !is_digit(text.at[2]))
        return;
    uint32_t version = (uint32_t)(text.at[0] - '0') * 10 + (uint32_t)(text.at[2] - '0');
    m->version = version > m->version ? version : m->version;
}

// The target that asks for the most is the whole's.
static void note_target(struct merge *m, const struct sim_ptx_token *t) {
    struct sim_ptx_text text = t->text;
    if (t->kind != SIM_PTX_NAME || text.bytes < 4 || memcmp(text.at, "sm_", 3) != 0)
        return;
    uint32_t target = 0;
    for (uint32_t k = 3; k < text.bytes && k < 7 && is_digit(text.at[k]); k++)
        target = target * 10 + (uint32_t)(text.at[k] - '0');
    if (target >= m->target) {
        m->target = target;
        m->targets = text;
    }
}

// .target with its list. The lexer is left behind the last of it.
static void take_targets(struct merge *m, struct sim_ptx_lexer *l) {
    struct sim_ptx_lexer before;
    struct sim_ptx_token t;
    do {
        sim_ptx_lex(l, &t);
        note_target(m, &t);
        before = *l;
        sim_ptx_lex(l, &t);
    } while (is_mark(&t, ','));
    *l = before;
}

// .file, .loc and @: they end with their line.
static void skip_line(struct sim_ptx_lexer *l, uint32_t line) {
    struct sim_ptx_lexer before = *l;
    struct sim_ptx_token t;
    for (sim_ptx_lex(l, &t); t.kind != SIM_PTX_END && t.line == line; sim_ptx_lex(l, &t))
        before = *l;
    *l = before;
}

// What is no statement but a directive of the text or for debuggers. False: it is none.
static bool take_directive(struct merge *m, struct sim_ptx_lexer *l,
                           const struct sim_ptx_token *first) {
    struct sim_ptx_token t;
    if (is_dot(first, "version") || is_dot(first, "address_size")) {
        sim_ptx_lex(l, &t);
        if (is_dot(first, "version"))
            note_version(m, &t);
    } else if (is_dot(first, "target")) {
        take_targets(m, l);
    } else if (is_dot(first, "file") || is_dot(first, "loc") || is_mark(first, '@')) {
        skip_line(l, first->line);
    } else {
        return false;
    }
    return true;
}

// What a statement is, as its words before the body say.
struct words {
    bool is_extern, is_weak, is_shared, is_function, is_section;
};

static void note_word(struct words *w, const struct sim_ptx_token *t) {
    w->is_extern |= is_dot(t, "extern");
    w->is_weak |= is_dot(t, "weak") || is_dot(t, "common");
    w->is_shared |= is_dot(t, "shared");
    w->is_function |= is_dot(t, "func") || is_dot(t, "entry");
    w->is_section |= is_dot(t, "section");
}

static enum statement_kind kind_of(const struct words *w, bool has_body) {
    if (w->is_section)
        return DROPPED;
    if (w->is_function)
        return has_body ? DEFINITION : DECLARATION;
    if (!w->is_extern)
        return VARIABLE;
    return w->is_shared ? EXTERN_SHARED : EXTERN_VARIABLE;
}

// Up to the ; or, of a function or section, the closing brace. False: the text ends before.
static bool cut(struct sim_ptx_lexer *l, struct sim_ptx_token t, struct statement *statement) {
    struct words w = {0};
    uint32_t braces = 0, parentheses = 0;
    bool has_body = false, has_name = false;
    const char *start = t.text.at - (t.kind == SIM_PTX_DOT);
    for (; t.kind != SIM_PTX_END; sim_ptx_lex(l, &t)) {
        if (!has_body)
            note_word(&w, &t);
        if (t.kind == SIM_PTX_NAME && !has_name && !parentheses) {
            statement->name = t.text;
            has_name = true;
        }
        parentheses += is_mark(&t, '(');
        parentheses -= is_mark(&t, ')') && parentheses;
        braces += is_mark(&t, '{');
        has_body |= braces > 0;
        bool closes = is_mark(&t, '}') && braces && --braces == 0;
        if (braces || !(is_mark(&t, ';') || (closes && (w.is_function || w.is_section))))
            continue;
        statement->kind = kind_of(&w, has_body);
        statement->is_weak = w.is_weak;
        statement->at = start;
        statement->bytes = (size_t)(l->at - start);
        return true;
    }
    return false;
}

static int cut_text(struct merge *m, const char *text, size_t bytes) {
    struct sim_ptx_lexer l = {text, text + strnlen(text, bytes), 1};
    struct sim_ptx_token t;
    for (sim_ptx_lex(&l, &t); t.kind != SIM_PTX_END; sim_ptx_lex(&l, &t)) {
        if (take_directive(m, &l, &t))
            continue;
        struct statement statement = {0};
        if (!cut(&l, t, &statement))
            return SIM_PTX_INVALID_PTX;
        int code = add(m, &statement);
        if (code != SIM_PTX_OK)
            return code;
    }
    return SIM_PTX_OK;
}

// ---- Putting them together ----

// Whether an earlier statement than `limit` of one of two kinds has the name.
static bool is_named(const struct merge *m, uint32_t limit, struct sim_ptx_text name,
                     enum statement_kind one, enum statement_kind other) {
    for (uint32_t k = 0; k < limit; k++) {
        const struct statement *s = &m->statements[k];
        if ((s->kind == one || s->kind == other) && sim_ptx_text_same(s->name, name))
            return true;
    }
    return false;
}

// Drops declarations of variables that are defined, and what is there already and may be so.
static void resolve(struct merge *m) {
    for (uint32_t k = 0; k < m->count; k++) {
        struct statement *s = &m->statements[k];
        bool is_double = false;
        if (s->kind == EXTERN_VARIABLE)
            is_double = is_named(m, m->count, s->name, VARIABLE, VARIABLE);
        else if (s->kind == EXTERN_SHARED)
            is_double = is_named(m, k, s->name, EXTERN_SHARED, VARIABLE);
        else if (s->is_weak && (s->kind == DEFINITION || s->kind == VARIABLE))
            is_double = is_named(m, k, s->name, s->kind, s->kind);
        if (is_double)
            s->kind = DROPPED;
    }
}

static size_t put(char *to, size_t at, const char *text, size_t bytes) {
    memcpy(to + at, text, bytes);
    to[at + bytes] = '\n';
    return at + bytes + 1;
}

static size_t put_kinds(const struct merge *m, char *to, size_t at, enum statement_kind first,
                        enum statement_kind last) {
    for (uint32_t k = 0; k < m->count; k++) {
        const struct statement *s = &m->statements[k];
        if (s->kind >= first && s->kind <= last)
            at = put(to, at, s->at, s->bytes);
    }
    return at;
}

// The directives that a text begins with. Room for them: HEADER_BYTES.
#define HEADER_BYTES 128u
#define TARGET_BYTES_MAX 32u

static size_t put_header(const struct merge *m, char *to) {
    char version[] = ".version 0.0", target[8 + TARGET_BYTES_MAX] = ".target ";
    uint32_t bytes = m->targets.bytes < TARGET_BYTES_MAX ? m->targets.bytes : TARGET_BYTES_MAX;
    version[sizeof(version) - 4] = (char)('0' + m->version / 10 % 10);
    version[sizeof(version) - 2] = (char)('0' + m->version % 10);
    if (bytes)
        memcpy(target + 8, m->targets.at, bytes);
    size_t at = put(to, 0, version, sizeof(version) - 1);
    at = put(to, at, target, 8 + bytes);
    return put(to, at, ".address_size 64", 16);
}

static int write_text(const struct merge *m, char **text, size_t *bytes) {
    size_t room = HEADER_BYTES;
    for (uint32_t k = 0; k < m->count; k++)
        room += m->statements[k].bytes + 1;
    char *to = room <= SIM_PTX_TEXT_BYTES_MAX ? malloc(room) : NULL;
    if (!to)
        return SIM_PTX_OUT_OF_MEMORY;
    size_t at = put_header(m, to);
    at = put_kinds(m, to, at, DECLARATION, DECLARATION);
    at = put_kinds(m, to, at, VARIABLE, EXTERN_SHARED);
    at = put_kinds(m, to, at, DEFINITION, DEFINITION);
    to[at] = '\0';
    *text = to;
    *bytes = at;
    return SIM_PTX_OK;
}

int sim_ptx_merge(const struct sim_ptx_source *sources, uint32_t count, char **text,
                  size_t *bytes) {
    struct merge m = {0};
    int code = SIM_PTX_OK;
    for (uint32_t k = 0; k < count && code == SIM_PTX_OK; k++)
        code = cut_text(&m, sources[k].text, sources[k].bytes);
    if (code == SIM_PTX_OK) {
        resolve(&m);
        code = write_text(&m, text, bytes);
    }
    free(m.statements);
    return code;
}
