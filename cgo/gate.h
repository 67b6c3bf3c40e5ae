// gate.h: the handshake between threads that launch and the one that takes a lease away.
//
// A thread goes through the gate before it asks the driver for a launch, and leaves it afterwards.
// While the lease is there this costs a few loads and stores of its own cache line: no lock, no
// system call, no clock, and no locked instruction once the kernel's membarrier serves the process.
//
//     thread                                    revoker (the helper thread)
//     E1  word = inside, entry n                R1  read the lease: closed
//     E2  read the lease: closed? withdraw      R2  membarrier
//     E3  the driver's launch                   R3  read each word
//     E4  read the lease: another number?       R4  where it is inside: wait until it changes
//         count the launch as late              R5  "no launch of ours is under way"
//     E5  word = outside
//
// No launch is lost to R5, i.e. none that E2 has let through before the lease closed is in E3 when
// R5 is said:
//   - A processor may do E2 before others see E1 (x86-64 too: the store waits in its buffer). What
//     orders the two is R2: in every thread of the process there is an instruction X before which
//     all is seen by R3, and after which all sees what R1 saw. The compiler keeps E1 before E2.
//   - E2 before X: then so is E1, R3 sees the entry, and R4 waits for it. E2 after X: it sees the
//     lease closed. No third case.
//   - R4 may stop waiting at the first change, not only at "outside": entries are numbered, so a
//     change means that the entry seen has left, and the next one's E1 is after X, since R3 would
//     have seen it otherwise.
//   - Without membarrier E1 is a locked exchange, and R2 nothing: E1, E2, R1 and R3 are then all
//     sequentially consistent, so there is one order of them, in which either R3 comes after E1 or
//     E2 after R1. A word that is claimed while the revoker looks is such a case, too.
//   - A page put in the place of another is one more way for the lease to close: R1 is then a read
//     of the new page, by the thread that has put it there, after which nobody reads the old one.
//
// None is late but for one a thread already past E2 when R4 gave up waiting, or when the process
// was stopped with its revoker: a thread has one word, which goes inside once at a time. E4 sees
// it, because the number of a lease changes when its drain is over, whoever has ended that.
//
// None waits for ever: a withdrawn thread sleeps on the lease's own word, and the kernel compares
// that under the lock by which the waker finds the sleepers. So a change is seen before the sleep,
// or its waker sees the sleeper. Whoever wakes looks again, from E1 on. What no wake-up can reach
// (a page that was replaced under a sleeper, an agent that died) ends with the wait:
// WEIR_WAIT_MS_MAX. And whoever has waited for `wait_ms_max` goes through all the same, and is
// counted; so do all threads, without a wait, until the lease is another: some that went on while
// others waited could fill the driver's queue with what waits for those.
//
// What does not come back to E5: a thread that has ended is found out by the kernel; a frame left
// by a jump or an exception, by the stack pointer, at the thread's next entry from the same depth
// or a shallower one (until then its entries count as nested, NESTED_MAX of them at most). A launch
// in a signal handler that interrupts one is nested: it passes, since the drain waits for the outer
// one, whose word answers for both, and is counted where the lease was closed.
//
// Invariants: all zeros is a gate without a lease, open to all, which is what a forked child finds;
// a word is written by its own thread only, but for who takes it over from a dead one; a process
// has one gate, since a thread remembers one word. Words never move.
#ifndef WEIR_GATE_H
#define WEIR_GATE_H

#include "abi/weir_abi.h"
#include "sys.h"

// Threads with a word of their own. Those beyond share a counter, at the cost of a locked
// instruction and a few system calls a launch.
#ifndef WEIR_GATE_WORDS
#define WEIR_GATE_WORDS 4096u
#endif

enum weir_gate_mode {
    WEIR_GATE_LOCKED = 0,  // entries are locked exchanges
    WEIR_GATE_PLAIN = 1,   // entries are plain stores: the revoker's membarrier orders them
    WEIR_GATE_LOST = 2,    // membarrier was taken away: exchanges, and the revoker waits besides
};

// A thread's word. `state`: bit 0 inside, bits 1 to 7 the GPU, the rest counts entries.
struct weir_gate_word {
    uint64_t state;
    uintptr_t stack;  // stack pointer of the entry
    uint32_t tid;     // whose it is; 0: nobody's, or wiped by a fork
    uint32_t nested;  // entries in a row that found themselves inside
    uint32_t waits;   // at the gate of the GPU with this number less one; 0: at none
    void *last;       // of who uses the gate: where its thread was last
} __attribute__((aligned(64)));

#define WEIR_GATE_INSIDE 1u
#define WEIR_GATE_ENTRY 0x100u
_Static_assert(WEIR_GPUS_MAX * 2 <= WEIR_GATE_ENTRY, "a word has no room for the GPU");

// What came to pass since the process began; no lock.
struct weir_gate_counts {
    uint64_t gated;      // launches that had to wait
    uint64_t ungated;    // that went through closed, after the longest wait
    uint64_t agentless;  // that went through closed, since there is no agent
    uint64_t nested;     // that went through closed, since their thread was inside already
    uint64_t late;       // that may have begun after their lease's end
    uint64_t abandoned;  // whose end was never said: a jump, or a dead thread
    uint64_t overslept;  // waits that nobody has ended although the lease had changed
};

struct weir_gate {
    const uint32_t *lease[WEIR_GPUS_MAX];  // NULL: open
    uint32_t mode;                         // enum weir_gate_mode
    uint32_t used;                         // words that ever had an owner
    uint32_t settled;                      // how often words were settled
    uint32_t looked;                       // where dead owners are looked for next
    uint32_t wait_ms_max;                  // the longest that a launch waits
    // Whether the agent is there; NULL: it is. Asked before each wait.
    int (*agent_alive)(void *argument);
    // Told before each wait at which lease that is, by the thread that is going to wait; returns
    // the longest that it may. NULL: nobody is told, and wait_ms_max holds.
    uint64_t (*want)(void *argument, uint32_t gpu, uint32_t lease);
    void *argument;
    struct weir_gate_counts counts __attribute__((aligned(64)));
    // The closed lease that was waited for as long as may be: nobody waits for it any more. 0:
    // none.
    uint32_t waived[WEIR_GPUS_MAX];
    uint32_t crowd[WEIR_GPUS_MAX];          // threads without a word that are inside
    uint32_t crowd_waiting[WEIR_GPUS_MAX];  // that wait
    uint64_t
        passed_closed[WEIR_GPUS_MAX];  // launches that went through closed, for whatever reason
    struct weir_gate_word words[WEIR_GATE_WORDS];
};

// Of a pass without a word.
enum weir_gate_wordless { WEIR_GATE_NESTED = 0, WEIR_GATE_CROWD = 1 };

// What an entry hands to its leave.
struct weir_pass {
    struct weir_gate_word *word;  // NULL: none of its own
    uint32_t lease;               // as it was at the check; closed: never late
    uint32_t wordless;            // enum weir_gate_wordless
};

// The calling thread's word. In the static block that the loader gives to what is preloaded: no
// call, and nothing to be initialised. A new thread finds NULL.
extern __thread struct weir_gate_word *weir_gate_mine
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Has the kernel's membarrier serve this process, and entries be plain stores from then on. Takes
// milliseconds where there are threads already: for the helper thread, which is also the only one
// to revoke. 0; or -errno, and entries stay what they are.
int weir_gate_register(struct weir_gate *gate);

// Where the lease of a GPU is found from now on; NULL: open. Threads may be inside, and wait: these
// look there within WEIR_WAIT_MS_MAX. What was there before must stay readable. Where the new lease
// is closed, or is not the one that was in force, weir_gate_revoke has to follow.
void weir_gate_bind(struct weir_gate *gate, uint32_t gpu, const uint32_t *lease);

// Waits, `bound_ms` at most, until no launch of this process that went through on an earlier lease
// is under way on a GPU whose lease is closed. How many still are: 0 means that the drain begins.
// -EAGAIN where the lease is open, and nothing was waited for. Only one thread may revoke.
int weir_gate_revoke(struct weir_gate *gate, uint32_t gpu, uint64_t bound_ms);

// Has all that threads have entered before this be seen after it, and who enters after it see what
// was seen before. For the thread that revokes.
void weir_gate_settle(struct weir_gate *gate);

// How many threads are inside on a GPU now, or wait for one. For a look, unless after a settling.
uint32_t weir_gate_inside(struct weir_gate *gate, uint32_t gpu);
uint32_t weir_gate_waiting(struct weir_gate *gate, uint32_t gpu);

// The calling thread has a word from here on, unless there are too many.
void weir_gate_know(struct weir_gate *gate);

// How launches pass that the lines below do not serve.
struct weir_pass weir_gate_enter_slow(struct weir_gate *gate, uint32_t gpu,
                                      uintptr_t stack) WEIR_RARE;
void weir_gate_leave_slow(struct weir_gate *gate, uint32_t gpu, struct weir_pass pass) WEIR_RARE;

// What a launch on several GPUs has waited for so far.
struct weir_gate_tries {
    uint64_t since_ms;  // when it first waited; 0: it has not
    uint64_t through;   // bits of GPUs whose gates it has waited for as long as it may
};

// Of a launch on several GPUs: enters one gate, as one of the crowd, where that needs no wait.
// Whether it has. Where not, the thread leaves those that it has entered for this launch, waits
// outside all of them, once, and begins anew: so who waits for one GPU holds up the end of no other
// one's lease, and two such launches never wait for each other.
int weir_gate_enter_now(struct weir_gate *gate, uint32_t gpu, const struct weir_gate_tries *tries,
                        struct weir_pass *pass);
void weir_gate_await(struct weir_gate *gate, uint32_t gpu, struct weir_gate_tries *tries);

// The stack pointer of the function that launches.
static inline uintptr_t weir_gate_stack(void) {
    uintptr_t pointer;
#if defined(__x86_64__)
    __asm__("mov %%rsp, %0" : "=r"(pointer));
#else
    __asm__("mov %0, sp" : "=r"(pointer));
#endif
    return pointer;
}

static inline int weir_gate_is_inside(uint64_t state) {
    return (state & WEIR_GATE_INSIDE) != 0;
}

// Whether a thread of this process has ended.
int weir_gate_has_ended(uint32_t tid);

static inline uint32_t weir_gate_lease(const struct weir_gate *gate, uint32_t gpu) {
    const uint32_t *lease = __atomic_load_n(&gate->lease[gpu], __ATOMIC_SEQ_CST);
    return lease ? __atomic_load_n(lease, __ATOMIC_SEQ_CST) : 0;
}

// What a word becomes by its next entry.
static inline uint64_t weir_gate_next(uint64_t state, uint32_t gpu) {
    return (state & ~(uint64_t)(WEIR_GATE_ENTRY - 1)) + WEIR_GATE_ENTRY + 2 * gpu +
           WEIR_GATE_INSIDE;
}

static inline void weir_gate_outside(struct weir_gate_word *word) {
    uint64_t state = __atomic_load_n(&word->state, __ATOMIC_RELAXED);
    __atomic_store_n(&word->state, state & ~(uint64_t)WEIR_GATE_INSIDE, __ATOMIC_RELEASE);
}

// The entry of a thread that has this word, where nothing stands against it: what its word is from
// then on; 0 where it is not inside. Always part of its caller, whose stack pointer it is that
// tells one frame from another.
__attribute__((always_inline)) static inline uint64_t
weir_gate_enter_open(struct weir_gate *gate, uint32_t gpu, struct weir_gate_word *word,
                     struct weir_pass *pass) {
    uint64_t state = __atomic_load_n(&word->state, __ATOMIC_RELAXED);
    if (__builtin_expect(__atomic_load_n(&gate->mode, __ATOMIC_ACQUIRE) != WEIR_GATE_PLAIN ||
                             (state & WEIR_GATE_INSIDE),
                         0))
        return 0;
    state = weir_gate_next(state, gpu);
    __atomic_store_n(&word->stack, weir_gate_stack(), __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&word->state, state, __ATOMIC_RELAXED);  // E1
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint32_t lease = weir_gate_lease(gate, gpu);  // E2
    if (__builtin_expect(lease & WEIR_LEASE_CLOSED, 0)) {
        weir_gate_outside(word);
        return 0;
    }
    *pass = (struct weir_pass){word, lease, 0};
    return state;
}

__attribute__((always_inline)) static inline struct weir_pass
weir_gate_enter_with(struct weir_gate *gate, uint32_t gpu, struct weir_gate_word *word) {
    struct weir_pass pass;
    if (__builtin_expect(!weir_gate_enter_open(gate, gpu, word, &pass), 0))
        return weir_gate_enter_slow(gate, gpu, weir_gate_stack());
    return pass;
}

// Before a launch on a GPU, the control page's number of it. Each enter has its leave, by the same
// thread, after the driver's call.
static inline struct weir_pass weir_gate_enter(struct weir_gate *gate, uint32_t gpu) {
    struct weir_gate_word *word = weir_gate_mine;
    if (__builtin_expect(!word || !__atomic_load_n(&word->tid, __ATOMIC_RELAXED), 0))
        return weir_gate_enter_slow(gate, gpu, weir_gate_stack());
    return weir_gate_enter_with(gate, gpu, word);
}

static inline void weir_gate_leave(struct weir_gate *gate, uint32_t gpu, struct weir_pass pass) {
    if (__builtin_expect(!pass.word || weir_gate_lease(gate, gpu) != pass.lease, 0))  // E4
        weir_gate_leave_slow(gate, gpu, pass);
    else
        weir_gate_outside(pass.word);  // E5
}

// The same after weir_gate_enter_open, which gave `state`, so that the word need not be read again.
// An entry meanwhile that took this one for gone may have counted on; then a number comes twice,
// and a revoker waits for one launch more.
static inline void weir_gate_leave_open(struct weir_gate *gate, uint32_t gpu, struct weir_pass pass,
                                        uint64_t state) {
    if (__builtin_expect(weir_gate_lease(gate, gpu) != pass.lease, 0))  // E4
        weir_gate_leave_slow(gate, gpu, pass);
    else
        __atomic_store_n(&pass.word->state, state - WEIR_GATE_INSIDE, __ATOMIC_RELEASE);  // E5
}

#endif
