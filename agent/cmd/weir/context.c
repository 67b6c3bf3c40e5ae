// context.c: see context.h. It runs in a process of its own, which does nothing else.
#include "context.h"

#include <dlfcn.h>
#include <stdio.h>

typedef int init_fn(unsigned flags);
typedef int device_fn(int *device, int ordinal);
typedef int retain_fn(void **context, int device);
typedef int attribute_fn(int *value, int attribute, int device);

// CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS of the driver's interface.
enum { CONCURRENT_MANAGED_ACCESS = 89 };

static int failed(char *text, size_t bytes, const char *call, int code) {
    snprintf(text, bytes, "%s failed with CUDA error %d", call, code);
    return -1;
}

// Loads and initialises the driver, and names the first GPU: the driver, or 0 and what failed.
static void *begin(int *device, char *text, size_t bytes) {
    int code;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        snprintf(text, bytes, "loading the driver: %s", dlerror());
        return 0;
    }
    init_fn *init = (init_fn *)dlsym(driver, "cuInit");
    device_fn *get = (device_fn *)dlsym(driver, "cuDeviceGet");
    if (!init || !get || !dlsym(driver, "cuDevicePrimaryCtxRetain") ||
        !dlsym(driver, "cuDeviceGetAttribute")) {
        snprintf(text, bytes, "libcuda.so.1 is no CUDA driver");
        return 0;
    }
    if ((code = init(0)) != 0) {
        failed(text, bytes, "cuInit", code);
        return 0;
    }
    if ((code = get(device, 0)) != 0) {
        failed(text, bytes, "cuDeviceGet", code);
        return 0;
    }
    return driver;
}

int weir_context_make(char *text, size_t bytes) {
    int device, code;
    void *context, *driver = begin(&device, text, bytes);
    if (!driver)
        return -1;
    retain_fn *retain = (retain_fn *)dlsym(driver, "cuDevicePrimaryCtxRetain");
    if ((code = retain(&context, device)) != 0)
        return failed(text, bytes, "cuDevicePrimaryCtxRetain", code);
    return 0;
}

int weir_context_concurrent_managed(char *text, size_t bytes) {
    int device, code, value = 0;
    void *driver = begin(&device, text, bytes);
    if (!driver)
        return -1;
    attribute_fn *attribute = (attribute_fn *)dlsym(driver, "cuDeviceGetAttribute");
    if ((code = attribute(&value, CONCURRENT_MANAGED_ACCESS, device)) != 0)
        return failed(text, bytes, "cuDeviceGetAttribute", code);
    return value != 0;
}
