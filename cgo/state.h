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
#include "table.h"

// GPUs are known by the driver's ordinal; more than these are treated as not listed by the agent.
#define WEIR_ORDINALS_MAX WEIR_GPUS_MAX
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
    WEIR_MODE_STARTING = 1,  // a thread is starting the helper; the rest is usable
    WEIR_MODE_PASS = 2,      // not a process of weir's: every call passes through
    WEIR_MODE_ENFORCED = 3,
    WEIR_MODE_CHECKED =
        4,  // enforced, on a kernel that does not wipe: the pid is looked at each time
};

// Notes to the agent that wait to be sent, as bits.
enum weir_note_bit {
    WEIR_NOTE_BIT_REFUSED = 1 << 0,
    WEIR_NOTE_BIT_DRIVER_OOM = 1 << 1,
    WEIR_NOTE_BIT_UNKNOWN = 1 << 2,
};

struct weir_gpu {
    uint8_t uuid[16];
    uint32_t known;  // 1 once `uuid` is filled in; written with release order
    uint32_t index;  // in the control page, or WEIR_NO_INDEX; also read without the lock
    // What this process answers for on the GPU outside its credit word: live allocations, those
    // that a thread is making, and those that it is freeing. Also read without the lock.
    uint64_t owned_bytes;
    uint64_t pending_bytes;  // freed while no usage page was open
    uint64_t primary;        // handle of the primary context, as last retained; 0 unknown
    uint64_t refused_bytes;  // of the notes that wait
    uint64_t oom_bytes;
    uint64_t noted_ms;  // when a note was last sent
    uint32_t notes;     // enum weir_note_bit
} __attribute__((aligned(64)));

enum weir_ask_state {
    WEIR_ASK_FREE = 0,
    WEIR_ASK_WAITING = 1,
    WEIR_ASK_GRANTED = 2,  // bytes are owned already
    WEIR_ASK_ANSWERED = 3,
    WEIR_ASK_REFUSED = 4,  // by the agent, or because it will have nothing to do with this process
    WEIR_ASK_UNKNOWN = 5,  // the agent does not list this GPU
    WEIR_ASK_LOST = 6,     // a query whose connection ended
};

// A question to the agent that a thread waits for.
struct weir_ask {
    uint32_t state;  // futex; enum weir_ask_state
    uint32_t seq;
    uint32_t gpu;   // ordinal
    uint32_t kind;  // enum weir_kind, or 0: a query
    uint64_t bytes;
    uint64_t free_bytes;  // the answer to a query
    uint64_t cap_bytes;
    uint32_t sent;  // on the present connection
    uint32_t next;  // of the free list: number + 1
};

// A context that a program has attached to more than once (cuCtxAttach), so that not every detach
// ends it.
struct weir_attached {
    uint64_t context;
    uint64_t count;
};
#define WEIR_ATTACHED_MAX 16u

struct weir_state {
    uint32_t mode;       // enum weir_mode; no lock
    uint32_t page_open;  // the usage page may be taken from and given to
    struct weir_lock lock;
    // Both stay where they are once mapped; a new connection's pages are mapped over the old ones,
    // so that no reader ever meets a hole. NULL before. Pointers are also read without the lock.
    struct weir_usage_page *usage;
    const struct weir_control_page *control;

    struct weir_table table;
    struct weir_owners owners;
    struct weir_gpu gpus[WEIR_ORDINALS_MAX];

    // The connection, written by the helper.
    int fd;
    uint32_t link_up;   // requests may be sent
    uint32_t refusing;  // the agent ended the session for good: nothing beyond credit is to be had
    uint32_t gpu_count;
    uint64_t cookie;
    uint64_t session;
    uint64_t usage_inode;
    int usage_fd;
    uint32_t agent_wait_ms;

    struct weir_ask asks[WEIR_ASKS_MAX];
    uint32_t asks_used;
    uint32_t ask_free;  // number + 1
    uint32_t ask_round;

    struct weir_attached attached[WEIR_ATTACHED_MAX];
    uint32_t attached_lost;  // there were more than that: no detach counts as an end any more

    uint32_t note_forked;

    // Written by the thread that starts, before the helper is.
    int pid;
    uint64_t started_ms;
    uint32_t helper;  // 1 while there is one, or one is being made; no lock
    int driver_version;
    char socket_path[WEIR_SOCKET_PATH_MAX];
    char log_path[WEIR_LOG_PATH_MAX];
};

extern struct weir_state *weir_state_page;

enum weir_mode weir_enter_slow(struct weir_state **state);

// What this process is to weir; at the first call, starts the session. PASS, ENFORCED, or NEW where
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
