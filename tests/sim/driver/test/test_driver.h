// test_driver.h: what tests of the driver in one process begin with: a machine, the primary context
// of device 0 current, a few kernels, and short names for common calls (which must succeed).
#ifndef SIM_TEST_DRIVER_H
#define SIM_TEST_DRIVER_H

#include "../cuda_abi.h"
#include "test.h"
#include "test_machine.h"

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

// PTX: weir_spin_ns(cost), add(p, n, by), store(p); and a variable, counter.
extern const char test_kernels[];
extern CUcontext primary;
extern CUfunction add, spin, store;

void start_driver(void);
void start_driver_on(const struct sim_config *config);
void stop_driver(void);

void launch(CUfunction function, unsigned grid, unsigned block, CUstream stream, void **params);
void spin_for(uint64_t ns, CUstream stream);
// Adds to each of `count` words.
void add_to(CUdeviceptr at, uint32_t count, uint32_t by, CUstream stream);
// Holds a stream from here on until `*go` is set by let_go, so that what follows has all been
// submitted when it begins, however slow the test is.
void hold(CUstream stream, int *go);
void let_go(int *go);
CUdeviceptr alloc(size_t bytes);
uint64_t free_bytes(void);

#endif
