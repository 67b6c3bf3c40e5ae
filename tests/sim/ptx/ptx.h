// The PTX interpreter's interface: load a module from PTX text, look things up in it, run a grid.
//
// A module is immutable once loaded: any number of threads may launch its functions at once. The
// text is decoded at load and not kept. Device memory is the caller's: it gives out room for a
// module's variables and translates device addresses to host pointers during a launch.
//
// Codes are the driver's own (CUresult), so that the caller can pass them on. Nothing here prints,
// exits, aborts or keeps process-wide state; all memory comes from malloc and every size is bounded
// by a SIM_PTX_*_MAX.
//
// Generic addresses: shared and local memory appear in two windows above every user-space address;
// all else is a device address (global, constant and managed memory, and host memory that the
// caller maps to the device).
#ifndef WEIR_SIM_PTX_H
#define WEIR_SIM_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_PTX_TEXT_BYTES_MAX (64u << 20)
#define SIM_PTX_LOG_BYTES 512
#define SIM_PTX_BLOCK_THREADS_MAX 1024
#define SIM_PTX_BLOCK_X_MAX 1024
#define SIM_PTX_BLOCK_Y_MAX 1024
#define SIM_PTX_BLOCK_Z_MAX 64
#define SIM_PTX_GRID_X_MAX 0x7fffffffu
#define SIM_PTX_GRID_YZ_MAX 65535
#define SIM_PTX_SHARED_BYTES_MAX (227u << 10)  // static plus dynamic, a block
#define SIM_PTX_LOCAL_BYTES_MAX (512u << 10)   // a thread
#define SIM_PTX_PARAM_BYTES_MAX 4096
#define SIM_PTX_VARIABLES_BYTES_MAX (1u << 30)  // all module variables together
#define SIM_PTX_CALL_DEPTH_MAX 256
#define SIM_PTX_VARIABLE_ALIGN 512  // each module variable has device memory of its own

#define SIM_PTX_SHARED_WINDOW (1ull << 56)
#define SIM_PTX_LOCAL_WINDOW (2ull << 56)

enum sim_ptx_code {
    SIM_PTX_OK = 0,
    SIM_PTX_INVALID_VALUE = 1,
    SIM_PTX_OUT_OF_MEMORY = 2,
    SIM_PTX_INVALID_PTX = 218,
    SIM_PTX_UNSUPPORTED_VERSION = 222,
    SIM_PTX_ILLEGAL_ADDRESS = 700,
    SIM_PTX_OUT_OF_RESOURCES = 701,  // block too large for the function, too much shared memory
    SIM_PTX_TIMEOUT = 702,           // cancelled, or instructions_max reached
    SIM_PTX_ASSERT = 710,
    SIM_PTX_STACK_ERROR =
        714,  // calls nested deeper than SIM_PTX_CALL_DEPTH_MAX, or local memory full
    SIM_PTX_MISALIGNED_ADDRESS = 716,
    SIM_PTX_INVALID_PC = 718,  // an indirect call to what is no function
    SIM_PTX_LAUNCH_FAILED =
        719,  // trap, or threads that wait at a barrier which can never complete
};

enum sim_ptx_space { SIM_PTX_GLOBAL, SIM_PTX_CONST, SIM_PTX_MANAGED, SIM_PTX_SPACES };

// Device memory as a launch and a load need it. Every callback gets `user` first.
struct sim_ptx_memory {
    void *user;

    // Room for a module's variables of one space (asked for at most once a space and module).
    // Returns 0 or a CUresult, which the load then returns. Needed for a load only; all three may
    // be NULL for modules without variables.
    int (*allocate)(void *user, enum sim_ptx_space space, uint64_t bytes, uint64_t align,
                    uint64_t *address);
    int (*write)(void *user, uint64_t address, const void *data, uint64_t bytes);
    void (*release)(void *user, uint64_t address);

    // The mapped range that holds `address`: [*start, *start + *bytes) at *host, and whether the
    // launch may write there. Returns false where it may not even read. Needed for a launch only.
    // May be called from several launches at once. The launch caches a few answers, so a range must
    // stay valid until the launch ends; an answer may be smaller than the allocation (one page of
    // managed memory, say) to see first touches.
    bool (*resolve)(void *user, uint64_t address, uint64_t *start, uint64_t *bytes, void **host,
                    bool *writable);
};

struct sim_ptx_module;    // a loaded module
struct sim_ptx_function;  // a kernel of a module; lives as long as the module

struct sim_ptx_param {
    uint32_t offset, bytes, align;  // in the parameter buffer
};

struct sim_ptx_function_info {
    const char *name;
    uint32_t param_count;
    uint32_t params_bytes;  // size of the parameter buffer
    uint32_t static_shared_bytes;
    uint32_t local_bytes;          // a thread's frame, without those of called functions
    uint32_t registers;            // an estimate of what hardware would allocate a thread, 16..255
    uint32_t threads_max;          // from .maxntid, else SIM_PTX_BLOCK_THREADS_MAX
    uint32_t block_required[3];    // from .reqntid; zeros where absent
    uint32_t cluster_required[3];  // from .reqnctapercluster; zeros where absent
    bool cluster_explicit;         // .explicitcluster: a launch must say how large its clusters are
    uint32_t ptx_version;          // major * 10 + minor
    uint32_t target;               // sm_NN: NN
    bool empty;  // the first instruction ends the thread: a launch changes nothing
};

struct sim_ptx_variable {
    const char *name;
    enum sim_ptx_space space;
    uint64_t address, bytes;
};

// Loads a module. `text` need not end in NUL; a NUL ends it. `memory` may be NULL (a module with
// variables then fails with SIM_PTX_INVALID_VALUE); it is copied. `log` (may be NULL, else
// SIM_PTX_LOG_BYTES long) gets one NUL-terminated line: empty, or what is wrong, in which line
// and instruction. Returns SIM_PTX_OK, _INVALID_PTX, _UNSUPPORTED_VERSION, _OUT_OF_MEMORY, or what
// a callback returned.
int sim_ptx_load(struct sim_ptx_module **module, const char *text, size_t bytes,
                 const struct sim_ptx_memory *memory, char *log);

// Frees the module and gives its variables' memory back through `release`. No launch of it may
// be running. NULL is allowed.
void sim_ptx_unload(struct sim_ptx_module *module);

// As sim_ptx_unload, but releases no device memory: for a context that died with all its memory.
void sim_ptx_forget(struct sim_ptx_module *module);

// Makes one text of several, in which what one of them declares may be defined in another; its
// loader says what is wrong with it. `text` has a NUL at its end, not counted in `bytes`, and is to
// be freed. SIM_PTX_INVALID_PTX where a text ends within a statement.
struct sim_ptx_source {
    const char *text;
    size_t bytes;
};
int sim_ptx_merge(const struct sim_ptx_source *sources, uint32_t count, char **text, size_t *bytes);

// Look-ups by name return NULL where there is none; those by index (0 .. count-1) at the end.
// Variables are those of .global and .const space, in the order of the text.
const struct sim_ptx_function *sim_ptx_function(const struct sim_ptx_module *, const char *name);
const struct sim_ptx_function *sim_ptx_function_at(const struct sim_ptx_module *, uint32_t index);
const struct sim_ptx_variable *sim_ptx_variable(const struct sim_ptx_module *, const char *name);
const struct sim_ptx_variable *sim_ptx_variable_at(const struct sim_ptx_module *, uint32_t index);

const struct sim_ptx_function_info *sim_ptx_info(const struct sim_ptx_function *);
// Returns false where the function has no such parameter.
bool sim_ptx_param(const struct sim_ptx_function *, uint32_t index, struct sim_ptx_param *param);

struct sim_ptx_launch {
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    const void *params;  // laid out as sim_ptx_param says; read during the launch
    size_t params_bytes;
    const struct sim_ptx_memory *memory;
    uint32_t processors;         // for %nsmid and %smid; 0 counts as 1
    bool together;               // all blocks run at once, in turns: they may wait for each other
    uint64_t instructions_max;   // 0: no bound
    const volatile int *cancel;  // NULL, or looked at every few thousand instructions
};

struct sim_ptx_outcome {
    uint64_t instructions;  // executed, all threads together
    uint64_t address;       // the bad address, for codes 700 and 716
    uint32_t line;          // of the PTX text, where execution stopped; 0 without an error
    uint32_t block[3], thread[3];
};

// Checks what the driver checks before it accepts a launch: SIM_PTX_OK, _INVALID_VALUE (dimensions,
// parameters) or _OUT_OF_RESOURCES. Costs no more than a few comparisons.
int sim_ptx_check(const struct sim_ptx_function *, const struct sim_ptx_launch *);

// Runs the grid on the calling thread, block after block unless they run together. Returns
// SIM_PTX_OK, what sim_ptx_check returns, or one of the codes >= 700 above; `outcome` may be NULL.
// Memory effects up to an error stay. Atomic instructions are atomic towards all threads and
// processes that map the memory.
int sim_ptx_launch(const struct sim_ptx_function *, const struct sim_ptx_launch *,
                   struct sim_ptx_outcome *outcome);

#endif
