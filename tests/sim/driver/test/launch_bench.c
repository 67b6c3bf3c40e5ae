// launch_bench.c: what a launch costs its caller on the simulated driver, and what allocations cost
// beside many live ones. Medians; the launches come in batches that the queue can hold.
#define _GNU_SOURCE
#include "../cuda_abi.h"
#include "test.h"
#include "test_machine.h"

#define BATCHES 200
#define BATCH 256
#define PAIRS 20000

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static void launches(const char *what, CUfunction function) {
    static uint64_t took[BATCHES * BATCH];
    uint64_t cost = 0;
    void *params[] = {&cost};
    size_t n = 0;
    for (unsigned i = 0; i < BATCHES; i++) {
        for (unsigned j = 0; j < BATCH; j++) {
            uint64_t before = sim_now_ns();
            CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), 0);
            took[n++] = sim_now_ns() - before;
        }
        CHECK_EQ(cuCtxSynchronize(), 0);
    }
    printf("%s: %llu ns (median of %zu, clock included)\n", what,
           (unsigned long long)median(took, n), n);
}

static void allocations(unsigned live) {
    static uint64_t took[PAIRS];
    CUdeviceptr *at = calloc(live + 1, sizeof *at);
    CHECK(at);
    for (unsigned i = 0; i < live; i++)
        CHECK_EQ(cuMemAlloc_v2(&at[i], 512), 0);
    for (unsigned i = 0; i < PAIRS; i++) {
        CUdeviceptr one;
        uint64_t before = sim_now_ns();
        CHECK_EQ(cuMemAlloc_v2(&one, 512), 0);
        CHECK_EQ(cuMemFree_v2(one), 0);
        took[i] = sim_now_ns() - before;
    }
    printf("allocate and free beside %u live: %llu ns (median)\n", live,
           (unsigned long long)median(took, PAIRS));
    for (unsigned i = 0; i < live; i++)
        CHECK_EQ(cuMemFree_v2(at[i]), 0);
    free(at);
}

int main(void) {
    static const char text[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry weir_spin_ns(.param .u64 cost) { ret; }\n"
                               ".visible .entry nothing(.param .u64 unused) { ret; }\n";
    struct sim_config config = test_config();
    CUcontext context;
    CUmodule module;
    CUfunction spin, nothing;
    test_machine(&config);
    CHECK_EQ(cuInit(0), 0);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
    CHECK_EQ(cuCtxSetCurrent(context), 0);
    CHECK_EQ(cuModuleLoadData(&module, text), 0);
    CHECK_EQ(cuModuleGetFunction(&spin, module, "weir_spin_ns"), 0);
    CHECK_EQ(cuModuleGetFunction(&nothing, module, "nothing"), 0);
    launches("launch of a kernel with a cost only", spin);
    launches("launch of an empty kernel", nothing);
    allocations(0);
    allocations(100000);
    test_machine_remove();
    return 0;
}
