// compute KERNELS: runs every kernel of the committed PTX in the directory KERNELS through the CUDA
// driver API, with the libcuda.so.1 that the system finds, and compares with the CPU. Prints one
// line a kernel and exits with 0 if all results were right.
#include "tests/sim/programs/reference.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define PTX_BYTES_MAX (1u << 20)

typedef uint64_t address;  // of device memory

// X(member, exported name, arguments): the driver functions in use.
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(init, cuInit, (unsigned))                                                                    \
    X(device_get, cuDeviceGet, (int *, int))                                                       \
    X(context_create, cuCtxCreate_v2, (void **, unsigned, int))                                    \
    X(context_destroy, cuCtxDestroy_v2, (void *))                                                  \
    X(synchronize, cuCtxSynchronize, (void))                                                       \
    X(module_load, cuModuleLoadData, (void **, const void *))                                      \
    X(module_unload, cuModuleUnload, (void *))                                                     \
    X(get_function, cuModuleGetFunction, (void **, void *, const char *))                          \
    X(allocate, cuMemAlloc_v2, (address *, size_t))                                                \
    X(release, cuMemFree_v2, (address))                                                            \
    X(to_device, cuMemcpyHtoD_v2, (address, const void *, size_t))                                 \
    X(to_host, cuMemcpyDtoH_v2, (void *, address, size_t))                                         \
    X(set_bytes, cuMemsetD8_v2, (address, unsigned char, size_t))                                  \
    X(launch, cuLaunchKernel,                                                                      \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))

static struct {
#define MEMBER(member, name, arguments) int(*member) arguments;
    DRIVER_FUNCTIONS(MEMBER)
} driver;

static const char *kernels;
static void *module;
static int failures;

static void must(int code, const char *what) {
    if (code == 0)
        return;
    fprintf(stderr, "compute: %s: driver error %d\n", what, code);
    exit(1);
}

static void find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "compute: %s\n", dlerror());
        exit(1);
    }
#define FIND(member, name, arguments)                                                              \
    *(void **)&driver.member = dlsym(library, #name);                                              \
    must(driver.member ? 0 : 500, #name);
    DRIVER_FUNCTIONS(FIND)
}

static void use(const char *file) {
    static char text[PTX_BYTES_MAX];
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.ptx", kernels, file);
    FILE *f = fopen(path, "rb");
    size_t bytes = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (bytes == 0) {
        perror(path);
        exit(1);
    }
    fclose(f);
    text[bytes] = '\0';
    if (module)
        must(driver.module_unload(module), "cuModuleUnload");
    must(driver.module_load(&module, text), path);
}

// Launches in one dimension and waits, so that an error names its kernel.
static void run(const char *kernel, unsigned blocks, unsigned threads, unsigned shared_bytes,
                void **params) {
    void *function;
    must(driver.get_function(&function, module, kernel), kernel);
    must(driver.launch(function, blocks, 1, 1, threads, 1, 1, shared_bytes, NULL, params, NULL),
         kernel);
    must(driver.synchronize(), kernel);
}

static address allocate(size_t bytes) {
    address at;
    must(driver.allocate(&at, bytes), "cuMemAlloc");
    must(driver.set_bytes(at, 0, bytes), "cuMemsetD8");
    return at;
}

static address copied(const void *from, size_t bytes) {
    address at = allocate(bytes);
    must(driver.to_device(at, from, bytes), "cuMemcpyHtoD");
    return at;
}

// Copies back and frees.
static void fetch(void *to, address from, size_t bytes) {
    must(driver.to_host(to, from, bytes), "cuMemcpyDtoH");
    must(driver.release(from), "cuMemFree");
}

static void verdict(const char *what, size_t wrong) {
    printf("%s: %zu wrong\n", what, wrong);
    failures += wrong > 0;
}

enum { N = REFERENCE_COUNT, SIZE = REFERENCE_SIZE, BLOCKS = (N + 255) / 256 };
static unsigned count = N;
static uint64_t wide_count = N;

static void compute_vector_add(void) {
    static float a[N], b[N], c[N];
    reference_floats(a, N, 1);
    reference_floats(b, N, 2);
    address at_a = copied(a, sizeof(a)), at_b = copied(b, sizeof(b)), at_c = allocate(sizeof(c));
    use("vector_add");
    run("vector_add", BLOCKS, 256, 0, (void *[]){&at_a, &at_b, &at_c, &count});
    fetch(c, at_c, sizeof(c));
    verdict("vector_add", wrong_vector_add(a, b, c, N));
    must(driver.release(at_a), "cuMemFree");
    must(driver.release(at_b), "cuMemFree");
}

static void compute_matrix_product(void) {
    static float a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];
    unsigned size = SIZE, tiles = (SIZE + 15) / 16;
    reference_floats(a, SIZE * SIZE, 3);
    reference_floats(b, SIZE * SIZE, 4);
    address at_a = copied(a, sizeof(a)), at_b = copied(b, sizeof(b)), at_c = allocate(sizeof(c));
    void *function;
    use("matrix_product");
    must(driver.get_function(&function, module, "matrix_product"), "matrix_product");
    must(driver.launch(function, tiles, tiles, 1, 16, 16, 1, 0, NULL,
                       (void *[]){&at_a, &at_b, &at_c, &size}, NULL),
         "matrix_product");
    fetch(c, at_c, sizeof(c));
    verdict("matrix_product", wrong_matrix_product(a, b, c, SIZE));
    must(driver.release(at_a), "cuMemFree");
    must(driver.release(at_b), "cuMemFree");
}

static void compute_reductions(void) {
    static uint32_t words[N];
    static float floats[N];
    uint32_t sum;
    float float_sum;
    reference_words(words, N, 5);
    reference_floats(floats, N, 6);
    float expected = reference_sum_float(floats, N);
    address at_words = copied(words, sizeof(words)), at_floats = copied(floats, sizeof(floats));
    address at = allocate(4);
    use("reduction");
    run("sum_unsigned", 8, 256, 0, (void *[]){&at_words, &count, &at});
    fetch(&sum, at, 4);
    verdict("sum_unsigned", sum != reference_sum_unsigned(words, N));
    at = allocate(4);
    run("sum_float", 8, 256, 0, (void *[]){&at_floats, &count, &at});
    fetch(&float_sum, at, 4);
    verdict("sum_float", !reference_same(float_sum, expected));
    at = allocate(4);
    run("sum_float_shuffle", 8, 256, 32, (void *[]){&at_floats, &count, &at});
    fetch(&float_sum, at, 4);
    verdict("sum_float_shuffle", !reference_same(float_sum, expected));
    must(driver.release(at_words), "cuMemFree");
    must(driver.release(at_floats), "cuMemFree");
}

static void compute_struct_param(void) {
    static float in[N], out[N];
    reference_floats(in, N, 7);
    struct {
        uint8_t degree;
        double coefficient[5];
        float scale;
        address in, out;
        uint32_t count;
    } p = {4, {0.1, -2, 0.3, 4, -0.7}, 1.1f, copied(in, sizeof(in)), allocate(sizeof(out)), N};
    use("struct_param");
    run("evaluate", BLOCKS, 256, 0, (void *[]){&p});
    fetch(out, p.out, sizeof(out));
    verdict("evaluate", wrong_polynomial(p.coefficient, p.degree, p.scale, in, out, N));
    must(driver.release(p.in), "cuMemFree");
}

static void compute_integer64(void) {
    static uint64_t a[N], b[N], out[N * REFERENCE_INTEGER64_RESULTS];
    reference_wide(a, N, 8);
    reference_wide(b, N, 9);
    address at_a = copied(a, sizeof(a)), at_b = copied(b, sizeof(b)),
            at_out = allocate(sizeof(out));
    use("integer64");
    run("integer64", BLOCKS, 256, 0, (void *[]){&at_a, &at_b, &at_out, &count});
    fetch(out, at_out, sizeof(out));
    verdict("integer64", wrong_integer64(a, b, out, N));
    must(driver.release(at_a), "cuMemFree");
    must(driver.release(at_b), "cuMemFree");
}

static void compute_pattern(void) {
    static uint32_t words[N];
    uint32_t seed = 42;
    uint64_t sum = 0, wrong = 0, total;
    address at_words = allocate(sizeof(words)), at = allocate(8);
    use("pattern");
    run("fill_pattern", 8, 256, 0, (void *[]){&at_words, &wide_count, &seed});
    run("check_pattern", 8, 256, 0, (void *[]){&at_words, &wide_count, &seed, &at});
    fetch(&total, at, 8);
    must(driver.to_host(words, at_words, sizeof(words)), "cuMemcpyDtoH");
    for (unsigned k = 0; k < N; k++) {
        wrong += words[k] != reference_pattern(k, seed);
        sum += words[k];
    }
    verdict("fill_pattern, check_pattern", wrong + total);
    at = allocate(8);
    run("checksum", 8, 256, 0, (void *[]){&at_words, &wide_count, &at});
    fetch(&total, at, 8);
    verdict("checksum", total != sum);
    must(driver.release(at_words), "cuMemFree");
}

static void compute_saxpy(void) {
    static float x[N], y[N], result[N];
    float a = 0.3f;
    size_t wrong = 0;
    reference_floats(x, N, 10);
    reference_floats(y, N, 11);
    address at_x = copied(x, sizeof(x)), at_y = copied(y, sizeof(y));
    run("saxpy", 8, 256, 0, (void *[]){&wide_count, &a, &at_x, &at_y});
    fetch(result, at_y, sizeof(result));
    for (unsigned k = 0; k < N; k++)
        wrong += !reference_same(result[k], fmaf(a, x[k], y[k]));
    verdict("saxpy", wrong);
    must(driver.release(at_x), "cuMemFree");
}

static void compute_nothing(void) {
    uint64_t cost_ns = 1000;
    use("spin");
    run("null_kernel", 8, 256, 0, NULL);
    run("weir_spin_ns", 1, 1, 0, (void *[]){&cost_ns});
    verdict("null_kernel, weir_spin_ns", 0);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: compute DIRECTORY-OF-KERNELS\n");
        return 2;
    }
    kernels = argv[1];
    int device;
    void *context;
    find_driver();
    must(driver.init(0), "cuInit");
    must(driver.device_get(&device, 0), "cuDeviceGet");
    must(driver.context_create(&context, 0, device), "cuCtxCreate");
    compute_vector_add();
    compute_matrix_product();
    compute_reductions();
    compute_struct_param();
    compute_integer64();
    compute_pattern();
    compute_saxpy();
    compute_nothing();
    must(driver.context_destroy(context), "cuCtxDestroy");
    return failures > 0;
}
