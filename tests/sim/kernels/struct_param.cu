// A kernel whose parameter is a structure with padding, an array and pointers.
#include "tests/sim/cudart/weir_cuda.h"

struct polynomial {
    unsigned char degree;
    double coefficient[5];
    float scale;
    const float *in;
    float *out;
    unsigned count;
};

extern "C" __global__ void evaluate(polynomial p) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.count)
        return;
    double x = p.in[i], value = 0;
    for (int k = p.degree; k >= 0; k--)
        value = value * x + p.coefficient[k];
    p.out[i] = p.scale * (float)value;
}
