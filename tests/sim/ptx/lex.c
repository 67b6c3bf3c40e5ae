// See lex.h. Characters are classified by hand: the C library's classes follow the host's locale.
#include "lex.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#define DECIMAL_BYTES_MAX 64  // of a decimal float literal

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool is_word(char c) {
    return is_letter(c) || is_digit(c);
}

static int digit_of(char c) {
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

bool sim_ptx_text_same(struct sim_ptx_text a, struct sim_ptx_text b) {
    // An empty text may be nowhere, which memcmp does not allow.
    return a.bytes == b.bytes && (!a.bytes || memcmp(a.at, b.at, a.bytes) == 0);
}

bool sim_ptx_text_is(struct sim_ptx_text text, const char *word) {
    return sim_ptx_text_same(text, (struct sim_ptx_text){word, strlen(word)});
}

static void skip_comment(struct sim_ptx_lexer *l) {
    bool is_block = l->at[1] == '*';
    l->at += 2;
    for (; l->at < l->end; l->at++) {
        if (*l->at == '\n') {
            if (!is_block)
                return;
            l->line++;
        } else if (is_block && *l->at == '*' && l->end - l->at > 1 && l->at[1] == '/') {
            l->at += 2;
            return;
        }
    }
}

static void skip_blank(struct sim_ptx_lexer *l) {
    while (l->at < l->end) {
        char c = *l->at;
        if (c == '\n')
            l->line++;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v')
            l->at++;
        else if (c == '/' && l->end - l->at > 1 && (l->at[1] == '/' || l->at[1] == '*'))
            skip_comment(l);
        else
            return;
    }
}

// Reads digits of `base` at l->at; returns how many, or 0 where the value does not fit.
static int read_digits(struct sim_ptx_lexer *l, int base, int count_max, uint64_t *value) {
    int count = 0;
    *value = 0;
    for (; l->at < l->end && count < count_max && digit_of(*l->at) < base; l->at++, count++)
        if (__builtin_mul_overflow(*value, (uint64_t)base, value) ||
            __builtin_add_overflow(*value, (uint64_t)digit_of(*l->at), value))
            return 0;
    return count;
}

static bool lex_bits(struct sim_ptx_lexer *l, struct sim_ptx_token *t, bool is_single) {
    l->at += 2;
    uint64_t bits;
    if (read_digits(l, 16, 16, &bits) != (is_single ? 8 : 16))
        return false;
    t->kind = SIM_PTX_FLOAT;
    t->integer = bits;
    t->is_single = is_single;
    if (is_single) {
        uint32_t low = (uint32_t)bits;
        float single;
        memcpy(&single, &low, sizeof(single));
        t->real = (double)single;
    } else {
        memcpy(&t->real, &bits, sizeof(t->real));
    }
    return true;
}

static bool lex_decimal_float(struct sim_ptx_lexer *l, struct sim_ptx_token *t, size_t bytes) {
    char copy[DECIMAL_BYTES_MAX + 1];
    if (bytes > DECIMAL_BYTES_MAX)
        return false;
    memcpy(copy, l->at, bytes);
    copy[bytes] = '\0';
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain)
        return false;
    char *stop;
    t->real = strtod_l(copy, &stop, plain);
    freelocale(plain);
    t->kind = SIM_PTX_FLOAT;
    l->at += stop - copy;
    return *stop == '\0';
}

// How long the decimal float at l->at is; 0 where it is an integer.
static size_t decimal_float_bytes(const struct sim_ptx_lexer *l) {
    const char *c = l->at;
    while (c < l->end && is_digit(*c))
        c++;
    bool is_float = false;
    if (l->end - c > 1 && *c == '.' && is_digit(c[1])) {
        is_float = true;
        for (c++; c < l->end && is_digit(*c); c++)
            ;
    }
    if (c < l->end && (*c == 'e' || *c == 'E')) {
        is_float = true;
        c++;
        if (c < l->end && (*c == '+' || *c == '-'))
            c++;
        while (c < l->end && is_digit(*c))
            c++;
    }
    return is_float ? (size_t)(c - l->at) : 0;
}

static bool lex_integer(struct sim_ptx_lexer *l, struct sim_ptx_token *t, char second) {
    int base = 10;
    if (*l->at == '0' && (second == 'x' || second == 'b')) {
        base = second == 'x' ? 16 : 2;
        l->at += 2;
    } else if (*l->at == '0' && is_digit(second)) {
        base = 8;
    }
    t->kind = SIM_PTX_INTEGER;
    if (read_digits(l, base, 64, &t->integer) == 0)
        return false;
    if (l->at < l->end && *l->at == 'U')
        l->at++;
    return true;
}

static bool lex_number(struct sim_ptx_lexer *l, struct sim_ptx_token *t) {
    char second = '\0';
    if (l->end - l->at > 1)
        second = (char)(l->at[1] >= 'A' && l->at[1] <= 'Z' ? l->at[1] + 32 : l->at[1]);
    bool is_zero = *l->at == '0';
    size_t float_bytes = 0;
    bool ok;
    if (is_zero && (second == 'f' || second == 'd'))
        ok = lex_bits(l, t, second == 'f');
    else if (!(is_zero && second == 'x') && (float_bytes = decimal_float_bytes(l)) > 0)
        ok = lex_decimal_float(l, t, float_bytes);
    else
        ok = lex_integer(l, t, second);
    return ok && !(l->at < l->end && is_word(*l->at));
}

static bool lex_string(struct sim_ptx_lexer *l, struct sim_ptx_token *t) {
    const char *start = ++l->at;
    while (l->at < l->end && *l->at != '"' && *l->at != '\n')
        l->at += *l->at == '\\' && l->end - l->at > 1 && l->at[1] != '\n' ? 2 : 1;
    if (l->at >= l->end || *l->at != '"')
        return false;
    t->kind = SIM_PTX_STRING;
    t->text = (struct sim_ptx_text){start, (uint32_t)(l->at - start)};
    l->at++;
    return true;
}

// A word, and after a dot also the `::` that some qualifiers contain.
static void lex_word(struct sim_ptx_lexer *l, struct sim_ptx_token *t, bool is_dot) {
    const char *start = l->at;
    while (l->at < l->end) {
        if (is_dot && l->end - l->at > 2 && l->at[0] == ':' && l->at[1] == ':' && is_word(l->at[2]))
            l->at += 2;
        if (!is_word(*l->at))
            break;
        l->at++;
    }
    t->kind = is_dot ? SIM_PTX_DOT : SIM_PTX_NAME;
    t->text = (struct sim_ptx_text){start, (uint32_t)(l->at - start)};
}

void sim_ptx_lex(struct sim_ptx_lexer *l, struct sim_ptx_token *t) {
    skip_blank(l);
    *t = (struct sim_ptx_token){.kind = SIM_PTX_END, .line = l->line, .text = {l->at, 0}};
    if (l->at >= l->end || *l->at == '\0')
        return;
    const char *start = l->at;
    bool ok = true;
    if (is_letter(*l->at)) {
        lex_word(l, t, false);
    } else if (is_digit(*l->at)) {
        ok = lex_number(l, t);
    } else if (*l->at == '"') {
        ok = lex_string(l, t);
    } else if (*l->at == '.' && l->end - l->at > 1 && is_word(l->at[1])) {
        l->at++;
        lex_word(l, t, true);
    } else {
        t->kind = strchr("{}()[]<>,;:=+-*/!~@|&^?.", *l->at) ? SIM_PTX_PUNCTUATION : SIM_PTX_BAD;
        t->punctuation = *l->at++;
    }
    if (!ok) {
        t->kind = SIM_PTX_BAD;
        if (l->at == start)
            l->at++;  // whoever skips tokens must come to the end
    }
    if (t->text.bytes == 0 && t->kind != SIM_PTX_STRING)
        t->text = (struct sim_ptx_text){start, (uint32_t)(l->at - start)};
}
