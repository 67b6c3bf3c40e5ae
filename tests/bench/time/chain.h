// chain.h: a bare chain of the wake-ups that a hand-over has. A timer wakes one process, as whoever
// is to see that a drain has ended; its message over a SEQPACKET socket wakes a second, which
// stores a word in shared memory and wakes a third by a futex on it.
#ifndef WEIR_BENCH_CHAIN_H
#define WEIR_BENCH_CHAIN_H

#include <stdbool.h>

// Starts the two other processes; they end with this one.
bool chain_start(void);

// One round, which begins at the moment that the timer is set to, when the others have slept for
// some time; returns when it is over.
void chain_round(void);

// Says "chain FROM TO" of each round.
void chain_end(void);

#endif
