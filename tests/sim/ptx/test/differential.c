// differential PTX…: runs the kernel of each file and compares with the same functions compiled for
// the host, on random words whose seed is printed. Both sides are compiled by clang.
#include "tests/sim/programs/reference.h"
#include "tests/sim/ptx/test/harness.h"

#include <time.h>

#define INPUTS 512

#define FUNCTION(name)                                                                             \
    static unsigned long long name(unsigned long long a, unsigned long long b, unsigned long long c)
#define HELPER static __attribute__((noinline))
#define FUNCTION_TABLE static
#pragma clang diagnostic ignored "-Wunused-parameter"
#include "tests/sim/ptx/test/differential.inc"

typedef unsigned long long function(unsigned long long, unsigned long long, unsigned long long);
#define ROW(name) {#name, name},
static const struct {
    const char *name;
    function *run;
} functions[] = {EACH_FUNCTION(ROW)};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static void compare_file(const char *path, const unsigned long long *in) {
    struct device dev;
    device_init(&dev);
    size_t bytes;
    char *text = read_file(path, &bytes);
    struct sim_ptx_module *m = load(&dev, text);
    unsigned long long *device_in = device_alloc(&dev, INPUTS * 24);
    unsigned long long *out = device_alloc(&dev, INPUTS * FUNCTIONS * 8);
    memcpy(device_in, in, INPUTS * 24);
    uint64_t params[] = {(uintptr_t)device_in, (uintptr_t)out};
    struct sim_ptx_outcome outcome;
    int code =
        launch(&dev, m, "differential", (struct dims){INPUTS / 64, 64, 0}, &outcome, 2, params);
    CHECK(code == 0, "%s: code %d at line %u", path, code, outcome.line);
    for (size_t k = 0; code == 0 && k < FUNCTIONS; k++) {
        for (size_t i = 0; i < INPUTS; i++) {
            const unsigned long long *x = &in[3 * i];
            unsigned long long got = out[i * FUNCTIONS + k];
            unsigned long long want = functions[k].run(x[0], x[1], x[2]);
            CHECK(got == want, "%s: %s(%#llx, %#llx, %#llx): %#llx, not %#llx", path,
                  functions[k].name, x[0], x[1], x[2], got, want);
            if (got != want)
                break;
        }
    }
    free(text);
    sim_ptx_unload(m);
    device_free(&dev);
}

int main(int argc, char **argv) {
    static unsigned long long in[INPUTS * 3];
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL), state = seed;
    printf("differential: SEED=%llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < INPUTS * 3; k++) {
        uint64_t x = reference_random(&state), kind = reference_random(&state) % 8;
        in[k] = kind == 0 ? x >> (x & 63) : kind == 1 ? 0 - (x & 255) : kind == 2 ? x & 255 : x;
    }
    for (int k = 1; k < argc; k++)
        compare_file(argv[k], in);
    return finish("ptx: clang's code at every level against the host's");
}
