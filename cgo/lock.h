// lock.h: the one lock of a process, held for a few instructions of bookkeeping.
//
// The owner is a thread's identity, so a signal handler that interrupts the holder and comes here
// again is told EDEADLK rather than left waiting for itself. Invariants: never held across a system
// call or a driver call; all zeros is unlocked, which is what a forked child finds.
//
// Taking it costs one locked instruction, leaving it none: a plain store of the owner, then a look
// for sleepers. That look may pass the store, and a sleeper that came at this very moment is then
// not woken; so a sleeper looks again by itself after a millisecond.
#ifndef WEIR_LOCK_H
#define WEIR_LOCK_H

#include "sys.h"

struct weir_lock {
    uintptr_t owner;    // 0: free
    uint32_t sleepers;  // threads in the slow path
    uint32_t wakes;     // futex: counts wake-ups
};

int weir_lock_slow(struct weir_lock *lock, uintptr_t self);
void weir_unlock_wake(struct weir_lock *lock);

// 0, or EDEADLK where this thread holds it already.
static inline int weir_lock(struct weir_lock *lock) {
    uintptr_t self = weir_sys_self();
    uintptr_t none = 0;
    if (__builtin_expect(__atomic_compare_exchange_n(&lock->owner, &none, self, 0, __ATOMIC_ACQUIRE,
                                                     __ATOMIC_RELAXED),
                         1))
        return 0;
    return weir_lock_slow(lock, self);
}

// Whether it was free, and is this thread's now.
static inline int weir_lock_try(struct weir_lock *lock) {
    uintptr_t none = 0;
    return __atomic_compare_exchange_n(&lock->owner, &none, weir_sys_self(), 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

// Whether this thread holds it: then a signal handler is asking.
static inline int weir_lock_is_mine(const struct weir_lock *lock) {
    return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == weir_sys_self();
}

static inline void weir_unlock(struct weir_lock *lock) {
    __atomic_store_n(&lock->owner, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&lock->sleepers, __ATOMIC_RELAXED) != 0, 0))
        weir_unlock_wake(lock);
}

#endif
