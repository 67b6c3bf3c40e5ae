// lock.h: a lock for the whole GPU, as some programs that share one have it: whoever has it keeps
// it for a quantum, then ends its work and gives it on in the order of coming. Nothing moves ahead.
//
// It is two numbers in a file, and whoever waits looks at them often: good enough to measure
// beside.
#ifndef WEIR_BENCH_TENANTS_LOCK_H
#define WEIR_BENCH_TENANTS_LOCK_H

#include <stdint.h>

// Takes part in the lock of that file, which is there and has 16 zeros at first. 0, or -1. Without
// it the others do nothing.
int lock_open(const char *path);

// Returns with the lock. If this process has had it for a quantum and others wait, they come first,
// after `finish` has ended what is under way.
void lock_need(uint64_t quantum_ms, void (*finish)(void));

// Gives it on, if this process has it.
void lock_end(void);

#endif
