// test_managed.h: what tests of managed memory in one process begin with: the machine of
// test_driver.h with pages of 32 KiB and a fault in each batch, and kernels that touch given
// ranges.
#ifndef SIM_TEST_MANAGED_H
#define SIM_TEST_MANAGED_H

#include "test_driver.h"

#define PAGE 32768u  // 2 MiB of a real card
#define PAGES(n) ((uint64_t)(n)*PAGE)

extern struct sim_machine *machine;
// weir_spin_ns_on(cost, p, bytes), weir_spin_ns_many(cost, six times p and bytes), nothing(p).
extern const char managed_kernels[];
extern CUfunction spin_on, spin_many, nothing;

void start_managed(void);
void start_managed_whole(void);  // the same, without concurrent managed access
void start_managed_data(void);   // the same, where data move with their pages
void stop_managed(void);

// What this process did with managed memory on a GPU, and what of it lies on GPU 0.
struct sim_managed books(unsigned gpu);
uint64_t resident(void);

CUdeviceptr managed(size_t bytes);
// A kernel of a given cost that touches a range of addresses and computes nothing; and waits.
void touch_for(uint64_t cost, CUdeviceptr at, uint64_t bytes, CUstream stream);
void touch(CUdeviceptr at, uint64_t bytes);
void prefetch(CUdeviceptr at, uint64_t bytes, CUdevice device);

// Times on the GPU's own clock, in ms, of what is held until all of it has been submitted.
CUevent event(void);
float elapsed(CUevent start, CUevent end);
double link_ms(uint64_t bytes);
void close_to(double got, double wanted);

#endif
