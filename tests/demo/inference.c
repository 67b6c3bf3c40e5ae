// inference.c: a CUDA program with a model of fixed size and batches that come and go.
//
// inference MODEL_MIB BATCH_MIB: holds the model; for each batch it allocates, multiplies a matrix
// of the model with one of the batch, compares with the product made on the CPU, and frees, until
// its input ends. With "--probe" it only says how much memory the GPU has that it finds, how much
// of it a context takes, and what it is called, and fails where there is none.
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CARRY(kernels, DEMO_PTX_MATRIX_PRODUCT);

enum { N = 32, TILE = 16, BATCH_MS = 50 };

static uint64_t model;
static float model_matrix[N * N];
static void *matrix_product;

// Small whole numbers: the sums are exact, in whatever order they are made.
static void fill(float *matrix, unsigned seed) {
    for (unsigned i = 0; i < N * N; i++)
        matrix[i] = (float)((i * 7 + seed * 13) % 17);
}

static void load_model(long mib) {
    must("cuMemAlloc", cu.cuMemAlloc_v2(&model, (size_t)mib << 20));
    fill(model_matrix, 1);
    must("cuMemcpyHtoD", cu.cuMemcpyHtoD_v2(model, model_matrix, sizeof(model_matrix)));
}

static void check(const float *got, const float *input, unsigned number) {
    for (int row = 0; row < N; row++) {
        for (int column = 0; column < N; column++) {
            float want = 0;
            for (int i = 0; i < N; i++)
                want += model_matrix[row * N + i] * input[i * N + column];
            if (got[row * N + column] != want) {
                say("WRONG: batch %u, row %d, column %d is %g, the CPU says %g", number, row,
                    column, got[row * N + column], want);
                exit(1);
            }
        }
    }
}

static void serve(long mib, unsigned number) {
    float input[N * N], output[N * N];
    uint64_t batch;
    unsigned n = N;
    must("cuMemAlloc", cu.cuMemAlloc_v2(&batch, (size_t)mib << 20));
    uint64_t result = batch + sizeof(input);
    fill(input, number);
    must("cuMemcpyHtoD", cu.cuMemcpyHtoD_v2(batch, input, sizeof(input)));
    void *parameters[] = {&model, &batch, &result, &n};
    must("cuLaunchKernel", cu.cuLaunchKernel(matrix_product, N / TILE, N / TILE, 1, TILE, TILE, 1,
                                             0, NULL, parameters, NULL));
    must("cuMemcpyDtoH", cu.cuMemcpyDtoH_v2(output, result, sizeof(output)));
    check(output, input, number);
    must("cuMemFree", cu.cuMemFree_v2(batch));
}

static int probe(void) {
    char name[128];
    size_t before_bytes, after_bytes, total_bytes;
    void *context;
    gpu_open("probe");
    must("cuDeviceGetName", cu.cuDeviceGetName(name, sizeof(name), 0));
    must("cuMemGetInfo", cu.cuMemGetInfo_v2(&before_bytes, &total_bytes));
    must("cuCtxCreate", cu.cuCtxCreate_v2(&context, 0, 0));
    must("cuMemGetInfo", cu.cuMemGetInfo_v2(&after_bytes, &total_bytes));
    size_t context_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
    printf("%zu %zu %s\n", total_bytes >> 20, (context_bytes >> 20) + 1, name);
    return 0;
}

int main(int arguments, char **argument) {
    const char *usage = "inference MODEL_MIB BATCH_MIB | inference --probe";
    if (arguments == 2 && !strcmp(argument[1], "--probe"))
        return probe();
    long model_mib = positive(arguments == 3 ? argument[1] : NULL, usage);
    long batch_mib = positive(argument[2], usage);
    unsigned batches = 0;
    gpu_open("inference");
    matrix_product = gpu_kernel(kernels, "matrix_product");
    load_model(model_mib);
    say("holds a model of %ldMiB and serves batches of %ldMiB", model_mib, batch_mib);
    while (!asked_to_finish(BATCH_MS))
        serve(batch_mib, batches++);
    say("ends: %u batches, every result the same as on the CPU", batches);
    return 0;
}
