// The committed PTX of tests/sim/kernels, interpreted on host memory, against the CPU's results.
#include "tests/sim/programs/reference.h"
#include "tests/sim/ptx/test/harness.h"

static struct device dev;
static struct sim_ptx_module *module;

static void use(const char *file) {
    char path[256];
    size_t bytes;
    snprintf(path, sizeof(path), "tests/sim/kernels/%s.ptx", file);
    char *text = read_file(path, &bytes);
    sim_ptx_unload(module);
    module = load(&dev, text);
    free(text);
}

// Launches with parameters laid out by hand: `params` is the kernel's whole parameter buffer.
static void run(const char *kernel, const uint32_t grid[3], const uint32_t block[3],
                uint32_t dynamic_shared_bytes, const void *params, size_t params_bytes) {
    struct sim_ptx_launch l = {
        .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]},
        .dynamic_shared_bytes = dynamic_shared_bytes,
        .params = params,
        .params_bytes = params_bytes,
        .memory = &dev.memory,
    };
    struct sim_ptx_outcome outcome;
    const struct sim_ptx_function *f = sim_ptx_function(module, kernel);
    int code = f ? sim_ptx_launch(f, &l, &outcome) : -1;
    CHECK(code == 0, "%s: code %d at line %u", kernel, code, f ? outcome.line : 0);
}

static const uint32_t blocks_79[3] = {79, 1, 1}, blocks_8[3] = {8, 1, 1};
static const uint32_t threads_256[3] = {256, 1, 1};

static void test_vector_add(void) {
    size_t n = REFERENCE_COUNT;
    float *a = device_alloc(&dev, n * 4), *b = device_alloc(&dev, n * 4);
    float *c = device_alloc(&dev, n * 4);
    reference_floats(a, n, 1);
    reference_floats(b, n, 2);
    struct {
        const float *a, *b;
        float *c;
        uint32_t count;
    } params = {a, b, c, REFERENCE_COUNT};
    use("vector_add");
    run("vector_add", blocks_79, threads_256, 0, &params, 28);
    CHECK(wrong_vector_add(a, b, c, n) == 0, "vector_add");
}

static void test_matrix_product(void) {
    size_t n = REFERENCE_SIZE;
    float *a = device_alloc(&dev, n * n * 4), *b = device_alloc(&dev, n * n * 4);
    float *c = device_alloc(&dev, n * n * 4);
    reference_floats(a, n * n, 3);
    reference_floats(b, n * n, 4);
    struct {
        const float *a, *b;
        float *c;
        uint32_t size;
    } params = {a, b, c, REFERENCE_SIZE};
    use("matrix_product");
    run("matrix_product", (uint32_t[]){4, 4, 1}, (uint32_t[]){16, 16, 1}, 0, &params, 28);
    CHECK(wrong_matrix_product(a, b, c, n) == 0, "matrix_product");
}

static void test_reductions(void) {
    size_t n = REFERENCE_COUNT;
    uint32_t *words = device_alloc(&dev, n * 4), *sum = device_alloc(&dev, 4);
    float *floats = device_alloc(&dev, n * 4), *float_sum = device_alloc(&dev, 4);
    reference_words(words, n, 5);
    reference_floats(floats, n, 6);
    struct {
        const void *values;
        uint32_t count;
        void *sum;
    } params = {words, REFERENCE_COUNT, sum};
    use("reduction");
    run("sum_unsigned", blocks_8, threads_256, 0, &params, sizeof(params));
    CHECK(*sum == reference_sum_unsigned(words, n), "sum_unsigned");
    params.values = floats;
    params.sum = float_sum;
    run("sum_float", blocks_8, threads_256, 0, &params, sizeof(params));
    CHECK(*float_sum == reference_sum_float(floats, n), "sum_float");
    *float_sum = 0;
    run("sum_float_shuffle", blocks_8, threads_256, 32, &params, sizeof(params));
    CHECK(*float_sum == reference_sum_float(floats, n), "sum_float_shuffle");
}

static void test_struct_param(void) {
    size_t n = REFERENCE_COUNT;
    float *in = device_alloc(&dev, n * 4), *out = device_alloc(&dev, n * 4);
    reference_floats(in, n, 7);
    struct {
        uint8_t degree;
        double coefficient[5];
        float scale;
        const float *in;
        float *out;
        uint32_t count;
    } params = {4, {0.1, -2, 0.3, 4, -0.7}, 1.1f, in, out, REFERENCE_COUNT};
    use("struct_param");
    run("evaluate", blocks_79, threads_256, 0, &params, sizeof(params));
    CHECK(wrong_polynomial(params.coefficient, 4, 1.1f, in, out, n) == 0, "struct_param");
}

static void test_integer64(void) {
    size_t n = REFERENCE_COUNT, results = n * REFERENCE_INTEGER64_RESULTS;
    uint64_t *a = device_alloc(&dev, n * 8), *b = device_alloc(&dev, n * 8);
    uint64_t *out = device_alloc(&dev, results * 8);
    reference_wide(a, n, 8);
    reference_wide(b, n, 9);
    struct {
        const uint64_t *a, *b;
        uint64_t *out;
        uint32_t count;
    } params = {a, b, out, REFERENCE_COUNT};
    use("integer64");
    run("integer64", blocks_79, threads_256, 0, &params, 28);
    CHECK(wrong_integer64(a, b, out, n) == 0, "integer64");
}

static void test_pattern(void) {
    size_t n = REFERENCE_COUNT;
    uint32_t *words = device_alloc(&dev, n * 4);
    uint64_t *result = device_alloc(&dev, 8), sum = 0;
    struct {
        uint32_t *words;
        uint64_t count;
        uint32_t seed;
    } fill = {words, n, 42};
    struct {
        const uint32_t *words;
        uint64_t count;
        uint32_t seed;
        uint64_t *wrong;
    } check = {words, n, 42, result};
    struct {
        const uint32_t *words;
        uint64_t count, *sum;
    } add = {words, n, result};
    use("pattern");
    run("fill_pattern", blocks_8, threads_256, 0, &fill, 20);
    for (size_t k = 0; k < n; k++) {
        CHECK(words[k] == reference_pattern(k, 42), "fill_pattern at %zu", k);
        sum += words[k];
    }
    run("checksum", blocks_8, threads_256, 0, &add, sizeof(add));
    CHECK(*result == sum, "checksum");
    *result = 0;
    words[3]++;
    words[n - 1]--;
    run("check_pattern", blocks_8, threads_256, 0, &check, sizeof(check));
    CHECK(*result == 2, "check_pattern: %llu", (unsigned long long)*result);

    float *x = device_alloc(&dev, n * 4), *y = device_alloc(&dev, n * 4), before[8];
    reference_floats(x, n, 10);
    reference_floats(y, n, 11);
    memcpy(before, y, sizeof(before));
    struct {
        uint64_t count;
        float a;
        const float *x;
        float *y;
    } saxpy = {n, 0.3f, x, y};
    run("saxpy", blocks_8, threads_256, 0, &saxpy, sizeof(saxpy));
    for (int k = 0; k < 8; k++)
        CHECK(y[k] == fmaf(0.3f, x[k], before[k]), "saxpy at %d", k);
}

static void test_spin(void) {
    uint64_t cost_ns = 1000;
    use("spin");
    run("null_kernel", blocks_8, threads_256, 0, NULL, 0);
    run("weir_spin_ns", (uint32_t[]){1, 1, 1}, (uint32_t[]){1, 1, 1}, 0, &cost_ns, 8);
}

int main(void) {
    device_init(&dev);
    test_vector_add();
    test_matrix_product();
    test_reductions();
    test_struct_param();
    test_integer64();
    test_pattern();
    test_spin();
    sim_ptx_unload(module);
    device_free(&dev);
    return finish("ptx: the committed kernels");
}
