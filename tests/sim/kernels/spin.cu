// Kernels for timing: one that does nothing, and one that takes as long as its parameter says. The
// simulated driver takes that cost from the parameter of any kernel whose name begins with
// weir_spin_ns and does not interpret it; on hardware the body takes the time.
#include "tests/sim/cudart/weir_cuda.h"

extern "C" __global__ void null_kernel() {}

extern "C" __global__ void weir_spin_ns(unsigned long long cost_ns) {
    unsigned long long start = weir_globaltimer();
    while (weir_globaltimer() - start < cost_ns)
        ;
}
