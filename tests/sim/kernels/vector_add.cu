// c = a + b, element by element.
#include "tests/sim/cudart/weir_cuda.h"

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        c[i] = a[i] + b[i];
}
