// The tiled matrix product, of a size that is no multiple of the tile.
#include "tests/sim/kernels/matrix_product.cu"
#include "tests/sim/programs/program.h"

int main() {
    const unsigned n = REFERENCE_SIZE;
    float *a = on_host<float>(n * n), *b = on_host<float>(n * n), *c = on_host<float>(n * n);
    float *device_a = on_device<float>(n * n), *device_b = on_device<float>(n * n);
    float *device_c = on_device<float>(n * n);
    reference_floats(a, n * n, 3);
    reference_floats(b, n * n, 4);
    to_device(device_a, a, n * n);
    to_device(device_b, b, n * n);
    dim3 tiles((n + TILE - 1) / TILE, (n + TILE - 1) / TILE), threads(TILE, TILE);
    matrix_product<<<tiles, threads>>>(device_a, device_b, device_c, n);
    must_launch("matrix_product");
    to_host(c, device_c, n * n);
    return verdict("matrix_product", n * n, wrong_matrix_product(a, b, c, n));
}
