// ptxtext.c: finds the variables that a PTX text declares in global and constant memory.
//
// It reads words, not the language: a declaration is the directive .global or .const outside
// parentheses (inside, it is part of a parameter's type), some more directives, and names with
// their dimensions up to a semicolon. In an instruction (ld.global.u32) the word does not stand
// alone. What .extern declares is defined elsewhere.
#include <errno.h>
#include <string.h>

#include "image.h"

// Text in a window of one page, so that text of unknown length is asked for page by page.
#define WINDOW_BYTES 4096u
#define TEXT_BYTES_MAX ((uint64_t)256 << 20)
#define WORD_BYTES_MAX 24u

enum word_kind { WORD_END, WORD_DIRECTIVE, WORD_NAME, WORD_NUMBER, WORD_SIGN };

struct text {
    const struct weir_view *view;
    uint64_t at, readable;  // all before `readable` has been asked for
    // The word read last.
    enum word_kind kind;
    char word[WORD_BYTES_MAX];  // cut; of a sign the first letter is it
    uint64_t number;
};

// What a declaration has said so far.
struct declaration {
    uint64_t element_bytes;
    uint64_t count;   // elements, from dimensions
    bool open;        // the first dimension is told by the values
    uint64_t values;  // that are given, in the outermost braces
    bool named;       // a name has been read
};

// The next letter, 0 at the end.
static char peek(struct text *text) {
    if (text->at >= text->readable) {
        uint64_t address = (uint64_t)(uintptr_t)text->view->at + text->at;
        uint64_t bytes = WINDOW_BYTES - address % WINDOW_BYTES;
        uint64_t left = text->at < text->view->length ? text->view->length - text->at : 0;
        if (bytes > left)
            bytes = left;
        if (!bytes || text->at >= TEXT_BYTES_MAX || !weir_view_has(text->view, text->at, bytes))
            return 0;
        text->readable = text->at + bytes;
    }
    return (char)text->view->at[text->at];
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void skip_line(struct text *text) {
    while (peek(text) && peek(text) != '\n')
        text->at++;
}

static void skip_comment(struct text *text) {
    for (char last = 0; peek(text); text->at++) {
        if (last == '*' && peek(text) == '/') {
            text->at++;
            return;
        }
        last = peek(text);
    }
}

static void skip_string(struct text *text) {
    for (bool quoted = false; peek(text) && (quoted || peek(text) != '"'); text->at++)
        quoted = !quoted && peek(text) == '\\';
    if (peek(text))
        text->at++;
}

// Goes to the next word's first letter. A slash that begins no comment is gone over.
static void skip_blank(struct text *text) {
    for (char c = peek(text); c; c = peek(text)) {
        if (c == '/') {
            text->at++;
            if (peek(text) == '/')
                skip_line(text);
            else if (peek(text) == '*')
                text->at++, skip_comment(text);
        } else if (c == '"') {
            text->at++;
            skip_string(text);
        } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
            text->at++;
        } else {
            return;
        }
    }
}

static void keep(struct text *text, size_t *length) {
    if (*length < WORD_BYTES_MAX - 1)
        text->word[(*length)++] = peek(text);
    text->at++;
}

static int digit_value(char c) {
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

// An integer as PTX writes it; of others the beginning. Too large a one stays too large.
static void read_number(struct text *text) {
    unsigned base = 10;
    text->number = 0;
    if (peek(text) == '0') {
        text->at++;
        char mark = peek(text) | 0x20;
        base = mark == 'x' ? 16 : mark == 'b' ? 2 : 8;
        if (base != 8)
            text->at++;
    }
    for (unsigned digit; (digit = (unsigned)digit_value(peek(text))) < base; text->at++)
        if (text->number < WEIR_IMAGE_BYTES_MAX)
            text->number = text->number * base + digit;
    while (is_letter(peek(text)) || is_digit(peek(text)) || peek(text) == '.')
        text->at++;
}

static enum word_kind next_word(struct text *text) {
    size_t length = 0;
    skip_blank(text);
    char first = peek(text);
    if (!first) {
        text->kind = WORD_END;
    } else if (is_digit(first)) {
        text->kind = WORD_NUMBER;
        read_number(text);
    } else if (first == '.' || is_letter(first)) {
        text->kind = first == '.' ? WORD_DIRECTIVE : WORD_NAME;
        // The dots of an instruction belong to it.
        do
            keep(text, &length);
        while (is_letter(peek(text)) || is_digit(peek(text)) ||
               (text->kind == WORD_NAME && peek(text) == '.'));
    } else {
        text->kind = WORD_SIGN;
        keep(text, &length);
    }
    text->word[length] = 0;
    return text->kind;
}

static bool is(const struct text *text, const char *word) {
    return strcmp(text->word, word) == 0;
}

static bool is_sign(const struct text *text, char sign) {
    return text->kind == WORD_SIGN && text->word[0] == sign;
}

// The size of a fundamental type: what its name says in bits. 0 for another word.
static uint64_t type_bytes(const char *word) {
    static const char sizes[][2][4] = {{"8", "1"}, {"16", "2"}, {"32", "4"}, {"64", "8"}};
    const char *bits = word + 1;
    if (strcmp(word, ".b128") == 0)
        return 16;
    if (strcmp(word, ".f16x2") == 0 || strcmp(word, ".bf16x2") == 0)
        return 4;
    if (strcmp(word, ".bf16") == 0)
        return 2;
    if (*bits != 'b' && *bits != 'u' && *bits != 's' && *bits != 'f')
        return 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(bits + 1, sizes[i][0]) == 0)
            return (uint64_t)(sizes[i][1][0] - '0');
    return 0;
}

static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    bool large = __builtin_mul_overflow(a, b, &product) || product > WEIR_IMAGE_BYTES_MAX;
    return large ? WEIR_IMAGE_BYTES_MAX : product;
}

// After an opening bracket: one dimension.
static void read_dimension(struct text *text, struct declaration *one) {
    if (next_word(text) == WORD_NUMBER)
        one->count = multiply(one->count, text->number);
    else if (is_sign(text, ']'))
        one->open = true;
    while (text->kind != WORD_END && !is_sign(text, ']') && !is_sign(text, ';'))
        next_word(text);
}

// After the equals sign: goes over the values, to the sign behind them, and counts those in the
// outermost braces.
static void read_values(struct text *text, struct declaration *one) {
    uint32_t depth = 0;
    bool any = false;
    while (next_word(text) != WORD_END && !is_sign(text, ';')) {
        if (is_sign(text, '{')) {
            any |= depth++ > 0;
        } else if (is_sign(text, '}')) {
            if (--depth == 0)
                break;
        } else if (is_sign(text, ',')) {
            if (!depth)
                return;  // of the next name
            one->values += depth == 1 && any;
        } else {
            any = true;
        }
    }
    one->values += any;
    if (text->kind != WORD_END && !is_sign(text, ';'))
        next_word(text);
}

static void finish_name(struct declaration *one, struct weir_image *out) {
    uint64_t count = one->open ? multiply(one->count, one->values) : one->count;
    if (one->named)
        weir_image_add(&out->variable_bytes, multiply(count, one->element_bytes));
    *one = (struct declaration){.element_bytes = one->element_bytes, .count = 1};
}

// Goes over what is in parentheses, behind an opening one.
static void skip_parentheses(struct text *text) {
    for (uint32_t depth = 1; depth && next_word(text) != WORD_END;)
        depth += is_sign(text, '(') ? 1u : is_sign(text, ')') ? -1u : 0u;
}

// After .global or .const: the rest of the declaration, its semicolon included.
static void read_declaration(struct text *text, bool defined, struct weir_image *out) {
    struct declaration one = {.count = 1};
    uint64_t vector = 1;
    struct weir_image ignored = {0, 0};
    next_word(text);
    while (text->kind != WORD_END && !is_sign(text, ';') && !is_sign(text, '}')) {
        bool values = is_sign(text, '=');
        if (text->kind == WORD_DIRECTIVE && text->word[1] == 'v' && is_digit(text->word[2]))
            vector = (uint64_t)(text->word[2] - '0');
        else if (text->kind == WORD_DIRECTIVE && type_bytes(text->word))
            one.element_bytes = vector * type_bytes(text->word);
        else if (text->kind == WORD_NAME)
            one.named = true;
        else if (is_sign(text, '['))
            read_dimension(text, &one);
        else if (is_sign(text, '('))
            skip_parentheses(text);
        else if (is_sign(text, ','))
            finish_name(&one, defined ? out : &ignored);
        if (values)
            read_values(text, &one);  // which has read the word behind them
        else
            next_word(text);
    }
    finish_name(&one, defined ? out : &ignored);
}

int weir_ptx_read(const struct weir_view *view, struct weir_image *out) {
    struct text text = {.view = view};
    bool external = false;
    while (next_word(&text) != WORD_END) {
        if (is_sign(&text, '('))
            skip_parentheses(&text);
        else if (text.kind != WORD_DIRECTIVE)
            external = external && !is_sign(&text, ';') && !is_sign(&text, '{');
        else if (is(&text, ".extern"))
            external = true;
        else if (is(&text, ".global") || is(&text, ".const")) {
            read_declaration(&text, !external, out);
            external = false;
        }
    }
    weir_image_add(&out->code_bytes, text.at);
    return 0;
}
