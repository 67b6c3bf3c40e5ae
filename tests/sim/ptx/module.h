// The decoded form of a module: what the parser makes and the executor runs.
//
// A value in a register is kept in 64 bits, zero-extended from its type. A function's frame holds
// its registers and its constants alike, one slot each; a call copies the frame's image, in which
// the registers are zero. An operand is a slot's offset in bytes, so that fetching one is one load.
// Instructions that only compute carry a pure function of up to four values; the rest carry a
// handler that works on the thread.
#ifndef WEIR_SIM_PTX_MODULE_H
#define WEIR_SIM_PTX_MODULE_H

#include "ptx.h"

// The newest PTX accepted: that of CUDA 12.4, the driver that the simulated one stands for.
#define SIM_PTX_VERSION_MAX 84u

#define SIM_PTX_INSNS_MAX (1u << 21)
#define SIM_PTX_FUNCTIONS_MAX 4096u
#define SIM_PTX_VARIABLES_MAX (1u << 16)
#define SIM_PTX_SLOTS_MAX (1u << 17)  // a function: registers that it names, and constants
#define SIM_PTX_PARAMS_MAX 1024u      // a function; a call
#define SIM_PTX_INITIALISED_BYTES_MAX (64u << 20)

// Constants that every frame starts with.
#define SIM_PTX_OPERAND_ZERO 0u
#define SIM_PTX_OPERAND_ONE 8u

// Parameters of a kernel are addressed by their offset; those of other functions and of calls lie
// in the thread's frame, and their addresses in .param space carry this bit.
#define SIM_PTX_PARAM_IN_FRAME (1u << 31)
#define SIM_PTX_PARAM_WINDOW (3ull << 56)

// The address of a function: this plus its index times 16.
#define SIM_PTX_CODE_WINDOW (4ull << 56)

struct sim_ptx_thread;
struct sim_ptx_insn;

typedef uint64_t sim_ptx_value(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
typedef void sim_ptx_run(struct sim_ptx_thread *, const struct sim_ptx_insn *);
// An atomic read-modify-write of the object at `at`; returns the old value.
typedef uint64_t sim_ptx_atomic(void *at, uint64_t b, uint64_t c);

enum sim_ptx_insn_space {
    SIM_PTX_AT_GENERIC,
    SIM_PTX_AT_GLOBAL,  // and .const
    SIM_PTX_AT_SHARED,
    SIM_PTX_AT_LOCAL,
    SIM_PTX_AT_FRAME,  // an offset in the running frame's local memory
    SIM_PTX_AT_PARAM,  // a kernel's parameters, or a frame's with SIM_PTX_PARAM_IN_FRAME
};

// One cache line.
struct sim_ptx_insn {
    sim_ptx_run *run;  // NULL: d = value(src...)
    union {
        sim_ptx_value *value;
        sim_ptx_atomic *atomic;
    };
    int64_t offset;  // of an address; how many targets a branch table has
    uint32_t d;
    uint32_t src[4];
    uint32_t guard;   // skipped where bit 0 of this operand equals `guard_skips`
    uint32_t target;  // an instruction, a call, or the first entry in the module's lists
    uint32_t line;
    uint8_t guard_skips;
    uint8_t count;    // sources of a value; elements of a load or store
    uint8_t space;    // enum sim_ptx_insn_space
    uint8_t bytes;    // of one element in memory
    uint8_t d_bytes;  // of the destination register
    uint8_t is_signed;
    uint8_t mode;        // of a warp or barrier instruction; a special register
    uint8_t has_second;  // a warp instruction's second result goes to `target`
};

_Static_assert(sizeof(struct sim_ptx_insn) == 64, "one cache line");

// A formal parameter or result of a function.
struct sim_ptx_formal {
    struct sim_ptx_param place;  // in the parameter buffer (kernel) or the frame (other)
    uint32_t reg;                // its register where is_register
    bool is_register;
};

// What a call passes or receives: a value, or bytes in the caller's frame.
struct sim_ptx_actual {
    uint32_t ref;  // an operand, or an offset in the frame
    uint32_t bytes;
    bool in_frame;
};

struct sim_ptx_call {
    uint32_t returns, params;  // counts
    uint32_t first;            // in the module's actuals: the returns, then the params
    uint32_t function;         // or UINT32_MAX: indirect
};

struct sim_ptx_function {
    struct sim_ptx_function_info info;
    struct sim_ptx_module *module;
    uint32_t index;
    bool is_entry, is_defined, is_pointed_to, uses_shared;
    uint32_t formals, returns_count;  // the returns, then the info.param_count parameters
    uint32_t code;                    // its first instruction
    uint32_t image, slots;            // of a frame, in the module's slots
    uint32_t frame_bytes;             // of local memory
};

struct sim_ptx_shared {
    uint64_t bytes, offset;
    uint32_t align;
    bool is_dynamic;
    uint32_t user;  // the only kernel that uses it, or UINT32_MAX: none or several
    bool is_used;
};

struct sim_ptx_module {
    struct sim_ptx_memory memory;
    uint32_t ptx_version, target;

    struct sim_ptx_insn *code;
    uint64_t *slots;  // the images of all functions' frames
    uint32_t *lists;  // operands of vectors, targets of brx.idx
    struct sim_ptx_formal *formals;
    struct sim_ptx_actual *actuals;
    struct sim_ptx_call *calls;
    struct sim_ptx_function *functions;
    struct sim_ptx_variable *variables;
    uint32_t code_count, slot_count, list_count, formal_count, actual_count, call_count;
    uint32_t function_count, variable_count;
    uint64_t dynamic_shared_offset;  // where .extern .shared arrays begin, the same in all kernels

    uint64_t address[3];  // of the variables of each enum sim_ptx_space; valid where placed
    bool placed[3];
};

// Whether a call's counts and sizes agree with the function's.
bool sim_ptx_call_fits(const struct sim_ptx_module *, const struct sim_ptx_call *,
                       const struct sim_ptx_function *);

#endif
