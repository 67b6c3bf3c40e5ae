// trainer.c: a CUDA program whose working set grows, as a training job's does.
//
// trainer STEP_MIB STEPS: with each step it takes one more block of STEP_MIB, fills it with
// weights, runs a kernel over part of every block, and compares with the same sums made on the CPU.
// When the driver refuses memory it says so, waits, and asks again. After the last step it goes on
// computing until its input ends.
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

CARRY(kernels, DEMO_PTX_VECTOR_ADD);

enum {
    STEPS_MAX = 4096,
    PART = 2048,  // weights of a block that the kernel updates in each pass
    THREADS = 128,
    RETRY_MS = 200,
    PASS_MS = 100,
};

struct block {
    uint64_t weights;  // on the GPU
    uint32_t updates;  // how often its part was updated
};

static struct block blocks[STEPS_MAX];
static int count;
static uint64_t gradient;
static void *vector_add;

// Whole numbers, so that the sums on the GPU and on the CPU are the same to the bit.
static float first_weight(int block, size_t i) {
    return (float)((size_t)block * 7 + i % 1000);
}

static float one_gradient(size_t i) {
    return (float)(i % 5);
}

static bool take_block(size_t bytes) {
    int code = cu.cuMemAlloc_v2(&blocks[count].weights, bytes);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    must("cuMemAlloc", code);
    float *weights = malloc(bytes);
    if (!weights) {
        say("the host has no memory");
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof(*weights); i++)
        weights[i] = first_weight(count, i);
    must("cuMemcpyHtoD", cu.cuMemcpyHtoD_v2(blocks[count].weights, weights, bytes));
    free(weights);
    blocks[count++].updates = 0;
    return true;
}

// Asks until it gets it, or until the program is asked to finish. Says once that it has to wait.
static bool grow(long step_mib) {
    size_t bytes = (size_t)step_mib << 20;
    bool waited = false;
    while (!take_block(bytes)) {
        if (!waited)
            say("REFUSED: %ldMiB held, the next %ldMiB do not fit; waiting and asking again",
                count * step_mib, step_mib);
        waited = true;
        if (asked_to_finish(RETRY_MS))
            return false;
    }
    if (waited)
        say("got it: %ldMiB held, and on it goes", count * step_mib);
    return true;
}

static void update(struct block *block) {
    uint32_t part = PART;
    void *parameters[] = {&block->weights, &gradient, &block->weights, &part};
    must("cuLaunchKernel", cu.cuLaunchKernel(vector_add, PART / THREADS, 1, 1, THREADS, 1, 1, 0,
                                             NULL, parameters, NULL));
    block->updates++;
}

// Compares the whole part and a little of what the kernel must not have touched.
static void check(int number) {
    float got[PART + THREADS];
    struct block *block = &blocks[number];
    must("cuMemcpyDtoH", cu.cuMemcpyDtoH_v2(got, block->weights, sizeof(got)));
    for (size_t i = 0; i < PART + THREADS; i++) {
        float want = first_weight(number, i);
        for (uint32_t update = 0; i < PART && update < block->updates; update++)
            want += one_gradient(i);
        if (got[i] != want) {
            say("WRONG: weight %zu of block %d is %g, the CPU says %g", i, number, got[i], want);
            exit(1);
        }
    }
}

static void pass(void) {
    for (int i = 0; i < count; i++)
        update(&blocks[i]);
    for (int i = 0; i < count; i++)
        check(i);
}

static void make_gradient(void) {
    float values[PART];
    for (size_t i = 0; i < PART; i++)
        values[i] = one_gradient(i);
    must("cuMemAlloc", cu.cuMemAlloc_v2(&gradient, sizeof(values)));
    must("cuMemcpyHtoD", cu.cuMemcpyHtoD_v2(gradient, values, sizeof(values)));
}

int main(int arguments, char **argument) {
    const char *usage = "trainer STEP_MIB STEPS";
    long step_mib = positive(arguments == 3 ? argument[1] : NULL, usage);
    long steps = positive(argument[2], usage);
    long passes = 0;
    gpu_open("trainer");
    vector_add = gpu_kernel(kernels, "vector_add");
    make_gradient();
    say("starts, and wants %ldMiB in steps of %ldMiB", steps * step_mib, step_mib);
    while (count < steps && count < STEPS_MAX) {
        if (!grow(step_mib)) {
            say("was asked to finish before it had all it wanted");
            return 1;
        }
        pass();
        passes++;
    }
    say("has all of its %ldMiB", count * step_mib);
    while (!asked_to_finish(PASS_MS)) {
        pass();
        passes++;
    }
    say("ends: %ld passes over %d blocks, every result the same as on the CPU", passes, count);
    return 0;
}
