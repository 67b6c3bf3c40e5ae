// Tokens of PTX text. A token refers to the text, which must outlive it.
#ifndef WEIR_SIM_PTX_LEX_H
#define WEIR_SIM_PTX_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_ptx_token_kind {
    SIM_PTX_END,
    SIM_PTX_NAME,  // add, %r1, $L_x
    SIM_PTX_DOT,   // .global, .L1::evict_last; the text is without the dot
    SIM_PTX_INTEGER,
    SIM_PTX_FLOAT,   // 0f3F800000, 0d..., 1.5
    SIM_PTX_STRING,  // the text is without the quotes
    SIM_PTX_PUNCTUATION,
    SIM_PTX_BAD,  // no token of PTX
};

struct sim_ptx_text {
    const char *at;
    uint32_t bytes;
};

struct sim_ptx_token {
    enum sim_ptx_token_kind kind;
    struct sim_ptx_text text;
    uint32_t line;
    uint64_t integer;  // an integer's value; of a 0f literal its bits
    double real;
    bool is_single;  // a 0f literal
    char punctuation;
};

struct sim_ptx_lexer {
    const char *at, *end;
    uint32_t line;
};

// Reads the next token; at the end of the text, and from then on, SIM_PTX_END.
void sim_ptx_lex(struct sim_ptx_lexer *, struct sim_ptx_token *);

bool sim_ptx_text_is(struct sim_ptx_text, const char *word);
bool sim_ptx_text_same(struct sim_ptx_text, struct sim_ptx_text);

#endif
