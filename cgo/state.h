// state.h: what the library knows in one process, and how it comes to know it is a new one.
//
// Everything that must not survive a fork lies in one mapping that the kernel wipes in the child,
// so zeros mean "nothing done yet" throughout and a child starts clean. The pages that the agent
// shares are not inherited at all. Only the numbers of the inherited descriptors lie outside, so
// that the child can close them, if they still are what they were.
//
// Fields are read and written under `lock` unless they say otherwise.
#ifndef WEIR_STATE_H
#define WEIR_STATE_H

#include "abi/weir_abi.h"
#include "lock.h"
#include "slab.h"
#include "table.h"

// GPUs are known by the driver's ordinal; more than these are treated as not listed by the agent.
#define WEIR_ORDINALS_MAX WEIR_GPUS_MAX
// Behind the ordinals' places come those of GPUs that only NVML was asked about, by UUID: nothing
// is ever owned there.
#define WEIR_NUMBERS_MAX (WEIR_ORDINALS_MAX + WEIR_GPUS_MAX)
// Threads that may wait for the agent at the same time. A power of two: part of the sequence
// number.
#define WEIR_ASKS_MAX 512u
// Longest path of a socket, as the kernel has it.
#define WEIR_SOCKET_PATH_MAX 108u
#define WEIR_LOG_PATH_MAX 256u
// How long an allocation waits for an absent agent, where none has said.
#define WEIR_AGENT_WAIT_MS 5000u
#define WEIR_NO_INDEX UINT32_MAX

enum weir_mode {
    WEIR_MODE_NEW = 0,       // CUDA was not used yet
    WEIR_MODE_STARTING = 1,  // a thread is finding out; the rest is usable
    WEIR_MODE_PASS = 2,      // not a process of weir's: every call passes through
    WEIR_MODE_ENFORCED = 3,
    WEIR_MODE_CHECKED =
        4,  // enforced, on a kernel that does not wipe: the pid is looked at each time
};

// How far a connection has come that the helper is to go on with.
enum weir_begun {
    WEIR_BEGUN_NOT = 0,
    WEIR_BEGUN_HELLO = 1,  // HELLO is said: its answer is waited for
    WEIR_BEGUN_UP = 2,
};

// Notes to the agent that wait to be sent, as bits.
enum weir_note_bit {
    WEIR_NOTE_BIT_REFUSED = 1 << 0,
    WEIR_NOTE_BIT_DRIVER_OOM = 1 << 1,
    WEIR_NOTE_BIT_UNKNOWN = 1 << 2,
};

// The limits of contexts that take memory, as the driver numbers them: stack of a thread, printf
// buffer, malloc heap.
#define WEIR_LIMITS 3u

struct weir_gpu {
    uint8_t uuid[16];
    uint32_t known;  // 1 once `uuid` is filled in; written with release order
    uint32_t index;  // in the control page, or WEIR_NO_INDEX; also read without the lock
    // What this process answers for on the GPU outside its credit word: live allocations, those
    // that a thread is making, and those that it is freeing. Also read without the lock.
    uint64_t owned_bytes;
    uint64_t pending_bytes;  // freed while no usage page was open
    uint64_t primary;        // handle of the primary context, as last retained; 0 unknown
    uint32_t retained;       // retains of it less releases, as far as they were seen; no lock
    uint64_t graph_trims;    // how often unused memory of graphs was given back; no lock
    uint64_t refused_bytes;  // of the notes that wait
    uint64_t oom_bytes;
    uint64_t noted_ms;    // when a note was last sent
    uint32_t notes;       // enum weir_note_bit
    uint32_t turn;        // a thread makes a context, and others that would are to wait; no lock
    uint32_t capability;  // major * 10 + minor; 0: not asked for yet; no lock
    uint32_t limits_known;
    uint64_t limit_defaults[WEIR_LIMITS];  // values that contexts begin with
    uint64_t
        reserved_bytes;     // charged for pools and graphs (reserve.h); also read without the lock
    uint64_t pooled_bytes;  // of them, for pools that others may have imported
} __attribute__((aligned(64)));

enum weir_ask_state {
    WEIR_ASK_FREE = 0,
    WEIR_ASK_WAITING = 1,
    WEIR_ASK_GRANTED = 2,  // bytes are owned already
    WEIR_ASK_ANSWERED = 3,
    WEIR_ASK_REFUSED = 4,  // by the agent, or because it will have nothing to do with this process
    WEIR_ASK_UNKNOWN = 5,  // the agent does not list this GPU
    WEIR_ASK_LOST = 6,     // its connection ended, and it is not worth to be asked again
};

// A question to the agent that a thread waits for.
struct weir_ask {
    uint32_t state;  // futex; enum weir_ask_state
    uint32_t seq;
    uint32_t type;          // enum weir_msg_type: REQUEST, QUERY, MEASURE, EXPORT, IMPORT or DROP
    uint32_t gpu;           // ordinal; of the first three
    uint32_t detail;        // REQUEST: enum weir_kind; QUERY: what for; MEASURE: contexts
    uint32_t piece;         // of the last three; REQUEST of movable memory: its number (movable.h)
    uint64_t bytes;         // REQUEST, MEASURE
    uint64_t answer_bytes;  // QUERY: free; MEASURE: of one context
    uint64_t cap_bytes;     // QUERY
    uint64_t used_bytes;    // QUERY
    uint32_t sent;          // on the present connection
    uint32_t left;          // by its thread, and what is granted yet has to be given back
    uint32_t next;          // of the free list: number + 1
};

// What a context takes by itself, beside the allocations made in it.
enum weir_part {
    WEIR_PART_CONTEXT = 0,  // from its beginning to its end
    WEIR_PART_CODE = 1,     // modules loaded into it
    WEIR_PART_LIBRARY = 2,  // libraries, which every context has
    WEIR_PART_LIMIT = 3,    // heap, stack and printf buffer beyond the defaults
    WEIR_PARTS = 4,
};

// A context of this process (contexts.h).
struct weir_context {
    uint64_t handle;    // the driver's; 0: this place is free, or `making`
    uint64_t other;     // of a green context: the handle under which it is current; 0: none
    uint64_t attached;  // attachments beyond the first
    uint64_t serial;    // of this record
    uint64_t bytes[WEIR_PARTS];
    uint32_t gpu;       // ordinal
    uint32_t ticket;    // of the call that ends it; 0: none does
    uint32_t counted;   // its bytes are owned; else they are only shown
    uint32_t making;    // the driver is making it
    uint32_t changing;  // a thread changes its limits
};
_Static_assert(WEIR_CONTEXTS_MAX == WEIR_OWNERS_MAX, "a context without an owner, or the reverse");

// What a pool, or the graphs of a device, have reserved (reserve.h).
struct weir_reserve {
    uint64_t handle;
    uint64_t charged_bytes;
    uint64_t keep_bytes;  // the pool keeps so much unused memory
    uint64_t step_bytes;  // the largest growth there was
    uint64_t room_bytes;  // of what is charged, so much is at least unused
    uint32_t moves;       // beginnings and ends of growths, and changes of the charge; futex
    uint32_t busy;        // growths that go on
    uint32_t exclusive;   // one goes on that wants to be alone
    uint32_t waiting;     // threads that wait for their growth to begin
    uint32_t pins;        // threads that look at it, other than in a growth
    uint32_t gpu;         // ordinal, or WEIR_NO_INDEX: not charged
    uint32_t kind;        // enum weir_kind; 0: this place is free
    uint32_t orphan;      // destroyed by the program, still in use
    uint32_t shared;      // other processes may have imported it
};
#define WEIR_RESERVES_MAX 512u

// Whether memory that was freed in stream order still counts as used by a pool until its stream has
// come to that.
enum weir_lag {
    WEIR_LAG_UNKNOWN = 0,
    WEIR_LAG_NONE = 3,  // seen so often
    WEIR_LAG_SEEN = 4,
};
// Places to tell by one load that an executable graph has no memory nodes. A power of two.
#define WEIR_EXEC_FILTER 4096u

struct weir_time;
struct weir_swap;

struct weir_state {
    uint32_t mode;       // enum weir_mode; no lock
    uint32_t page_open;  // the usage page may be taken from and given to
    struct weir_lock lock;

    // Written by the thread that starts, before any other looks. These come first, in a page with
    // what else cuInit needs: each page that is touched costs a process that only starts a fault.
    int pid;
    int driver_version;
    uint64_t started_ms;
    char socket_path[WEIR_SOCKET_PATH_MAX];
    char log_path[WEIR_LOG_PATH_MAX];

    uint32_t helper;  // how far it has come (helper.c); no lock
    // What the thread that opened the first connection leaves to the helper, before there is one.
    uint32_t begun;  // enum weir_begun
    uint32_t begun_bits;
    int begun_rc;

    // Both stay where they are once mapped; a new connection's pages are mapped over the old ones,
    // so that no reader ever meets a hole. NULL before. Pointers are also read without the lock.
    struct weir_usage_page *usage;
    const struct weir_control_page *control;

    // GPU time (timed.h); NULL before the first launch. Stays where it is; no lock.
    struct weir_time *time;
    // Movable memory (movable.h); NULL before there is any. Stays where it is; no lock.
    struct weir_swap *swap;
    uint32_t plain;  // the agent has said that nothing of this process is to be movable

    struct weir_table table;
    struct weir_owners owners;
    struct weir_gpu gpus[WEIR_NUMBERS_MAX];
    uint32_t gpus_used;  // none from here on is known; also read without the lock

    // The connection, written by the helper or who began it.
    int fd;
    uint32_t link_up;    // requests may be sent
    uint32_t refusing;   // the agent ended the session for good: nothing beyond credit is to be had
    uint32_t gpu_count;  // also read without the lock
    uint64_t cookie;
    uint64_t session;
    uint64_t usage_inode;
    uint64_t control_inode;  // also read without the lock
    int usage_fd;
    uint32_t agent_wait_ms;

    struct weir_ask asks[WEIR_ASKS_MAX];
    uint32_t asks_used;  // places that ever were in use; also read without the lock
    uint32_t ask_free;   // number + 1
    uint32_t ask_round;

    // Memory shared with other processes (piece.h, tie.h, physical.h).
    struct weir_slab pieces;
    struct weir_slab ties;
    struct weir_slab handles;
    struct weir_slab mappings;
    uint32_t pieces_ending;  // whose end the agent is to hear of; also read without the lock
    uint32_t declaring;      // a new connection is declaring what is had
    uint64_t tie_stamp;
    uint64_t handle_stamp;

    struct weir_context contexts[WEIR_CONTEXTS_MAX];
    uint32_t contexts_used;  // places that ever were in use
    uint64_t context_serial;
    struct weir_slab codes;  // modules and libraries (code.h)
    uint64_t code_serial;
    uint64_t library_bytes;  // of all libraries, in one context; also read without the lock

    struct weir_reserve reserves[WEIR_RESERVES_MAX];
    uint32_t reserves_used;  // places that ever were in use
    uint32_t reserve_last;   // the one that was asked for last
    uint32_t loose;          // what reserves hold may differ from their charge; no lock
    uint32_t used_lags;      // enum weir_lag: of what pools say is in use; no lock

    // Executable graphs that have memory nodes (graph.c).
    uint32_t graph_memory;                  // there may be graphs that have; no lock
    uint8_t exec_filter[WEIR_EXEC_FILTER];  // how many have a handle with that hash; no lock
    struct weir_slab execs;

    uint32_t note_forked;
    uint32_t bounds_wait;              // there are bounds to be told of; no lock
    uint64_t bounds_met[WEIR_BOUNDS];  // what they are, 0: not to be told; no lock
    uint64_t bounds_noted_ms;          // when some were last told
    uint32_t bad_page;                 // enum weir_bad_page: why pages were not used; the helper's
    uint32_t bad_page_abi;             // what the page says
    uint32_t bad_page_noted;
};

extern struct weir_state *weir_state_page;

enum weir_mode weir_enter_slow(struct weir_state **state);

// What this process is to weir; at the first call, finds that out. PASS, ENFORCED, or NEW where
// there is no memory even for the state (then *state is NULL, and nothing can be charged).
static inline enum weir_mode weir_enter(struct weir_state **state) {
    *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    if (*state && __atomic_load_n(&(*state)->mode, __ATOMIC_ACQUIRE) == WEIR_MODE_ENFORCED)
        return WEIR_MODE_ENFORCED;
    return weir_enter_slow(state);
}

// Whether allocations of this process may have been charged. Starts nothing: where no session was
// begun, as in a forked child, there is nothing to give back.
static inline int weir_enforced(struct weir_state **state) {
    *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    uint32_t mode = *state ? __atomic_load_n(&(*state)->mode, __ATOMIC_ACQUIRE) : WEIR_MODE_NEW;
    return mode == WEIR_MODE_ENFORCED ||
           (mode == WEIR_MODE_CHECKED && weir_enter_slow(state) == WEIR_MODE_ENFORCED);
}

// Whether it is settled already that calls pass through. Starts nothing.
static inline int weir_passing(void) {
    struct weir_state *state = __atomic_load_n(&weir_state_page, __ATOMIC_ACQUIRE);
    return state && __atomic_load_n(&state->mode, __ATOMIC_ACQUIRE) == WEIR_MODE_PASS;
}

// Remembers outside the wiped memory which descriptors are the library's, for a child to close; -1
// for none.
void weir_remember_socket(int fd, uint64_t cookie);
void weir_remember_usage(int fd, uint64_t inode);

// Closes a descriptor of the library's unless the host has put something else in its place.
void weir_close_socket(int fd, uint64_t cookie);
void weir_close_usage(int fd, uint64_t inode);

#endif
