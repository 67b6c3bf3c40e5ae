// revoke.c: the revoker's side of gate.h: leases are taken away.
#include "gate.h"

// The revoker's patience: some microseconds on its feet, then asleep, each time for longer.
#define REVOKE_SPINS 1000
#define REVOKE_SLEEP_US_MIN 50u
#define REVOKE_SLEEP_US_MAX 1000u
// The longest that a store may wait in a processor's buffer, with much to spare: it leaves by
// itself within microseconds, and at once when the processor turns to something else.
#define STORE_MS_MAX 1u

#define MEMBARRIER_PRIVATE_EXPEDITED 8
#define MEMBARRIER_REGISTER_PRIVATE_EXPEDITED 16

// A test shows what it is for by leaving it out.
static int membarrier(int command) {
#ifdef WEIR_GATE_WITHOUT_MEMBARRIER
    return command == 0;
#else
    return (int)weir_syscall(SYS_membarrier, command, 0, 0, 0, 0, 0);
#endif
}

int weir_gate_register(struct weir_gate *gate) {
    int rc = membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED);
    if (rc < 0)
        return rc;
    __atomic_store_n(&gate->mode, WEIR_GATE_PLAIN, __ATOMIC_RELEASE);
    return 0;
}

// R2.
void weir_gate_settle(struct weir_gate *gate) {
    __atomic_fetch_add(&gate->settled, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&gate->mode, __ATOMIC_RELAXED) == WEIR_GATE_PLAIN &&
        membarrier(MEMBARRIER_PRIVATE_EXPEDITED) < 0)
        __atomic_store_n(&gate->mode, WEIR_GATE_LOST, __ATOMIC_SEQ_CST);
    // A thread may have looked at the mode before, and go on at any time.
    if (__atomic_load_n(&gate->mode, __ATOMIC_RELAXED) == WEIR_GATE_LOST)
        weir_sys_sleep_ms(STORE_MS_MAX);
}

// How long the revoker still waits.
struct patience {
    uint64_t bound_ms;
    uint64_t end_ms;  // 0: it has not begun to sleep
    uint64_t sleep_us;
    uint32_t spins;
    int over;
};

// Passes some time, unless there is none left.
static void pass_time(struct patience *patience) {
    if (patience->spins) {
        patience->spins--;
        weir_sys_pause();
        return;
    }
    uint64_t now_ms = weir_sys_now_ms();
    if (!patience->end_ms)
        patience->end_ms = now_ms + patience->bound_ms;
    patience->over = now_ms >= patience->end_ms;
    if (patience->over)
        return;
    struct timespec length = weir_sys_timespec_us(patience->sleep_us);
    weir_syscall(SYS_nanosleep, (long)&length, 0, 0, 0, 0, 0);
    patience->sleep_us *= 2;
    if (patience->sleep_us > REVOKE_SLEEP_US_MAX)
        patience->sleep_us = REVOKE_SLEEP_US_MAX;
}

// R3 and R4 for one word. Whether its launch is still under way.
static int stays(struct weir_gate_word *word, uint32_t gpu, struct patience *patience) {
    uint64_t state = __atomic_load_n(&word->state, __ATOMIC_SEQ_CST);
    if (!weir_gate_is_inside(state) || (state & (WEIR_GATE_ENTRY - 1)) >> 1 != gpu)
        return 0;
    while (__atomic_load_n(&word->state, __ATOMIC_ACQUIRE) == state) {
        uint32_t tid = __atomic_load_n(&word->tid, __ATOMIC_RELAXED);
        if (!patience->spins && tid && weir_gate_has_ended(tid))
            return 0;
        if (patience->over)
            return 1;
        pass_time(patience);
    }
    return 0;
}

int weir_gate_revoke(struct weir_gate *gate, uint32_t gpu, uint64_t bound_ms) {
    if (!(weir_gate_lease(gate, gpu) & WEIR_LEASE_CLOSED))  // R1
        return -EAGAIN;
    weir_gate_settle(gate);
    struct patience patience = {
        .bound_ms = bound_ms,
        .sleep_us = REVOKE_SLEEP_US_MIN,
        .spins = REVOKE_SPINS,
    };
    uint32_t used = __atomic_load_n(&gate->used, __ATOMIC_SEQ_CST);
    int inside = 0;
    for (uint32_t i = 0; i < used; i++)
        inside += stays(&gate->words[i], gpu, &patience);
    uint32_t crowd;
    while ((crowd = __atomic_load_n(&gate->crowd[gpu], __ATOMIC_SEQ_CST)) != 0 && !patience.over)
        pass_time(&patience);
    return inside + (int)crowd;
}

uint32_t weir_gate_inside(struct weir_gate *gate, uint32_t gpu) {
    uint32_t used = __atomic_load_n(&gate->used, __ATOMIC_SEQ_CST);
    uint32_t inside = __atomic_load_n(&gate->crowd[gpu], __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t state = __atomic_load_n(&gate->words[i].state, __ATOMIC_SEQ_CST);
        inside += weir_gate_is_inside(state) && (state & (WEIR_GATE_ENTRY - 1)) >> 1 == gpu;
    }
    return inside;
}

uint32_t weir_gate_waiting(struct weir_gate *gate, uint32_t gpu) {
    uint32_t used = __atomic_load_n(&gate->used, __ATOMIC_SEQ_CST);
    uint32_t waiting = __atomic_load_n(&gate->crowd_waiting[gpu], __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < used; i++) {
        const struct weir_gate_word *word = &gate->words[i];
        uint32_t waits = __atomic_load_n(&word->waits, __ATOMIC_SEQ_CST);
        waiting +=
            waits == gpu + 1 && !weir_gate_has_ended(__atomic_load_n(&word->tid, __ATOMIC_RELAXED));
    }
    return waiting;
}
