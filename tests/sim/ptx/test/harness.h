// What the interpreter's tests share: checks that report and count, and a device memory that is
// plain host memory, in which every allocation is one mapped range with nothing around it.
#ifndef WEIR_SIM_PTX_TEST_HARNESS_H
#define WEIR_SIM_PTX_TEST_HARNESS_H

#include "tests/sim/ptx/ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALLOCATIONS_MAX 64

struct device {
    struct {
        uint8_t *at;
        uint64_t bytes;
    } allocations[ALLOCATIONS_MAX];
    int count;
    int fail_allocate;  // what the next allocation returns instead
    struct sim_ptx_memory memory;
};

void device_init(struct device *);
void device_free(struct device *);
// A zeroed allocation; its device address is its host address.
void *device_alloc(struct device *, uint64_t bytes);
// Allocations that have not been given back.
int device_live(const struct device *);

extern int checks_failed;

// Fails the test program, but goes on.
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            checks_failed++;                                                                       \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
        }                                                                                          \
    } while (0)

// Reads a file with a NUL behind it, or ends the program.
char *read_file(const char *path, size_t *bytes);

// Loads text that must load; its module.
struct sim_ptx_module *load(struct device *, const char *text);

// Launches a kernel with 64-bit parameters and returns the code. `count` of them, at most 8.
struct dims {
    uint32_t grid, block, dynamic_shared_bytes;
};
int launch(struct device *, const struct sim_ptx_module *, const char *kernel, struct dims,
           struct sim_ptx_outcome *, int count, const uint64_t *params);

// Prints the verdict and returns the program's exit status.
int finish(const char *name);

#endif
