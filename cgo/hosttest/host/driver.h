// driver.h: a driver for tests of the library alone. It has GPUs, contexts and memory, but no
// device: its calls return at once, can be told to fail or to dawdle, and it keeps its own books.
#ifndef WEIR_HOSTTEST_DRIVER_H
#define WEIR_HOSTTEST_DRIVER_H

#include <stdint.h>

#include "../../cuda.h"

#define TEST_GPUS 2
#define TEST_GPU_BYTES (64ull << 30)
#define TEST_PITCH 512u
// Of created memory.
#define TEST_GRANULARITY (64u << 10)

struct test_driver {
    uint64_t used_bytes[TEST_GPUS];  // as rounded up by the driver
    uint64_t peak_bytes[TEST_GPUS];
    uint64_t limit_bytes[TEST_GPUS];  // more than that in use is a violation
    uint64_t violations;
    uint64_t calls;             // of allocation functions
    int fail_code;              // what the next allocation or free returns, once
    unsigned dawdle_us;         // how long allocation and free take, at most
    unsigned pitch_bytes;       // what rows are rounded up to
    unsigned array_unit_bytes;  // what arrays are rounded up to
    unsigned chunk_bytes;       // what pools and graphs grow by
    int streams_busy;           // what streams are given to do is done only when one waits for them
    int nodes_only;             // descriptors of memory are of a device node, as some drivers give
    int used_lags;              // memory counts as used until its free has happened on the device
    uint64_t tentative_bytes[TEST_GPUS];  // of what is used; no violation
};

extern struct test_driver test_driver;

// Puts the driver's functions where the library looks for them.
void test_driver_install(void);

// Puts in their place an allocation and a free that return at once: addresses count up, nothing is
// kept. These may be called out of a signal handler.
void test_driver_install_null(void);

// A call of the library's is over: what pools and graphs have grown by on this thread counts from
// now on.
void test_driver_call_over(void);

// Makes a context current on this thread: 0 for none, device + 1 for a device's primary one.
void test_driver_use_context(uint64_t handle);

// Makes a context on a device, and makes it current. Returns its handle.
uint64_t test_driver_new_context(int device);

// Says which device a context is on that another part of the driver has made.
void test_driver_place_context(uint64_t handle, int device);

// ---- For the parts of the driver ----

#define INSTALL(export, function)                                                                  \
    __atomic_store_n(&weir_real_table[WEIR_FN_##export], (void *)(function), __ATOMIC_RELEASE)

// The device of this thread's current context, or -1; that of any context.
int test_driver_device(void);
int test_driver_device_of(uint64_t context);

// What the next call is to fail with, once; or 0.
int test_driver_failure(void);

// Takes the time that a call takes.
void test_driver_dawdle(void);

// Counts device memory that is taken. Whether there is so much.
int test_driver_take(int gpu, uint64_t bytes);
void test_driver_give(int gpu, uint64_t bytes);

// The same, for what a call takes that may still be undone: it counts against the limit only from
// when it is firm.
int test_driver_grow(int gpu, uint64_t bytes);
void test_driver_firm(int gpu, uint64_t bytes);

// What lies at an address, where that is plain memory: whether it is, its length, a number that no
// other has, and its GPU.
int test_driver_block(uint64_t pointer, uint64_t *bytes, uint64_t *serial, int *gpu);

static inline uint64_t test_driver_round(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

// arrays.c, pools.c, graphs.c, shared.c, work.c: put their functions where the library looks for
// them.
void test_arrays_install(void);
void test_pools_install(void);
void test_graphs_install(void);
void test_shared_install(void);
void test_work_install(void);

void test_pools_call_over(void);
void test_graphs_call_over(void);

// Frees memory of a pool, if it is that. 1, or 0 where it is not; -1: it was freed before.
int test_pools_free(uint64_t pointer, uintptr_t stream, int now);

// Gives something to a stream: its mark, and whether that is still to be done.
uint64_t test_pools_submit(uintptr_t stream);
int test_pools_pending(uintptr_t stream, uint64_t mark);
int test_pools_busy(CUstream stream);

// Gives a stream work of so many microseconds.
CUresult test_work_submit(CUstream stream, uint64_t us);

// Whether an address is that of a memory node.
int test_graphs_owns(uint64_t pointer);

// Whether a stream is being captured; and, if so, an allocation on it.
int test_graphs_capturing(uintptr_t stream);
uint64_t test_graphs_capture(int gpu, uint64_t bytes);

#endif
