// Sums of all elements: a tree in shared memory within a block, one atomic addition a block.
#include "tests/sim/cudart/weir_cuda.h"

template <typename T>
static __device__ void reduce(const T *values, unsigned count, T *sum, T *part) {
    unsigned t = threadIdx.x;
    T own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + t; i < count; i += gridDim.x * blockDim.x)
        own += values[i];
    part[t] = own;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        atomicAdd(sum, part[0]);
}

// The block is a power of two of at most 256 threads.
extern "C" __global__ void sum_unsigned(const unsigned *values, unsigned count, unsigned *sum) {
    __shared__ unsigned part[256];
    reduce(values, count, sum, part);
}

extern "C" __global__ void sum_float(const float *values, unsigned count, float *sum) {
    __shared__ float part[256];
    reduce(values, count, sum, part);
}

// The same with the block's partial sums in dynamic shared memory and shuffles within a warp. The
// block is a multiple of 32 threads.
extern "C" __global__ void sum_float_shuffle(const float *values, unsigned count, float *sum) {
    extern __shared__ float of_warp[];
    float own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        own += values[i];
    for (unsigned by = warpSize / 2; by > 0; by /= 2)
        own += __shfl_down_sync(~0u, own, by);
    if (threadIdx.x % warpSize == 0)
        of_warp[threadIdx.x / warpSize] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (unsigned k = 0; k < blockDim.x / warpSize; k++)
            all += of_warp[k];
        atomicAdd(sum, all);
    }
}
