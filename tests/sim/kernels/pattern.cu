// Kernels of the demo and of tests that hold data on the GPU for long: fill a buffer from a seed,
// check it, sum it, and an ordinary saxpy.
#include "tests/sim/cudart/weir_cuda.h"

// The word at an index of a buffer that was filled from `seed`.
static __host__ __device__ unsigned pattern_word(unsigned long long index, unsigned seed) {
    unsigned x = (unsigned)index * 2654435761u ^ (unsigned)(index >> 32) ^ seed;
    x ^= x >> 16;
    x *= 2246822519u;
    return x ^ x >> 13;
}

extern "C" __global__ void fill_pattern(unsigned *words, unsigned long long count, unsigned seed) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned long long i = first; i < count; i += stride)
        words[i] = pattern_word(i, seed);
}

// Adds to *wrong how many words are not as filled.
extern "C" __global__ void check_pattern(const unsigned *words, unsigned long long count,
                                         unsigned seed, unsigned long long *wrong) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x, bad = 0;
    for (unsigned long long i = first; i < count; i += stride)
        bad += words[i] != pattern_word(i, seed);
    if (bad > 0)
        atomicAdd(wrong, bad);
}

// Adds all words to *sum.
extern "C" __global__ void checksum(const unsigned *words, unsigned long long count,
                                    unsigned long long *sum) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x, own = 0;
    for (unsigned long long i = first; i < count; i += stride)
        own += words[i];
    atomicAdd(sum, own);
}

extern "C" __global__ void saxpy(unsigned long long count, float a, const float *x, float *y) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned long long i = first; i < count; i += stride)
        y[i] = __fmaf_rn(a, x[i], y[i]);
}
