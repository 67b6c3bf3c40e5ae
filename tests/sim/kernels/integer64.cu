// 64-bit integers: high products, shifts, divisions and remainders, signed and unsigned.
#include "tests/sim/cudart/weir_cuda.h"

#define INTEGER64_RESULTS 9

extern "C" __global__ void integer64(const unsigned long long *a, const unsigned long long *b,
                                     unsigned long long *out, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    unsigned long long x = a[i], y = b[i];
    unsigned shift = (unsigned)y & 63;
    out += (unsigned long long)i * INTEGER64_RESULTS;
    out[0] = __umul64hi(x, y);
    out[1] = (unsigned long long)__mul64hi((long long)x, (long long)y);
    out[2] = x * y;
    out[3] = x / (y | 1);
    out[4] = x % (y | 1);
    out[5] = (unsigned long long)((long long)x / ((long long)(y >> 1) | 1));
    out[6] = (unsigned long long)((long long)x % ((long long)(y >> 1) | 1));
    out[7] = x << shift | x >> (63 - shift);
    out[8] = (unsigned long long)((long long)x >> shift);
}
