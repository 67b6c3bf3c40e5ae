// Sums by shared memory, shuffles and atomics, of integers and of floats.
#include "tests/sim/kernels/reduction.cu"
#include "tests/sim/programs/program.h"

int main() {
    const unsigned n = REFERENCE_COUNT;
    unsigned *words = on_host<unsigned>(n), *device_words = on_device<unsigned>(n);
    float *floats = on_host<float>(n), *device_floats = on_device<float>(n);
    unsigned *device_sum = on_device<unsigned>(1), sum;
    float *device_sums = on_device<float>(2), sums[2];
    reference_words(words, n, 5);
    reference_floats(floats, n, 6);
    to_device(device_words, words, n);
    to_device(device_floats, floats, n);
    must(cudaMemset(device_sum, 0, sizeof(sum)), "cudaMemset");
    must(cudaMemsetAsync(device_sums, 0, sizeof(sums)), "cudaMemsetAsync");

    sum_unsigned<<<8, 256>>>(device_words, n, device_sum);
    sum_float<<<8, 256>>>(device_floats, n, device_sums);
    sum_float_shuffle<<<8, 256, 8 * sizeof(float)>>>(device_floats, n, device_sums + 1);
    must_launch("reduction");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    to_host(&sum, device_sum, 1);
    to_host(sums, device_sums, 2);
    float expected = reference_sum_float(floats, n);
    size_t wrong = (sum != reference_sum_unsigned(words, n)) + !reference_same(sums[0], expected) +
                   !reference_same(sums[1], expected);
    return verdict("reduction", 3, wrong);
}
