// The functions of differential.inc as one kernel: out[i][k] = function k of a[i], b[i], c[i].
#include "tests/sim/cudart/weir_cuda.h"

#define FUNCTION(name)                                                                             \
    static __device__ unsigned long long name(unsigned long long a, unsigned long long b,          \
                                              unsigned long long c)
#define HELPER static __device__ __attribute__((noinline))
#define FUNCTION_TABLE static __constant__
#pragma clang diagnostic ignored "-Wunused-parameter"
#include "tests/sim/ptx/test/differential.inc"

extern "C" __global__ void differential(const unsigned long long *in, unsigned long long *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
#define COUNT(name) +1
    out += i * (0 EACH_FUNCTION(COUNT));
#define CALL(name) *out++ = name(a, b, c);
    EACH_FUNCTION(CALL)
}
