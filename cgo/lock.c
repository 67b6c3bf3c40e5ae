// lock.c: the slow path of the process's lock: spin a little, then sleep.
#include "lock.h"

// The lock is held for less than a microsecond unless its holder was descheduled.
#define SPINS 100
// How long a sleeper that missed its wake-up sleeps on, in microseconds.
#define SLEEP_US 1000

static int try_lock(struct weir_lock *lock, uintptr_t self) {
    uintptr_t none = 0;
    return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == 0 &&
           __atomic_compare_exchange_n(&lock->owner, &none, self, 0, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

int weir_lock_slow(struct weir_lock *lock, uintptr_t self) {
    if (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == self)
        return EDEADLK;
    for (int i = 0; i < SPINS; i++) {
        if (try_lock(lock, self))
            return 0;
        weir_sys_pause();
    }
    __atomic_fetch_add(&lock->sleepers, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        uint32_t wakes = __atomic_load_n(&lock->wakes, __ATOMIC_ACQUIRE);
        if (try_lock(lock, self))
            break;
        weir_sys_futex_wait(&lock->wakes, wakes, SLEEP_US);
    }
    __atomic_fetch_sub(&lock->sleepers, 1, __ATOMIC_SEQ_CST);
    return 0;
}

void weir_unlock_wake(struct weir_lock *lock) {
    __atomic_fetch_add(&lock->wakes, 1, __ATOMIC_RELEASE);
    weir_sys_futex_wake(&lock->wakes, 1);
}
