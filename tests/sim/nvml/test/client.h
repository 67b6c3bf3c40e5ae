// A process of the simulated machine that holds memory, for tests: the least that the simulated
// driver does.
#pragma once

#include <stdint.h>
#include <sys/types.h>

// Joins the machine that the environment names, opens a context on `gpu`, a card or a MIG device by
// its number in the machine, takes `bytes` (a
// multiple of SIM_GRANULE) and submits one operation of `busy_ns` (0: none). Returns 0 or an errno.
int client_join(unsigned gpu, uint64_t bytes, uint64_t busy_ns);

// Forks such a process and waits until it has what was asked for. Returns its pid, or -1. It ends
// by a signal, or with its parent.
pid_t client_start(unsigned gpu, uint64_t bytes, uint64_t busy_ns);

// Kills it and waits for its end.
void client_kill(pid_t pid);
