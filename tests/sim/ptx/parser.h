// What the parts of the parser share. An error is sticky: it is logged once, and from then on the
// parser sees the end of the text, so that no caller need check after each step. Builders may
// always write to the instruction that sim_ptx_emit returns.
#ifndef WEIR_SIM_PTX_PARSER_H
#define WEIR_SIM_PTX_PARSER_H

#include "exec.h"
#include "symbols.h"
#include "values.h"

#define SIM_PTX_QUALIFIERS_MAX 12
#define SIM_PTX_OPERANDS_MAX 8
#define SIM_PTX_TEMPORARIES_MAX 24
#define SIM_PTX_VECTOR_MAX 4
#define SIM_PTX_NO_SLOT UINT32_MAX    // the index of a register that has not been used
#define SIM_PTX_RECENT_CONSTANTS 256  // that are found again instead of made anew

// The initial bytes of a variable, from its start; the rest is zero.
struct sim_ptx_data {
    uint32_t variable;
    uint64_t bytes, capacity;
    uint8_t *at;
};

// A place in initial data that holds an address: ((address + addend) & mask) >> shift.
struct sim_ptx_data_fixup {
    uint32_t data;
    uint64_t offset, addend, mask;
    uint32_t symbol;  // of a variable, or a function
    bool is_function;
    uint8_t bytes, shift;
};

// A constant that holds the address of a variable.
struct sim_ptx_constant_fixup {
    uint32_t slot, index;
    bool is_shared;  // index: of a shared variable, else of a module variable
};

// A use of a label that may not have been seen yet.
struct sim_ptx_label_use {
    struct sim_ptx_text name;
    uint32_t at, line;
    bool in_list;  // at: in the module's lists, else an instruction
};

struct sim_ptx_use {
    uint32_t user, used;  // a function, and what it calls or the shared variable that it names
};

enum sim_ptx_operand_kind {
    SIM_PTX_OPERAND_NONE,
    SIM_PTX_OPERAND_REGISTER,
    SIM_PTX_OPERAND_INTEGER,
    SIM_PTX_OPERAND_FLOAT,
    SIM_PTX_OPERAND_SYMBOL,   // a variable's or function's address
    SIM_PTX_OPERAND_ADDRESS,  // [...]
    SIM_PTX_OPERAND_VECTOR,   // {...}
    SIM_PTX_OPERAND_SPECIAL,
    SIM_PTX_OPERAND_SINK,  // _
    SIM_PTX_OPERAND_NAME,  // a label, perhaps
};

struct sim_ptx_operand {
    enum sim_ptx_operand_kind kind;
    enum sim_ptx_operand_kind base;  // of an address: a register, an integer or a symbol
    struct sim_ptx_text text;
    struct sim_ptx_symbol symbol;
    uint8_t bytes;         // of the register; 0 for a predicate
    bool is_negated;       // !p
    bool has_second;       // p|q
    uint32_t reg, second;  // register operands
    uint64_t integer;      // or the bits of a 0f literal
    double real;
    bool is_single;
    int64_t offset;
    uint32_t special;
    uint32_t elements, element_count;  // of a vector: in the parser's elements
};

struct sim_ptx_opcode {
    struct sim_ptx_text base, qualifiers[SIM_PTX_QUALIFIERS_MAX], whole;
    uint32_t count, line;
};

struct sim_ptx_parser {
    struct sim_ptx_lexer lexer;
    struct sim_ptx_token token;
    struct sim_ptx_module *module;
    int code;
    char *log;
    struct sim_ptx_symbols symbols;
    const struct sim_ptx_pure **pure;  // all pure instructions by name
    uint32_t pure_count;

    struct sim_ptx_shared *shared;
    struct sim_ptx_data *data;
    struct sim_ptx_data_fixup *data_fixups;
    struct sim_ptx_constant_fixup *constant_fixups;
    struct sim_ptx_use *calls, *shared_uses;
    uint32_t shared_count, data_count, data_fixup_count, constant_fixup_count;
    uint32_t call_use_count, shared_use_count;
    uint64_t space_bytes[3];  // taken by variables, by enum sim_ptx_space
    uint64_t space_align[3];
    uint64_t initialised_bytes;

    // The function that is being read.
    uint32_t function;
    uint32_t temporaries[SIM_PTX_TEMPORARIES_MAX], temporary_count, temporaries_used;
    uint32_t recent[SIM_PTX_RECENT_CONSTANTS];  // slots of constants, by a hash of their values
    uint32_t carry;                             // the register of the carry flag, or UINT32_MAX
    struct sim_ptx_label_use *label_uses;       // not yet resolved
    uint32_t label_use_count;
    uint32_t frame_used;
    struct {
        uint32_t frame_used, label_use_count;  // when it was opened
    } scopes[SIM_PTX_SCOPES_MAX];
    struct sim_ptx_opcode opcode;
    struct sim_ptx_operand operands[SIM_PTX_OPERANDS_MAX];
    struct sim_ptx_operand elements[SIM_PTX_OPERANDS_MAX * SIM_PTX_VECTOR_MAX];
    uint32_t operand_count, element_count;
    struct sim_ptx_insn nowhere;  // where emission goes after an error
};

// parser.c. Fails the load at the current token (or `line`): what, then the text in quotes, then
// more.
void sim_ptx_fail(struct sim_ptx_parser *, uint32_t line, const char *what, struct sim_ptx_text,
                  const char *more);
void sim_ptx_fail_memory(struct sim_ptx_parser *);
void sim_ptx_unexpected(struct sim_ptx_parser *, const char *wanted);
static inline bool sim_ptx_failed(const struct sim_ptx_parser *p) {
    return p->code != SIM_PTX_OK;
}
struct sim_ptx_text sim_ptx_text_of(const char *);

void sim_ptx_advance(struct sim_ptx_parser *);
bool sim_ptx_at(const struct sim_ptx_parser *, char punctuation);
bool sim_ptx_at_dot(const struct sim_ptx_parser *, const char *word);
// Passes over what is there and returns true, or returns false.
bool sim_ptx_accept(struct sim_ptx_parser *, char punctuation);
bool sim_ptx_accept_dot(struct sim_ptx_parser *, const char *word);
void sim_ptx_expect(struct sim_ptx_parser *, char punctuation);
// Take a name, an integer up to max (also negative where max is negative), a name's text.
struct sim_ptx_text sim_ptx_expect_name(struct sim_ptx_parser *);
uint64_t sim_ptx_expect_integer(struct sim_ptx_parser *, uint64_t max);
void sim_ptx_skip_line(struct sim_ptx_parser *);

// Appends a zeroed entry to an array whose capacity is the next power of two of its count.
void *sim_ptx_append(struct sim_ptx_parser *, void *array_pointer, uint32_t *count, size_t size,
                     uint32_t max, const char *what);
// Adds a symbol to the innermost scope (or the module's), or fails.
struct sim_ptx_symbol *sim_ptx_declare(struct sim_ptx_parser *, bool in_module,
                                       struct sim_ptx_text name, enum sim_ptx_symbol_kind);

// A fundamental type: its kind (u s f b p) and bytes. Returns false where the text names none.
bool sim_ptx_type_of(struct sim_ptx_text, char *kind, uint32_t *bytes);

// parser.c: code. Registers and constants come as operands.
struct sim_ptx_insn *sim_ptx_emit(struct sim_ptx_parser *);
void sim_ptx_emit_value(struct sim_ptx_parser *, sim_ptx_value *, uint32_t d, uint32_t a,
                        uint32_t b, uint32_t c, uint32_t e);
uint32_t sim_ptx_constant(struct sim_ptx_parser *, uint64_t value);
uint32_t sim_ptx_own_constant(struct sim_ptx_parser *, uint64_t value);  // shared with no other use
uint32_t sim_ptx_new_register(struct sim_ptx_parser *);
// Begins the frame of the function: its first constants.
void sim_ptx_begin_frame(struct sim_ptx_parser *);
uint32_t sim_ptx_temporary(struct sim_ptx_parser *);
const struct sim_ptx_pure *sim_ptx_pure_named(const struct sim_ptx_parser *, const char *name);

// parse_operand.c
void sim_ptx_parse_operands(struct sim_ptx_parser *);
struct sim_ptx_operand sim_ptx_parse_operand(struct sim_ptx_parser *);
// The operand as a source or destination of an instruction, by its letter (values.h). Sources may
// emit instructions, so they come before the instruction's own emission.
uint32_t sim_ptx_source(struct sim_ptx_parser *, const struct sim_ptx_operand *, char letter);
uint32_t sim_ptx_destination(struct sim_ptx_parser *, const struct sim_ptx_operand *, char letter);
// The letter of a type of that kind and size; '?' where there is none.
char sim_ptx_letter(char kind, uint32_t bytes);
// Splits an address for an instruction of `space`: the base operand and offset, and where they lie.
uint32_t sim_ptx_address(struct sim_ptx_parser *, const struct sim_ptx_operand *, uint8_t *space,
                         int64_t *offset);
// The symbol of a name, or NULL. A register gets its slot at its first use, and one of a range its
// symbol, too.
const struct sim_ptx_symbol *sim_ptx_find(struct sim_ptx_parser *, struct sim_ptx_text name);

// Removes a qualifier from the opcode; returns whether it was there.
bool sim_ptx_take(struct sim_ptx_parser *, const char *qualifier);
void sim_ptx_unknown(struct sim_ptx_parser *);  // fails: unknown instruction
bool sim_ptx_expect_operands(struct sim_ptx_parser *, uint32_t min, uint32_t max);

// parse_module.c, parse_function.c, parse_variable.c, parse_body.c
void sim_ptx_parse_module(struct sim_ptx_parser *);
void sim_ptx_parse_function(struct sim_ptx_parser *, bool is_entry, bool is_extern);
void sim_ptx_parse_variable(struct sim_ptx_parser *, const char *space, bool is_extern);
void sim_ptx_parse_registers(struct sim_ptx_parser *);
// Reads `[.align n] .type name[dims]` as far as it goes: type, alignment, name and bytes.
struct sim_ptx_declarator {
    struct sim_ptx_text name;
    char type;
    uint32_t element_bytes, align, line;
    uint64_t bytes;
    bool is_open;  // name[]
    uint32_t dims, dim[4];
};
void sim_ptx_parse_declarator(struct sim_ptx_parser *, struct sim_ptx_declarator *);
uint32_t sim_ptx_frame_place(struct sim_ptx_parser *, uint64_t bytes, uint32_t align);
void sim_ptx_open_scope(struct sim_ptx_parser *);
void sim_ptx_close_scope(struct sim_ptx_parser *);
void sim_ptx_parse_body(struct sim_ptx_parser *);
void sim_ptx_use_label(struct sim_ptx_parser *, struct sim_ptx_text name, uint32_t at,
                       bool in_list);

// build_*.c: true where the opcode is one of theirs.
bool sim_ptx_build_value(struct sim_ptx_parser *);
bool sim_ptx_build_memory(struct sim_ptx_parser *);
bool sim_ptx_build_control(struct sim_ptx_parser *);
bool sim_ptx_build_warp(struct sim_ptx_parser *);
void sim_ptx_build_call(struct sim_ptx_parser *);

// link.c: after the text: lays shared memory out, checks calls, places and fills the variables.
void sim_ptx_link(struct sim_ptx_parser *);

#endif
