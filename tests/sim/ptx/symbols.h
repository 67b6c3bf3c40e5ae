// Names and their scopes. PTX nests blocks, each with its own registers, parameters and labels, and
// generated code opens one at every call, so leaving a block must cost no more than what it
// declared.
#ifndef WEIR_SIM_PTX_SYMBOLS_H
#define WEIR_SIM_PTX_SYMBOLS_H

#include "lex.h"

#define SIM_PTX_SCOPES_MAX 64
#define SIM_PTX_SYMBOLS_MAX (1u << 22)

enum sim_ptx_symbol_kind {
    SIM_PTX_SYMBOL_REGISTER,     // index: the register
    SIM_PTX_SYMBOL_RANGE,        // %r<count>: registers made when first named
    SIM_PTX_SYMBOL_VARIABLE,     // index: of the module's variables
    SIM_PTX_SYMBOL_SHARED,       // index: of the parser's shared variables
    SIM_PTX_SYMBOL_FUNCTION,     // index
    SIM_PTX_SYMBOL_PARAM,        // index: offset in a kernel's parameters
    SIM_PTX_SYMBOL_FRAME,        // index: offset in the frame; a .local variable
    SIM_PTX_SYMBOL_FRAME_PARAM,  // index: offset in the frame; a .param variable
    SIM_PTX_SYMBOL_LABEL,        // index: the instruction
    SIM_PTX_SYMBOL_TARGETS,      // index: first of `count` in the module's lists
    SIM_PTX_SYMBOL_PROTOTYPE,    // of an indirect call
};

struct sim_ptx_symbol {
    struct sim_ptx_text name;
    enum sim_ptx_symbol_kind kind;
    uint8_t bytes;  // of a register; 0 for a predicate
    uint8_t scope;
    uint32_t index, count;  // count: of a range, of targets; bytes of a frame variable
    uint32_t next_in_bucket, next_in_scope;
};

struct sim_ptx_symbols {
    struct sim_ptx_symbol *all;
    uint32_t count, capacity;
    uint32_t free;  // entries to use again
    uint32_t *buckets;
    uint32_t bucket_count;
    uint32_t scopes[SIM_PTX_SCOPES_MAX];  // each scope's first symbol
    uint32_t depth;                       // scopes open, the module's included
};

// All return 0, or ENOMEM, or as said. The table starts with the module's scope open.
int sim_ptx_symbols_init(struct sim_ptx_symbols *);
void sim_ptx_symbols_free(struct sim_ptx_symbols *);

// ENOSPC: nested deeper than SIM_PTX_SCOPES_MAX.
int sim_ptx_scope_open(struct sim_ptx_symbols *);
void sim_ptx_scope_close(struct sim_ptx_symbols *);

// Adds a symbol to scope number `scope` (0: the module; depth - 1: the innermost). EEXIST: that
// scope has the name already; ENOSPC: SIM_PTX_SYMBOLS_MAX. The result is valid until the next add.
int sim_ptx_symbol_add(struct sim_ptx_symbols *, uint32_t scope, struct sim_ptx_text name,
                       struct sim_ptx_symbol **symbol);

// The innermost symbol of that name, or NULL.
struct sim_ptx_symbol *sim_ptx_symbol_find(struct sim_ptx_symbols *, struct sim_ptx_text name);
// The same in one scope only.
struct sim_ptx_symbol *sim_ptx_symbol_in(struct sim_ptx_symbols *, uint32_t scope,
                                         struct sim_ptx_text name);

#endif
