// 64-bit integer arithmetic.
#include "tests/sim/kernels/integer64.cu"
#include "tests/sim/programs/program.h"

typedef unsigned long long word;

int main() {
    const unsigned n = REFERENCE_COUNT;
    word *a = on_host<word>(n), *b = on_host<word>(n), *device_a = on_device<word>(n);
    word *device_b = on_device<word>(n), *out = on_host<word>(n * INTEGER64_RESULTS);
    word *device_out = on_device<word>(n * INTEGER64_RESULTS);
    reference_wide((uint64_t *)a, n, 8);
    reference_wide((uint64_t *)b, n, 9);
    to_device(device_a, a, n);
    to_device(device_b, b, n);
    integer64<<<(n + 255) / 256, 256>>>(device_a, device_b, device_out, n);
    must_launch("integer64");
    to_host(out, device_out, n * INTEGER64_RESULTS);
    return verdict("integer64", n * INTEGER64_RESULTS,
                   wrong_integer64((uint64_t *)a, (uint64_t *)b, (uint64_t *)out, n));
}
