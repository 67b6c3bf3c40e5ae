// unsupported_test.c: what is refused by decision says so, with the promised code; before
// initialisation it says that first.
#define _GNU_SOURCE
#include "test_driver.h"

#include <dlfcn.h>

static void refused(void) {
    static const struct {
        const char *name;
        CUresult result;
    } rows[] = {
#define R(name, result) {#name, result},
#include "../unsupported.inc"
#undef R
    };
    int status;
    OK(cuDeviceGetCount(&status));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUresult (*call)(void *, void *, void *) =
            (CUresult(*)(void *, void *, void *))(uintptr_t)dlsym(RTLD_DEFAULT, rows[i].name);
        CHECK(call);
        CHECK_EQ(call(NULL, NULL, NULL), rows[i].result);
    }
}

// The devices do not say that they have what is refused.
static void devices_agree(void) {
    static const int attributes[] = {112, 117, 127};  // sparse arrays, flushes, tensor maps
    int value;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        OK(cuDeviceGetAttribute(&value, attributes[i], 0));
        CHECK_EQ(value, 0);
    }
}

static void before_init(void) {
    CUresult (*call)(void *) =
        (CUresult(*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, "cuFlushGPUDirectRDMAWrites");
    CHECK(call);
    CHECK_EQ(call(NULL), CUDA_ERROR_NOT_INITIALIZED);
}

int main(int argc, char **argv) {
    before_init();
    start_driver();
    static const struct test tests[] = {
        TEST(refused),
        TEST(devices_agree),
    };
    int rc = RUN(tests);
    stop_driver();
    return rc;
}
