// prober.h: what the files of the prober share: a program that asks the driver all about its
// memory, and uses it in each way that differs between plain and managed memory.
#ifndef WEIR_E2E_PROBER_H
#define WEIR_E2E_PROBER_H

#include "../../sim/driver/cuda_abi.h"
#include "../../sim/driver/cuda_array_abi.h"
#include "../../sim/driver/cuda_async_abi.h"
#include "../../sim/driver/cuda_share_abi.h"

#include <stdint.h>

enum { MEMORIES_MAX = 4096 };

struct memory {
    CUdeviceptr at;  // 0: this one is not there
    size_t bytes;
    CUcontext context;
};
extern struct memory prober_memories[MEMORIES_MAX];

// The kernel that uses memory, in a context: its code is loaded there the first time.
CUresult prober_kernel(CUcontext context, CUfunction *function);

// Commands about several contexts (prober_many.c). Whether it is one.
int prober_many(char **words);

// Uses memory by so many kernels of 1 ms in the current context, and waits.
CUresult prober_use(const struct memory *memory, uint64_t times);

// Answers "error CODE" for a code that is not 0.
void prober_answer(CUresult code);

// Commands about one allocation, in prober_ask.c; the last has no name.
struct prober_command {
    const char *name;
    void (*run)(const struct memory *memory);
};
extern const struct prober_command prober_asks[];

// Copies `from` to `to` in a way (prober_copy.c): "plain", "node" of a graph, "captured".
CUresult prober_copy(const char *way, const struct memory *to, const struct memory *from);

#endif
