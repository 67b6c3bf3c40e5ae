// A structure passed to a kernel by value.
#include "tests/sim/kernels/struct_param.cu"
#include "tests/sim/programs/program.h"

int main() {
    const unsigned n = REFERENCE_COUNT;
    float *in = on_host<float>(n), *out = on_host<float>(n);
    polynomial p = {4, {0.1, -2, 0.3, 4, -0.7}, 1.1f, on_device<float>(n), on_device<float>(n), n};
    reference_floats(in, n, 7);
    to_device((float *)p.in, in, n);
    evaluate<<<(n + 127) / 128, 128>>>(p);
    must_launch("evaluate");
    to_host(out, p.out, n);
    return verdict("struct_param", n,
                   wrong_polynomial(p.coefficient, p.degree, p.scale, in, out, n));
}
