// c = a * b for row-major square matrices of any size, in tiles that a block keeps in shared
// memory. Each element is one chain of fused multiply-adds in the order of k, so a reference can be
// exact.
#include "tests/sim/cudart/weir_cuda.h"

#define TILE 16

extern "C" __global__ void matrix_product(const float *a, const float *b, float *c, unsigned size) {
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    unsigned x = threadIdx.x, y = threadIdx.y;
    unsigned column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (unsigned first = 0; first < size; first += TILE) {
        tile_a[y][x] = row < size && first + x < size ? a[row * size + first + x] : 0;
        tile_b[y][x] = column < size && first + y < size ? b[(first + y) * size + column] : 0;
        __syncthreads();
        for (unsigned k = 0; k < TILE; k++)
            sum = __fmaf_rn(tile_a[y][k], tile_b[k][x], sum);
        __syncthreads();
    }
    if (row < size && column < size)
        c[row * size + column] = sum;
}
