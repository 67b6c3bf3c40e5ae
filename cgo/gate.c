// gate.c: see gate.h. What is not the common case of a launch: words are given out, and closed
// leases are waited for.
#include "gate.h"

#include <signal.h>

// Words of threads that have ended are found one or two at a time, by each thread that wants one.
#define CLAIM_LOOKS 2
// Nested entries in a row that are believed.
#define NESTED_MAX 16
// Within one function the stack pointer differs by a few words from place to place; a signal's
// frame alone is longer than this.
#define FRAME_BYTES 256u

#define FUTEX_WAIT_SHARED 0

__thread struct weir_gate_word *weir_gate_mine __attribute__((tls_model("initial-exec")));

static void count(uint64_t *counter) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

int weir_gate_has_ended(uint32_t tid) {
    return weir_syscall(SYS_tgkill, weir_sys_getpid(), (long)tid, 0, 0, 0, 0) == -ESRCH;
}

// Takes a word over from a thread that has ended, perhaps inside.
static int take_over(struct weir_gate *gate, struct weir_gate_word *word, uint32_t tid) {
    uint32_t owner = __atomic_load_n(&word->tid, __ATOMIC_RELAXED);
    if (!owner || owner == tid || !weir_gate_has_ended(owner) ||
        !__atomic_compare_exchange_n(&word->tid, &owner, tid, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_RELAXED))
        return 0;
    if (weir_gate_is_inside(__atomic_load_n(&word->state, __ATOMIC_RELAXED)))
        count(&gate->counts.abandoned);
    weir_gate_outside(word);
    __atomic_store_n(&word->waits, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&word->last, NULL, __ATOMIC_RELAXED);
    return 1;
}

// A word for the calling thread, or NULL where there are too many.
static struct weir_gate_word *claim(struct weir_gate *gate) {
    uint32_t tid = (uint32_t)weir_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
    uint32_t used = __atomic_load_n(&gate->used, __ATOMIC_ACQUIRE);
    for (int i = 0; used && i < CLAIM_LOOKS; i++) {
        uint32_t at = __atomic_fetch_add(&gate->looked, 1, __ATOMIC_RELAXED) % used;
        if (take_over(gate, &gate->words[at], tid))
            return &gate->words[at];
    }
    while (used < WEIR_GATE_WORDS)
        if (__atomic_compare_exchange_n(&gate->used, &used, used + 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&gate->words[used].tid, tid, __ATOMIC_SEQ_CST);
            return &gate->words[used];
        }
    return NULL;
}

static struct weir_gate_word *mine(struct weir_gate *gate) {
    struct weir_gate_word *word = weir_gate_mine;
    if (!word || !__atomic_load_n(&word->tid, __ATOMIC_RELAXED))
        weir_gate_mine = word = claim(gate);
    return word;
}

void weir_gate_know(struct weir_gate *gate) {
    mine(gate);
}

// Whether the calling thread runs on its alternate signal stack, and a frame does not lie there.
static int is_on_another_stack(uintptr_t frame) {
    stack_t stack = {.ss_sp = NULL};
    if (weir_syscall(SYS_sigaltstack, 0, (long)&stack, 0, 0, 0, 0) != 0 ||
        !(stack.ss_flags & SS_ONSTACK))
        return 0;
    return frame - (uintptr_t)stack.ss_sp >= stack.ss_size;
}

// Whether an entry that finds its word inside interrupts the one that is. Else that one's frame is
// gone, and its word is set right.
static int is_nested(struct weir_gate *gate, struct weir_gate_word *word, uintptr_t stack) {
    uint64_t state = __atomic_load_n(&word->state, __ATOMIC_RELAXED);
    uint32_t nested = __atomic_load_n(&word->nested, __ATOMIC_RELAXED);
    uintptr_t outer = __atomic_load_n(&word->stack, __ATOMIC_RELAXED);
    if (weir_gate_is_inside(state) && nested < NESTED_MAX &&
        (stack + FRAME_BYTES < outer || is_on_another_stack(outer))) {
        __atomic_store_n(&word->nested, nested + 1, __ATOMIC_RELAXED);
        return 1;
    }
    if (weir_gate_is_inside(state)) {
        count(&gate->counts.abandoned);
        weir_gate_outside(word);
    }
    if (nested)
        __atomic_store_n(&word->nested, 0, __ATOMIC_RELAXED);
    return 0;
}

// E1 and E2 with a locked instruction between.
static struct weir_pass publish(struct weir_gate *gate, uint32_t gpu, struct weir_gate_word *word,
                                uintptr_t stack) {
    if (!word) {
        __atomic_fetch_add(&gate->crowd[gpu], 1, __ATOMIC_SEQ_CST);
        return (struct weir_pass){NULL, weir_gate_lease(gate, gpu), WEIR_GATE_CROWD};
    }
    uint64_t state = weir_gate_next(__atomic_load_n(&word->state, __ATOMIC_RELAXED), gpu);
    __atomic_store_n(&word->stack, stack, __ATOMIC_RELAXED);
    __atomic_exchange_n(&word->state, state, __ATOMIC_SEQ_CST);
    return (struct weir_pass){word, weir_gate_lease(gate, gpu), 0};
}

// Says that a launch is over, or was none.
static void retire(struct weir_gate *gate, uint32_t gpu, struct weir_pass pass) {
    if (pass.word)
        weir_gate_outside(pass.word);
    else if (pass.wordless == WEIR_GATE_CROWD)
        __atomic_fetch_sub(&gate->crowd[gpu], 1, __ATOMIC_SEQ_CST);
}

// Waits once for a closed lease to change, from `since_ms` on for wait_ms_max at most; 0 sets that.
// Whether to look again: else the launch goes through.
static int wait_once(struct weir_gate *gate, uint32_t gpu, uint32_t lease, uint64_t *since_ms) {
    if (gate->agent_alive && !gate->agent_alive(gate->argument)) {
        count(&gate->counts.agentless);
        return 0;
    }
    uint32_t *waived = &gate->waived[gpu];
    int waits = __atomic_load_n(waived, __ATOMIC_RELAXED) != lease;
    uint64_t now_ms = weir_sys_now_ms();
    if (waits && !*since_ms) {
        *since_ms = now_ms;
        count(&gate->counts.gated);
    }
    uint64_t waited_ms = now_ms - *since_ms;
    // Whoever does not wait wants a lease, too: else there would never be another.
    uint64_t most_ms = gate->want ? gate->want(gate->argument, gpu, lease) : gate->wait_ms_max;
    if (!waits || waited_ms >= most_ms) {
        __atomic_store_n(waived, lease, __ATOMIC_RELAXED);
        count(&gate->counts.ungated);
        return 0;
    }
    uint64_t ms = most_ms - waited_ms;
    struct timespec length =
        weir_sys_timespec_us(1000 * (ms < WEIR_WAIT_MS_MAX ? ms : WEIR_WAIT_MS_MAX));
    const uint32_t *at = __atomic_load_n(&gate->lease[gpu], __ATOMIC_ACQUIRE);
    if (!at)
        return 1;
    long rc = weir_syscall(SYS_futex, (long)at, FUTEX_WAIT_SHARED, lease, (long)&length, 0, 0);
    if (rc == -ETIMEDOUT && weir_gate_lease(gate, gpu) != lease)
        count(&gate->counts.overslept);
    return 1;
}

// Says that a thread waits for a GPU, or does no more.
static void set_waiting(struct weir_gate *gate, uint32_t gpu, struct weir_gate_word *word,
                        int waits) {
    if (word)
        __atomic_store_n(&word->waits, waits ? gpu + 1 : 0, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_add(&gate->crowd_waiting[gpu], waits ? 1u : -1u, __ATOMIC_SEQ_CST);
}

// Enters with a thread's word, or as one of the crowd.
static struct weir_pass enter(struct weir_gate *gate, uint32_t gpu, struct weir_gate_word *word,
                              uintptr_t stack) {
    uint64_t since_ms = 0;
    for (;;) {
        // A look before the entry: who comes while the lease is closed keeps nobody waiting.
        uint32_t lease = weir_gate_lease(gate, gpu);
        if (!(lease & WEIR_LEASE_CLOSED)) {
            struct weir_pass pass = publish(gate, gpu, word, stack);
            if (!(pass.lease & WEIR_LEASE_CLOSED))
                return pass;
            retire(gate, gpu, pass);
            lease = pass.lease;
        }
        set_waiting(gate, gpu, word, 1);
        int again = wait_once(gate, gpu, lease, &since_ms);
        set_waiting(gate, gpu, word, 0);
        if (!again) {
            count(&gate->passed_closed[gpu]);
            struct weir_pass pass = publish(gate, gpu, word, stack);
            pass.lease |= WEIR_LEASE_CLOSED;
            return pass;
        }
    }
}

struct weir_pass weir_gate_enter_slow(struct weir_gate *gate, uint32_t gpu, uintptr_t stack) {
    struct weir_gate_word *word = mine(gate);
    if (word && __atomic_load_n(&word->waits, __ATOMIC_RELAXED))
        set_waiting(gate, gpu, word, 0);  // that wait was left by a jump
    if (word && is_nested(gate, word, stack)) {
        uint32_t lease = weir_gate_lease(gate, gpu);
        if (lease & WEIR_LEASE_CLOSED) {
            count(&gate->counts.nested);
            count(&gate->passed_closed[gpu]);
        }
        return (struct weir_pass){NULL, lease, WEIR_GATE_NESTED};
    }
    return enter(gate, gpu, word, stack);
}

int weir_gate_enter_now(struct weir_gate *gate, uint32_t gpu, const struct weir_gate_tries *tries,
                        struct weir_pass *pass) {
    int through = tries->through >> gpu & 1;
    if (!through && (weir_gate_lease(gate, gpu) & WEIR_LEASE_CLOSED))
        return 0;
    *pass = publish(gate, gpu, NULL, 0);
    if (through || !(pass->lease & WEIR_LEASE_CLOSED))
        return 1;
    retire(gate, gpu, *pass);
    return 0;
}

void weir_gate_await(struct weir_gate *gate, uint32_t gpu, struct weir_gate_tries *tries) {
    uint32_t lease = weir_gate_lease(gate, gpu);
    if (!(lease & WEIR_LEASE_CLOSED))
        return;
    set_waiting(gate, gpu, NULL, 1);
    if (!wait_once(gate, gpu, lease, &tries->since_ms)) {
        count(&gate->passed_closed[gpu]);
        tries->through |= 1ull << gpu;
    }
    set_waiting(gate, gpu, NULL, 0);
}

void weir_gate_leave_slow(struct weir_gate *gate, uint32_t gpu, struct weir_pass pass) {
    uint32_t lease = weir_gate_lease(gate, gpu);
    if (!(pass.lease & WEIR_LEASE_CLOSED) && lease &&
        (lease | WEIR_LEASE_CLOSED) != (pass.lease | WEIR_LEASE_CLOSED))
        count(&gate->counts.late);
    retire(gate, gpu, pass);
}

void weir_gate_bind(struct weir_gate *gate, uint32_t gpu, const uint32_t *lease) {
    // Another page may number its leases as this one did.
    __atomic_store_n(&gate->waived[gpu], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->lease[gpu], lease, __ATOMIC_SEQ_CST);
}
