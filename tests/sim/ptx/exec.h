// The executor's side of a decoded module: threads, and the handlers that instructions name.
//
// The threads of a block are resumable states that one host thread runs in turn. A thread runs
// until it waits (at a barrier or for its warp), ends, or has used its turn; so threads that spin
// for each other make progress. The first error stops the whole launch.
#ifndef WEIR_SIM_PTX_EXEC_H
#define WEIR_SIM_PTX_EXEC_H

#include "module.h"

#define SIM_PTX_WARP 32u
#define SIM_PTX_BARRIERS 16u
#define SIM_PTX_TURN_INSNS 4096u                 // a thread's turn
#define SIM_PTX_LAUNCH_BYTES_MAX (512ull << 20)  // registers, local and shared memory of a launch
#define SIM_PTX_TOGETHER_MAX (1u << 16)          // blocks of a launch that run together
#define SIM_PTX_RANGES 8u                        // answers of `resolve` that a launch keeps

enum sim_ptx_state {
    SIM_PTX_RUNNING,
    SIM_PTX_YIELDED,     // may run again in its next turn
    SIM_PTX_AT_BARRIER,  // `barrier` says which
    SIM_PTX_AT_WARP,     // waits for the lanes of `mask` at a warp instruction
    SIM_PTX_AT_ACTIVE,   // activemask: waits until its warp can go no further
    SIM_PTX_EXITED,
};

struct sim_ptx_frame {
    uint32_t function, return_to, slots_at, local_at;
};

struct sim_ptx_thread {
    uint64_t *slots;  // the frame's
    uint32_t pc;
    enum sim_ptx_state state;
    struct sim_ptx_block *block;
    uint32_t index, tid[3];

    uint32_t depth;  // of frames; `frame` is the running one
    struct sim_ptx_frame frame;
    struct sim_ptx_frame *frames;  // the callers'
    uint64_t *stack;               // slots of all frames
    uint8_t *local;                // local memory of all frames
    uint32_t frames_capacity, stack_capacity, local_capacity;
    uint32_t local_end;

    // While it waits.
    const struct sim_ptx_insn *waits_at;
    uint32_t barrier, mask;
    uint64_t offered;  // the value that it brings to a warp instruction
};

struct sim_ptx_barrier {
    uint32_t arrived;   // threads
    uint32_t lanes;     // the same, a warp that the block only partly fills counted in full
    uint32_t expected;  // lanes; 0: all threads of the block that have not exited
    uint32_t trues;     // bar.red: how many threads brought a true predicate
};

struct sim_ptx_range {
    uint64_t start, bytes;
    uint64_t writable_bytes;  // all of them, or 0
    uint8_t *host;
};

// All of a running launch, whose blocks run one after the other; or one block of a launch whose
// blocks run together.
struct sim_ptx_block {
    const struct sim_ptx_module *module;
    const struct sim_ptx_function *kernel;
    const struct sim_ptx_launch *launch;
    uint8_t *params;  // a copy of the launch's
    uint32_t id[3];
    uint64_t number;  // of the block in the grid
    uint32_t thread_count, live_count;
    struct sim_ptx_thread *threads;
    uint8_t *slab;  // the stacks that threads start with; those that grow get memory of their own
    uint64_t slab_bytes;
    uint8_t *shared;
    uint64_t shared_bytes;
    struct sim_ptx_barrier barriers[SIM_PTX_BARRIERS];

    struct sim_ptx_range ranges[SIM_PTX_RANGES];
    uint32_t range_next;
    uint64_t bytes_left;  // of SIM_PTX_LAUNCH_BYTES_MAX
    uint64_t instructions;
    int code;  // the first error, or SIM_PTX_OK
    uint64_t bad_address;
    uint32_t bad_tid[3], bad_line;
};

static inline uint64_t sim_ptx_get(const struct sim_ptx_thread *t, uint32_t operand) {
    return *(const uint64_t *)((const char *)t->slots + operand);
}

static inline void sim_ptx_set(struct sim_ptx_thread *t, uint32_t reg, uint64_t value) {
    *(uint64_t *)((char *)t->slots + reg) = value;
}

// Ends the launch with `code`. The first call counts.
void sim_ptx_fault(struct sim_ptx_thread *, int code, uint64_t address);

// Grows an array of a thread to hold `count` entries of `size`, within the launch's bytes. New
// bytes are zero. Returns SIM_PTX_OK or a code.
int sim_ptx_grow_thread(struct sim_ptx_block *, void *array_pointer, uint32_t *capacity,
                        uint64_t count, size_t size);

// Makes the frame of a function at these places of the thread's stacks. Returns SIM_PTX_OK or a
// code; the thread's frame is then as before.
int sim_ptx_enter(struct sim_ptx_thread *, const struct sim_ptx_function *, uint64_t slots_at,
                  uint64_t local_at);
// Goes back to a frame that sim_ptx_enter made before.
void sim_ptx_leave(struct sim_ptx_thread *, const struct sim_ptx_frame *);

void sim_ptx_exit_thread(struct sim_ptx_thread *);
// Lets barriers go that the exit of a thread has completed.
void sim_ptx_check_barriers(struct sim_ptx_block *);
// Completes warp instructions of one warp. `stuck`: no thread of it can run, so activemask may
// answer. Returns whether a thread can go on.
bool sim_ptx_resume_warp(struct sim_ptx_block *, uint32_t first_thread, bool stuck);

// The operation of atom and red by name, such as "add.u32", and whether it compares, so that it has
// one source more; NULL where there is none.
sim_ptx_atomic *sim_ptx_atomic_named(const char *name, bool *compares);

// Handlers. exec_memory.c
sim_ptx_run sim_ptx_run_load, sim_ptx_run_store, sim_ptx_run_atomic, sim_ptx_run_fence,
    sim_ptx_run_frame_address;
// exec_control.c
sim_ptx_run sim_ptx_run_branch, sim_ptx_run_branch_table, sim_ptx_run_call, sim_ptx_run_return,
    sim_ptx_run_exit, sim_ptx_run_trap, sim_ptx_run_assert, sim_ptx_run_yield, sim_ptx_run_special,
    sim_ptx_run_barrier;
// exec_warp.c
sim_ptx_run sim_ptx_run_warp, sim_ptx_run_active;

// What `mode` says for sim_ptx_run_barrier.
enum {
    SIM_PTX_BARRIER_SYNC,
    SIM_PTX_BARRIER_ARRIVE,
    SIM_PTX_BARRIER_AND,
    SIM_PTX_BARRIER_OR,
    SIM_PTX_BARRIER_POPC
};

// What `mode` says for sim_ptx_run_warp. src: value, lane or bound, clamp, member mask.
enum {
    SIM_PTX_WARP_SYNC,
    SIM_PTX_SHFL_UP,
    SIM_PTX_SHFL_DOWN,
    SIM_PTX_SHFL_BFLY,
    SIM_PTX_SHFL_IDX,
    SIM_PTX_VOTE_ALL,
    SIM_PTX_VOTE_ANY,
    SIM_PTX_VOTE_UNI,
    SIM_PTX_VOTE_BALLOT,
    SIM_PTX_MATCH_ANY,
    SIM_PTX_MATCH_ALL,
    SIM_PTX_REDUX_ADD,
    SIM_PTX_REDUX_AND,
    SIM_PTX_REDUX_OR,
    SIM_PTX_REDUX_XOR,
    SIM_PTX_REDUX_MIN,
    SIM_PTX_REDUX_MAX,
};

// Special registers: `mode` for sim_ptx_run_special. Vectors take four numbers, one a component.
enum {
    SIM_PTX_TID = 0,
    SIM_PTX_NTID = 4,
    SIM_PTX_CTAID = 8,
    SIM_PTX_NCTAID = 12,
    SIM_PTX_LANEID = 16,
    SIM_PTX_WARPID,
    SIM_PTX_NWARPID,
    SIM_PTX_SMID,
    SIM_PTX_NSMID,
    SIM_PTX_GRIDID,
    SIM_PTX_LANEMASK_EQ,
    SIM_PTX_LANEMASK_LE,
    SIM_PTX_LANEMASK_LT,
    SIM_PTX_LANEMASK_GE,
    SIM_PTX_LANEMASK_GT,
    SIM_PTX_CLOCK,
    SIM_PTX_CLOCK_HI,
    SIM_PTX_CLOCK64,
    SIM_PTX_GLOBALTIMER,
    SIM_PTX_GLOBALTIMER_LO,
    SIM_PTX_GLOBALTIMER_HI,
    SIM_PTX_DYNAMIC_SMEM,
    SIM_PTX_TOTAL_SMEM,
};

#endif
