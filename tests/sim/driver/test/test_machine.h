// test_machine.h: a small simulated machine for tests, and where its file goes.
#ifndef SIM_TEST_MACHINE_H
#define SIM_TEST_MACHINE_H

#include "../../machine.h"

#define MIB (UINT64_C(1) << 20)

// Two GPUs of 64 MiB whose contexts take 2 MiB each.
struct sim_config test_config(void);

// Makes a machine in a fresh directory, sets WEIR_SIM to it, and maps it for the test's own looks.
struct sim_machine *test_machine(const struct sim_config *config);

// Removes the directory that test_machine made last.
void test_machine_remove(void);

#endif
