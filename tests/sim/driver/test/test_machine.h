// test_machine.h: a small simulated machine for tests, and where its file goes.
#ifndef SIM_TEST_MACHINE_H
#define SIM_TEST_MACHINE_H

#include "../../machine.h"

#include <sys/types.h>

#define MIB (UINT64_C(1) << 20)

// Two GPUs of 64 MiB whose contexts take 2 MiB each.
struct sim_config test_config(void);

// Makes a machine in a fresh directory, sets WEIR_SIM to it, and maps it for the test's own looks.
struct sim_machine *test_machine(const struct sim_config *config);

// Of the machine that test_machine made last: what all processes hold of a GPU, and the books of
// the live process with that pid.
uint64_t test_used(unsigned gpu);
struct sim_process_gpu test_books_of(pid_t pid, unsigned gpu);

// Removes the directory that test_machine made last.
void test_machine_remove(void);

#endif
