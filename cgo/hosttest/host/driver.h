// driver.h: a driver for tests of the library alone. It has GPUs, contexts and memory, but no
// device: its calls return at once, can be told to fail or to dawdle, and it keeps its own books.
#ifndef WEIR_HOSTTEST_DRIVER_H
#define WEIR_HOSTTEST_DRIVER_H

#include <stdint.h>

#define TEST_GPUS 2
#define TEST_GPU_BYTES (64ull << 30)
#define TEST_PITCH 512u

struct test_driver {
    uint64_t used_bytes[TEST_GPUS];  // as rounded up by the driver
    uint64_t peak_bytes[TEST_GPUS];
    uint64_t limit_bytes[TEST_GPUS];  // more than that in use is a violation
    uint64_t violations;
    uint64_t calls;        // of allocation functions
    int fail_code;         // what the next allocation or free returns, once
    unsigned dawdle_us;    // how long allocation and free take, at most
    unsigned pitch_bytes;  // what rows are rounded up to
};

extern struct test_driver test_driver;

// Puts the driver's functions where the library looks for them.
void test_driver_install(void);

// Puts in their place an allocation and a free that return at once: addresses count up, nothing is
// kept. These may be called out of a signal handler.
void test_driver_install_null(void);

// Makes a context current on this thread: 0 for none, device + 1 for a device's primary one.
void test_driver_use_context(uint64_t handle);

// Makes a context on a device, and makes it current. Returns its handle.
uint64_t test_driver_new_context(int device);

#endif
